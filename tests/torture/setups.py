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


# Operations of the whole torture, with direct writes that fail half-way.
_FLAKY = {"flaky": 1, "allow_eio": 1,
          "weights": "read:24,mapread:5,dread:5,write:10,mapwrite:6,dwrite:8,aio:8,failwrite:5,"
                     "punch:6,truncate:6,empty:1,append:4,rename:2,recreate:3,replace:2,evict:6,"
                     "drop:1"}


def whole(fs, seed):
    """Everything at once, for `make torture`; what varies follows from the seed."""
    # btrfs writes each block to a new place, so none can be made to fail before.
    flaky = seed % 3 == 1 and fs != "btrfs"
    return Setup(
        fs=fs, cpus=4 if seed % 2 else 1, thp=seed % 4 >= 2, twins=fs == "ext4",
        append="tmem.delay_us=300" if seed % 3 == 2 else "",
        pause=(4, 0.3) if seed % 3 == 0 else (), options=_FLAKY if flaky else {})


# Few and small files, so that each is soon changed, dropped and read again; no swap.
_FILES = {"hogs": 0, "big": 4, "big_kib": 1024, "small": 40, "small_kib": 64, "round_ms": 4000}
# Swap alone, but for a few files.
_SWAP = {"workers": 1, "big": 2, "big_kib": 512, "small": 4, "small_kib": 64, "hogs": 2,
         "hog_mib": 24, "round_ms": 4000}


def _files(weights, options=None, **setup):
    setup = {"memory_mib": 112, "mounts": 1, **setup}
    return Setup(options={**_FILES, "weights": weights, **(options or {})}, **setup)


def _swap(options=None, **setup):
    setup = {"memory_mib": 112, "mounts": 1, **setup}
    return Setup(options={**_SWAP, **(options or {})}, **setup)


# Fault on purpose -> the set-up in which the torture must notice it (docs/testing.md).
FAULTS = {
    # Credits for a part of the pages: stores of slots that the host holds are refused.
    "dropped-put-keeps-old": _swap({"hogs": 1, "hog_mib": 16, "shared": 0}, pool_min_mib=4,
                                   limit_mib=64),
    # Writes wait at the disk, so that old bytes are read and dropped beside them.
    "direct-write-no-invalidate": _files(
        "aio:60,dwrite:10,read:10,evict:5", writes_s=400, append="tmem.delay_us=2000"),
    "direct-write-empty-mapping": _files(
        "aio:60,dwrite:10,read:10,evict:5", {"allow_eio": 1}, writes_s=400,
        append="tmem.delay_us=2000 tmem.fail_direct_writes=7"),
    "stale-staged-put": _files("dwrite:20,punch:20,write:5,read:10", append="tmem.delay_us=500"),
    "object-flush-one-lane": _files("empty:10,truncate:10,punch:10,recreate:5,read:20"),
    # Areas end often, their memory being small, and begin anew at once.
    "area-flush-late": _swap({"hog_mib": 12, "round_ms": 1500, "thorough": 0, "shrink": 0}),
    "get-other-pool": _files("read:40,mapread:5,write:15,mapwrite:5,evict:20,rename:2",
                             mounts=2, twins=True),
    "lane-per-cpu": _files("read:30,dwrite:15,punch:10,write:15,evict:10", cpus=4),
    "table-forgets-collision": _files("read:20,dwrite:20,punch:15,write:10,evict:10",
                                      append="tmem.table_keys=4096"),
    "late-completion-reuse": _files("read:40,write:10,dwrite:10,evict:20",
                                    append="tmem.late_gets=20"),
    "thp-one-bit": _swap({"hogs": 1, "hog_mib": 48}, thp=True),
    "failed-load-reads-device": _swap({"allow_sigbus": 1}, append="tmem.fail_loads=100"),
    "get-over-buffers": _files("punch:30,write:15,truncate:10,append:5,read:20,evict:10"),
    "handle-without-generation": _files(
        "read:30,write:10,evict:20", {"alternate": 1, "thorough": 0, "round_ms": 700},
        mounts=2, twins=True),
}

# Noticed within seconds, and together of files and swap, of hooks and core: for the short form.
QUICK_FAULTS = ("direct-write-empty-mapping", "object-flush-one-lane", "thp-one-bit",
                "handle-without-generation")
