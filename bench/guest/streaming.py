# SPDX-License-Identifier: GPL-2.0-only
"""`streaming`: a file of at least twice the guest's memory, read twice from end to end."""

from guest import corpus, images, measure
from lab import disks

MIB = disks.MIB


def sizes(options):
    """(guest MiB, file MiB)"""
    guest_mib, file_mib = (128, 256) if options.quick else (256, 640)
    return options.guest_mib or guest_mib, options.file_mib or file_mib


def corpora(options):
    if options.corpus:
        return [options.corpus]
    return ["text"] if options.quick else corpus.NAMES


def plan(options, store, progress, names=None, rates=None):
    """Yields (setup, a function that runs it): off and tmem in turn, so that drift hits both."""
    guest_mib, file_mib = sizes(options)
    if rates is None:
        rates = [options.disk_mb_s] if options.demo else dict.fromkeys([options.disk_mb_s, 0])
    for name in names or corpora(options):
        for disk_mb_s in rates:
            for variant in ["off", "tmem"]:
                # The pool can hold the whole file, even one that does not compress.
                setup = measure.Setup(
                    workload="streaming", variant=variant, corpus=name, disk_mb_s=disk_mb_s,
                    thp="off", seed=options.seed, guest_mib=guest_mib,
                    workload_bytes=file_mib * MIB, limit_mib=file_mib * 5 // 4 + 64,
                    pool_min_mib=32, append=options.append)
                yield setup, lambda setup=setup: _run(setup, store, progress)


def _run(setup, store, progress):
    image, sums = store.corpus(setup.corpus, setup.workload_bytes, progress)
    return measure.run(
        setup,
        [disks.Disk(image, mb_s=setup.disk_mb_s, readonly=True), disks.Disk(sums, readonly=True)],
        images.MOUNT, "stream file=/mnt/data index=/dev/vdb passes=2", progress)
