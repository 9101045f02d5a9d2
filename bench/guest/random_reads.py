# SPDX-License-Identifier: GPL-2.0-only
"""`random`: single pages of a file whose pages are on the host, against a host-cached disk."""

from guest import images, measure
from lab import disks

MIB = disks.MIB


def sizes(quick):
    """(guest MiB, file MiB, reads): the file fits into the guest, so that it can be read in."""
    return (128, 64, 4096) if quick else (256, 160, 16384)


def plan(options, store, progress):
    """Yields (setup, a function that runs it)."""
    guest_mib, file_mib, reads = sizes(options.quick)
    for variant in ["off", "tmem"]:
        setup = measure.Setup(
            workload="random", variant=variant, corpus=options.corpus or "text", disk_mb_s=0,
            thp="off", seed=options.seed, guest_mib=guest_mib, workload_bytes=file_mib * MIB,
            limit_mib=file_mib * 5 // 4 + 64, pool_min_mib=32)
        yield setup, lambda setup=setup: _run(setup, reads, store, progress)


def _run(setup, reads, store, progress):
    image, sums = store.corpus(setup.corpus, setup.workload_bytes, progress)
    return measure.run(
        setup, [disks.Disk(image, readonly=True), disks.Disk(sums, readonly=True)], images.MOUNT,
        f"random file=/mnt/data index=/dev/vdb reads={reads} seed={setup.seed}", progress)
