# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of guests that end, start over, go back in time, or stand still."""

import json
import time

from lab import disks
from lab.case import (disk_writes, expect, expect_no_wrong, finish_swapped, losses, swap_on,
                      swapped_out)

MIB = disks.MIB


def _guest(context, host, snapshots=False, **options):
    """Swaps on vda, has an empty file system on vdb."""
    number = time.monotonic_ns()
    swap = disks.empty(context.directory / f"swap-{number}.img", 300 * MIB)
    files = disks.make_file_system(context.directory / f"files-{number}.img", "ext4", 96 * MIB)
    guest = context.guest(host, memory_mib=128, snapshots=snapshots,
                          disks=[disks.Disk(swap), disks.Disk(files)], **options)
    _mount(guest)
    return guest


def _mount(guest):
    swap_on(guest, "vda")
    guest.run("mount -t ext4 -o noatime /dev/vdb /mnt")


def _make_file(guest, seed, version, truncate=1):
    guest.workload(f"makefile file=/mnt/data bytes={24 * MIB} seed={seed} version={version}"
                   f" truncate={truncate}")


def _read_file(guest, seed, version):
    """Reads the file twice; afterwards it is the host that has its pages."""
    expect_no_wrong(
        guest.workload(f"stream file=/mnt/data seed={seed} version={version} passes=2 drop=2"),
        f"version {version} of the file")
    guest.run("echo 1 > /proc/sys/vm/drop_caches")


def _no_wrong_swap(event, what):
    expect(event["wrong"] == 0, f"{what}: {event['wrong']} wrong pages")
    return event["sigbus"]


def _hog(context, guest, seed, what):
    expect_no_wrong(
        guest.workload(f"hog bytes={144 * MIB} seed={context.seed + seed} plan=fv", 200), what)


# ---- ended, started over ----


def reset_and_killed(context):
    """A guest that is reset or killed leaves nothing behind, and starts again with nothing old."""
    host = context.host(limit_mib=256, pool_min_mib=160)
    before = host.status()["used_bytes"]
    guest = _guest(context, host, reboots=True)
    _make_file(guest, context.seed, 1)
    swapped_out(context, guest)
    _read_file(guest, context.seed, 1)
    held = host.guest_status("guest")
    # Dropped at once, many clean pages find no slot.
    for kind, enough in [("persistent_pages", 500), ("ephemeral_pages", 50)]:
        expect(held[kind] > enough, f"before the reset only {held[kind]} {kind}")
    guest.reset()
    after = host.guest_status("guest")
    for kind in ["persistent_pages", "ephemeral_pages"]:
        expect(after[kind] == 0, f"after the reset {after[kind]} {kind}")
    registrations = [status["counters"]["registrations"] for status in [held, after]]
    expect(registrations == [1, 2], f"registrations before and after: {registrations}")
    _mount(guest)
    # Other contents under the names of the first life.
    _make_file(guest, context.seed, 2, truncate=0)
    _read_file(guest, context.seed, 2)
    _hog(context, guest, 5, "hog of the second life")
    expect(guest.counters()["frontswap_stores"] > 500, "no stores in the second life")
    expect(guest.counters()["get_hits"] > 100, "no hits in the second life")
    full = host.status()["used_bytes"]
    guest.kill()
    host.await_guest(connected=False)
    left = host.status()
    expect(left["pages"] == 0, f"after the kill {left['pages']} pages are held")
    used = left["used_bytes"] - before
    expect(used < 4 * MIB, f"after the kill {used / MIB:.1f} MiB are not returned")
    return (f"{held['persistent_pages']} + {held['ephemeral_pages']} pages gone with the reset;"
            f" {full / MIB:.1f} MiB used, {used / MIB:.1f} left after the kill")


# ---- rolled back ----


