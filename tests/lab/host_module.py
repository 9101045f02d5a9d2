# SPDX-License-Identifier: GPL-2.0-only
"""Builds our modules for kernels of Debian, in the cache, by their sources' contents."""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess
import tempfile

from lab import host_kernel, paths, stock


def build():
    """Path of kvm_tmem.ko for the kernel of the lab's host."""
    return _build(host_kernel.kernel(), paths.ROOT / "host-store" / "kvm_tmem", "kvm_tmem", [])


def build_for_stock_guest():
    """Path of tmem.ko for Debian's stock kernel: free-page reporting, no patch of ours."""
    return _build(stock.kernel(), paths.ROOT / "guest-shims" / "tmem", "tmem", ["CONFIG_TMEM=m"])


def _build(kernel, sources, name, variables):
    digest = hashlib.sha256(str(kernel.directory).encode())
    files = sorted(path for path in [*sources.rglob("*"), paths.ROOT / "abi" / "tmem_abi.h"]
                   if path.name in ("Kbuild", "Makefile") or path.suffix in (".c", ".h"))
    files = [path for path in files if not path.name.endswith(".mod.c")]
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    result = paths.cache_dir("lab-module") / digest.hexdigest()[:16] / f"{name}.ko"
    with open(result.parent.parent / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            _compile(kernel, sources, files, variables, result)
    return result


def _compile(kernel, sources, files, variables, result):
    with tempfile.TemporaryDirectory(dir=result.parent.parent, prefix="build.") as name:
        tree = pathlib.Path(name)
        # As in the checkout, so that includes find each other.
        for file in files:
            target = tree / file.relative_to(paths.ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        module = tree / sources.relative_to(paths.ROOT)
        done = subprocess.run(
            ["make", "-s", "-C", kernel.headers, f"M={module}", *variables, "modules"],
            capture_output=True, text=True, check=False, timeout=300)
        if done.returncode != 0:
            raise paths.Missing(f"{result.name} does not build:\n{done.stderr[-2000:]}")
        shutil.copytree(module, result.parent, dirs_exist_ok=True)
