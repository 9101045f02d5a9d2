# SPDX-License-Identifier: GPL-2.0-only
"""What a guest that stands still, its QEMU, its daemon and the host module are doing."""

import json
import pathlib
import subprocess
import time

from lab import background
from lab import guest as lab_guest
from lab import host as lab_host
from lab import kvm_stats

_OF_A_THREAD = ("comm", "wchan", "syscall", "schedstat", "stack")  # the last one for root only


def _threads(pid):
    """A line a thread: where it waits, and whether it has run since."""
    lines = []
    for thread in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
        texts = []
        for name in _OF_A_THREAD:
            try:
                texts.append(" < ".join((thread / name).read_text("utf-8").split("\n")).strip(" <"))
            except OSError as error:
                texts.append(error.strerror)
        lines.append(f"thread {thread.name}: " + "; ".join(texts))
    return lines or [f"process {pid} is gone"]


def _moment(guest, host):
    lines = ["module: " + json.dumps(kvm_stats.of_module()),
             "kvm: " + json.dumps(kvm_stats.of_process(guest.pid)), *_threads(guest.pid)]
    if host is None:
        return lines
    lines += _threads(host.pid)
    try:
        lines.append("tmemd: " + json.dumps(host.status()))
    except (lab_host.HostError, OSError, subprocess.SubprocessError) as error:
        lines.append(f"tmemd: {error}")
    return lines


def report(guest, host, apart_s=1):
    """Two moments, so that what moves and what does not can be told; then the guest's own side."""
    lines = []
    for moment in ("first", "then"):
        lines += [f"-- {moment}", *_moment(guest, host)]
        time.sleep(apart_s if moment == "first" else 0)
    lines += [f"-- {guest.name}: {guest.where()}; its console ends:", guest.console()[-1500:]]
    return "\n".join(lines)


class Watch(background.Background):
    """A context manager: says so, with a report, each time nothing has moved for a while.

    It ends nothing: what it says is what a time-out later on does not know any more.
    """

    def __init__(self, guest, host, say, after_s=30.0, look_s=1.0):
        super().__init__()
        self._guest = guest
        self._host = host
        self._say = say
        self._after_s = after_s
        self._look_s = look_s
        self._events = 0

    def moved(self):
        """Something has, that the module does not count."""
        self._events += 1

    def _signature(self):
        counters = kvm_stats.of_module()
        return self._events, counters.get("descs_in"), counters.get("descs_out")

    def _run(self):
        last, since = self._signature(), time.monotonic()
        while not self._stop.wait(self._look_s):
            now = self._signature()
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since >= self._after_s:
                since = time.monotonic() + 9 * self._after_s  # seldom again
                self._report()

    def _report(self):
        try:
            text = report(self._guest, self._host)
        except (lab_guest.GuestError, OSError) as error:
            text = str(error)
        self._say(f"{self._guest.name}: nothing has moved for {self._after_s:g} s\n{text}")