def _future(context, guest, seed):
    """Gives the host newer bytes under the names it knew at the snapshot."""
    _make_file(guest, seed, 2, truncate=0)
    _read_file(guest, seed, 2)
    last = finish_swapped(guest)
    expect_no_wrong([last], "hog before it goes back")
    expect_no_wrong(
        guest.workload(f"hog bytes={144 * MIB} seed={context.seed + 3} plan=fvfv", 200), "future")


def rolled_back(context):
    """savevm, changes, loadvm: no bytes from the future; both sides notice and count it."""
    host = context.host(limit_mib=320, pool_min_mib=200)
    guest = _guest(context, host, snapshots=True)
    notes = []
    for turn in range(3 if context.long else 1):
        seed = context.seed + 10 * turn
        _make_file(guest, seed, 1)
        swapped_out(context, guest)
        _read_file(guest, seed, 1)
        counters, status = guest.counters(), host.guest_status("guest")
        guest.save(f"past{turn}")
        # Back at once: host and guest agree, so nothing may be lost.
        guest.load(f"past{turn}")
        _read_file(guest, seed, 1)
        same = guest.counters()
        expect(same["resets"] == counters["resets"], "a reset although nothing had changed")
        _future(context, guest, seed)
        guest.load(f"past{turn}")
        failed = _no_wrong_swap(finish_swapped(guest), "after loadvm")
        _read_file(guest, seed, 1)
        now, now_status = guest.counters(), host.guest_status("guest")
        expect(failed > 1000, f"only {failed} pages failed: whose bytes were the others?")
        resets = now["resets"] - counters["resets"]
        host_resets = now_status["counters"]["resets"] - status["counters"]["resets"]
        lost = now["frontswap_lost"] - counters["frontswap_lost"]
        expect(resets > 0, "the guest did not notice")
        expect(host_resets > 0, "the host did not notice")
        expect(lost >= failed, f"{failed} pages failed, {lost} counted as lost")
        _hog(context, guest, 7, "hog after it went back")
        stores = guest.counters()["frontswap_stores"] - now["frontswap_stores"]
        expect(stores > 500, f"after it went back only {stores} stores were taken")
        notes.append(f"{failed} pages failed, none from the future, {lost} counted as lost, "
                     f"resets {resets} (guest) {host_resets} (host), later {stores} stores")
    return "; ".join(notes)


# ---- standing still ----


def suspended(context):
    """The guest stands still, by its monitor and as a process: nothing is lost, tmem goes on."""
    pause_s = 10 if context.long else 3
    host = context.host(limit_mib=256, pool_min_mib=160)
    guest = _guest(context, host)
    _make_file(guest, context.seed, 1)

    def pause_by_monitor():
        guest.pause()
        time.sleep(pause_s)
        guest.resume()

    guest.run(f"workload hog bytes={136 * MIB} seed={context.seed} plan=fvfv > /tmp/hog &"
              " until grep -q end /tmp/hog; do sleep 0.1; done", 100)
    pause_by_monitor()
    time.sleep(0.3)
    guest.stop_for(pause_s)
    guest.run("until [ $(grep -c end /tmp/hog) = 4 ]; do sleep 0.1; done", 150)
    events = [json.loads(line) for line in guest.run("cat /tmp/hog").splitlines()]
    expect_no_wrong(events, "hog")
    before = guest.counters()
    written, _ = disk_writes(guest, 0, lambda: _hog(context, guest, 1, "hog after"))
    _read_file(guest, context.seed, 1)
    after = guest.counters()
    expect(after["frontswap_load_errors"] == 0, "a page was an error")
    stores = after["frontswap_stores"] - before["frontswap_stores"]
    expect(stores > 1000, f"after it only {stores} stores were taken: {losses(guest)}")
    expect(after["get_hits"] - before["get_hits"] > 100, "no hits after standing still")
    return (f"{before['breaker_trips']} breaker trips; after it {stores} stores, {written} bytes to"
            " the swap disk")


CASES = {case.__name__: case for case in [reset_and_killed, rolled_back, suspended]}
