# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of what the host wants back: page cache, and swapped-out pages that go home."""

import base64
import os
import pathlib

from lab import disks, paths
from lab.case import (ON, disk_reads, disk_writes, expect, finish_swapped, losses, swap_on,
                      swapped_out)

MIB = disks.MIB
SHRINK = f"{ON} tmem.shrink=1"
_FILE_MIB = 96
_SCRIPT = paths.ROOT / "guest-shims" / "user" / "tmem-shrink"


def _ctl(host, *words, code=0):
    done = host.ctl(*words)
    said = (done.stdout + done.stderr).strip()
    expect(done.returncode == code, f"tmemctl {' '.join(words)} ended with {done.returncode}:"
           f" {said}")
    return said


def _meminfo_mib(guest, name):
    return int(guest.run(f"grep ^{name}: /proc/meminfo").split()[1]) / 1024


def _with_a_file(context, host, **options):
    """A guest that has read a file of random bytes; returns it and what to check the file by."""
    path = context.directory / "data"
    path.write_bytes(os.urandom(_FILE_MIB * MIB))
    image = disks.make_file_system(context.directory / "ext4.img", "ext4", 160 * MIB,
                                   {"data": path})
    guest = context.guest(host, disks=[disks.Disk(image)], **options)
    guest.run("mount -t ext4 -o noatime /dev/vda /mnt")
    return guest, guest.run("md5sum < /mnt/data")


def _read_again(guest, right):
    """Bytes read from the disk; the file is what it was."""
    read, found = disk_reads(guest, 0, lambda: guest.run("md5sum < /mnt/data"))
    expect(found == right, f"the file reads as {found}, and was {right}")
    return read


def shrink_gives_memory_back(context):
    """The cache goes to the pool, free memory to the host; read again, it comes from the pool."""
    ram = pathlib.Path("/dev/shm") / f"tmem-{context.name}-{os.getpid()}"
    host = context.host([f"guest,ram={ram},shrink=on"], limit_mib=256, pool_min_mib=32)
    try:
        guest, right = _with_a_file(context, host, memory_mib=256, ram_file=ram,
                                    append=f"{SHRINK} tmem.reporting=1 tmem.shrink_floor_mb=16")
        cached = _meminfo_mib(guest, "Cached")
        resident = ram.stat().st_blocks * 512 / MIB
        said = _ctl(host, "shrink", "guest", f"{_FILE_MIB - 16}M")
        given = cached - _meminfo_mib(guest, "Cached")
        expect(given > _FILE_MIB - 32, f"only {given:.0f} MiB of cache went: {said}")
        # What shares 2 MiB with other memory stays: much of so little.
        context.wait(lambda: ram.stat().st_blocks * 512 / MIB < resident - given * 0.5,
                     lambda: f"{ram.stat().st_blocks * 512 / MIB:.0f} MiB resident, {resident:.0f}"
                     f" before, {given:.0f} were given; {guest.counters()}")
        read = _read_again(guest, right) / MIB
        expect(read < _FILE_MIB / 4, f"{read:.0f} MiB came from the disk; {losses(guest)}")
        # A target beyond all bounds ends at the floor.
        said = _ctl(host, "shrink", "guest", "1T")
        expect("no more to give" in said, said)
        expect(_meminfo_mib(guest, "Cached") > 12, "nothing of the cache is left")
        _read_again(guest, right)
        return f"{given:.0f} MiB given, {read:.1f} of {_FILE_MIB} MiB read from the disk again"
    finally:
        ram.unlink(missing_ok=True)


def shrink_by_user(context):
    """Without the kernel's help a program is asked, and gives what it can."""
    host = context.host(["guest,shrink=on"], limit_mib=256, pool_min_mib=32)
    guest, right = _with_a_file(context, host, memory_mib=256,
                                append=f"{ON} tmem.shrink=user tmem.shrink_floor_mb=8")
    cached = _meminfo_mib(guest, "Cached")
    text = base64.b64encode(_SCRIPT.read_bytes()).decode("ascii")
    for at in range(0, len(text), 400):
        guest.run(f"echo {text[at:at + 400]} >> /tmp/text")
    guest.run("base64 -d < /tmp/text > /tmp/tmem-shrink; chmod +x /tmp/tmem-shrink;"
              " TMEM_CGROUP=/cgroup uevent /tmp/tmem-shrink > /dev/null 2>&1 < /dev/null &")
    _ctl(host, "shrink", "guest", "64M")
    given = cached - _meminfo_mib(guest, "Cached")
    expect(given > 40, f"only {given:.0f} MiB of cache went")
    expect(guest.run("cat /proc/sys/vm/swappiness").strip() == "60", "swappiness is another one")
    read = _read_again(guest, right) / MIB
    return f"{given:.0f} MiB given, {read:.1f} MiB read from the disk again"


def shrink_refused(context):
    """Off on either side: the operator is told, and the guest keeps what it has."""
    host = context.host(["guest,shrink=on", "other"])
    guest = context.guest(host)
    said = _ctl(host, "shrink", "guest", "64M", code=1)
    expect("tmem.shrink=1" in said, said)
    said = _ctl(host, "drain", "guest", code=1)
    expect("tmem.shrink=1" in said, said)
    said = _ctl(host, "shrink", "other", "64M", code=1)
    expect("shrink=on" in said, said)
    expect(guest.counters()["shrunk_pages"] == 0, "it gave something up")


def drain_brings_pages_home(context):
    """All swapped-out pages go home, more than fit in memory; then nobody needs the daemon."""
    host = context.host(["guest,shrink=on"], limit_mib=192, pool_min_mib=128)
    disk = disks.empty(context.directory / "swap.img", 256 * MIB)
    guest = context.guest(host, memory_mib=96, append=SHRINK, disks=[disks.Disk(disk)])
    swap_on(guest, "vda")
    # Of a drain that was ended nothing is left.
    _ctl(host, "drain", "guest")
    _ctl(host, "drain", "guest", "--undo")
    swapped_out(context, guest)
    held = host.guest_status("guest")["persistent_pages"]
    expect(held > 24 * MIB // 4096, f"only {held} pages were swapped out: {losses(guest)}")
    said = _ctl(host, "drain", "guest")
    left = host.guest_status("guest")["persistent_pages"]
    expect(left == 0, f"{left} pages are still there: {said}")
    # It lets none in again: these go to the guest's own device.
    written, _ = disk_writes(guest, 0, lambda: guest.workload(
        f"hog bytes={100 * MIB} seed=9 plan=fv"))
    expect(host.guest_status("guest")["persistent_pages"] == 0, "new pages came")
    expect(written > MIB, f"only {written} bytes went to the swap device")
    host.kill()
    last = finish_swapped(guest)
    for key in ("wrong", "stale", "sigbus"):
        expect(last.get(key, 0) == 0, f"{key} = {last.get(key)} after the drain: {said}")
    return f"{held * 4096 / MIB:.0f} MiB home, {said.splitlines()[-1]}"


# By hypercall too.
LAB_CASES = {case.__name__: case for case in [shrink_gives_memory_back, drain_brings_pages_home]}

CASES = {case.__name__: case for case in [
    shrink_gives_memory_back, shrink_by_user, shrink_refused, drain_brings_pages_home]}
