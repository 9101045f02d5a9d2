# SPDX-License-Identifier: GPL-2.0-only
"""`doorbells`: streaming and swap without tmem, by ivshmem and by hypercall, on one machine."""

from guest import never_put, streaming, swap
from lab import doorbells, paths


def demand_module():
    """Nothing is compared where only one of them can be had."""
    if not doorbells.DEVICE.exists():
        raise paths.Missing("the hypercall needs the module kvm_tmem: load it and take --kvm, "
                            "or take --lab, which needs neither")


def plan(options, store, progress):
    """Yields (setup, a function that runs it): each doorbell after the other, so that drift hits
    both. From a disk without a throttle: with one, all would wait for the disk alike."""
    for setup, start in _one_doorbell(options, store, progress):
        for doorbell in [""] if setup.variant == "off" else ["ivshmem", "hypercall"]:
            setup.doorbell = doorbell
            if not options.only or options.only in setup.title():
                yield setup, start


def _one_doorbell(options, store, progress):
    yield from streaming.plan(options, store, progress, names=["text"], rates=[0])
    yield from swap.plan(options, store, progress)
    yield from never_put.plan(options, store, progress)
