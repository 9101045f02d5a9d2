# SPDX-License-Identifier: GPL-2.0-only
"""`tree`: many small files, read twice under memory pressure that prunes their inodes as well."""

import pathlib
import tempfile

from guest import measure
from lab import disks
from lab import guest as lab_guest

MIB = disks.MIB
# Sizes are uniform from 4 to 64 KiB; a file's last page counts as a whole one.
_FILE_BYTES = 36 << 10


def sizes(quick):
    """(guest MiB, files)"""
    return (80, 3000) if quick else (256, 20000)


def plan(options, store, progress):
    """Yields (setup, a function that runs it)."""
    guest_mib, files = sizes(options.quick)
    for variant in ["off", "tmem"]:
        setup = measure.Setup(
            workload="tree", variant=variant, corpus=options.fs, disk_mb_s=options.disk_mb_s,
            thp="off", seed=options.seed, guest_mib=guest_mib, workload_bytes=files * _FILE_BYTES,
            limit_mib=files * _FILE_BYTES // MIB * 5 // 4 + 64, pool_min_mib=32)
        yield setup, lambda setup=setup: _run(setup, files, store, progress)


def _make(path, fs, command, progress):
    """Lets a guest make the tree: no file system but ext4 can be filled without mounting it."""
    progress.phase(f"making the tree on {fs}")
    disks.make_file_system(path, fs, 2 << 30)
    with tempfile.TemporaryDirectory(prefix="tmem-bench-") as directory:
        options = lab_guest.Options(memory_mib=384, disks=[disks.Disk(path)])
        with lab_guest.Guest("maker", options, pathlib.Path(directory)) as guest:
            guest.run(f"mount -t {fs} -o noatime /dev/vda /mnt && workload make{command}"
                      " && umount /mnt", 300)
    return path


def _run(setup, files, store, progress):
    fs = setup.corpus
    command = f"tree dir=/mnt files={files} seed={setup.seed}"
    image = store.tree(f"tree-{fs}-{files}-{setup.seed}",
                       lambda path: _make(path, fs, command, progress))
    result = measure.run(setup, [disks.Disk(image, mb_s=setup.disk_mb_s, readonly=True)],
                         f"mount -t {fs} -o ro,noatime /dev/vda /mnt", command, progress)
    result["files"] = files
    return result
