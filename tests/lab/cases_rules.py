# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of what is put and what is not: which file systems, which pages, for how long."""

import time

from lab import disks
from lab.case import ON, SWITCH, disk_reads, expect, expect_no_wrong, make_and_mount

MIB = disks.MIB
_FILE = f"bytes={16 * MIB}"


def _read_twice(context, guest, path):
    """Makes a file, drops and reads it, twice; returns what the counters moved by."""
    before = guest.counters()
    guest.workload(f"makefile file={path} {_FILE} seed={context.seed}")
    expect_no_wrong(guest.workload(f"stream file={path} seed={context.seed} passes=2 drop=1"), path)
    after = guest.counters()
    return {name: after[name] - before.get(name, 0) for name in after}


def encrypted_disk_refused(context):
    """Pages of a file system on dm-crypt are not put, unless tmem.plaintext=1 allows it."""
    for plaintext in [0, 1]:
        guest = make_and_mount(context, "ext4", host=context.host(),
                               append=f"{ON} tmem.plaintext={plaintext}")
        guest.run("umount /mnt")
        guest.workload(f"dmcrypt device=/dev/vda sectors={160 * MIB // 512}")
        # An empty file system through the mapping: its plaintext is made here, in the guest.
        guest.run("mke2fs /dev/lab-crypt > /dev/null;"
                  " mount -t ext4 -o noatime /dev/lab-crypt /mnt")
        moved = _read_twice(context, guest, "/mnt/f")
        puts = moved["puts"] - moved["puts_cancelled"]
        expect((puts > 0) == bool(plaintext), f"tmem.plaintext={plaintext}: {puts} puts")
        guest.kill()


def other_file_systems_refused(context):
    """tmem.fs= narrows the list of file systems; what is not on it is read from the disk."""
    guest = make_and_mount(context, "ext4", host=context.host(), append=f"{ON} tmem.fs=xfs,btrfs")
    moved = _read_twice(context, guest, "/mnt/f")
    expect(moved["puts"] == 0, f"{moved['puts']} puts of a file system that tmem.fs= leaves out")


def pruned_inodes_keep_pages(context):
    """Inodes of live files leave the inode cache: their pages stay with the host."""
    guest = make_and_mount(context, "ext4", host=context.host())
    files = 100
    guest.run(f"for i in $(seq {files}); do workload makefile file=/mnt/f$i bytes=65536 seed=$i"
              " > /dev/null; done; sync", 120)
    guest.run("echo 3 > /proc/sys/vm/drop_caches; echo 3 > /proc/sys/vm/drop_caches")
    check = (f"for i in $(seq {files}); do workload stream file=/mnt/f$i seed=$i passes=1; done"
             " | grep -c '\"wrong\": 0'")
    reads, right = disk_reads(guest, 0, lambda: guest.run(check, 120))
    expect(int(right) == files, f"{right} of {files} files were right")
    expect(reads < files * 65536 // 4, f"{reads} bytes were read from the disk after pruning")
    guest.run("rm /mnt/f*; sync")
    return f"{reads // 1024} KiB of {files * 64} read from the disk"


def workingset_admission(context):
    """tmem.admission=workingset puts only what was used more than once."""
    guest = make_and_mount(context, "ext4", host=context.host(),
                           append=f"{ON} tmem.admission=workingset")
    moved = _read_twice(context, guest, "/mnt/f")
    dropped = moved["puts_dropped_admission"]
    expect(dropped > 0, "no page was refused admission")
    return f"{dropped} pages not admitted, {moved['puts']} put"


def cleancache_switch(context):
    """Switched off, nothing new is put and what is held is still found; switched on, puts go on."""
    guest = make_and_mount(context, "ext4", host=context.host())
    guest.workload(f"makefile file=/mnt/f {_FILE} seed={context.seed}")
    guest.run("echo 1 > /proc/sys/vm/drop_caches")
    guest.run(f"echo 0 > {SWITCH}cleancache")
    stream = f"stream file=/mnt/f seed={context.seed} passes=1 drop=1"
    before = guest.counters()
    expect_no_wrong(guest.workload(stream), "stream when off")
    expect_no_wrong(guest.workload(stream), "stream when off")
    off = guest.counters()
    expect(off["puts"] == before["puts"], "puts went on after the switch")
    expect(off["get_hits"] > before["get_hits"], "pages that were held are not found")
    guest.run(f"echo 1 > {SWITCH}cleancache")
    expect_no_wrong(guest.workload(stream), "stream when on")
    expect_no_wrong(guest.workload(stream), "stream when on")
    expect(guest.counters()["puts"] > off["puts"], "no puts after switching on again")


def full_table_goes_on(context):
    """A file of 24 times the table of keys: the oldest keys make room, and puts go on."""
    keys, pages = 2048, 24 * 2048
    image, sums = context.images.corpus("text", pages * 4096 // MIB)
    guest = context.guest(context.host(), memory_mib=96, append=f"{ON} tmem.table_keys={keys}",
                          # Slow, so that a busy host takes all puts.
                          disks=[disks.Disk(image, mb_s=40, readonly=True),
                                 disks.Disk(sums, readonly=True)])
    guest.run("mount -t ext4 -o ro,noatime /dev/vda /mnt")
    expect_no_wrong(guest.workload("stream file=/mnt/data index=/dev/vdb passes=1", 300), "stream")
    counters = guest.counters()
    expect(counters["table_evictions"] > pages // 4, f"{counters['table_evictions']} evictions")
    expect(counters["puts"] > pages // 2, f"{counters['puts']} puts of {pages} pages")
    dropped = counters["puts_dropped_table"]
    expect(dropped < counters["puts"] // 4, f"{dropped} puts were dropped for want of a key")
    made_room = counters["table_evictions"]
    return f"{counters['puts']} puts, {made_room} keys made room, {dropped} dropped"


def orphan_ends_within_command(context):
    """The lab's own: a child that nobody waits for ends while half of a command has arrived."""
    guest = context.guest()
    for _ in range(3):
        guest.run("sleep 1 &")
        said = guest.run("echo this is a whole command", halfway=lambda: time.sleep(2))
        expect(said == "this is a whole command", f"the guest said: {said}")


CASES = {case.__name__: case for case in
         [encrypted_disk_refused, other_file_systems_refused, pruned_inodes_keep_pages,
          workingset_admission, cleancache_switch, full_table_goes_on,
          orphan_ends_within_command]}
