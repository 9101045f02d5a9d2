# SPDX-License-Identifier: GPL-2.0-only
"""The torture's file systems: new images, or two of equal inode numbers and generations."""

import pathlib
import shutil
import subprocess
import tempfile

from lab import disks

MIB = disks.MIB


def _make(path, fs, size_bytes, names):
    if fs.startswith("ext4"):
        block = "1024" if fs == "ext4-1k" else "4096"
        disks.empty(path, size_bytes)
        with tempfile.TemporaryDirectory(dir=path.parent) as tree:
            for name in names:
                file = pathlib.Path(tree) / name
                file.parent.mkdir(exist_ok=True)
                file.touch()
            # What -d makes has generation 0, in every image.
            subprocess.run(
                ["mke2fs", "-q", "-F", "-t", "ext4", "-b", block, "-m", "0", "-I", "256",
                 "-N", "8192", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
                 "-d", tree, path],
                check=True, stdout=subprocess.DEVNULL)
        return path
    return disks.make_file_system(path, fs, size_bytes)


def make(directory, setup):
    """Paths of the images of a set-up's file systems."""
    options = setup.program_options()
    files = options["big"] + options["small"]
    held = options["big"] * options["big_kib"] + options["small"] * options["small_kib"]
    size_bytes = held * 1024 * 3 // 2 + 64 * MIB
    if setup.fs == "btrfs":
        size_bytes = held * 1024 * 3 + 256 * MIB
    names = [f"d{number % 4}/f{number}" for number in range(files)] if setup.twins else []
    paths = [_make(directory / "fs0.img", setup.fs, size_bytes, names)]
    for number in range(1, setup.mounts):
        path = directory / f"fs{number}.img"
        if setup.twins:
            shutil.copy(paths[0], path)
        else:
            _make(path, setup.fs, size_bytes, names)
        paths.append(path)
    return paths
