# SPDX-License-Identifier: GPL-2.0-only
"""Which doorbell and which accelerator this machine can really use: by trying, best first."""

import dataclasses
import os
import pathlib
import tempfile

from guest import measure
from lab import doorbells
from lab import guest as lab_guest
from lab import host as lab_host
from lab import paths

_KVM = pathlib.Path("/dev/kvm")
# A guest boots in a second or two under KVM; one that has not by then never will.
_PATIENCE_S = 20


@dataclasses.dataclass(frozen=True)
class Choice:
    """What guests are run with, and why nothing better."""

    doorbell: str
    accelerator: str
    why: str

    def __str__(self):
        how = "under KVM" if self.accelerator == "kvm" else "emulated (TCG)"
        return f"{self.doorbell} doorbell, guests {how}: {self.why}"

    def apply(self):
        """Guests and daemons started from now on are like that."""
        os.environ["TMEM_LAB_ACCEL"] = self.accelerator
        os.environ["TMEM_LAB_DOORBELL"] = self.doorbell


def choose(kvm_trouble, hypercall_trouble):
    """The best that works. Both arguments are tried, and return why it does not work, or "".

    The hypercall needs KVM, so it is tried only where KVM works.
    """
    trouble = kvm_trouble()
    if trouble:
        return Choice("ivshmem", "tcg", f"{trouble} (and the hypercall needs KVM)")
    trouble = hypercall_trouble()
    if trouble:
        return Choice("ivshmem", "kvm", f"KVM runs a guest, but {trouble}")
    return Choice("hypercall", "kvm", "KVM runs a guest, and kvm_tmem is loaded and serves it")


def best():
    """Of this machine. Loads nothing, and takes at most some 40 s."""
    return choose(_kvm_trouble, _hypercall_trouble)


def _kvm_trouble():
    if os.environ.get("TMEM_LAB_ACCEL") == "tcg":
        return "TMEM_LAB_ACCEL asks for it"
    if not _KVM.exists():
        return f"there is no {_KVM}"
    if not os.access(_KVM, os.R_OK | os.W_OK):
        return f"this user may not open {_KVM}"
    return "" if lab_guest.kvm_boots() else f"{_KVM} opens, but no guest boots with it"


def _hypercall_trouble():
    if os.environ.get("TMEM_LAB_DOORBELL") == "ivshmem":
        return "TMEM_LAB_DOORBELL asks for ivshmem"
    if not doorbells.DEVICE.exists():
        return "the module kvm_tmem is not loaded"
    if not os.access(doorbells.DEVICE, os.R_OK | os.W_OK):
        return f"this user may not open {doorbells.DEVICE}"
    try:
        _register_one()
    except (paths.Missing, lab_guest.GuestError, lab_host.HostError) as error:
        return f"kvm_tmem does not serve it: {str(error).partition(chr(10))[0]}"
    return ""


def _register_one():
    """A guest and a daemon of their own meet by hypercall, or an exception says why not."""
    with tempfile.TemporaryDirectory(prefix="tmem-try-") as name:
        directory = pathlib.Path(name)
        with lab_host.Host(["try"], 64, directory=directory, doorbell="hypercall") as host:
            options = lab_guest.Options(memory_mib=128, append="tmem.cleancache=1",
                                        doorbell=host.doorbell("try"))
            with lab_guest.Guest("try", options, directory, accel="kvm",
                                 boot_timeout_s=_PATIENCE_S):
                measure.demand_registered("a guest", host, "try")
