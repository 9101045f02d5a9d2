# SPDX-License-Identifier: GPL-2.0-only
"""Debian's stock kernel as the lab's KVM host runs it: downloaded and unpacked, never installed.

The image and its headers come from the same archive at the same time, so that a module built with
`headers` loads. All of it is in the cache, by the version of the package; other versions go when a
new one has been unpacked.
"""

import dataclasses
import fcntl
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from lab import paths

_META = "linux-image-amd64"
# Part of the cache's key: counts changes of what unpack() leaves.
_LAYOUT = 1
_DOWNLOAD_TIMEOUT_S = 900
# boot protocol, Documentation/x86/boot.rst of Linux
_SETUP_SECTORS = 0x1F1
_PAYLOAD_OFFSET = 0x248
_PAYLOAD_LENGTH = 0x24C


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Where one unpacked kernel is."""

    directory: pathlib.Path
    last_steps = ()  # commands of the shell, after the job
    boot_timeout_s = 120

    @property
    def release(self):
        return next((self.directory / "lib" / "modules").iterdir()).name

    @property
    def vmlinux(self):
        """Uncompressed, for QEMU's PVH boot: no decompressor runs under emulation."""
        return self.directory / "vmlinux"

    @property
    def modules(self):
        return self.directory / "lib" / "modules" / self.release

    @property
    def headers(self):
        """The directory for `make -C`, for modules out of the tree."""
        return self.directory / "usr" / "src" / f"linux-headers-{self.release}"

    def load_order(self, names):
        """Files of these modules and of what they need, each after what it needs."""
        needs = {}
        for line in (self.modules / "modules.dep").read_text(encoding="ascii").splitlines():
            file, _, rest = line.partition(":")
            needs[file] = rest.split()
        by_name = {pathlib.Path(file).name.removesuffix(".ko"): file for file in needs}
        order = []
        for name in names:
            file = by_name[name]
            # Each file before those that modules.dep names left of it.
            order += [one for one in [*reversed(needs[file]), file] if one not in order]
        return [self.modules / file for file in order]


def kernel():
    """What `linux-image-amd64` stands for now; an older one that is here if apt fails."""
    directory = paths.cache_dir("lab-host")
    with open(directory / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return _newest(directory)
        except paths.Missing:
            kept = sorted(directory.glob(f"*-{_LAYOUT}"), key=lambda path: path.stat().st_mtime)
            if kept:
                return Kernel(kept[-1])
        # apt's lists are missing, or older than what the mirror still has.
        _apt([*([] if os.geteuid() == 0 else ["sudo"]), "apt-get", "-q", "update"])
        return _newest(directory)


def _newest(directory):
    package, version = _candidate()
    wanted = directory / f"{version.replace(':', '%')}-{_LAYOUT}"
    if not wanted.exists():
        _unpack(package, version, wanted)
        _prune(directory, wanted)
    return Kernel(wanted)


def _apt(arguments, cwd=None):
    try:
        done = subprocess.run(arguments, cwd=cwd, capture_output=True, text=True, check=False,
                              timeout=_DOWNLOAD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise paths.Missing(f"the stock kernel: {error}") from None
    if done.returncode != 0:
        raise paths.Missing(f"the stock kernel: {' '.join(arguments[:2])} failed"
                            f": {done.stderr.strip()[-300:]}")
    return done.stdout


def _candidate():
    """(package of the newest image, its version), as apt knows them."""
    shown = _apt(["apt-cache", "show", "--no-all-versions", _META])
    match = re.search(r"^Depends: (linux-image-[^ ,]+) \(= ([^)]+)\)", shown, re.MULTILINE)
    if not match:
        raise paths.Missing(f"apt does not say what {_META} depends on (apt-get update?)")
    return match.groups()


def _unpack(package, version, target):
    print(f"lab: downloading and unpacking {package} and its headers, once (about 100 MB)",
          file=sys.stderr, flush=True)
    release = package.removeprefix("linux-image-")
    common = release.removesuffix("-amd64") + "-common"
    series = ".".join(release.split(".")[:2])
    wanted = [f"{package}={version}", f"linux-headers-{release}={version}",
              f"linux-headers-{common}={version}", f"linux-kbuild-{series}={version}"]
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="unpack.") as name:
        work = pathlib.Path(name)
        tree = work / "tree"
        tree.mkdir()
        _apt(["apt-get", "-q", "download", *wanted], cwd=work)
        for archive in sorted(work.glob("*.deb")):
            _apt(["dpkg-deb", "-x", str(archive), str(tree)])
            archive.unlink()
        image = next((tree / "boot").glob("vmlinuz-*"))
        (tree / "vmlinux").write_bytes(_uncompressed(image.read_bytes()))
        _make_relocatable(tree, release)
        _apt(["depmod", "-b", str(tree), release])
        shutil.rmtree(tree / "usr" / "share", ignore_errors=True)
        tree.rename(target)


def _uncompressed(image):
    """The ELF file inside a bzImage."""
    setup_bytes = (image[_SETUP_SECTORS] + 1) * 512
    offset, length = (int.from_bytes(image[at:at + 4], "little")
                      for at in (_PAYLOAD_OFFSET, _PAYLOAD_LENGTH))
    payload = image[setup_bytes + offset:setup_bytes + offset + length]
    if not payload.startswith(b"\xfd7zXZ"):
        raise paths.Missing("the stock kernel is not compressed by xz: teach tests/lab/stock.py")
    # The last bytes are the size, not part of the stream.
    elf = lzma.LZMADecompressor().decompress(payload)
    if not elf.startswith(b"\x7fELF"):
        raise paths.Missing("the stock kernel's payload is no ELF file")
    return elf


def _make_relocatable(tree, release):
    """Debian's headers name each other by where they would be installed."""
    headers = tree / "usr" / "src" / f"linux-headers-{release}"
    makefile = headers / "Makefile"
    text = makefile.read_text(encoding="ascii")
    makefile.write_text(text.replace(
        "/usr/src/", "$(dir $(realpath $(lastword $(MAKEFILE_LIST))))../"), encoding="ascii")
    modules = tree / "lib" / "modules" / release
    for link in [modules / "build", modules / "source"]:
        where = link.readlink().name
        link.unlink()
        link.symlink_to(pathlib.Path("..", "..", "..", "usr", "src", where))


def _prune(directory, kept):
    for path in directory.iterdir():
        if path.is_dir() and path != kept:
            shutil.rmtree(path, ignore_errors=True)
