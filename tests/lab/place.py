# SPDX-License-Identifier: GPL-2.0-only
"""Where guests run: here under TCG, here under KVM (--kvm), in the lab's own KVM host (--lab)."""

import os
import pathlib
import sys

from lab import doorbells, host_module, l1, paths
from lab import guest as lab_guest

_TIMEOUT_S = 3600
# In L1; what is written there stays.
SHARE = "/run/lab"


def add_arguments(parser):
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--kvm", action="store_true",
                       help="under this machine's KVM, by hypercall if kvm_tmem is loaded")
    group.add_argument("--lab", action="store_true",
                       help="under KVM in a host of the lab's own, with kvm_tmem, by hypercall")


def use_kvm():
    """Guests started from now on run under KVM. Raises Missing if none does."""
    # In L1 the first guest shows it; here KVM may be there and run nothing.
    if not inside_l1() and not lab_guest.kvm_boots():
        raise paths.Missing("KVM does not run a guest on this machine")
    os.environ["TMEM_LAB_ACCEL"] = "kvm"
    if doorbells.DEVICE.exists():
        os.environ.setdefault("TMEM_LAB_DOORBELL", "hypercall")


def inside_l1():
    return "TMEM_IN_L1" in os.environ


def run_in_l1(arguments, programs=("workload",), take=None, disks=(), **environment):
    """This program, with --kvm for --lab, in L1; returns its exit code.

    `take(directory)` is given what it left in SHARE.
    """
    command = [str(pathlib.Path(sys.argv[0]).resolve()),
               *("--kvm" if argument == "--lab" else argument for argument in arguments)]
    # Built and looked for here, where it takes less time.
    environment["TMEM_GUEST_KERNEL"] = str(paths.guest_kernel())
    paths.binary("tmemd")
    lab_guest.initramfs.build(programs)
    module = str(host_module.build())
    environment["TMEM_LAB_HOST_MODULE"] = module
    with l1.L1(l1.Options(modules=(module,), disks=disks)) as host:
        code = host.run(["/usr/bin/python3", *command], _TIMEOUT_S, sys.stdout.buffer,
                        sys.stderr.buffer, environment)
        if take:
            take(host.share)
        if host.trouble():
            raise l1.L1Error(f"the host's kernel complained:\n{host.around_trouble()}")
    return code
