# SPDX-License-Identifier: GPL-2.0-only
"""From the runs of `memhog` and `fit` to the rows of a summary and the columns of a table."""

from guest import targets

MIB = 1 << 20


def rested_bytes(run):
    """What the host holds at the end of the last step."""
    return run["steps"][-1]["host_resident_bytes"]


def _seconds(run, beginning):
    return [step["seconds"] for step in run["steps"] if step["step"].startswith(beginning)]


def sequential(run):
    return _seconds(run, "memhog")


def rounds(run):
    return _seconds(run, "round")


def third_by_first(run):
    return targets.ratio(sequential(run)[-1], sequential(run)[0])


def worst_round_by_first(run):
    return targets.ratio(max(rounds(run)), sequential(run)[0])


def memhog(runs, rows):
    _in_room(runs.of(setting="room"), rows)
    _in_budget(runs.of(setting="budget"), rows)


def _in_room(runs, rows):
    tmem = runs.of(variant="tmem")
    for variant, target in [("off", "<= 0.45"), ("virtio-balloon", "<= 1.05")]:
        peer = runs.of(variant=variant)
        if peer and tmem:
            rows.append(targets.Figure(
                f"memhog: host memory some time after three, against {variant}",
                targets.ratio(tmem.median(rested_bytes), peer.median(rested_bytes)), "x", target))
    for variant in runs.values("variant"):
        rows.append(targets.Figure(
            f"memhog: host memory some time after three, {variant}",
            round(runs.of(variant=variant).median(rested_bytes) / MIB, 1), "MiB"))


def _in_budget(runs, rows):
    # Off must be slow, or the set-up shows nothing.
    wanted = {"off": ">= 2", "tmem": "<= 1.15"}
    for variant in runs.values("variant"):
        of_variant = runs.of(variant=variant)
        rows.append(targets.Figure(
            f"memhog in a budget: third by first, {variant}",
            of_variant.median(third_by_first), "x", wanted.get(variant, "")))
        if not all(rounds(run) for run in of_variant):
            continue
        rows.append(targets.Figure(
            f"memhog in a budget: slowest of the rounds by first, {variant}",
            of_variant.median(worst_round_by_first), "x"))


def fit(runs, rows):
    off, tmem = runs.of(variant="off"), runs.of(variant="tmem")
    if off and tmem:
        rows.append(targets.Figure(
            "fit: guests with tmem by guests without",
            targets.ratio(tmem.median(_fits), off.median(_fits)), "x", ">= 1.6"))
    for variant in runs.values("variant"):
        rows.append(targets.Figure(f"fit: guests, {variant}",
                                   runs.of(variant=variant).median(_fits), ""))


def _fits(run):
    return run["fits"]


def _listed(values):
    return " / ".join(f"{value:.1f}" for value in values) or "-"


def _resident(run):
    return " / ".join(f"{step['host_resident_bytes'] / MIB:.0f}" for step in run["steps"]
                      if not step["step"].startswith("round"))


# (heading, text of one run)
MEMHOG_COLUMNS = [
    ("setting", lambda run: run["setting"]),
    ("variant", lambda run: run["variant"]),
    ("budget MiB", lambda run: str(run["budget_mib"] or "-")),
    ("seconds, guest 1 / 2 / 3", lambda run: _listed(sequential(run))),
    ("in rounds", lambda run: _listed(rounds(run))),
    ("host MiB: booted / after each / rested", _resident),
    ("in swap, at most",
     lambda run: f"{max(step['host_swapped_bytes'] for step in run['steps']) / MIB:.0f}"),
    ("reported MiB",
     lambda run: f"{run['guest_counters'].get('report_bytes', 0) / MIB:.0f}"),
]
FIT_COLUMNS = [
    ("variant", lambda run: run["variant"]),
    ("budget MiB", lambda run: str(run["budget_mib"])),
    ("guests that fit", lambda run: str(run["fits"])),
    ("the next", lambda run: run["ended_by"] or "not tried"),
    ("host MiB after each", _resident),
]
