# SPDX-License-Identifier: GPL-2.0-only
"""Disk images of a plan's runs, made at first use. They are large: one is kept at a time."""

from guest import corpus
from lab import disks

# How the guest mounts an image with a corpus.
MOUNT = "mount -t ext4 -o ro,noatime /dev/vda /mnt"


class Images:
    def __init__(self, directory):
        self.directory = directory
        self._name = None
        self._made = None
        self._trees = {}

    def get(self, name, make):
        """What make(path) made of this name, path first; in the host's page cache."""
        if self._name != name:
            self.forget()
            self._made = make(self.directory / f"{name}.img")
            self._name = name
        disks.warm(self._made[0])
        return self._made

    def tree(self, name, make):
        """The same for an image alone that takes long to make: kept to the end."""
        if name not in self._trees:
            self._trees[name] = make(self.directory / f"{name}.img")
        disks.warm(self._trees[name])
        return self._trees[name]

    def forget(self):
        if self._made:
            self._made[0].unlink()
        self._name = self._made = None

    def corpus(self, name, size_bytes, progress):
        """(an ext4 image with the corpus as file `data`, the sums of its pages)"""

        def make(path):
            progress.phase(f"corpus {name}, {size_bytes // disks.MIB} MiB")
            data = corpus.build(name, size_bytes)
            return corpus.make_image(data, path), data.sums

        return self.get(f"{name}-{size_bytes}", make)
