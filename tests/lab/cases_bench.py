# SPDX-License-Identifier: GPL-2.0-only
"""Short forms of workloads of bench/: what they count, not what they measure, is held here."""

import os
import pathlib
import signal
import subprocess
import sys
import time

from lab import doorbells, paths, processes, progress
from lab.case import Skipped, expect

sys.path.insert(0, str(paths.ROOT / "bench"))

from guest import (choice, crowd, measure, memory_group, random_reads, session,  # noqa: E402
                   targets, tree)

_STEP_S = 8  # reports come 2 s after memory was freed


def _tmem_run(context, module):
    """The run with tmem of a workload's quick form, and the rows of its summary."""
    options = measure.Options(quick=True, seed=context.seed, disk_mb_s=0)

    def plan(store):
        plans = module.plan(options, store, progress.Silent())
        return ((setup, start) for setup, start in plans if setup.variant == "tmem")

    run, = session.runs(plan, 1)
    expect(run["wrong_pages"] == 0, f"{run['wrong_pages']} pages were wrong")
    expect(not run["console_trouble"], f"console: {run['console_trouble']}")
    expect(run["rings_received"] == run["rings_since_boot"],
           f"the guest rang {run['rings_since_boot']} times, the daemon counted"
           f" {run['rings_received']}")
    return run


def many_small_files(context):
    """Under memory pressure that prunes their inodes, the pages of many files stay on the host."""
    # A host that is too busy to answer in time is taken for lost for a while, as it must be. Later
    # runs show that this is all it was.
    for _ in range(3):
        run = _tmem_run(context, tree)
        share = targets.tree_hit_share(run)
        if share >= 0.9 or not run["guest_counters"].get("breaker_trips"):
            break
    pruned = targets.tree_pruned(run, run["files"])
    expect(pruned > 0.3, f"only {pruned:.2f} of the inodes were pruned: this tests nothing")
    expect(share >= 0.9, f"{share:.3f} of the pages that the host kept were hit")
    return f"{share:.2f} of the pages hit, {pruned:.2f} of the inodes pruned"


def random_reads_hit(context):
    """Single pages read at random, without read-ahead, come from the host."""
    run = _tmem_run(context, random_reads)
    before, last = run["passes"][:-1], run["passes"][-1]
    # A busy machine drops puts; what was put is what can be hit.
    stored = sum(one["puts"] - one["undone"] - one["pages_evicted"] for one in before)
    wanted = last["pages"] * stored // before[0]["pages"] * 95 // 100
    expect(last["get_hits"] >= wanted > 0,
           f"{last['get_hits']} hits in {last['pages']} reads, {stored} pages were put")
    return f"{last['get_hits']} of {last['pages']} reads hit, median {last['median_us']:.0f} us"


def demo_takes_what_works(_):
    """The demo takes the hypercall where KVM and a loaded module serve guests, else ivshmem."""
    taken = choice.best()
    if doorbells.kind() == "hypercall":
        expect(taken.doorbell == "hypercall", f"these guests use the hypercall, it takes: {taken}")
    elif not doorbells.DEVICE.exists():
        expect(taken.doorbell == "ivshmem", f"there is no module, it takes: {taken}")
    return str(taken)


def memhog_gives_back(_):
    """Two guests in which memhog has run hold no more of the host than before, and little more
    than one that has not."""
    setup = crowd.Setup(workload="memhog", variant="tmem", guests=2, guest_mib=192,
                        workload_bytes=crowd.hog_bytes(192), budget_mib=0, setting="room")
    with crowd.Crowd(setup, progress.Silent()) as guests:
        for number in range(2):
            guests.add_guest()
            guests.wait(_STEP_S, "")
            guests.step("booted")
            guests.memhog(number)
            guests.wait(_STEP_S, "")
            guests.step("done")
        run = guests.result()
    expect(not run["console_trouble"], f"console: {run['console_trouble']}")
    resident_mib = [step["host_resident_bytes"] >> 20 for step in run["steps"]]
    for before, after in zip(resident_mib[::2], resident_mib[1::2]):
        expect(after < before + (setup.workload_bytes >> 20) // 4, f"MiB: {resident_mib}")
    peak_mib = max(one["bytes"] for one in run["series"] if one["name"] == "total") >> 20
    expect(peak_mib > resident_mib[-1] + 64, f"MiB: {resident_mib}, at most {peak_mib}")
    return f"{' / '.join(map(str, resident_mib))} MiB, at most {peak_mib}"


def memhog_interrupted(context):
    """Ctrl-C in the midst of it: swap, control group and RAM files are gone."""
    reason = memory_group.why_not(context.directory)
    if reason:
        raise Skipped(reason)
    command = [sys.executable, str(paths.ROOT / "bench" / "guest-bench"), "memhog", "--quick",
               "--only", "budget, off"]
    with open(context.directory / "log", "wb") as log:
        # A shell that runs us in the background has us ignore it.
        bench = subprocess.Popen(
            command, stdout=log, stderr=log,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            env={**os.environ, "TMEM_BENCH_OUT": str(context.directory)})
    try:
        deadline = time.monotonic() + 60
        while not _left_by(bench.pid)["RAM"] and time.monotonic() < deadline:
            time.sleep(0.2)
        there = _left_by(bench.pid)
        bench.send_signal(signal.SIGINT)
        code = bench.wait(60)
    finally:
        processes.stop(bench, wait_s=60)
    text = (context.directory / "log").read_text(encoding="utf-8", errors="replace")
    expect(all(there.values()), f"never there: {there}\n{text}")
    expect(code == 130, f"exit code {code}\n{text}")
    left = _left_by(bench.pid)
    expect(not any(left.values()), f"left: {left}\n{text}")


def _left_by(pid):
    """Where a measurement of this process shows on the host."""
    name = f"{memory_group.PREFIX}{pid}"
    swaps = pathlib.Path("/proc/swaps").read_text(encoding="ascii")
    return {"swap": f"{name}.swap" in swaps,
            "RAM": bool(list(pathlib.Path("/dev/shm").glob(f"{name}-*"))),
            "group": any(name in path for path, _, _ in os.walk("/sys/fs/cgroup"))}


CASES = {case.__name__: case for case in [many_small_files, random_reads_hit,
                                          demo_takes_what_works, memhog_gives_back,
                                          memhog_interrupted]}
