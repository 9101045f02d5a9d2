# SPDX-License-Identifier: GPL-2.0-only
"""`report-cost`: the host's CPU for reports of free memory, against inflating QEMU's balloon."""

import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import time

from guest import single
from lab import guest as lab_guest
from lab import paths

MIB = single.MIB
_FULL_MIB, _QUICK_MIB = 4096, 512
# More than is reported: kernel, page tables, what is free in small pieces.
_MORE_MIB = 1024
_QUICK_MORE_MIB = 256
_PATIENCE_S = 240
_IDLE_S = 5


def plan(options, _, progress):
    """Yields (setup, a function that runs it). Reports and balloon take turns in one guest."""
    given_mib = _QUICK_MIB if options.quick else options.mib or _FULL_MIB
    guest_mib = given_mib + (_QUICK_MORE_MIB if options.quick else _MORE_MIB)
    for task in ["small"] if options.quick and not options.only else ["small", "huge"]:
        setup = single.Setup("report-cost", "tmem", guest_mib, given_mib * MIB, task,
                             seed=options.seed)
        if not options.only or options.only in setup.title():
            yield setup, lambda setup=setup: _run(setup, progress)


@contextlib.contextmanager
def _huge_tmpfs():
    """A tmpfs of huge pages. Raises Missing where it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="tmem-huge-") as name:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "huge=always,mode=700", "tmem", name],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise paths.Missing(f"no tmpfs with huge pages: {done.stderr.strip()}")
        try:
            yield pathlib.Path(name)
        finally:
            subprocess.run(["umount", name], check=True)


@contextlib.contextmanager
def _ram_directory(setup):
    if setup.task == "huge":
        with _huge_tmpfs() as directory:
            yield directory
    else:
        yield pathlib.Path("/dev/shm")


def pmd_mapped_bytes(pid):
    """What a process has mapped of tmpfs by huge pages: its part of ShmemPmdMapped."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return 1024 * int(re.search(r"^ShmemPmdMapped: +(\d+)", text, re.MULTILINE).group(1))


def _run(setup, progress):
    try:
        with _ram_directory(setup) as directory:
            return _measured(setup, directory, progress)
    except paths.Missing as error:
        if setup.task != "huge" or "tmpfs" not in str(error):
            raise
        return single.skipped(setup, str(error))


def _measured(setup, directory, progress):
    # QEMU places files where pages of 4 KiB are enough, if it is not told.
    with single.Single(setup, progress, reporting=False, ram_directory=directory, ram_align="2M",
                       extra=("-device", "virtio-balloon-pci,id=balloon")) as bench:
        turns = ["report", "balloon"]
        if setup.repetition % 2:
            turns.reverse()
        costs = {}
        for turn in turns:
            _use_all(bench, f"before {turn}")
            costs[turn] = {"report": _report, "balloon": _inflate}[turn](bench)
        _use_all(bench, "at the end")
        return bench.result(costs=costs)


def _step(bench, name):
    bench.step(name, pmd_mapped_bytes=pmd_mapped_bytes(bench.guest.pid))


def _use_all(bench, name):
    """Memory that was never touched, or was given back, would cost the host nothing to take."""
    bench.phase("its memory is used")
    # As huge pages where the guest can: this is not what is measured.
    bench.faults(bench.setup.workload_bytes // MIB + _spare_mib(bench.setup) // 4, thp=1)
    _step(bench, name)


def _spare_mib(setup):
    return setup.guest_mib - setup.workload_bytes // MIB


def _measure(bench, begin, is_done, name):
    """Host CPU from `begin()` until `is_done()`, what an idle guest takes in as long left out."""
    before_ns, before_s = bench.cpu_ns(), time.monotonic()
    time.sleep(_IDLE_S)
    idle = (bench.cpu_ns() - before_ns) / (time.monotonic() - before_s)
    resident = bench.resident_bytes()
    before_ns, before_s = bench.cpu_ns(), time.monotonic()
    begin()
    while not is_done():
        if time.monotonic() > before_s + _PATIENCE_S:
            raise lab_guest.GuestError(f"{bench.setup.title()}: {name} does not come to an end")
        time.sleep(0.1)
    seconds = time.monotonic() - before_s
    cpu_ns = bench.cpu_ns() - before_ns
    dropped = resident - bench.resident_bytes()
    _step(bench, name)
    return {"seconds": round(seconds, 2), "host_cpu_s": round(cpu_ns / 1e9, 4),
            "idle_cpu_s": round(idle * seconds / 1e9, 4), "dropped_bytes": dropped}


def _report(bench):
    bench.phase("reports")
    resident = bench.resident_bytes()
    cost = _measure(bench, lambda: bench.switch(True),
                    lambda: resident - bench.resident_bytes() >= bench.setup.workload_bytes,
                    "reported")
    bench.switch(False)
    return cost


def _inflate(bench):
    bench.phase("the balloon")
    whole = bench.setup.guest_mib * MIB
    wanted = whole - bench.setup.workload_bytes
    cost = _measure(bench, lambda: bench.guest.balloon(wanted),
                    lambda: bench.guest.balloon_bytes() <= wanted, "inflated")
    bench.guest.balloon(whole)
    deadline = time.monotonic() + _PATIENCE_S
    while bench.guest.balloon_bytes() < whole and time.monotonic() < deadline:
        time.sleep(0.2)
    return cost
