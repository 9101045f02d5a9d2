# SPDX-License-Identifier: GPL-2.0-only
"""How a guest and its daemon meet: QEMU's ivshmem device, or the host module's hypercall."""

import contextlib
import dataclasses
import itertools
import os
import pathlib

from lab import paths

DEVICE = pathlib.Path("/dev/kvm_tmem")
_CGROUPS = pathlib.Path("/sys/fs/cgroup")
_numbers = itertools.count()


def kind():
    """`ivshmem`, unless TMEM_LAB_DOORBELL says `hypercall`."""
    return os.environ.get("TMEM_LAB_DOORBELL") or "ivshmem"


@dataclasses.dataclass
class Ivshmem:
    """The daemon's socket for one guest says which guest it is."""

    socket: pathlib.Path
    append = ""
    cgroup = None

    def qemu_arguments(self, snapshots):
        master = ",master=on" if snapshots else ""
        return ["-chardev", f"socket,id=window,path={self.socket}",
                "-device", f"ivshmem-doorbell,chardev=window,vectors=1{master}"]


@dataclasses.dataclass
class Hypercall:
    """Nothing of QEMU's: the control group its process is in says which guest it is."""

    cgroup: pathlib.Path
    append = "tmem.transport=hypercall"

    @staticmethod
    def qemu_arguments(_snapshots):
        return []


class ControlGroups:
    """A group a guest, below our own or a given one, and the rules by which tmemd knows them."""

    def __init__(self, guests, below=None):
        own = below or _own_group()
        self._top = own / f"tmem-lab-{os.getpid()}-{next(_numbers)}"
        self._groups = {guest: self._top / guest for guest in guests}
        try:
            for group in self._groups.values():
                group.mkdir(parents=True)
        except OSError as error:
            raise paths.Missing(f"guests need control groups of their own: {error}") from None
        # Where we may: what a guest's group holds is then known by itself.
        with contextlib.suppress(OSError):
            for group in [own, self._top]:
                (group / "cgroup.subtree_control").write_text("+memory", encoding="ascii")

    def group(self, guest):
        """Of a guest without a rule: made now."""
        if guest not in self._groups:
            self._groups[guest] = self._top / guest
            self._groups[guest].mkdir()
        return self._groups[guest]

    def rule(self, guest):
        """More of tmemd's `--guest`."""
        return f",uid={os.getuid()},cgroup=/{self._groups[guest].relative_to(_CGROUPS)}"

    def remove(self):
        for group in [*self._groups.values(), self._top]:
            try:
                group.rmdir()
            except OSError:  # A process is still in it.
                pass


def _own_group():
    text = pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii")
    for line in text.splitlines():
        if line.startswith("0::/"):
            return _CGROUPS / line.removeprefix("0::/")
    raise paths.Missing("no unified control group hierarchy")
