# SPDX-License-Identifier: GPL-2.0-only
"""A memory control group of our own (version 1 or 2), and a swap file, both gone at the end."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

from lab import paths

_ROOT = pathlib.Path("/sys/fs/cgroup")
PREFIX = "tmem-bench-"
RAM_DIRECTORY = pathlib.Path("/dev/shm")


class MemoryGroup:
    """Below the group that this process is in; raises Missing, with what to do, if it cannot be.

    Processes join it as they start (`cgroup` of lab.processes). `limit()` bounds what they hold in
    memory; with `swap` off, in memory and swap together. Removed by `close()`, once it is empty.
    """

    def __init__(self, root=_ROOT):
        self.path = None
        self.version = 0
        for parent, self.version in _parents(root):
            with contextlib.suppress(OSError):
                self._make(parent / f"{PREFIX}{os.getpid()}")
                return
        raise paths.Missing(
            "no memory control group can be made here: as root, or in a group of one's own"
            " (systemd-run --scope -p Delegate=yes), with the memory controller enabled in it")

    def _make(self, path):
        for stale in forgotten(path.parent, f"{PREFIX}*"):
            for old in [stale / "own", stale]:
                with contextlib.suppress(OSError):
                    old.rmdir()
        path.mkdir()
        self.path = path
        if not self._file("usage").exists():
            path.rmdir()
            raise FileNotFoundError(path)

    def _file(self, what):
        names = {"usage": ("memory.usage_in_bytes", "memory.current"),
                 "limit": ("memory.limit_in_bytes", "memory.max"),
                 "oom": ("memory.oom_control", "memory.events")}
        return self.path / names[what][self.version - 1]

    def limit(self, count, swap=True):
        """Bytes; needs root or a delegated group."""
        try:
            self._file("limit").write_text(str(count), encoding="ascii")
            if not swap:
                self._no_swap(count)
        except OSError as error:
            raise paths.Missing(f"the control group takes no limit: {error}") from None

    def _no_swap(self, count):
        if self.version == 2:
            (self.path / "memory.swap.max").write_text("0", encoding="ascii")
            return
        both = self.path / "memory.memsw.limit_in_bytes"
        if both.exists():
            both.write_text(str(count), encoding="ascii")
        else:  # A kernel that does not count swap: at least this group is not swapped.
            (self.path / "memory.swappiness").write_text("0", encoding="ascii")

    def usage_bytes(self):
        """What its processes have charged to it and in memory, page cache of files included."""
        return int(self._file("usage").read_text(encoding="ascii"))

    def is_full(self):
        """Whether the limit has been met, so that it is the likely cause of what fails."""
        if self.version == 2:
            return _keys(self.path / "memory.events").get("max", 0) > 0
        return int((self.path / "memory.failcnt").read_text(encoding="ascii")) > 0

    def swapped_bytes(self):
        """What of it is in swap: of processes and of files in tmpfs alike."""
        if self.version == 2:
            return int((self.path / "memory.swap.current").read_text(encoding="ascii"))
        return _keys(self.path / "memory.stat").get("total_swap", 0)

    def oom_kills(self):
        return _keys(self._file("oom")).get("oom_kill", 0)

    def own(self):
        """Where processes go. Of version 2 a group below: one that has groups takes none itself."""
        if self.version == 1:
            return self.path
        below = self.path / "own"
        below.mkdir(exist_ok=True)
        return below

    def close(self):
        """What is left in it is charged to the group above from then on."""
        if self.path is not None:
            for path in [self.path / "own", self.path]:
                with contextlib.suppress(OSError):  # None, or a process is still in it.
                    path.rmdir()


def why_not(directory):
    """Why a group with a limit and swap behind it cannot be had here; empty if it can."""
    try:
        group = MemoryGroup()
        with contextlib.closing(group), SwapFile(directory, 1 << 20):
            group.limit(1 << 30)
    except paths.Missing as error:
        return str(error)
    return ""


def _keys(path):
    pairs = (line.split() for line in path.read_text(encoding="ascii").splitlines())
    return {name: int(value) for name, value in pairs}


def _parents(root):
    """(directory, version of the hierarchy) in which a group may be made: our own, then the top."""
    for line in pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        number, controllers, own = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield root / "memory" / own[1:], 1
            yield root / "memory", 1
        elif number == "0":
            for top in (root, root / "unified"):
                if (top / "cgroup.controllers").exists():
                    yield top / own[1:], 2
                    yield top, 2


class SwapFile:
    """A context manager: a file of its own in use for swap, off and deleted at the end; or the
    device that TMEM_BENCH_SWAP names, whatever is on it.

    Raises Missing, with the reason, where there can be none. Swap that is there already stays, and
    is used first.
    """

    def __init__(self, directory, size_bytes):
        self._path = pathlib.Path(directory) / f"{PREFIX}{os.getpid()}.swap"
        self._size_bytes = size_bytes
        self._device = os.environ.get("TMEM_BENCH_SWAP")
        if self._device:
            self._path = pathlib.Path(self._device)
        self._on = False

    def __enter__(self):
        forget_ram()  # Or their limit would not let them come back from swap.
        for stale in forgotten(self._path.parent, f"{PREFIX}*.swap"):
            _swap_off(stale)
            if not _in_use(stale):
                stale.unlink(missing_ok=True)
        try:
            if not self._device:
                with open(self._path, "wb", opener=_private) as file:
                    os.posix_fallocate(file.fileno(), 0, self._size_bytes)
            _run("mkswap", self._path)
            # Before it is on: an interrupt between the two must not leave it behind.
            self._on = True
            _run("swapon", self._path)
        except BaseException as error:
            self._close()
            if isinstance(error, OSError):
                raise paths.Missing(f"no swap file: {error}") from None
            raise
        return self

    def __exit__(self, *_):
        self._close()

    def _close(self):
        with _undisturbed():
            if self._on:
                _swap_off(self._path)
                self._on = False
            if not self._device and not _in_use(self._path):
                self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def _undisturbed():
    """A second Ctrl-C waits: an interrupted swapoff would leave the file in use."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _private(path, flags):
    return os.open(path, flags, 0o600)


def _run(program, path):
    done = subprocess.run([program, path], capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": f"{os.environ.get('PATH')}:/usr/sbin:/sbin"},
                          start_new_session=True)  # Ctrl-C is ours to answer.
    if done.returncode != 0:
        raise OSError(done.stderr.strip() or f"{program} failed")


def _swap_off(path):
    try:
        _run("swapoff", path)
    except OSError as error:
        if _in_use(path):
            print(f"{path} is still in use for swap: {error}", file=sys.stderr)


def _in_use(path):
    return str(path) in pathlib.Path("/proc/swaps").read_text(encoding="ascii")


def forget_ram():
    """RAM files of runs that were killed."""
    for stale in forgotten(RAM_DIRECTORY, f"{PREFIX}*"):
        stale.unlink(missing_ok=True)


def forgotten(directory, pattern):
    """What earlier runs have left here, because they were killed: named PREFIX, pid, anything."""
    for path in directory.glob(pattern):
        pid = re.match(r"\d+", path.name.removeprefix(PREFIX))
        if pid and not pathlib.Path("/proc", pid.group()).exists():
            yield path
