# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of free-page reporting: what is freed comes back to the host, and nothing else."""

import contextlib
import os
import pathlib
import signal
import time

from lab import disks
from lab import guest as lab_guest
from lab import host_module, stock
from lab.case import SWITCH, Failed, expect, expect_no_wrong

MIB = disks.MIB
ON = "tmem.reporting=1"
# Reports come 2 s after memory was freed, the lab's machine may be slow.
_PATIENCE_S = 40
_EVENTS = "/sys/kernel/debug/tracing/"


@contextlib.contextmanager
def _ram_file(context):
    """A name in tmpfs for a guest's RAM; QEMU makes the file."""
    path = pathlib.Path("/dev/shm") / f"tmem-{context.name}-{os.getpid()}"
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _resident_mib(ram):
    return ram.stat().st_blocks * 512 / MIB


def _wait(condition, what):
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        expect(time.monotonic() < deadline, what())
        time.sleep(0.2)


def _guest(context, ram, append="", layout="", **options):
    host = context.host([f"guest,ram={ram}{layout}"])
    guest = context.guest(host, append=f"{ON} {append}", ram_file=ram, **options)
    return host, guest


def _hog(guest, mib, seed):
    """Takes memory, verifies it and gives it back to the guest."""
    expect_no_wrong(guest.workload(f"hog bytes={mib * MIB} seed={seed} plan=fv"), "hog")


def _all_reported(guest, mib):
    """Nothing of it is left to be reported: waits for the counter to have moved and stopped."""
    want = guest.counters()["report_bytes"] + mib * MIB
    _wait(lambda: guest.counters()["report_bytes"] >= want,
          lambda: f"{guest.counters()['report_bytes']} bytes reported, want {want}")


def report_returns_memory(context):
    """Freed memory is the host's again within seconds, can be taken again, and is right."""
    with _ram_file(context) as ram:
        host, guest = _guest(context, ram, memory_mib=320)
        _wait(lambda: guest.counters()["report_bytes"] > 100 * MIB,
              lambda: f"not reported at start: {guest.counters()}")
        start = _resident_mib(ram)
        notes = []
        for turn in range(2):
            before = guest.counters()["report_bytes"]
            _hog(guest, 160, context.seed + turn)
            full = _resident_mib(ram)
            expect(full > start + 120, f"the hog took {full - start:.0f} MiB of the host")
            _wait(lambda floor=full - 120: _resident_mib(ram) < floor,
                  lambda: f"{_resident_mib(ram):.0f} MiB resident, {full:.0f} before the end of"
                  f" the hog, {start:.0f} at start; {guest.counters()}; {context.hosts_say()}")
            notes.append(f"{full:.0f} -> {_resident_mib(ram):.0f} MiB")
            expect(guest.counters()["report_bytes"] > before, "nothing was counted")
        expect(guest.counters()["report_ranges_refused"] == 0, "ranges were refused")
        time.sleep(0.5)
        counted = host.guest_status("guest")["counters"]["reported_bytes"]
        expect(counted >= guest.counters()["report_bytes"] - 64 * MIB, f"tmemd counts {counted}")
    return ", ".join(notes)


def report_switch(context):
    """Turned off nothing is reported, turned on again it is; the floor holds reports back."""
    with _ram_file(context) as ram:
        _, guest = _guest(context, ram)
        _wait(lambda: guest.counters()["report_bytes"] > 50 * MIB, lambda: "no report at start")
        guest.run(f"echo 0 > {SWITCH}reporting")
        time.sleep(3)
        before = guest.counters()["reports"]
        _hog(guest, 100, context.seed)
        time.sleep(5)
        expect(guest.counters()["reports"] == before, "reported although it is off")
        guest.run(f"echo 100000 > {SWITCH}reporting_floor_mb; echo 1 > {SWITCH}reporting")
        _wait(lambda: guest.counters()["reports_floor"] > 0, lambda: "the floor was not met")
        expect(guest.counters()["reports"] == before, "reported below the floor")
        guest.run(f"echo 0 > {SWITCH}reporting_floor_mb")
        resident = _resident_mib(ram)
        _hog(guest, 64, context.seed + 1)
        _wait(lambda: _resident_mib(ram) < resident - 40,
              lambda: f"{resident:.0f} -> {_resident_mib(ram):.0f} MiB")


