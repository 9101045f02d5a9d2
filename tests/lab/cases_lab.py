# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of the hypercall doorbell; they need KVM with the host module, so --lab or --kvm."""

import time

from lab import cases_swap, disks, doorbells, kvm_stats
from lab.case import expect, expect_no_wrong, losses, need_host_module

MIB = disks.MIB
# Text that cases stream, in MiB.
CORPORA = {"hypercall_streaming": 64, "stream_text": 192}


class _Count:
    """Hypercalls of the only guest since this was made, by KVM, by the host module."""

    def __init__(self):
        need_host_module()
        self._before = kvm_stats.of_module()

    def of(self, guest):
        """The module's counters so far, after a look at KVM's. The guest stands still meanwhile."""
        guest.pause()
        by_kvm = kvm_stats.of_process(guest.pid)["hypercalls"]
        counters = kvm_stats.of_module()
        guest.resume()
        moved = {name: count - self._before.get(name, 0) for name, count in counters.items()}
        expect(by_kvm == moved["hypercalls"],
               f"KVM counts {by_kvm} hypercalls, kvm_tmem {moved['hypercalls']}")
        return moved


def _rung(moved, before):
    """Hypercalls that hand over, those again after PENDING included."""
    return sum(moved[name] - before[name] for name in ("kicks", "calls"))


def _stream(count, guest):
    """Reads the file once; returns what the module and the guest have counted meanwhile."""
    before, stats = count.of(guest), guest.counters()
    expect_no_wrong(guest.workload("stream file=/mnt/data index=/dev/vdb passes=1", 300), "pass")
    after = count.of(guest)
    return ({name: after[name] - before[name] for name in after},
            {name: value - stats.get(name, 0) for name, value in guest.counters().items()})


def hypercall_streaming(context):
    """A file that does not fit: right, from the host, and with few hypercalls a page."""
    count = _Count()
    image, sums = context.images.corpus("text", CORPORA["hypercall_streaming"])
    host = context.host()
    guest = context.guest(host, memory_mib=64, disks=[disks.Disk(image, readonly=True),
                                                      disks.Disk(sums, readonly=True)])
    guest.run("mount -t ext4 -o ro,noatime /dev/vda /mnt")
    before, calls = guest.counters(), count.of(guest)["calls"]
    guest.run("dd if=/mnt/data of=/dev/null bs=65536 count=64 2>&1")
    # A look at the host now and then is for no page: doorbells_other.
    after = guest.counters()
    rung = sum(after[name] - before[name]
               for name in ("doorbells_put", "doorbells_get", "doorbells_flush"))
    expect(after["get_misses_local"] - before["get_misses_local"] >= 1000, "this tests nothing")
    expect(rung == 0 and count.of(guest)["calls"] == calls,
           f"pages that were never put cost {rung} hypercalls")
    first, stats = _stream(count, guest)
    kicks, puts = first["kicks"], stats["puts"]
    expect(puts > 4000 and kicks * 16 <= puts, f"{kicks} hypercalls for {puts} puts")
    # Each call that a busy machine answers late costs another one; later passes show that this is
    # all it was.
    for _ in range(3):
        second, stats = _stream(count, guest)
        calls, hits = second["calls"], stats["get_hits"]
        if calls * 8 <= hits:
            break
    note = (f"{kicks} hypercalls for {puts} puts, {calls} for {hits} gets,"
            f" {second['pendings']} of them for lack of time")
    expect(hits > 4000, f"only {hits} pages came from the host: {losses(guest)}")
    expect(calls * 8 <= hits, note)
    return note


def hypercall_swap(context):
    """Swapped pages come back right; KVM and the module agree on the hypercalls."""
    count = _Count()
    guest, written = cases_swap.hog(context, guest_mib=64, hog_mib=96)
    moved = count.of(guest)
    stats = guest.counters()
    pages = stats["frontswap_stores"] + stats["frontswap_loads"]
    note = (f"{_rung(moved, dict.fromkeys(moved, 0))} hypercalls for {pages} pages,"
            f" {written / MIB:.1f} MiB to the disk")
    expect(stats["frontswap_stores"] > 4000, f"only {pages} pages were moved: {losses(guest)}")
    return note


def hypercall_host_comes_later(context):
    """A guest that boots before its daemon is served, by and by, by the one that comes."""
    _Count()
    host = context.host()
    host.kill()
    image, sums = context.images.corpus("text", CORPORA["hypercall_streaming"])
    guest = context.guest(host, memory_mib=64, disks=[disks.Disk(image, readonly=True),
                                                      disks.Disk(sums, readonly=True)])
    expect("does not have us yet" in guest.run("dmesg"), "nothing in the log of the guest")
    guest.run("mount -t ext4 -o ro,noatime /dev/vda /mnt")
    one_pass = "stream file=/mnt/data index=/dev/vdb passes=1"
    drop_some = ("dd if=/mnt/data of=/dev/null bs=65536 count=64 2>&1; "
                 "echo 1 > /proc/sys/vm/drop_caches")
    guest.run(drop_some)
    stats = guest.counters()
    expect(stats["puts"] == 0 and stats["get_hits"] == 0, f"served by nobody: {losses(guest)}")
    host.start_again()
    begin = time.monotonic()
    while guest.counters()["puts"] == 0:
        expect(time.monotonic() - begin < 20, "the daemon came, and the guest does not put")
        guest.run(drop_some)
    took_s = time.monotonic() - begin
    for number in (1, 2):
        expect_no_wrong(guest.workload(one_pass, 300), f"pass {number}")
    stats = guest.counters()
    expect(stats["get_hits"] > 4000 and stats["resets"] == 0, losses(guest))
    return f"{stats['get_hits']} hits; first put {took_s:.1f} s after the daemon's start"


def hypercall_gives_way_to_ivshmem(context):
    """A guest that no rule knows takes the device it has, when it may choose."""
    count = _Count()
    host = context.host()
    image, sums = context.images.corpus("text", CORPORA["hypercall_streaming"])
    doorbell = doorbells.Ivshmem(host.socket("guest"))
    doorbell.append = "tmem.transport=auto"
    guest = context.guest(host, memory_mib=64, doorbell=doorbell,
                          disks=[disks.Disk(image, readonly=True),
                                 disks.Disk(sums, readonly=True)])
    row = host.await_guest()
    expect(row["doorbell"] == "ivshmem", f"served by {row['doorbell']}")
    guest.run("mount -t ext4 -o ro,noatime /dev/vda /mnt")
    expect_no_wrong(guest.workload("stream file=/mnt/data index=/dev/vdb passes=2", 300), "stream")
    moved = count.of(guest)
    expect(moved["refused_daemon"] == 1 and moved["kicks"] == 0, f"the module counts {moved}")
    hits = guest.counters()["get_hits"]
    expect(hits > 4000, f"only {hits} pages came from the host: {losses(guest)}")
    return f"refused by hypercall once, then {hits} hits over ivshmem"


CASES = {case.__name__: case for case in [
    hypercall_streaming, hypercall_swap, hypercall_host_comes_later,
    hypercall_gives_way_to_ivshmem]}
