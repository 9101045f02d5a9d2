# SPDX-License-Identifier: GPL-2.0-only
"""The rows of a summary for runs of `mixed`."""

from guest.targets import Figure, ratio


def mixed(runs, rows):
    """The budget that all fit in must hold; the other one is for information."""
    for setting, target in [("within", True), ("beyond", False)]:
        cell = runs.of(setting=setting)
        if not cell:
            continue
        name = f"mixed, {setting} the budget: "
        wanted = {True: lambda text: text, False: lambda _: ""}[target]
        rows.append(Figure(
            name + "of what was freed, the store took within 15 s (least of all turns)",
            round(min(turn["taken_bytes"] / run["workload_bytes"]
                      for run in cell for turn in run["turns"]), 3), "", wanted(">= 0.8")))
        rows.append(Figure(name + "times over it", cell.greatest(lambda run: run["times_over"]),
                           "", wanted("== 0")))
        rows.append(Figure(name + "times over it, by the daemon's own looks",
                           cell.greatest(lambda run: run["budget"]["times_over"]), ""))
        rows.append(Figure(name + "worst over it",
                           round(cell.greatest(lambda run: run["worst_over_bytes"]) / 2**20, 1),
                           "MiB"))
        rows.append(Figure(name + "longest over it",
                           cell.greatest(lambda run: run["longest_over_s"]), "s"))
        rows.append(Figure(name + "turns of the limit by turns of the guest",
                           ratio(cell.greatest(lambda run: run["limit_turns"]),
                                 max(2 * len(run["turns"]) - 1 for run in cell)), "",
                           wanted("<= 1")))
        rows.append(Figure(name + "wrong pages", cell.greatest(lambda run: run["wrong_pages"]),
                           "", "== 0"))
