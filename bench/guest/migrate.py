# SPDX-License-Identifier: GPL-2.0-only
"""`migrate`: what QEMU sends of a guest whose memory was all used once, and of a fresh one."""

import pathlib
import tempfile
import time

from guest import single

MIB = single.MIB


def _sizes(options):
    """(guest MiB, MiB that are touched)"""
    guest_mib = options.guest_mib or (256 if options.quick else 1024)
    # What a small guest keeps for itself is much of it.
    return guest_mib, guest_mib * 3 // 4


def plan(options, _, progress):
    """Yields (setup, a function that runs it)."""
    guest_mib, hog_mib = _sizes(options)
    for variant in ["tmem"] if options.quick else single.VARIANTS:
        for task in ("fresh", "used"):
            setup = single.Setup("migrate", variant, guest_mib, hog_mib * MIB, task,
                                 seed=options.seed)
            if not options.only or options.only in setup.title():
                yield setup, lambda setup=setup: _run(setup, progress)


def _run(setup, progress):
    # A window without master=on keeps QEMU from migrating.
    with single.Single(setup, progress, snapshots=True) as bench, \
            tempfile.TemporaryDirectory(prefix="tmem-migrate-") as directory:
        bench.step("booted")
        if setup.task == "used":
            bench.phase("its memory is used")
            bench.faults(setup.workload_bytes // MIB)
            bench.step("used")
        bench.phase("until it is at rest")
        bench.wait_until_still()
        bench.step("at rest")
        bench.phase("it is migrated to a file")
        path = pathlib.Path(directory) / "guest"
        bench.guest.migrate_without_bound()
        begin = time.monotonic()
        bench.guest.migrate_to(path)
        seconds = round(time.monotonic() - begin, 3)
        bench.step("migrated")
        return bench.result(migrated_bytes=path.stat().st_size, seconds=seconds)
