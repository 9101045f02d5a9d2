# SPDX-License-Identifier: GPL-2.0-only
"""Builds the guests' initial file system: busybox, our init, our programs, some of Debian's."""

import hashlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import threading

from lab import paths

_C_FLAGS = ["-O2", "-static", "-fno-tree-vectorize", "-Wall", "-Wextra", "-Wshadow", "-Wconversion"]
_APPLETS = """[ awk cat cut dd dmesg echo find free grep head insmod ls mkdir mke2fs mkswap mount
poweroff ps reboot rm rmmod sed seq sh sleep sort stat stty swapoff swapon sync tail test
touch umount uname wc"""


class _Cpio:
    """Writes the `newc` format that the kernel unpacks; devices need no root here."""

    def __init__(self):
        self._parts = []
        self._inode = 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self._inode += 1
        name_bytes = name.encode() + b"\0"
        fields = [self._inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name_bytes), 0]
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name_bytes
        self._parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]

    def finish(self):
        self.add("TRAILER!!!", 0)
        return b"".join(self._parts)


def _partial(path):
    """Where this thread writes what becomes `path`: two threads may make the same one."""
    return path.with_suffix(f".{os.getpid()}-{threading.get_native_id()}")


def compile_program(name):
    """Compiles one of the guests' programs statically; cached by its sources' contents."""
    directory = paths.cache_dir("lab")
    sources = paths.program_sources(name)
    headers = {header for source in sources for header in source.parent.glob("*.h")}
    digest = hashlib.sha256(" ".join(_C_FLAGS).encode())
    for file in [*sources, *sorted(headers)]:
        digest.update(file.read_bytes())
    program = directory / f"{name}-{digest.hexdigest()[:16]}"
    if not program.exists():
        partial = _partial(program)
        try:
            subprocess.run(["gcc", *_C_FLAGS, "-o", partial, *sources], check=True)
        except FileNotFoundError:
            raise paths.Missing("no gcc: run `make setup`") from None
        partial.rename(program)
    return program


def workload():
    """The program of most tests. Runs on the host too."""
    return compile_program("workload")


def installed_program(name):
    """{path in the guest: bytes} of a program of this machine and the libraries it is linked to."""
    program = shutil.which(name)
    if program is None:
        raise paths.Missing(f"no {name}: run `make setup`")
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    libraries = re.findall(r"(/\S+) \(0x", done.stdout)
    return {f"bin/{name}": pathlib.Path(program).read_bytes(),
            **{path[1:]: pathlib.Path(path).read_bytes() for path in libraries}}


def build(programs=("workload",), installed=(), more_modules=()):
    """Path of the guests' uncompressed initramfs, made anew only when something in it changed.

    `programs` are ours, `installed` are names of programs that this machine has, `more_modules`
    are loaded at boot.
    """
    files = {f"bin/{program}": compile_program(program).read_bytes() for program in programs}
    for name in installed:
        files |= installed_program(name)
    # For a kernel with modules: a directory whose *.ko init loads in the order of their names.
    modules = os.environ.get("TMEM_LAB_MODULES")
    for module in sorted(pathlib.Path(modules).glob("*.ko")) if modules else []:
        files[f"modules/{module.name}"] = module.read_bytes()
    for module in more_modules:
        files[f"modules/{module.name}"] = module.read_bytes()
    directories = dict.fromkeys(["bin", "dev", "proc", "sys", "tmp", "mnt", "modules"])
    for file in files:
        parents = list(pathlib.PurePath(file).parents)[-2::-1]
        directories |= dict.fromkeys(str(parent) for parent in parents)
    return pack("initramfs", paths.GUEST_SOURCES / "init", files, directories, _APPLETS.split())


def pack(name, init, files, directories, applets):
    """Path of a file of the cache with this init, busybox and these files ({path: bytes})."""
    busybox = pathlib.Path("/bin/busybox")
    if not busybox.exists():
        raise paths.Missing("no busybox-static: run `make setup`")
    cpio = _Cpio()
    for directory in directories:
        cpio.add(directory, stat.S_IFDIR | 0o755)
    cpio.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    cpio.add("dev/null", stat.S_IFCHR | 0o666, device=(1, 3))
    cpio.add("dev/ttyS1", stat.S_IFCHR | 0o666, device=(4, 65))
    programs = {"init": init.read_bytes(), "bin/busybox": busybox.read_bytes()}
    for path, data in {**programs, **files}.items():
        cpio.add(path, stat.S_IFREG | 0o755, data)
    for applet in applets:
        cpio.add(f"bin/{applet}", stat.S_IFLNK | 0o777, b"busybox")
    image = cpio.finish()

    path = paths.cache_dir("lab") / f"{name}-{hashlib.sha256(image).hexdigest()[:16]}.cpio"
    if not path.exists():
        partial = _partial(path)
        partial.write_bytes(image)
        partial.rename(path)
    return path
