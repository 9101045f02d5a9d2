# SPDX-License-Identifier: GPL-2.0-only
"""`streaming`: a file of at least twice the guest's memory, read twice from end to end."""

import contextlib
import pathlib
import tempfile

from guest import corpus, measure
from lab import disks

MIB = disks.MIB


def sizes(quick):
    """(guest MiB, file MiB)"""
    return (128, 256) if quick else (256, 640)


def _plan(corpora, options):
    """Every run in order: off and tmem follow each other, so that drift hits both alike."""
    for repetition in range(options.repeat):
        for name in corpora:
            rates = [options.disk_mb_s] if options.demo else dict.fromkeys([options.disk_mb_s, 0])
            for disk_mb_s in rates:
                for variant in ["off", "tmem"]:
                    yield repetition, name, disk_mb_s, variant


def runs(options, progress):
    """Yields the runs one by one, as they are done."""
    guest_mib, file_mib = sizes(options.quick)
    corpora = [options.corpus] if options.corpus else ["text"] if options.quick else corpus.NAMES
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tmem-disk-")))
        made = {}
        for _, name, disk_mb_s, variant in _plan(corpora, options):
            if name not in made:
                for other, image in made.values():
                    image.unlink()
                made.clear()
                progress.phase(f"corpus {name}, {file_mib} MiB")
                data = corpus.build(name, file_mib * MIB)
                made[name] = data, corpus.make_image(data, directory / f"{name}.img")
            data, image = made[name]
            # The pool can hold the whole file, even one that does not compress.
            setup = measure.Setup(
                workload="streaming", variant=variant, corpus=name, disk_mb_s=disk_mb_s, thp="off",
                seed=options.seed, guest_mib=guest_mib, workload_bytes=data.bytes,
                limit_mib=file_mib * 5 // 4 + 64, pool_min_mib=32)
            disks.warm(image)
            yield measure.run(
                setup,
                [disks.Disk(image, mb_s=disk_mb_s, readonly=True),
                 disks.Disk(data.sums, readonly=True)],
                "mount -t ext4 -o ro,noatime /dev/vda /mnt",
                "stream file=/mnt/data index=/dev/vdb passes=2", progress)
