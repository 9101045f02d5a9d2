# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of one budget for guests and store: what one guest frees, the store takes."""

import sys

from lab import disks, paths, progress
from lab.case import expect, need_host_module

sys.path.insert(0, str(paths.ROOT / "bench"))

from guest import corpus, mixed, session  # noqa: E402

MIB = disks.MIB
_SIZE = mixed.LEAST


def prepare():
    """What the test needs and an emulated host would take long to make."""
    corpus.build("random", _SIZE.file_mib * MIB)


def budget_moves(context):
    """A guest takes memory and frees it, another streams: the store gives way, and grows back."""
    setup = mixed.setup_of(_SIZE, "within", context.seed)

    def plan(store):
        yield setup, lambda: mixed.run(setup, _SIZE, store, progress.Silent())

    run, = session.runs(plan, 1)
    turn, = run["turns"]
    note = (f"{turn['taken_bytes'] / MIB:.0f} of {_SIZE.hog_mib} MiB taken,"
            f" {turn['offered_bytes'] / MIB:.0f} offered, the limit grew by"
            f" {turn['limit_grown_bytes'] / MIB:.0f}, 80 % after {turn['seconds_to_80_percent']} s;"
            f" {run['least_free_bytes'] / MIB:.0f} MiB of {run['budget_mib']} were left at least,"
            f" in {run['samples']} samples at most {run['longest_gap_s']} s apart;"
            f" the daemon saw it passed {run['budget']['times_over']} times")
    taker = run["guest_counters"][mixed.TAKER]
    note += (f"; {taker['report_bytes'] / MIB:.0f} MiB reported,"
             f" {taker['reports_withdrawn']} reports withdrawn")
    seen = f"{note}; {run['seen']}; {run['budget']}"
    expect(not run["console_trouble"], f"console: {run['console_trouble']}")
    expect(run["wrong_pages"] == 0 and run["failed_pages"] == 0, f"wrong pages: {note}")
    expect(run["times_over"] == 0, f"over the budget: {run['overs']}; {note}")
    # Where the processor is emulated twice over the store may be offered less than it would take.
    expect(turn["limit_grown_bytes"] >= _SIZE.hog_mib * MIB * 8 // 10, seen)
    room = min(turn["limit_grown_bytes"], turn["offered_bytes"])
    expect(turn["taken_bytes"] >= room * 8 // 10, seen)
    shrunk = run["most_store_bytes"] - turn["store_at_full_bytes"]
    expect(shrunk > _SIZE.hog_mib * MIB // 2, f"it shrank by {shrunk / MIB:.0f} MiB only; {note}")
    return note


def hypercall_budget(context):
    """The same by hypercall: the store follows the groups of the guests' VMMs."""
    need_host_module()
    return budget_moves(context)


ALONE = {"budget_moves"}
CASES = {"budget_moves": budget_moves}
LAB_CASES = {"hypercall_budget": hypercall_budget}
PREPARE = {"hypercall_budget": prepare}
