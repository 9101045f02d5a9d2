# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of cleancache: what a file holds is what is read, and comes from the host."""

import re

from lab import disks
from lab.case import (ON, disk_reads, expect, expect_no_wrong, fewest_reads, losses,
                      make_and_mount)

MIB = disks.MIB


def off_boots(context):
    """The patched kernel with tmem off: hooks idle, all works, the lab notices wrong bytes."""
    guest = make_and_mount(context, "ext4")
    expect_no_wrong(guest.workload(f"fileops file=/mnt/f ops=500 seed={context.seed}"), "fileops")
    guest.workload(f"makefile file=/mnt/g bytes={8 * MIB} seed={context.seed}")
    expect_no_wrong(guest.workload(f"stream file=/mnt/g seed={context.seed} drop=1"), "stream")
    other = guest.workload(f"stream file=/mnt/g seed={context.seed} version=1 passes=1")
    wrong = other[-1]["wrong"]
    expect(wrong > 1000, f"the lab sees only {wrong} wrong pages in a file of another version")
    moved = {name: count for name, count in guest.counters().items() if count}
    expect(not moved, f"tmem is off, and its counters moved: {moved}")


def no_host(context):
    """tmem asked for, no device there: said once, everything else works."""
    guest = make_and_mount(context, "ext4", append=ON)
    expect_no_wrong(guest.workload(f"fileops file=/mnt/f ops=500 seed={context.seed}"), "fileops")
    said = [line for line in guest.run("dmesg").splitlines()
            if re.search(r"\btmem: ", line)]
    expect(len(said) == 1, f"one line of tmem was expected in the kernel log: {said}")
    return said[0].partition("] ")[2]


def stream_text(context):
    """A text file of 2.7 times the guest's memory: the second pass comes from the host."""
    file_mib = 512 if context.long else 192
    image, sums = context.images.corpus("text", file_mib)
    host = context.host(limit_mib=file_mib + 64)
    # The guest's table of keys covers four times its memory.
    guest = context.guest(host, memory_mib=file_mib * 3 // 8,
                          disks=[disks.Disk(image, readonly=True),
                                 disks.Disk(sums, readonly=True)])
    guest.run("mount -t ext4 -o ro,noatime /dev/vda /mnt")

    def one_pass():
        return guest.workload("stream file=/mnt/data index=/dev/vdb passes=1", 300)

    first, events = disk_reads(guest, 0, one_pass)
    expect_no_wrong(events, "first pass")
    second = fewest_reads(guest, 0, one_pass, first // 10)
    expect(first >= file_mib * MIB, f"first pass read only {first} bytes from the disk")
    expect(second <= first // 10, f"second pass read {second} of {first} bytes from the disk;"
                                  f" {losses(guest)}")
    return f"disk reads {first / MIB:.0f} then {second / MIB:.1f} MiB"


def _file_system(context, kind, ops, raw):
    host = context.host()
    guest = make_and_mount(context, kind, host=host, memory_mib=160, cpus=2)
    seed = context.seed
    guest.workload(f"makefile file=/mnt/g bytes={24 * MIB} seed={seed}")
    stream = f"stream file=/mnt/g seed={seed} passes=1 drop=1"
    gentle = f"stream file=/mnt/g seed={seed} passes=1 drop=2"
    expect_no_wrong(guest.workload(stream), "first read")
    reads = fewest_reads(guest, 0, lambda: guest.workload(gentle), 24 * MIB // 10)
    expect(reads <= 24 * MIB // 10, f"after eviction {reads} bytes came from the disk;"
                                    f" {losses(guest)}")
    # Other bytes under the same keys: by write, then after truncation.
    for truncate in [0, 1]:
        guest.workload(f"makefile file=/mnt/g bytes={24 * MIB} seed={seed} version={truncate + 1}"
                       f" truncate={truncate}")
        expect_no_wrong(guest.workload(f"{stream} version={truncate + 1}"), "after a rewrite")
    rounds = 4 if context.long else 1
    for turn in range(rounds):
        expect_no_wrong(guest.workload(f"fileops file=/mnt/f ops={ops} seed={seed + turn}", 900),
                        f"fileops seed={seed + turn}")
    guest.workload(f"makefile file=/mnt/g bytes={4 * MIB} seed={seed}")
    expect_no_wrong(
        guest.workload(f"remount file=/mnt/g mount=/mnt device=/dev/vda type={kind}"
                       f" bytes={4 * MIB} seed={seed} raw={int(raw)}"), "remount")
    hits = guest.counters().get("get_hits", 0)
    expect(hits > 0, "no get hit")
    return f"{hits} hits"


def files_ext4(context):
    """ext4: rereads hit; rewrites, truncation, direct writes, holes, remounts show no old byte."""
    return _file_system(context, "ext4", 20000 if context.long else 2000, raw=True)


def files_xfs(context):
    """The same on xfs."""
    return _file_system(context, "xfs", 10000 if context.long else 1000, raw=True)


def files_btrfs(context):
    """The same on btrfs, whose checksums forbid to change a block behind its back."""
    return _file_system(context, "btrfs", 5000 if context.long else 500, raw=False)


CASES = {case.__name__: case for case in
         [stream_text, files_ext4, files_xfs, files_btrfs, off_boots, no_host]}
