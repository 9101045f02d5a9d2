# SPDX-License-Identifier: GPL-2.0-only
"""`never-put`: a file that fits into the guest is read, read again and deleted.

Nothing is stored, so the guest must not turn to the host at all."""

from guest import measure
from lab import disks

MIB = disks.MIB
_GUEST_MIB = 128
_FILE_MIB = 32


def plan(options, store, progress):
    """Yields (setup, a function that runs it)."""
    setup = measure.Setup(
        workload="never-put", variant="tmem", corpus="text", disk_mb_s=0, thp="off",
        seed=options.seed, guest_mib=_GUEST_MIB, workload_bytes=_FILE_MIB * MIB, limit_mib=96,
        pool_min_mib=32)
    yield setup, lambda: _run(setup, store, progress)


def _run(setup, store, progress):
    image, sums = store.corpus(setup.corpus, setup.workload_bytes, progress)
    # Writable, for the end: deleting flushes the file. The image is made anew for the next run.
    result = measure.run(
        setup, [disks.Disk(image), disks.Disk(sums, readonly=True)],
        "mount -t ext4 -o noatime /dev/vda /mnt",
        "stream file=/mnt/data index=/dev/vdb passes=2", progress,
        finish="rm /mnt/data && sync")
    store.forget()
    return result
