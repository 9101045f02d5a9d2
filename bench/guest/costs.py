# SPDX-License-Identifier: GPL-2.0-only
"""From the runs of `overhead`, `migrate` and `report-cost` to the rows of a summary."""

import math
import statistics

from guest import targets

MIB = 1 << 20
GIB = 1 << 30
_CONFIDENCE = 0.95


def median_interval(values, confidence=_CONFIDENCE):
    """(low, median, high): the interval holds the true median with at least this confidence.

    By signs: each value lies above the true median as often as below, so how many do is binomial,
    whatever the values' distribution. Unbounded where there are too few of them.
    """
    ordered = sorted(values)
    count = len(ordered)
    tail, outside = 0.0, 0
    while outside < count // 2:
        tail += math.comb(count, outside) / 2 ** count
        if tail > (1 - confidence) / 2:
            break
        outside += 1
    if outside == 0:
        return -math.inf, statistics.median(ordered), math.inf
    return ordered[outside - 1], statistics.median(ordered), ordered[-outside]


def pair_ratios(run, key):
    """On by off, of each pair."""
    return [pair["on"][key] / pair["off"][key] for pair in run["pairs"]]


def overhead(runs, rows):
    for run in runs:
        name = f"{run['task']}, {run['cpus']} vCPU"
        target = "" if run["task"] == "faults-rested" else "<= 1.05"
        for key, what, target in [("seconds", "time", target), ("host_cpu_s", "host CPU", "")]:
            _, median, high = median_interval(pair_ratios(run, key))
            rows.append(targets.Figure(f"{name}: {what}, reports on by off, median of pairs",
                                       round(median, 4), "x"))
            rows.append(targets.Figure(f"{name}: {what}, upper end of its 95 % interval",
                                       round(high, 4), "x", target))


def migrate(runs, rows):
    for variant in runs.values("variant"):
        used, fresh = (runs.of(variant=variant, task=task) for task in ("used", "fresh"))
        if not used or not fresh:
            continue
        target = "<= 1.15" if variant == "tmem" else ""
        for key, what in [("migrated_bytes", "bytes"), ("seconds", "time")]:
            rows.append(targets.Figure(
                f"migrate, {variant}: {what} of a used guest by a fresh one's",
                targets.ratio(*(some.median(lambda run, key=key: run[key])
                                for some in (used, fresh))), "x",
                target if key == "migrated_bytes" else ""))


def cost_a_gib(run, turn, idle=False):
    """Host CPU seconds for each GiB that the host was given; with what the guest takes idle."""
    cost = run["costs"][turn]
    seconds = cost["host_cpu_s"] - (0 if idle else cost["idle_cpu_s"])
    return seconds / (cost["dropped_bytes"] / GIB)


def huge_steps(run):
    """{step: bytes mapped by huge pages}, and whether at least half was huge to begin with."""
    mapped = {step["step"]: step["pmd_mapped_bytes"] for step in run["steps"]}
    return mapped, mapped["before report"] >= run["guest_mib"] * MIB / 2


def _report_cost_huge(run, rows):
    mapped, half = huge_steps(run)
    if not half:
        return
    dropped = run["costs"]["report"]["dropped_bytes"]
    rows.append(targets.Figure(
        "huge pages split by reports: mapped before, less mapped after, less dropped",
        round((mapped["before report"] - mapped["reported"] - dropped) / MIB, 1), "MiB", "<= 0"))
    after = "at the end" if list(run["costs"])[-1] == "report" else "before balloon"
    rows.append(targets.Figure(
        "ShmemPmdMapped when reported memory is in use again, by before",
        targets.ratio(mapped[after], mapped["before report"]), "x", ">= 1"))


def report_cost(runs, rows):
    for run in runs:
        if "skipped" in run:
            continue
        for idle, what in [(True, ""), (False, ", an idle guest's left out")]:
            rows.append(targets.Figure(
                f"{run['task']} pages: host CPU of reports by inflating the balloon{what}",
                targets.ratio(cost_a_gib(run, "report", idle), cost_a_gib(run, "balloon", idle)),
                "x", "<= 0.5"))
        if run["task"] == "huge":
            _report_cost_huge(run, rows)


def _median_of(run, side, key):
    return statistics.median(pair[side][key] for pair in run["pairs"])


def interval_text(run, key):
    low, median, high = median_interval(pair_ratios(run, key))
    return f"{median:.3f} ({low:.3f} to {high:.3f})"


OVERHEAD_COLUMNS = [
    ("task", lambda run: run["task"]),
    ("vCPU", lambda run: str(run["cpus"])),
    ("pairs", lambda run: str(len(run["pairs"]))),
    ("seconds, on / off", lambda run: " / ".join(
        f"{_median_of(run, side, 'seconds'):.2f}" for side in ("on", "off"))),
    ("host CPU s, on / off", lambda run: " / ".join(
        f"{_median_of(run, side, 'host_cpu_s'):.2f}" for side in ("on", "off"))),
    ("median ratio of times, 95 % interval", lambda run: interval_text(run, "seconds")),
    ("of host CPU", lambda run: interval_text(run, "host_cpu_s")),
    ("reported MiB a sample", lambda run: f"{_median_of(run, 'on', 'reported_bytes') / MIB:.0f}"),
]


def _steps_text(run, key="host_resident_bytes"):
    return ", ".join(f"{step['step']} {step[key] / MIB:.0f}" for step in run["steps"]) or "-"


MIGRATE_COLUMNS = [
    ("guest", lambda run: run["task"]),
    ("variant", lambda run: run["variant"]),
    ("migrated MiB", lambda run: f"{run['migrated_bytes'] / MIB:.1f}"),
    ("seconds", lambda run: f"{run['seconds']:.2f}"),
    ("host holds MiB", _steps_text),
]


def _cost_text(turn, key, scale=1.0, digits=2):
    return lambda run: ("-" if "skipped" in run
                        else f"{run['costs'][turn][key] / scale:.{digits}f}")


REPORT_COST_COLUMNS = [
    ("host's pages", lambda run: run["task"]),
    *((f"{turn}: {what}", _cost_text(turn, key, scale, digits))
      for turn in ("report", "balloon")
      for what, key, scale, digits in [("MiB dropped", "dropped_bytes", MIB, 0),
                                       ("seconds", "seconds", 1, 1),
                                       ("host CPU s", "host_cpu_s", 1, 2),
                                       ("idle CPU s in as long", "idle_cpu_s", 1, 2)]),
    ("host holds MiB", _steps_text),
    ("of it mapped by huge pages", lambda run: run.get("skipped") or
     _steps_text(run, "pmd_mapped_bytes")),
]
