# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of frontswap: swapped pages come back right, from the host or from the disk."""

from lab import disks
from lab.case import (SWITCH, disk_writes, expect, expect_no_wrong, finish_swapped, losses,
                      swap_on, swapped_out)

MIB = disks.MIB
_GUEST_MIB = 96
_HOG_MIB = 144


def hog(context, append=None, pool_min_mib=_HOG_MIB, thp="never", plan="fvfv", tmem=True,
        guest_mib=_GUEST_MIB, hog_mib=_HOG_MIB):
    """Runs the hog in a new guest. Returns (guest, swap bytes written)."""
    host = context.host(limit_mib=pool_min_mib + 64, pool_min_mib=pool_min_mib) if tmem else None
    disk = disks.empty(context.directory / f"swap{len(list(context.directory.iterdir()))}.img",
                       2 * hog_mib * MIB)
    guest = context.guest(host, append=append, memory_mib=guest_mib, disks=[disks.Disk(disk)])
    guest.run(f"echo {thp} > /sys/kernel/mm/transparent_hugepage/enabled")
    swap_on(guest, "vda")
    written, events = disk_writes(
        guest, 0, lambda: guest.workload(
            f"hog bytes={hog_mib * MIB} seed={context.seed} plan={plan}", 300))
    ends = expect_no_wrong(events, "hog")
    expect(len(ends) == len(plan), f"{len(ends)} of {len(plan)} passes were done")
    return guest, written


def swap_off_and_tmem(context):
    """Without tmem all goes to the swap disk; with tmem at most 2 % of that."""
    guest, off = hog(context, tmem=False)
    guest.kill()
    expect(off > 32 * MIB, f"the hog without tmem wrote only {off} bytes to swap")
    guest, written = hog(context)
    expect(guest.counters().get("frontswap_stores", 0) > 0, "no store reached the host")
    expect(written <= off // 50, f"with tmem {written} bytes went to the swap disk, {off} without")
    return f"swap writes {off / MIB:.0f} MiB without, {written / MIB:.2f} with"


def swap_writethrough(context):
    """Pages go to the disk and to the host; nothing is promised, everything is right."""
    guest, written = hog(context, append="tmem.cleancache=1 tmem.frontswap=writethrough")
    expect(written > 16 * MIB, f"only {written} bytes were written through")
    counters = guest.counters()
    loads = counters.get("frontswap_loads", 0) - counters.get("frontswap_load_device", 0)
    expect(loads > 0, "no load was answered by the host")
    return f"{written / MIB:.0f} MiB written through, {loads} loads from the host"


def swap_half_pool(context):
    """Credits for half of the overflow: the rest goes to the disk, and all comes back right."""
    guest, written = hog(context, pool_min_mib=(_HOG_MIB - _GUEST_MIB) // 2)
    counters = guest.counters()
    refused = counters.get("frontswap_refused_no_credit", 0)
    expect(written > 4 * MIB, f"only {written} bytes went to the disk")
    expect(refused > 0, "no put was refused for lack of credit")
    expect(counters.get("frontswap_stores", 0) > 0, "no store was taken")
    return f"{refused} refused, {written / MIB:.0f} MiB to the disk"


def swap_thp_always(context):
    """Large folios reach the store hook, and come back right."""
    guest, _ = hog(context, thp="always")
    large = guest.counters().get("frontswap_large_folios", 0)
    expect(large > 0, "no large folio at the store hook: this test has tested nothing")
    return f"{large} large folios"


def _verify_swapped(guest):
    expect_no_wrong([finish_swapped(guest)], "hog")


def swapoff_brings_back(context):
    """swapoff reads back what the host holds; the same area can be used again after it."""
    host = context.host(limit_mib=256, pool_min_mib=160)
    disk = disks.empty(context.directory / "swap.img", 300 * MIB)
    guest = context.guest(host, memory_mib=128, disks=[disks.Disk(disk)])
    swap_on(guest, "vda")
    swapped_out(context, guest)
    held = host.guest_status("guest")["persistent_pages"]
    expect(held > 1000, f"the host holds only {held} pages before swapoff: {losses(guest)};"
           f" console ends:\n{guest.console()[-500:]}")
    guest.run("swapoff /dev/vda", 120)
    left = host.guest_status("guest")["persistent_pages"]
    expect(left == 0, f"the host holds {left} pages after swapoff")
    _verify_swapped(guest)
    guest.run("rm /tmp/gate2; swapon /dev/vda")
    before = guest.counters().get("frontswap_stores", 0)
    expect_no_wrong(guest.workload(f"hog bytes={144 * MIB} seed={context.seed + 2} plan=fv"), "hog")
    expect(guest.counters().get("frontswap_stores", 0) > before, "no store after the second swapon")
    return f"{held} pages brought back"


def switched_off_in_use(context):
    """Both hooks switched off at run time: nothing new is put, what is held comes back right."""
    host = context.host(limit_mib=256, pool_min_mib=160)
    disk = disks.empty(context.directory / "swap.img", 300 * MIB)
    guest = context.guest(host, memory_mib=128, disks=[disks.Disk(disk)])
    swap_on(guest, "vda")
    swapped_out(context, guest)
    guest.run(f"echo 0 > {SWITCH}frontswap; echo 0 > {SWITCH}cleancache")
    before = guest.counters()
    _verify_swapped(guest)
    expect_no_wrong(guest.workload(f"hog bytes={144 * MIB} seed={context.seed + 2} plan=fv"), "hog")
    after = guest.counters()
    for name in ["puts", "frontswap_stores"]:
        expect(after[name] == before[name], f"{name} went on after the switch")
    expect(after["frontswap_loads"] > before["frontswap_loads"], "no load after the switch")
    return f"{after['frontswap_loads'] - before['frontswap_loads']} loads after the switch"


CASES = {case.__name__: case for case in
         [swap_off_and_tmem, swap_writethrough, swap_half_pool, swap_thp_always,
          swapoff_brings_back, switched_off_in_use]}
