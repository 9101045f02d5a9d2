# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of the daemon: two guests that want more than there is, and a daemon that dies."""

import threading
import time

from lab import disks, processes
from lab.case import ON, disk_reads, expect, expect_no_wrong, swap_on

MIB = disks.MIB


def _push(guest, seed, passes, results):
    """Holds persistent pages, pushes a file through the page cache, then verifies what it held."""
    try:
        guest.run("mount -t ext4 -o ro,noatime /dev/vda /mnt")
        swap_on(guest, "vdc")
        guest.run(f"workload hog bytes={128 * MIB} seed={seed} plan=fv gate=/tmp/gate > /tmp/hog &"
                  " until grep -q end /tmp/hog; do sleep 0.1; done", 200)
        results["persistent"] = guest.counters()
        results["stream"] = guest.workload(
            f"stream file=/mnt/data index=/dev/vdb passes={passes}", 900)
        results["streamed"].set()
        results["go"].wait(900)
        guest.run("touch /tmp/gate2;"
                  " until [ $(grep -c end /tmp/hog) = 2 ]; do sleep 0.1; done", 300)
        results["hog"] = guest.run("cat /tmp/hog")
    except Exception as error:  # Reported by the thread that waits.
        results["error"] = error
    finally:
        results["streamed"].set()


def two_guests_64_mib(context):
    """Two guests push 1 GiB each at a daemon of 64 MiB: its memory is bounded, both get some."""
    limit_mib = 64
    file_mib = 256
    passes = 16 if context.long else 4
    image, sums = context.images.corpus("text", file_mib)
    names = ["one", "two"]
    host = context.host(names, limit_mib=limit_mib, pool_min_mib=limit_mib // 2)
    results = {}
    threads = []
    with processes.MemorySampler(host.pid) as sampler:
        guests = []
        for number, name in enumerate(names):
            swap = disks.empty(context.directory / f"swap-{name}.img", 300 * MIB)
            three = [disks.Disk(image, readonly=True), disks.Disk(sums, readonly=True),
                     disks.Disk(swap)]
            guests.append(context.guest(host, name, memory_mib=112, disks=three))
            results[name] = {"streamed": threading.Event(), "go": threading.Event()}
            threads.append(threading.Thread(
                target=_push, args=(guests[-1], context.seed + number, passes, results[name])))
        for thread in threads:
            thread.start()
        for name in names:
            results[name]["streamed"].wait(1200)
        status = {name: host.guest_status(name) for name in names}
        for name in names:
            results[name]["go"].set()
        for thread in threads:
            thread.join()
    for name in names:
        if "error" in results[name]:
            raise results[name]["error"]
        expect_no_wrong(results[name]["stream"], f"stream of guest {name}")
        expect('"wrong": 0, "sigbus": 0' in results[name]["hog"].splitlines()[-1],
               f"hog of guest {name}: {results[name]['hog'][-300:]}")
        expect(status[name]["ephemeral_pages"] > 0, f"guest {name} holds no ephemeral page")
        expect(status[name]["persistent_pages"] > 0, f"guest {name} holds no persistent page")
    peak = sampler.peak_bytes
    expect(sampler.samples > 100, "the daemon's memory was not sampled")
    expect(peak <= (limit_mib + 16) * MIB, f"tmemd held {peak / MIB:.1f} MiB")
    return (f"peak {peak / MIB:.1f} MiB in {sampler.samples} samples, ephemeral pages "
            + ", ".join(str(status[name]["ephemeral_pages"]) for name in names))


def host_dies(context):
    """tmemd is killed in the middle: files are read right from the disk, swap is never wrong."""
    image, sums = context.images.corpus("text", 192)
    host = context.host(limit_mib=320, pool_min_mib=96)
    swap = disks.empty(context.directory / "swap.img", 300 * MIB)
    guest = context.guest(host, memory_mib=96, append=f"{ON} tmem.load_timeout_s=5",
                          disks=[disks.Disk(image, readonly=True),
                                 disks.Disk(sums, readonly=True), disks.Disk(swap)])
    guest.run("mount -t ext4 -o ro,noatime /dev/vda /mnt")
    swap_on(guest, "vdc")
    stream = "stream file=/mnt/data index=/dev/vdb passes=1"
    expect_no_wrong(guest.workload(stream, 300), "stream before")
    killer = threading.Timer(0.7, host.kill)
    killer.start()
    events = guest.workload("stream file=/mnt/data index=/dev/vdb passes=2", 400)
    killer.join()
    expect_no_wrong(events, "stream while tmemd dies")
    reads, events = disk_reads(guest, 0, lambda: guest.workload(stream, 300))
    expect_no_wrong(events, "stream after")
    expect(reads > 150 * MIB, f"without tmemd only {reads} bytes came from the disk")
    begin = time.monotonic()
    expect_no_wrong(guest.workload(f"hog bytes={112 * MIB} seed={context.seed} plan=fv", 300),
                    "hog after")
    return f"hog without tmemd {time.monotonic() - begin:.1f} s"


CASES = {case.__name__: case for case in [two_guests_64_mib, host_dies]}
ALONE = {"two_guests_64_mib"}
