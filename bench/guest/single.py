# SPDX-License-Identifier: GPL-2.0-only
"""One guest whose memory the host can look at: what reports of free memory cost and gain."""

import contextlib
import dataclasses
import os
import pathlib
import tempfile
import time

from guest import measure, sampler
from lab import doorbells, processes
from lab import guest as lab_guest
from lab import host as lab_host

MIB = 1 << 20
VARIANTS = ("off", "virtio-balloon", "tmem")
# Nothing is put into the pool in these workloads.
_POOL_MIB = 32
_SHIMS = "tmem.cleancache=1 tmem.frontswap=1"
_BALLOON = ("-device", "virtio-balloon-pci,free-page-reporting=on")
_SWITCH = "/sys/module/tmem/parameters/reporting"
_GUEST = "bench"
_SAMPLE_S = 0.5
# A report comes 2 s after memory was freed; what CPUs keep in lists follows 7 s after the last one.
_QUIET_S = 9
_PATIENCE_S = 90


@dataclasses.dataclass
class Setup:
    """What one run is about; its fields come first in the run's JSON object."""

    workload: str
    variant: str
    guest_mib: int
    workload_bytes: int
    task: str = ""
    cpus: int = 1
    seed: int = 1
    repetition: int = 0

    def key(self):
        return "-".join(str(part) for part in dataclasses.astuple(self))

    def title(self):
        task = f" {self.task}" if self.task else ""
        return f"{self.workload}{task}, {self.cpus} vCPU, {self.variant}"


class Single:
    """A context manager: a guest, its RAM a file in tmpfs, and a daemon if the variant wants one.

    With `tmem` reports of free memory are as `reporting` says, with `shims` the rest of tmem is on
    too, and `append` is more of the command line. `ram_directory` is another tmpfs than /dev/shm;
    `extra` is more of QEMU's arguments, `options` are more of the guest's, `pool_mib` and
    `guest_options` of the daemon's.
    """

    def __init__(self, setup, progress, reporting=True, shims=False, append="",
                 ram_directory="/dev/shm", extra=(), pool_mib=_POOL_MIB, guest_options="",
                 **options):
        self.setup = setup
        self.guest = None
        self.host = None
        self.steps = []
        self.ram = pathlib.Path(ram_directory) / f"tmem-bench-{os.getpid()}"
        self.doorbell = doorbells.kind() if setup.variant == "tmem" else "none"
        self._progress = progress
        self._append = ""
        if setup.variant == "tmem":
            self._append = f"tmem.reporting={int(reporting)} {_SHIMS if shims else ''} {append}"
        self._extra = extra + (_BALLOON if setup.variant == "virtio-balloon" else ())
        self._options = options
        self._pool_mib = pool_mib
        self._guest_options = guest_options
        self._stack = contextlib.ExitStack()
        self._sampler = sampler.MemorySampler(_SAMPLE_S, {"ram": self.resident_bytes})

    def __enter__(self):
        with self._stack:
            self.phase("boot")
            directory = pathlib.Path(self._stack.enter_context(
                tempfile.TemporaryDirectory(prefix="tmem-bench-")))
            self._stack.callback(lambda: self.ram.unlink(missing_ok=True))
            if self.setup.variant == "tmem":
                self.host = self._stack.enter_context(self._new_host(directory))
            options = lab_guest.Options(
                memory_mib=self.setup.guest_mib, cpus=self.setup.cpus, append=self._append,
                doorbell=self.host.doorbell(_GUEST) if self.host else None, ram_file=self.ram,
                extra=self._extra, **self._options)
            self.guest = self._stack.enter_context(lab_guest.Guest(_GUEST, options, directory))
            measure.demand_registered(self.setup.title(), self.host)
            self._stack.enter_context(self._sampler)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error):
        self._stack.__exit__(*error)

    def _new_host(self, directory):
        ram = f",ram={self.ram}" if self.doorbell == "ivshmem" else ""
        return lab_host.Host([_GUEST + ram + self._guest_options], _POOL_MIB + self._pool_mib + 32,
                             _POOL_MIB, directory, self.doorbell)

    # ---- what is done ----

    def phase(self, text):
        self._progress.phase(f"{self.setup.title()}: {text}")

    def switch(self, on):
        """Reports at run time. A guest that just turned them off waits for its last one."""
        self.guest.run(f"until echo {int(on)} > {_SWITCH}; do sleep 0.05; done 2>/dev/null")

    def faults(self, mebibytes, rounds=1, procs=1, thp=0, timeout_s=300):
        """Takes, touches and frees memory; returns the guest's seconds."""
        event, = self.guest.workload(f"faults bytes={mebibytes * MIB} rounds={rounds}"
                                     f" procs={procs} thp={thp}", timeout_s)
        if event["failed"]:
            raise lab_guest.GuestError(f"{self.setup.title()}: {mebibytes} MiB are too much:"
                                       f"\n{self.guest.around_trouble()}")
        return event["seconds"]

    def step(self, name, **more):
        """Notes what the host holds now."""
        self.steps.append({"step": name, "t_s": round(self._sampler.now(), 3),
                           "host_resident_bytes": self.resident_bytes(), **more})

    def wait_until_still(self, patience_s=_PATIENCE_S):
        """Until the host's memory has stopped to change, as no more is reported."""
        deadline = time.monotonic() + patience_s
        before, since = None, time.monotonic()
        while time.monotonic() < min(deadline, since + _QUIET_S):
            now = self.resident_bytes()
            if before is None or abs(now - before) > MIB:
                before, since = now, time.monotonic()
            time.sleep(0.2)

    # ---- what is seen ----

    def resident_bytes(self):
        return sampler.file_bytes(self.ram)()

    def cpu_ns(self):
        """QEMU with all its threads, the guest's own work among them, and the daemon."""
        daemon_ns = self.host.cpu_ns() if self.host else 0
        return processes.process_cpu_ns(self.guest.pid) + daemon_ns

    def reported_bytes(self):
        return self.guest.counters().get("report_bytes", 0)

    def result(self, **more):
        """The run, as JSON has it."""
        return {**dataclasses.asdict(self.setup), "doorbell": self.doorbell, "steps": self.steps,
                "series": self._sampler.series, "passes": [], **more,
                "wrong_pages": 0, "boot_seconds": round(self.guest.boot_s, 2),
                "console_trouble": self.guest.trouble()}


def skipped(setup, why):
    """A run that could not be: its reason instead of its figures."""
    return {**dataclasses.asdict(setup), "skipped": why, "passes": [], "steps": [], "series": [],
            "wrong_pages": 0, "console_trouble": []}
