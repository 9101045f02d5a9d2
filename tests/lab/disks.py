# SPDX-License-Identifier: GPL-2.0-only
"""Disk images for guests: raw files, file systems made on the host without mounting anything."""

import dataclasses
import os
import pathlib
import subprocess
import tempfile

from lab import paths

MIB = 1 << 20


@dataclasses.dataclass
class Disk:
    """One virtio-blk disk. The guest sees disks as /dev/vda, vdb, ... in the order given."""

    path: pathlib.Path
    mb_s: float = 0  # total rate of reads and writes, 10^6 bytes a second; 0: unthrottled
    readonly: bool = False
    writes_s: int = 0  # write requests a second; 0: any number

    def qemu_arguments(self, number, snapshots=False):
        """`snapshots`: what is written goes to an overlay that can be saved and rolled back."""
        # Written back by the host's page cache, so that an unthrottled disk costs no real I/O.
        drive = f"if=none,id=disk{number},file={self.path},format=raw,cache=unsafe,aio=threads"
        if self.mb_s:
            drive += f",throttling.bps-total={int(self.mb_s * 1_000_000)}"
        if self.writes_s:
            drive += f",throttling.iops-write={self.writes_s}"
        if self.readonly:
            drive += ",readonly=on"
        elif snapshots:
            drive += ",snapshot=on"
        return ["-drive", drive, "-device", f"virtio-blk-pci,drive=disk{number}"]


def _run(arguments):
    try:
        subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except FileNotFoundError:
        raise paths.Missing(f"no {arguments[0]}: run `make setup`") from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{arguments[0]}: {error.stderr.decode(errors='replace')}") from None


def empty(path, size_bytes):
    """A sparse raw file."""
    with open(path, "wb") as image:
        image.truncate(size_bytes)
    return path


# The smallest images their tools make without special options.
_LEAST_BYTES = {"ext4": 32 * MIB, "xfs": 320 * MIB, "btrfs": 128 * MIB}


def make_file_system(path, kind, size_bytes, files=None):
    """An image of a file system; `files` maps names to host files it is to hold (ext4 only)."""
    empty(path, max(size_bytes, _LEAST_BYTES[kind]))
    if kind == "xfs":
        _run(["mkfs.xfs", "-q", "-f", path])
    elif kind == "btrfs":
        _run(["mkfs.btrfs", "-q", "-f", path])
    else:
        with tempfile.TemporaryDirectory(dir=path.parent) as tree:
            for name, source in (files or {}).items():
                os.link(source, pathlib.Path(tree) / name)
            # No lazy initialisation: it would read and write behind the measurement.
            _run(["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-I", "256",
                  "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", "-d", tree, path])
    return path


def warm(path):
    """Reads a file into the host's page cache, as far as the host has room for it."""
    with open(path, "rb", buffering=0) as image:
        while image.read(MIB):
            pass
