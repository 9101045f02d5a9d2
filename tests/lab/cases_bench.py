# SPDX-License-Identifier: GPL-2.0-only
"""Short forms of workloads of bench/: what they count, not what they measure, is held here."""

import sys

from lab import doorbells, paths, progress
from lab.case import expect

sys.path.insert(0, str(paths.ROOT / "bench"))

from guest import choice, measure, random_reads, session, targets, tree  # noqa: E402


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


CASES = {case.__name__: case for case in [many_small_files, random_reads_hit,
                                          demo_takes_what_works]}
