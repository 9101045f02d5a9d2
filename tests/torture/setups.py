# SPDX-License-Identifier: GPL-2.0-only
"""Set-ups of the torture: guest, disks, and what the guest's program is told to do."""

import dataclasses

FILE_SYSTEMS = ("ext4", "ext4-1k", "xfs", "btrfs")


@dataclasses.dataclass(frozen=True)
class Setup:
    """One way to torture. Options of the guest's program stand in tests/torture/README.md."""

    fs: str = "ext4"
    cpus: int = 1
    memory_mib: int = 144
    mounts: int = 2
    twins: bool = False  # both file systems hold files of equal inode numbers and generations
    writes_s: int = 0  # of each file system's disk; 0: unthrottled
    thp: bool = False
    append: str = ""
    limit_mib: int = 512
    pool_min_mib: int = 160
    pause: tuple = ()  # (every so many seconds, tmemd stands still for so many)
    options: dict = dataclasses.field(default_factory=dict)

    def program_options(self):
        options = {"mounts": self.mounts, "type": self.fs.partition("-")[0], "workers": 3,
                   "big": 5, "big_kib": 8192, "small": 250, "small_kib": 64,
                   "hogs": 1, "hog_mib": 48, "thp": int(self.thp), **self.options}
        return options

    def with_options(self, **options):
        return dataclasses.replace(self, options={**self.options, **options})

    @property
    def swaps(self):
        return self.program_options()["hogs"] > 0


def whole(fs, seed):
    """Everything at once, for `make torture`; what varies follows from the seed."""
    return Setup(fs=fs, cpus=4 if seed % 2 else 1, thp=seed % 4 >= 2, twins=fs == "ext4")
