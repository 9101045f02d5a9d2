# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of the daemon: two guests that want more than there is, a daemon in short supply."""

import threading

from lab import disks, processes
from lab.case import expect, expect_no_wrong, swap_on

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


def slow_host_is_not_lost(context):
    """tmemd stands still for half a second, again and again: no page fails, none is wrong."""
    host = context.host(limit_mib=256, pool_min_mib=160)
    swap = disks.empty(context.directory / "swap.img", 300 * MIB)
    guest = context.guest(host, memory_mib=128, disks=[disks.Disk(swap)])
    swap_on(guest, "vda")
    done = threading.Event()
    stops = 0

    def stop_and_go():
        nonlocal stops
        while not done.wait(0.4):
            host.stop_for(0.5)
            stops += 1

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        events = guest.workload(f"hog bytes={160 * MIB} seed={context.seed} plan=fvfv", 300)
    finally:
        done.set()
        thread.join()
    expect_no_wrong(events, "hog")
    expect(stops > 1, "the hog was done before tmemd stood still twice")
    return f"{stops} stops, {guest.counters().get('breaker_trips', 0)} breaker trips"


CASES = {case.__name__: case for case in [two_guests_64_mib, slow_host_is_not_lost]}
ALONE = {"two_guests_64_mib"}
