# SPDX-License-Identifier: GPL-2.0-only
"""The lab's KVM host with lockdep, KASAN and kmemleak, instead of Debian's stock kernel."""

import dataclasses
import pathlib
import subprocess

from lab import paths

_BUILD = paths.LAB / "host" / "debug-kernel.sh"


@dataclasses.dataclass(frozen=True)
class Kernel:
    """As stock.Kernel: one built tree, with all that L1 needs built in."""

    directory: pathlib.Path
    boot_timeout_s = 900
    # kmemleak looks twice: at its first look an object may still be in a register.
    last_steps = ("sleep 6", "echo scan >/sys/kernel/debug/kmemleak", "sleep 6",
                  "echo scan >/sys/kernel/debug/kmemleak", "cat /sys/kernel/debug/kmemleak >&2")

    @property
    def vmlinux(self):
        # Not vmlinux: with KASAN its PVH entry faults before there is a shadow.
        return self.directory / "arch" / "x86" / "boot" / "bzImage"

    @property
    def modules(self):
        return self.directory / "none"

    @property
    def headers(self):
        return self.directory

    def load_order(self, _names):
        return []


def kernel():
    """Builds it first, which takes half an hour."""
    built = subprocess.run([str(_BUILD)], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode != 0:
        raise paths.Missing("the debug kernel was not built")
    return Kernel(pathlib.Path(built.stdout.strip()))
