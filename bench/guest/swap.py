# SPDX-License-Identifier: GPL-2.0-only
"""`swap`: anonymous memory of 1.5 times the guest's, filled, verified, filled anew, verified."""

import pathlib
import tempfile

from guest import measure
from lab import disks

MIB = disks.MIB


def sizes(quick):
    """(guest MiB, hog MiB)"""
    return (96, 144) if quick else (256, 384)


def _variants(quick, demo):
    """(variant, THP, MiB of the pool). The last pool is half of what does not fit the guest."""
    guest_mib, hog_mib = sizes(quick)
    if demo:
        yield from [("off", "off", hog_mib), ("tmem", "off", hog_mib)]
        return
    for thp in ["off", "always"]:
        for variant in ["off", "tmem", "writethrough"]:
            # writethrough is bound by the disk like off; quick shows it once.
            if not (quick and thp == "always" and variant == "writethrough"):
                # A page that was swapped in keeps its slot, and so its place in the pool, until it
                # is freed or swap is half full: with room for the whole hog nothing is refused.
                yield variant, thp, hog_mib
    yield "tmem", "off", (hog_mib - guest_mib) // 2


def plan(options, _, progress):
    """Yields (setup, a function that runs it)."""
    guest_mib, hog_mib = sizes(options.quick)
    passes = "fvv" if options.quick else "fvfv"
    for variant, thp, pool_min_mib in _variants(options.quick, options.demo):
        setup = measure.Setup(
            workload="swap", variant=variant, corpus="heap", disk_mb_s=options.disk_mb_s,
            thp=thp, seed=options.seed, guest_mib=guest_mib, workload_bytes=hog_mib * MIB,
            limit_mib=pool_min_mib + 64, pool_min_mib=pool_min_mib)
        yield setup, lambda setup=setup: _run(setup, passes, progress)


def _run(setup, passes, progress):
    with tempfile.TemporaryDirectory(prefix="tmem-disk-") as directory:
        disk = disks.empty(pathlib.Path(directory) / "swap.img", 2 * setup.workload_bytes)
        # Non-rotational before swapon, or huge pages are split before they are swapped out.
        prepare = (
            "echo 0 > /sys/block/vda/queue/rotational;"
            f"echo {'always' if setup.thp == 'always' else 'never'}"
            " > /sys/kernel/mm/transparent_hugepage/enabled;"
            "mkswap /dev/vda > /dev/null && swapon /dev/vda")
        return measure.run(setup, [disks.Disk(disk, mb_s=setup.disk_mb_s)], prepare,
                           f"hog bytes={setup.workload_bytes} seed={setup.seed} plan={passes}",
                           progress)
