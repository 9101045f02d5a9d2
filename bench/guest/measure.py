# SPDX-License-Identifier: GPL-2.0-only
"""One measured run: a guest, a daemon if the variant wants one, figures at each end of a pass."""

import contextlib
import dataclasses
import os
import pathlib
import platform
import re
import subprocess
import tempfile
import time

from guest import figures
from lab import doorbells
from lab import guest as lab_guest
from lab import host as lab_host
from lab import kvm_stats, place, standstill

_GUEST = "bench"


@dataclasses.dataclass
class Setup:
    """What one run is about; its fields come first in the run's JSON object."""

    workload: str
    variant: str
    corpus: str
    disk_mb_s: float
    thp: str
    seed: int
    guest_mib: int
    workload_bytes: int
    limit_mib: int
    pool_min_mib: int
    cpus: int = 1
    append: str = ""
    doorbell: str = ""  # with tmem; empty: the one of the place where guests run
    repetition: int = 0

    def key(self):
        """Tells the runs of a plan from each other."""
        return "-".join(str(part) for part in [
            self.workload, self.corpus, f"{self.disk_mb_s:g}", self.thp, self.guest_mib,
            self.workload_bytes, self.pool_min_mib, self.append, self.seed, self.variant,
            self.doorbell, self.repetition])

    def title(self):
        disk = f"disk {self.disk_mb_s:g} MB/s" if self.disk_mb_s else "unthrottled disk"
        thp = ", THP always" if self.thp == "always" else ""
        by = f" by {self.doorbell}" if self.doorbell else ""
        return f"{self.workload} {self.corpus}, {disk}{thp}, {self.variant}{by}"


@dataclasses.dataclass
class Options:
    """What a user may choose for a workload."""

    quick: bool = False
    corpus: str | None = None  # None: those the workload takes by itself
    disk_mb_s: float = 20
    seed: int = 1
    fs: str = "ext4"
    guest_mib: int | None = None  # None: what the workload takes by itself
    file_mib: int | None = None
    append: str = ""  # more of the guest's command line, with tmem
    only: str | None = None  # of figures and doorbells: runs with this in their title
    vcpus: int | None = None  # of overhead; None: 1 and 2
    pairs: int | None = None  # of overhead
    mib: int | None = None  # of report-cost: how much is given back
    demo: bool = False  # only one rate of the disk, only off and tmem, no huge pages


class _Passes:
    """Turns the events of a workload into figures a pass."""

    def __init__(self, guest, host, progress, title):
        self.passes = []
        self.errors = []
        self.wrong_pages = 0
        self.sigbus = 0
        self.daemon_cpu_ns = 0
        self.status = None  # the daemon's, while the workload still holds its pages
        self._guest = guest
        self._host = host
        self._progress = progress
        self._title = title
        self._before = None
        self._counters = None

    def pages(self):
        return sum(one["pages"] for one in self.passes)

    def _snapshot(self):
        daemon_ns = self._host.cpu_ns() if self._host else 0
        return self._guest.usage(), daemon_ns, kvm_stats.of_process(self._guest.pid)

    def on_event(self, event):
        kind = event.get("event")
        if kind == "counters":
            self._take_counters(event)
        elif kind == "begin":
            self._progress.phase(f"{self._title}: pass {event['pass']} ({event['kind']})")
            self._before = self._snapshot()
        elif kind == "end":
            self._add(event, *self._snapshot())
            self.status = self._host.status() if self._host else None
        elif "error" in event:
            self.errors.append(event["error"])

    def _take_counters(self, event):
        # What is done between two passes belongs to the first of them, which left it undone.
        now = event, figures.of_host(self._host.status() if self._host else None, _GUEST)
        if self.passes:
            (before, host_before), (after, host) = self._counters, now
            one = self.passes[-1]
            one |= figures.of_pass(before["counters"], after["counters"])
            one |= {name: host[name] - host_before[name] for name in host}
            one["inodes"] = [before["inodes"], after["inodes"]]
        if event["at"] == "begin":
            self._counters = now

    def _add(self, event, usage, daemon_ns, kvm):
        before_usage, before_daemon_ns, before_kvm = self._before
        pages = event["pages"]
        reads = sum(read for read, _ in usage.disk_bytes)
        writes = sum(written for _, written in usage.disk_bytes)

        def us_per_page(nanoseconds):
            return round(nanoseconds / 1e3 / pages, 3) if pages else 0.0

        # The guest's ticks go on while the host lets it wait; their share in the kernel is right.
        guest_ns = usage.cpu_ns - before_usage.cpu_ns
        system_share = event["system_ticks"] / max(event["busy_ticks"], 1)
        self.passes.append({
            "kind": event["kind"],
            "pages": pages,
            "seconds": event["seconds"],
            "guest_cpu_us_per_page": us_per_page(guest_ns),
            "guest_system_us_per_page": us_per_page(guest_ns * system_share),
            "daemon_cpu_us_per_page": us_per_page(daemon_ns - before_daemon_ns),
            "disk_read_bytes": reads - sum(read for read, _ in before_usage.disk_bytes),
            "disk_write_bytes": writes - sum(written for _, written in before_usage.disk_bytes),
        })
        if kvm and before_kvm:
            self.passes[-1]["kvm"] = {name: kvm[name] - before_kvm[name] for name in kvm}
        for name in ["median_us", "p99_us"]:
            if name in event:
                self.passes[-1][name] = event[name]
        self.wrong_pages += event["wrong"]
        self.sigbus += event["sigbus"]
        self.daemon_cpu_ns += daemon_ns - before_daemon_ns


