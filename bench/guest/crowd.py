# SPDX-License-Identifier: GPL-2.0-only
"""Several guests on one memory budget, and what the host holds for them, step by step."""

import contextlib
import dataclasses
import os
import pathlib
import re
import tempfile
import time

from guest import measure, memory_group, sampler
from lab import doorbells
from lab import guest as lab_guest
from lab import host as lab_host
from lab import paths, processes

MIB = 1 << 20
VARIANTS = ("off", "virtio-balloon", "tmem")
_SAMPLE_S = 0.5
_BALLOON = ("-device", "virtio-balloon-pci,free-page-reporting=on")
# Nothing is put into the pool in these workloads.
_POOL_MIB = 32


@dataclasses.dataclass
class Setup:
    """What one run is about; its fields come first in the run's JSON object."""

    workload: str
    variant: str
    guests: int
    guest_mib: int
    workload_bytes: int  # of one memhog
    budget_mib: int  # limit of the guests' control group; 0: none
    setting: str = ""  # of memhog: `room` or `budget`
    cpus: int = 1
    doorbell: str = "none"
    repetition: int = 0

    def __post_init__(self):
        if self.variant == "tmem":
            self.doorbell = doorbells.kind()

    def key(self):
        return "-".join(str(part) for part in dataclasses.astuple(self))

    def title(self):
        setting = f" {self.setting}" if self.setting else ""
        return f"{self.workload}{setting}, {self.variant}"


class Crowd:
    """A context manager: a daemon if the variant wants one; guests that are added one by one."""

    def __init__(self, setup, progress, group=None, daemon_in_group=False):
        self.setup = setup
        self.steps = []
        self.guests = []
        self._progress = progress
        self._group = group
        self._daemon_in_group = daemon_in_group
        self._host = None
        self._stack = contextlib.ExitStack()
        self._directory = None
        self._rams = [memory_group.RAM_DIRECTORY / f"{memory_group.PREFIX}{os.getpid()}-{number}"
                      for number in range(setup.guests)]
        self._sampler = sampler.MemorySampler(_SAMPLE_S, self._sources())

    def __enter__(self):
        memory_group.forget_ram()
        with self._stack:
            self._directory = pathlib.Path(self._stack.enter_context(
                tempfile.TemporaryDirectory(prefix="tmem-crowd-")))
            self._stack.callback(self._forget_ram)
            if self.setup.variant == "tmem":
                self._start_host()
            self._stack.enter_context(self._sampler)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error):
        self._stack.__exit__(*error)

    def _start_host(self):
        names = [_name(number) for number in range(len(self._rams))]
        if self.setup.doorbell == "ivshmem":
            names = [f"{name},ram={ram}" for name, ram in zip(names, self._rams)]
        limit_mib = _POOL_MIB + 8 * len(names) + 32
        group = self._group
        self._host = self._stack.enter_context(lab_host.Host(
            names, limit_mib, _POOL_MIB, self._directory, self.setup.doorbell,
            cgroups=(group.own(),) if group and self._daemon_in_group else (),
            groups_below=group.path if group and group.version == 2 else None))

    def _forget_ram(self):
        for ram in self._rams:
            ram.unlink(missing_ok=True)

    # ---- what is done ----

    def add_guest(self):
        """Boots the next guest, in the control group; it has registered when this is back."""
        number = len(self.guests)
        self.phase(f"guest {number + 1} boots")
        options = lab_guest.Options(
            memory_mib=self.setup.guest_mib, cpus=self.setup.cpus, installed=("memhog",),
            append="tmem.reporting=1" if self._host else "", ram_file=self._rams[number],
            doorbell=self._host.doorbell(_name(number)) if self._host else None,
            extra=_BALLOON if self.setup.variant == "virtio-balloon" else (),
            cgroups=self._guest_groups())
        guest = lab_guest.Guest(_name(number), options, self._directory)
        self.guests.append(self._stack.enter_context(guest))
        measure.demand_registered(self.setup.title(), self._host, guest.name)
        guest.run("memhog -r1 16m > /dev/null")  # The first use of its code is not measured.

    def _guest_groups(self):
        """By hypercall, of version 2: a guest's own group is below the one with the limit."""
        if not self._group or (self._group.version == 2 and self.setup.doorbell == "hypercall"):
            return ()
        return (self._group.own(),)

    def memhog(self, number, timeout_s=300):
        """One memhog in one guest, to its end; returns its seconds, by the host's clock."""
        self.phase(f"memhog in guest {number + 1}")
        begin = time.monotonic()
        # Once over its memory: by itself it would go over it ten times.
        self.guests[number].run(f"memhog -r1 {self.setup.workload_bytes // MIB}m > /dev/null",
                                timeout_s)
        return round(time.monotonic() - begin, 3)

    def step(self, name, **more):
        """Notes what the host holds now."""
        held = {name: count() for name, count in self._sources().items()}
        swapped = held.get("swapped", 0)
        self.steps.append({"step": name, "t_s": round(self._sampler.now(), 3),
                           "host_resident_bytes": held["total"] - swapped,
                           "host_swapped_bytes": swapped, "held": held, **more})

    def wait(self, seconds, why):
        self.phase(why)
        time.sleep(seconds)

    def phase(self, text):
        self._progress.phase(f"{self.setup.title()}: {text}")

    # ---- what is seen ----

    def _sources(self):
        sources = {f"guest{number + 1}": (lambda ram=ram: sampler.files_bytes([ram])())
                   for number, ram in enumerate(self._rams)}
        sources |= {"vmm": self._vmm_bytes, "daemon": self._daemon_bytes, "total": self._total}
        if self._group:
            sources |= {"group": self._group.usage_bytes, "swapped": self._group.swapped_bytes}
        return sources

    def _vmm_bytes(self):
        return sum(processes.anonymous_bytes(guest.pid) for guest in self.guests)

    def _daemon_bytes(self):
        if not self._host:
            return 0
        return processes.anonymous_bytes(self._host.pid) + processes.memfd_bytes(self._host.pid)

    def _total(self):
        """RAM files, VMMs and daemon with its windows; what of it is in swap as well."""
        return sampler.files_bytes(self._rams)() + self._vmm_bytes() + self._daemon_bytes()

    def result(self, **more):
        """The run's JSON object."""
        return {**dataclasses.asdict(self.setup), **more, "passes": [], "steps": self.steps,
                "series": list(self._sampler.series),
                "guest_counters": self._counters(),
                "console_trouble": [line for guest in self.guests if guest.alive()
                                    for line in guest.trouble()]}

    def _counters(self):
        """Of reporting, summed over the guests."""
        total = {}
        for guest in self.guests if self._host else []:
            with contextlib.suppress(lab_guest.GuestError):  # One that the budget has ended.
                for name, count in guest.counters().items():
                    if name.startswith("report"):
                        total[name] = total.get(name, 0) + count
        return total


def _name(number):
    return f"guest{number + 1}"


def hog_bytes(guest_mib):
    """About 90 % of a guest's RAM; less of a small one, which needs the rest itself."""
    return min(guest_mib * 9 // 10, guest_mib - 64) * MIB


def demand_memory(what, need_mib):
    """Raises Missing if it is not there: other work would be swapped or killed."""
    text = pathlib.Path("/proc/meminfo").read_text(encoding="ascii")
    free_mib = int(re.search(r"MemAvailable:\s+(\d+)", text).group(1)) // 1024
    if need_mib > free_mib:
        raise paths.Missing(f"{what} wants {need_mib} MiB of free memory, there are {free_mib}:"
                            " --guest-mib, or --quick")
