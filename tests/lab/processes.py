# SPDX-License-Identifier: GPL-2.0-only
"""Child processes that never outlive the lab, and what they use of CPU time and memory."""

import atexit
import ctypes
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from lab import background

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_children = set()


def start(arguments, cgroups=(), **options):
    """Starts a child in these control groups; it is killed when its thread here ends."""

    def prepare():
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for cgroup in cgroups:
            (cgroup / "cgroup.procs").write_text("0", encoding="ascii")

    child = subprocess.Popen(
        [str(argument) for argument in arguments],
        stdin=subprocess.DEVNULL,
        preexec_fn=prepare,
        **options,
    )
    _children.add(child)
    return child


def stop(child, polite_signal=signal.SIGTERM, wait_s=5):
    """Ends this child and reaps it. Returns its exit code."""
    if child.poll() is None:
        child.send_signal(polite_signal)
        try:
            child.wait(wait_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    _children.discard(child)
    return child.returncode


@atexit.register
def stop_all():
    """Ends every child; who waits for one finds it gone."""
    for child in list(_children):
        stop(child, signal.SIGKILL)


def thread_cpu_ns(pid, tid):
    """CPU time of one thread, from the scheduler."""
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{tid}/schedstat").read_text(encoding="ascii")
        return int(text.split()[0])
    except OSError:
        pass
    try:  # A kernel without CONFIG_SCHED_INFO: ticks.
        text = pathlib.Path(f"/proc/{pid}/task/{tid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def process_cpu_ns(pid):
    """CPU time of all threads that live now; our daemons keep theirs."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0
    return sum(thread_cpu_ns(pid, tid) for tid in threads)


def _status_kib(pid):
    values = {}
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            values[name] = int(rest.split()[0])
    return values


def anonymous_bytes(pid):
    """A process's private memory, in swap too, and its page tables."""
    status = _status_kib(pid)
    return 1024 * (status["RssAnon"] + status["VmSwap"] + status["VmPTE"])


def memory_bytes(pid):
    """What a process holds: private and file pages, page tables, and every memfd it has open."""
    status = _status_kib(pid)
    return 1024 * (status["RssAnon"] + status["RssFile"] + status["VmPTE"]) + memfd_bytes(pid)


def memfd_bytes(pid):
    """Of every memfd that a process has open: once, mapped or not, by the kernel's blocks."""
    total = 0
    seen = set()
    for link in os.scandir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(link.path).startswith("/memfd:"):
                continue
            info = os.stat(link.path)
        except OSError:
            continue
        if info.st_ino not in seen:
            seen.add(info.st_ino)
            total += info.st_blocks * 512
    return total


class Supervised:
    """A context manager around one child process and a directory for it, gone after `with`."""

    def __init__(self, directory):
        self._own_directory = None
        self._directory = directory
        self._process = None

    def __enter__(self):
        if self._directory is None:
            self._own_directory = tempfile.TemporaryDirectory(prefix="tmem-lab-")
            self._directory = pathlib.Path(self._own_directory.name)
        try:
            self._start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_):
        self._close()

    def _start(self):
        """Sets `_process` and returns when it is ready."""
        raise NotImplementedError

    def _close(self):
        if self._process is not None:
            stop(self._process)
        if self._own_directory is not None:
            self._own_directory.cleanup()

    @property
    def pid(self):
        return self._process.pid

    def alive(self):
        return self._process.poll() is None

    def stop_for(self, seconds):
        """Lets the process stand still, as on a machine that has no time for it."""
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)

    def kill(self):
        """Ends the process at once, as a crash or a loss of power would."""
        stop(self._process, signal.SIGKILL)


class MemorySampler(background.Background):
    """Samples `memory_bytes` of a process every 10 ms; `peak_bytes` is the greatest."""

    def __init__(self, pid, period_s=0.01):
        super().__init__()
        self.peak_bytes = 0
        self.samples = 0
        self._pid = pid
        self._period_s = period_s

    def _run(self):
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                self.peak_bytes = max(self.peak_bytes, memory_bytes(self._pid))
            except (OSError, KeyError):
                return
            self.samples += 1
            self._stop.wait(max(0.0, self._period_s - (time.monotonic() - begin)))
