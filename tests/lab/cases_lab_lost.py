# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of lost and slow hosts by hypercall: a guest finds the next tmemd by itself."""

import time

from lab import disks, kvm_stats, monitor
from lab.case import (SWITCH, disk_writes, expect, expect_no_wrong, losses, need_host_module,
                      swap_on)
from lab.cases_lost import At, no_wrong_bytes

MIB = disks.MIB
# Of which the guest's kernel leaves about a third.
MEMORY_MIB = 72
# Text that cases stream: does not fit.
TEXT_MIB = 40
CORPORA = {"hypercall_daemon_killed": TEXT_MIB}
# No more may the monitor wait for our sake.
MONITOR_MS = 100
STREAM = "stream file=/mnt/data index=/dev/vdc"


def small_guest(context, host, name="guest", **options):
    """Swaps on vda, has a file that does not fit on /mnt (vdb), its sums on vdc."""
    image, sums = context.images.corpus("text", TEXT_MIB)
    swap = disks.empty(context.directory / f"swap-{name}.img", 200 * MIB)
    guest = context.guest(host, name, memory_mib=MEMORY_MIB, disks=[
        disks.Disk(swap), disks.Disk(image, readonly=True), disks.Disk(sums, readonly=True)],
        **options)
    set_up(guest)
    return guest


def set_up(guest):
    swap_on(guest, "vda")
    guest.run("mount -t ext4 -o ro,noatime /dev/vdb /mnt")


def _stream_hits(guest, what, passes=1):
    """Streams; returns how many pages came from the host, all of them right."""
    before = guest.counters()["get_hits"]
    expect_no_wrong(guest.workload(f"{STREAM} passes={passes}", 300), what)
    return guest.counters()["get_hits"] - before


def _hog(context, seed, plan="fv", mib=44):
    return f"hog bytes={mib * MIB} seed={context.seed + seed} plan={plan}"


# ---- killed ----


def _killed_while_streaming(host, guest):
    killing = At(2, 0.5, host.kill)
    events = guest.workload(f"{STREAM} passes=2", 300, killing)
    killing.join()
    expect_no_wrong(events, "tmemd killed while streaming")
    expect(guest.counters()["channels_lost"] == 1, "the guest did not notice")
    host.start_again()
    host.await_guest()
    hits = _stream_hits(guest, "streaming with a new tmemd", passes=2)
    expect(hits > 1000, f"only {hits} pages came from the new tmemd: {losses(guest)}")
    return hits


def _killed_while_swapping(context, host, guest):
    before = guest.counters()
    killing = At(2, 0.3, host.kill)
    events = guest.workload(_hog(context, 1), 300, killing)
    killing.join()
    failed = no_wrong_bytes(events, "tmemd killed while swapping")
    lost = guest.counters()
    expect(failed[0] == 0, f"{failed[0]} pages failed before tmemd was killed")
    expect(failed[1] > 500, f"only {failed[1]} pages failed: where did the others come from?")
    errors = lost["frontswap_load_errors"] - before["frontswap_load_errors"]
    expect(errors >= failed[1], f"{errors} load errors counted, {failed[1]} seen")
    written, events = disk_writes(guest, 0, lambda: guest.workload(_hog(context, 2), 300))
    expect_no_wrong(events, "hog without tmemd")
    expect(written > 8 * MIB, f"only {written} bytes were swapped to the disk")
    host.start_again()
    host.await_guest()
    before = guest.counters()
    expect_no_wrong(guest.workload(_hog(context, 3), 300), "hog with a new tmemd")
    after = guest.counters()
    stores = after["frontswap_stores"] - before["frontswap_stores"]
    expect(stores > 1000, f"the new tmemd was given only {stores} pages: {losses(guest)}")
    loads = after["frontswap_loads"] - before["frontswap_loads"]
    expect(loads > 500, f"only {loads} loads with a new tmemd")
    return failed[1], written, stores


def hypercall_daemon_killed(context):
    """tmemd killed with calls in flight, twice: none wrong; each new tmemd has the guest again."""
    need_host_module()
    host = context.host(limit_mib=160, pool_min_mib=80)
    guest = small_guest(context, host)
    hits = _killed_while_streaming(host, guest)
    failed, written, stores = _killed_while_swapping(context, host, guest)
    return (f"{hits} hits with the second tmemd; {failed} pages failed with it, none wrong,"
            f" {written / MIB:.0f} MiB to the disk; {stores} stores with the third;"
            f" {guest.counters()['timeouts']} waits in vain")


# ---- stopped ----


def _ask_monitor(context, guest, seed, meanwhile):
    """Asks the monitor during `meanwhile`, which happens while a hog reads back."""
    samplers = []

    def sample():
        with monitor.Sampler(guest) as sampler:
            meanwhile()
        samplers.append(sampler)

    sampling = At(2, 0.3, sample)
    events = guest.workload(_hog(context, seed), 300, sampling)
    sampling.join()
    expect_no_wrong(events, f"hog {seed}")
    expect(len(samplers[0].waits_s) > 5, f"{len(samplers[0].waits_s)} answers of the monitor")
    return samplers[0]


def hypercall_daemon_stopped(context):
    """tmemd stands still while pages are awaited: nothing lost, QEMU's monitor does not wait."""
    need_host_module()
    stop_s = 30 if context.long else 4
    host = context.host(limit_mib=160, pool_min_mib=80)
    swap = disks.empty(context.directory / "swap.img", 200 * MIB)
    guest = context.guest(host, memory_mib=MEMORY_MIB, disks=[disks.Disk(swap)])
    swap_on(guest, "vda")
    guest.run(f"echo 0 > {SWITCH}frontswap")
    control = _ask_monitor(context, guest, 1, lambda: time.sleep(2))
    guest.run(f"echo 1 > {SWITCH}frontswap")
    before = kvm_stats.of_module()
    # A machine that does other things besides lets everybody wait at times.
    for turn in range(3):
        stopped = _ask_monitor(context, guest, 2 + turn, lambda: host.stop_for(stop_s))
        if stopped.worst_ms <= MONITOR_MS + control.worst_ms:
            break
    counters = guest.counters()
    expect(counters["frontswap_load_errors"] == 0, "a page was an error")
    expect(counters["frontswap_loads"] > 1000, f"few pages came back: {losses(guest)}")
    after = kvm_stats.of_module()
    pendings = after["pendings"] - before["pendings"]
    expect(pendings > 20, f"only {pendings} hypercalls were answered PENDING")
    longest = {name: after[name] / 1000 for name in ["entry_max_us", "entry_run_max_us"]}
    note = (f"stopped for {stop_s} s: {pendings} PENDING; the monitor answers in {stopped},"
            f" without tmem in {control}; longest entry {longest['entry_max_us']:.1f} ms,"
            f" {longest['entry_run_max_us']:.1f} without waiting for the processor")
    expect(stopped.worst_ms <= MONITOR_MS + control.worst_ms, note)
    expect(longest["entry_run_max_us"] <= MONITOR_MS + control.worst_ms, note)
    return note


CASES = {case.__name__: case for case in [hypercall_daemon_killed, hypercall_daemon_stopped]}
