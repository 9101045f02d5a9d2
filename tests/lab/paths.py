# SPDX-License-Identifier: GPL-2.0-only
"""Where the lab finds what others build: guest kernel, daemon, caches."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
LAB = ROOT / "tests" / "lab"
GUEST_SOURCES = LAB / "guest"


class Missing(Exception):
    """Something the lab needs is not built or not installed; the text says what to do."""


def program_sources(name):
    """C files of one of the guests' programs: `workload` or `torture`."""
    if name == "workload":
        return sorted(GUEST_SOURCES.glob("*.c"))
    own = sorted((ROOT / "tests" / name / "guest").glob("*.c"))
    return [*own, GUEST_SOURCES / "pages.c", GUEST_SOURCES / "util.c"]


def cache_dir(name):
    base = os.environ.get("TMEM_CACHE") or os.path.expanduser("~/.cache/tmem")
    path = pathlib.Path(base) / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def build_dir():
    return pathlib.Path(os.environ.get("TMEM_BUILD_ROOT") or ROOT / "build") / "release"


def binary(name):
    """Path of one of our programs: $TMEMD, $TMEMCTL, or below the release build."""
    chosen = os.environ.get(name.upper())
    if chosen:
        return pathlib.Path(chosen)
    for path in sorted(build_dir().rglob(name)):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise Missing(f"no {name} below {build_dir()}: run `make build`, or set {name.upper()}")


def guest_kernel():
    """Path of a bzImage: $TMEM_GUEST_KERNEL, or the one that `make guest-kernel` cached."""
    chosen = os.environ.get("TMEM_GUEST_KERNEL")
    if chosen:
        return pathlib.Path(chosen)
    script = ROOT / "guest-shims" / "kernel" / "build.sh"
    if not script.exists():
        raise Missing("no guest kernel: set TMEM_GUEST_KERNEL to a bzImage")
    # Builds the kernel if it is not cached; its own progress goes to standard error.
    done = subprocess.run([script, "--print"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Missing("guest-shims/kernel/build.sh failed")
    return pathlib.Path(done.stdout.strip().splitlines()[-1]) / "bzImage"
