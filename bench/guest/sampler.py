# SPDX-License-Identifier: GPL-2.0-only
"""Host memory over time: named figures sampled in a thread, and where such figures come from."""

import os
import pathlib
import threading
import time


class MemorySampler:
    """Samples named figures every `interval_s`; may be used as a context manager.

    `sources` is {name: function of no argument that gives bytes}; one that raises OSError or
    KeyError (a process or file that has gone) has no sample at that time. `series` may be read
    at any time. `on_sample(t_s, {name: bytes})`, if given, is called in the thread.
    """

    def __init__(self, interval_s, sources, on_sample=None):
        self.series = []  # of {"t_s", "name", "bytes"}; t_s from start()
        self._interval_s = interval_s
        self._sources = dict(sources)
        self._on_sample = on_sample
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._begin = 0.0

    def start(self):
        self._begin = time.monotonic()
        self._thread.start()

    def stop(self):
        """Returns when the last sample is taken; stopped again, nothing happens."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def now(self):
        """Seconds since start(), the time of the series."""
        return time.monotonic() - self._begin

    def _run(self):
        due = self._begin
        while not self._stop.is_set():
            self._sample()
            # A late sample moves the later ones: no burst to catch up.
            due = max(due + self._interval_s, time.monotonic())
            self._stop.wait(due - time.monotonic())
        self._sample()

    def _sample(self):
        taken = {}
        t_s = round(self.now(), 3)
        for name, source in self._sources.items():
            try:
                taken[name] = source()
            except (OSError, KeyError):
                continue
        # One step for whoever reads meanwhile.
        self.series += [{"t_s": t_s, "name": name, "bytes": count}
                        for name, count in taken.items()]
        if self._on_sample:
            self._on_sample(t_s, taken)


def file_bytes(path):
    """A source: what a file holds, such as a guest's RAM in tmpfs, swapped-out pages too."""
    return lambda: os.stat(path).st_blocks * 512


def files_bytes(paths):
    """A source: the sum over files; those that are not there hold nothing."""

    def read():
        total = 0
        for path in paths:
            try:
                total += os.stat(path).st_blocks * 512
            except FileNotFoundError:
                pass
        return total

    return read


def number_in(path):
    """A source: a file that holds one number of bytes, such as a control group's usage."""
    return lambda: int(pathlib.Path(path).read_text(encoding="ascii"))
