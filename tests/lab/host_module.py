# SPDX-License-Identifier: GPL-2.0-only
"""Builds the host module for the lab's KVM host, in the cache, by its sources' contents."""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import tempfile

from lab import host_kernel, paths

_SOURCES = paths.ROOT / "host-store" / "kvm_tmem"


def build():
    """Path of kvm_tmem.ko for the kernel of the lab's host."""
    kernel = host_kernel.kernel()
    digest = hashlib.sha256(str(kernel.directory).encode())
    files = sorted(path for path in [*_SOURCES.glob("*"), paths.ROOT / "abi" / "tmem_abi.h"]
                   if path.name in ("Kbuild", "Makefile") or path.suffix in (".c", ".h"))
    files = [path for path in files if not path.name.endswith(".mod.c")]
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    result = paths.cache_dir("lab-module") / digest.hexdigest()[:16] / "kvm_tmem.ko"
    with open(result.parent.parent / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            _compile(kernel, files, result)
    return result


def _compile(kernel, files, result):
    with tempfile.TemporaryDirectory(dir=result.parent.parent, prefix="build.") as name:
        tree = pathlib.Path(name)
        # As in the checkout, so that includes find each other.
        for file in files:
            target = tree / file.relative_to(paths.ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        done = subprocess.run(
            ["make", "-s", "-C", kernel.headers, f"M={tree / _SOURCES.relative_to(paths.ROOT)}",
             "modules"], capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise paths.Missing(f"kvm_tmem does not build:\n{done.stderr[-2000:]}")
        shutil.copytree(tree / "host-store" / "kvm_tmem", result.parent, dirs_exist_ok=True)