def report_per_cpu_lists(context):
    """What CPUs keep of freed pages, tens of MiB each, does not stay with an idle guest."""

    def listed():
        text = guest.run("grep '^ *count:' /proc/zoneinfo")
        return sum(int(line.split()[1]) for line in text.splitlines()) * 4096 / MIB

    with _ram_file(context) as ram:
        # With less the kernel leaves huge pages off, which is why the lists may be so long.
        _, guest = _guest(context, ram, memory_mib=640, cpus=2)
        guest.workload(f"faults bytes={160 * MIB} procs=2")
        before, resident = listed(), _resident_mib(ram)
        expect(before > 16, f"only {before:.1f} MiB are in the CPUs' lists: this tests nothing")
        _wait(lambda: listed() < 4, lambda: f"{before:.1f} -> {listed():.1f} MiB in lists")
        return f"{before:.0f} -> {listed():.0f} MiB in lists, {resident:.0f} MiB resident before"


def report_tried_again(context):
    """A host that was too busy for a report gets it later, though nothing more is freed.

    The kernel alone would try again when more memory is freed, which an idle guest never does.
    """
    with _ram_file(context) as ram:
        host, guest = _guest(context, ram)
        _wait(lambda: guest.counters()["report_bytes"] > 50 * MIB, lambda: "no report at start")
        os.kill(host.pid, signal.SIGSTOP)
        _hog(guest, 128, context.seed)
        _wait(lambda: guest.counters()["reports_withdrawn"] > 0, lambda: "not withdrawn")
        time.sleep(1)
        full = _resident_mib(ram)
        os.kill(host.pid, signal.SIGCONT)
        _wait(lambda: _resident_mib(ram) < full - 100,
              lambda: f"{full:.0f} -> {_resident_mib(ram):.0f} MiB; {guest.counters()}")
        return f"{full:.0f} -> {_resident_mib(ram):.0f} MiB"


def _churn(guest, seconds, seed):
    guest.run(f"workload churn seconds={seconds} bytes={120 * MIB} seed={seed} > /tmp/churn &")


def _await_churn(guest, seconds):
    guest.run("until grep -q '\"event\": \"end\"\\|error' /tmp/churn; do sleep 0.2; done",
              seconds + 120)
    return guest.run("cat /tmp/churn")


def _stamps(context, seconds, append="", stopped_s=0):
    """For a while the daemon stands still; what it has not taken is withdrawn."""
    with _ram_file(context) as ram:
        host, guest = _guest(context, ram, f"tmem.reporting_order=3 {append}")
        _churn(guest, seconds, context.seed)
        if stopped_s:
            time.sleep(seconds / 4)
            os.kill(host.pid, signal.SIGSTOP)
            time.sleep(stopped_s)
            os.kill(host.pid, signal.SIGCONT)
        text = _await_churn(guest, seconds)
        expect('"wrong": 0' in text and "error" not in text, text[-800:])
        counters = guest.counters()
        expect(counters["report_ranges"] > 100, f"only {counters['report_ranges']} ranges")
        return (f"{counters['report_ranges']} ranges, {counters['report_bytes'] / MIB:.0f} MiB,"
                f" {counters['reports_withdrawn']} reports withdrawn")


def report_stamps(context):
    """Memory is taken, stamped, verified, freed and reported all the time: 0 wrong bytes."""
    if context.long:
        return _stamps(context, 300, stopped_s=30)
    return _stamps(context, 25, stopped_s=6)


def report_stamps_init_on_free(context):
    """The same in a guest that takes its free memory to be zero already."""
    return _stamps(context, 300 if context.long else 25, "init_on_free=1")


def report_stamps_briefly(context):
    """Both at once, by hypercall, where all takes longer."""
    return _stamps(context, 300 if context.long else 15, "init_on_free=1",
                   stopped_s=30 if context.long else 4)


# Ten of ten first tries found it.
_TRIES = 3


def report_stamps_find_the_fault(context):
    """The same must find a guest that takes its memory back before the host has answered (R1)."""
    for _ in range(_TRIES):
        with _ram_file(context) as ram:
            _, guest = _guest(context, ram, "tmem.reporting_order=3 panic_on_oops=0")
            guest.run("echo report-returns-early > /sys/module/tmem/parameters/fault")
            try:
                _churn(guest, 12, context.seed)
                text = _await_churn(guest, 12)
            except lab_guest.GuestError:
                context.forget(guest)
                return "the guest did not live"
            context.forget(guest)
            if '"wrong": 0' not in text:
                return None
    raise Failed("the fault is on and was not found")