_APPEND = {
    "off": "",
    "tmem": "tmem.cleancache=1 tmem.frontswap=1",
    "writethrough": "tmem.cleancache=1 tmem.frontswap=writethrough",
}


def _hypercalls():
    """Those that a guest counts as rung: it negotiates before it counts."""
    counters = kvm_stats.of_module()
    return counters.get("hypercalls", 0) - counters.get("negotiates", 0)


# An idle guest looks at its host once a second.
_IDLE = {"doorbells_rung", "doorbells_other"}


def _at_rest(guest, host, doorbell, hypercalls):
    """The guest's counters when it has nothing left to hand over, and how often the other end of
    its doorbell was rung: by the daemon's count, or the host module's from `hypercalls` on."""
    if host is None:
        return guest.counters(), 0
    before = None
    for _ in range(20):
        at_least = _hypercalls() - hypercalls
        after = guest.counters()
        at_most = _hypercalls() - hypercalls
        moving = {name: count for name, count in after.items() if name not in _IDLE}
        if moving == before:
            break
        before = moving
        guest.run("sleep 0.2")
    if doorbell == "hypercall":
        # What came in while the guest was asked is no difference.
        return after, min(max(after.get("doorbells_rung", 0), at_least), at_most)
    return after, figures.of_host(host.status(), _GUEST)["rings_received"]


def demand_registered(title, host, guest=_GUEST, tries=50):
    """A guest that found no host measures the kernel without tmem, under the wrong name."""
    if host is None:
        return
    for _ in range(tries):
        if host.guest_status(guest)["counters"].get("registrations", 0):
            return
        time.sleep(0.1)
    raise lab_guest.GuestError(f"{title}: the guest has not registered with tmemd; "
                               "are both built from this tree? (make build guest-kernel)")


def _run_workload(guest, host, doorbell, command, timeout_s, passes, progress):
    def take(event):
        if watch:
            watch.moved()
        passes.on_event(event)

    with contextlib.ExitStack() as stack:
        # Only then it is known without a cost whether pages move.
        watch = (stack.enter_context(standstill.Watch(guest, host, progress.phase))
                 if doorbell == "hypercall" else None)
        return guest.run(f"workload {command} sync=1", timeout_s, take, check=False)


def run(setup, disks, prepare, command, progress, timeout_s=1200, finish=None):
    """Boots, runs `prepare` (shell), the workload's `command`, `finish` (shell); returns the run.

    The last figures of both ends are taken when the guest has nothing left to hand over.
    """
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tmem-bench-")))
        progress.phase(f"{setup.title()}: boot")
        host = None
        doorbell = "none" if setup.variant == "off" else setup.doorbell or doorbells.kind()
        hypercalls = _hypercalls() if doorbell == "hypercall" else 0
        if setup.variant != "off":
            host = stack.enter_context(
                lab_host.Host([_GUEST], setup.limit_mib, setup.pool_min_mib, directory,
                              doorbell))
        options = lab_guest.Options(
            memory_mib=setup.guest_mib, cpus=setup.cpus, disks=disks,
            append=_APPEND[setup.variant] + (f" {setup.append}" if host else ""),
            doorbell=host.doorbell(_GUEST) if host else None)
        guest = stack.enter_context(lab_guest.Guest(_GUEST, options, directory))
        demand_registered(setup.title(), host)
        guest.run(prepare)
        before = guest.counters()
        passes = _Passes(guest, host, progress, setup.title())
        output = _run_workload(guest, host, doorbell, command, timeout_s, passes, progress)
        if passes.errors or not passes.passes:
            raise lab_guest.GuestError(f"{setup.title()}: {passes.errors or output}")
        progress.phase(f"{setup.title()}: until it is at rest")
        if finish:
            guest.run(finish)
        after, received = _at_rest(guest, host, doorbell, hypercalls)
        trouble = guest.trouble()

    result = dataclasses.asdict(setup)
    result["doorbell"] = doorbell
    result["passes"] = passes.passes
    result |= figures.of_guest(before, after)
    result["daemon_cpu_us_per_page"] = round(passes.daemon_cpu_ns / 1e3 / passes.pages(), 3)
    result["rings_received"] = received
    result["rings_since_boot"] = after.get("doorbells_rung", 0)
    result["disk_read_bytes"] = sum(one["disk_read_bytes"] for one in passes.passes)
    result["disk_write_bytes"] = sum(one["disk_write_bytes"] for one in passes.passes)
    result["pool"] = figures.of_pool(passes.status)
    result["wrong_pages"] = passes.wrong_pages
    result["failed_pages"] = passes.sigbus
    result["boot_seconds"] = round(guest.boot_s, 2)
    result["console_trouble"] = trouble
    return result


def machine():
    """What the figures were measured on."""
    cpu = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory_kib = int(re.search(r"MemTotal:\s+(\d+)",
                               pathlib.Path("/proc/meminfo").read_text(encoding="ascii")).group(1))
    qemu = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True,
                          check=False).stdout.partition("\n")[0]
    cpus = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").count("processor\t:")
    return {
        "cpu": cpu,
        "cpus": cpus,
        "memory_mib": memory_kib // 1024,
        "host_kernel": platform.release(),
        "qemu": qemu,
        "accelerator": lab_guest.accelerator() + (" in an emulated host" if place.inside_l1()
                                                  else ""),
        "load_average": os.getloadavg()[0],  # before: others on the machine disturb
    }
