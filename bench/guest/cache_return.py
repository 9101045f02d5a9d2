# SPDX-License-Identifier: GPL-2.0-only
"""`cache-return`: a guest reads files and idles; how much of their memory the host gets back."""

import time

from guest import cache_figures, images, single
from lab import disks
from lab import guest as lab_guest

MIB = single.MIB
# What a guest holds besides the cache, and is not to swap for it.
_BESIDE_MIB = 192


def _sizes(options):
    """(guest MiB, file MiB)"""
    file_mib = options.file_mib or (192 if options.quick else 1024)
    return options.guest_mib or file_mib + _BESIDE_MIB, file_mib


def plan(options, store, progress):
    """Yields (setup, a function that runs it)."""
    guest_mib, file_mib = _sizes(options)
    for variant in single.VARIANTS:
        setup = single.Setup("cache-return", variant, guest_mib, file_mib * MIB,
                             f"{options.disk_mb_s:g} MB/s", seed=options.seed)
        if not options.only or options.only in setup.title():
            # What a guest keeps in any case would be a large part of few files.
            append = "tmem.shrink=1" + (" tmem.shrink_floor_mb=8" if options.quick else "")
            yield setup, lambda setup=setup, append=append: _run(
                setup, options.disk_mb_s, append, store, progress)


def _read(bench):
    """Reads the files and checks each page; (seconds, wrong pages)."""
    events = bench.guest.workload("stream file=/mnt/data index=/dev/vdb passes=1", 900)
    ends = [event for event in events if event.get("event") == "end"]
    if len(ends) != 1 or any("error" in event for event in events):
        raise lab_guest.GuestError(f"{bench.setup.title()}: {events}")
    return ends[0]["seconds"], ends[0].get("wrong", 0) + ends[0].get("failed", 0)


def _step(bench, name):
    """With what the store has, where there is one."""
    more = {}
    if bench.host:
        status = bench.host.status()
        row = status["guests"][0]
        more = {"store_bytes": status["used_bytes"], "stored_bytes": row["stored_bytes"],
                "pool_pages": row["ephemeral_pages"], "given_bytes": row["shrink"]["done_bytes"]}
    bench.step(name, **more)


def _run(setup, disk_mb_s, append, store, progress):
    image, sums = store.corpus("text", setup.workload_bytes, progress)
    guest_disks = [disks.Disk(image, mb_s=disk_mb_s, readonly=True),
                   disks.Disk(sums, readonly=True)]
    file_mib = setup.workload_bytes // MIB
    with single.Single(setup, progress, pool_mib=file_mib, guest_options=",shrink=on",
                       shims=True, append=append,
                       disks=guest_disks) as bench:
        bench.guest.run(images.MOUNT)
        bench.phase("until it is at rest")
        bench.wait_until_still()
        _step(bench, "booted")
        bench.phase("reads the files")
        first_s, wrong = _read(bench)
        _step(bench, "read")
        begin = time.monotonic()
        if bench.host:
            asked = bench.host.ctl("shrink", "bench", str(setup.workload_bytes), "--no-wait")
            if asked.returncode:
                raise lab_guest.GuestError(f"{setup.title()}: {asked.stderr}")
        for look_s in cache_figures.LOOKS_S:
            bench.phase(f"idles for {look_s} s")
            time.sleep(max(0.0, begin + look_s - time.monotonic()))
            _step(bench, f"{look_s} s")
        bench.phase("reads the files again")
        again_s, wrong_again = _read(bench)
        _step(bench, "read again")
        return {**bench.result(first_seconds=first_s, again_seconds=again_s,
                               disk_mb_s=disk_mb_s),
                "counters": bench.guest.counters(), "wrong_pages": wrong + wrong_again}
