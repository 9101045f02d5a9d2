# SPDX-License-Identifier: GPL-2.0-only
"""Images that several tests share, read-only; made at first use."""

import sys
import threading

from lab import disks, paths

sys.path.insert(0, str(paths.ROOT / "bench"))

from guest import corpus  # noqa: E402


def build_text(size_mib):
    """Puts the text corpus of this size into the cache."""
    corpus.build("text", size_mib * disks.MIB)


class Images:
    def __init__(self, directory):
        self._directory = directory
        self._lock = threading.Lock()
        self._made = {}

    def corpus(self, name, size_mib):
        """(an ext4 image with the corpus as file `data`, the sums of its pages)"""
        with self._lock:
            key = (name, size_mib)
            if key not in self._made:
                data = corpus.build(name, size_mib * disks.MIB)
                image = corpus.make_image(data, self._directory / f"{name}-{size_mib}.img")
                self._made[key] = image, data.sums
            return self._made[key]