def report_refused(context):
    """RAM that cannot be dropped from outside is not: share=off, locked; the guest goes on (R4)."""
    with _ram_file(context) as ram:
        host, guest = _guest(context, ram, ram_shared=False)
        _wait(lambda: guest.counters()["reports_refused"] > 0, lambda: "not refused")
        expect(guest.counters()["report_bytes"] == 0, "something was dropped")
        expect("share=off" in host.log(), host.log())
        _hog(guest, 100, context.seed)
    return None


def report_locked(context):
    """The same with locked RAM (R6)."""
    with _ram_file(context) as ram:
        host, guest = _guest(context, ram, extra=("-overcommit", "mem-lock=on"))
        _wait(lambda: guest.counters()["reports_refused"] > 0, lambda: "not refused")
        expect(guest.counters()["report_bytes"] == 0, "something was dropped")
        expect("locked" in host.log(), host.log())
        expect(_resident_mib(ram) > 250, "locked memory was dropped")


def report_beside_balloon(context):
    """virtio-balloon has the kernel's one place for reporting: said clearly, nothing breaks."""
    with _ram_file(context) as ram:
        _, guest = _guest(context, ram,
                          extra=("-device", "virtio-balloon-pci,free-page-reporting=on"))
        expect("virtio-balloon reports free pages already" in guest.run("dmesg"),
               guest.run("dmesg | grep -i 'report\\|balloon'", check=False))
        expect(guest.run(f"cat {SWITCH}reporting").strip() == "N", "it says that it is on")
        expect(guest.run(f"echo 1 > {SWITCH}reporting", check=False) != "", "no error")


def _stock(context, ram, append=""):
    """A guest with Debian's own kernel and our module, which can only report there."""
    # What it has to say of this CPU's faults looks like trouble.
    return _guest(context, ram, f"mitigations=off {append}", kernel=stock.kernel().vmlinux,
                  modules=(host_module.build_for_stock_guest(),), memory_mib=448)


def report_stock_kernel(context):
    """Debian's kernel without a patch of ours: freed memory comes back, and all of it is right."""
    with _ram_file(context) as ram:
        _, guest = _stock(context, ram)
        guest.run(f"echo 1 > {_EVENTS}events/tmem/enable")
        _hog(guest, 160, context.seed)
        full = _resident_mib(ram)
        _wait(lambda: _resident_mib(ram) < full - 100,
              lambda: f"{full:.0f} MiB and not less; {guest.counters()}")
        note = f"{full:.0f} -> {_resident_mib(ram):.0f} MiB"
        # Its module alone says what went: page frame and order.
        event = guest.run(f"grep -m 1 tmem_range_reported {_EVENTS}trace")
        expect("pfn=" in event and "order=" in event, event)
        expect_no_wrong(guest.workload(
            f"churn seconds=5 bytes={100 * MIB} seed={context.seed}"), "churn")
        return note


def report_poison(context):
    """A guest that poisons its free pages must not have them dropped, and says so (R3)."""
    with _ram_file(context) as ram:
        _, guest = _stock(context, ram, "page_poison=1")
        expect("free pages are poisoned" in guest.run("dmesg"), guest.run("dmesg | grep tmem"))
        expect_no_wrong(guest.workload(
            f"churn seconds=10 bytes={100 * MIB} seed={context.seed}"), "churn")
        expect(guest.counters()["reports"] == 0, "it reports all the same")
        expect(guest.run(f"echo 1 > {SWITCH}reporting", check=False) != "", "it can be turned on")


CASES = {case.__name__: case for case in [
    report_returns_memory, report_per_cpu_lists,
    report_tried_again, report_switch, report_stamps,
    report_stamps_init_on_free,
    report_stamps_find_the_fault, report_refused, report_locked,
    report_beside_balloon, report_stock_kernel, report_poison]}
# By hypercall. Not report_stamps_find_the_fault: the daemon of its first try keeps the device, so
# guests of later tries are refused, and one try alone does not always find the fault.
LAB_CASES = {case.__name__: case for case in [report_stamps_briefly, report_stock_kernel]}
