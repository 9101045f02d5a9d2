# SPDX-License-Identifier: GPL-2.0-only
"""Tables for people from the JSON of a report."""

from guest import cache_figures, compare, costs, crowd_figures, targets

MIB = 1 << 20


def _rate(run):
    return f"{run['disk_mb_s']:g} MB/s" if run["disk_mb_s"] else "cached"


def _stored(run):
    pool = run["pool"]
    if not pool or not pool["pages"]:
        return "-"
    # What the pages take, without the windows and the daemon's fixed part.
    held = pool.get("slab_bytes", pool["used_bytes"]) + pool.get("metadata_bytes", 0)
    return f"{pool['pages'] * 4096 / max(held, 1):.1f}x"


def _per_pass(run, key, scale=1.0, digits=1):
    """Of the passes that move pages: what lies between them is not of interest."""
    return " / ".join(f"{one[key] / scale:.{digits}f}" for one in run["passes"]
                      if one.get("pages", 1))


def _per_turn(run, text):
    return " / ".join(text(turn) for turn in run["turns"])


def _bells(run):
    rung = run["doorbells"].get("rung", 0)
    moved = run["puts"] + run["get_hits"]
    return f"1/{moved / rung:.0f}" if rung and moved else "-"


# (heading, text of one run)
_COMMON_HEAD = [("variant", lambda run: run["variant"] + (
    " by hypercall" if run.get("doorbell") == "hypercall" else ""))]
_COMMON_TAIL = [
    ("guest CPU us/page", lambda run: _per_pass(run, "guest_cpu_us_per_page")),
    ("daemon CPU us/page", lambda run: f"{run['daemon_cpu_us_per_page']:.1f}"),
    ("puts", lambda run: str(run["puts"])),
    ("hits", lambda run: str(run["get_hits"])),
    ("bells/page", _bells),
    ("density", _stored),
    ("wrong", lambda run: str(run["wrong_pages"])),
]
_COLUMNS = {
    "streaming": [
        ("corpus", lambda run: run["corpus"]),
        ("disk", _rate),
        *_COMMON_HEAD,
        ("seconds, pass 1 / 2", lambda run: _per_pass(run, "seconds")),
        ("disk reads MiB, 1 / 2", lambda run: _per_pass(run, "disk_read_bytes", MIB, 0)),
        *_COMMON_TAIL,
    ],
    "swap": [
        ("THP", lambda run: run["thp"]),
        ("pool MiB", lambda run: "-" if run["variant"] == "off" else str(run["pool_min_mib"])),
        *_COMMON_HEAD,
        ("seconds a pass", lambda run: _per_pass(run, "seconds")),
        ("swap writes MiB", lambda run: f"{run['disk_write_bytes'] / MIB:.1f}"),
        ("swap reads MiB", lambda run: f"{run['disk_read_bytes'] / MIB:.1f}"),
        *_COMMON_TAIL,
    ],
    "random": [
        ("corpus", lambda run: run["corpus"]),
        *_COMMON_HEAD,
        ("reads", lambda run: str(run["passes"][-1]["pages"])),
        ("median us", lambda run: f"{run['passes'][-1]['median_us']:.1f}"),
        ("p99 us", lambda run: f"{run['passes'][-1]['p99_us']:.1f}"),
        *_COMMON_TAIL,
    ],
    "tree": [
        ("file system", lambda run: run["corpus"]),
        ("files", lambda run: str(run["files"])),
        *_COMMON_HEAD,
        ("seconds, pass 1 / 2", lambda run: _per_pass(run, "seconds")),
        ("disk reads MiB, 1 / 2", lambda run: _per_pass(run, "disk_read_bytes", MIB, 0)),
        ("hit share", lambda run: f"{targets.tree_hit_share(run):.3f}" if run["puts"] else "-"),
        ("evicted", lambda run: str(sum(one["pages_evicted"] for one in run["passes"]))),
        ("inodes pruned", lambda run: f"{100 * targets.tree_pruned(run, run['files']):.0f} %"),
        *_COMMON_TAIL,
    ],
    "mixed": [
        ("budget", lambda run: f"{run['setting']}, {run['limit_mib']} MiB"),
        ("doorbell", lambda run: run["doorbell"]),
        ("freed MiB", lambda run: str(run["workload_bytes"] // MIB)),
        ("store took MiB in 15 s, each turn",
         lambda run: _per_turn(run, lambda turn: f"{turn['taken_bytes'] / MIB:.0f}")),
        ("was offered MiB",
         lambda run: _per_turn(run, lambda turn: f"{turn['offered_bytes'] / MIB:.0f}")),
        ("limit grew MiB",
         lambda run: _per_turn(run, lambda turn: f"{turn['limit_grown_bytes'] / MIB:.0f}")),
        ("seconds to 80 %",
         lambda run: _per_turn(run, lambda turn: str(turn["seconds_to_80_percent"]))),
        ("times over", lambda run: str(run["times_over"])),
        ("worst over MiB", lambda run: f"{run['worst_over_bytes'] / MIB:.1f}"),
        ("longest over s", lambda run: str(run["longest_over_s"])),
        ("least free MiB", lambda run: f"{run['least_free_bytes'] / MIB:.0f}"),
        ("samples", lambda run: str(run["samples"])),
        ("longest gap s", lambda run: str(run["longest_gap_s"])),
        ("wrong", lambda run: str(run["wrong_pages"])),
    ],
    "never-put": [
        ("corpus", lambda run: run["corpus"]),
        *_COMMON_HEAD,
        ("seconds, pass 1 / 2", lambda run: _per_pass(run, "seconds")),
        *_COMMON_TAIL,
    ],
    "memhog": crowd_figures.MEMHOG_COLUMNS,
    "fit": crowd_figures.FIT_COLUMNS,
    "overhead": costs.OVERHEAD_COLUMNS,
    "migrate": costs.MIGRATE_COLUMNS,
    "report-cost": costs.REPORT_COST_COLUMNS,
    "cache-return": cache_figures.COLUMNS,
}


def _cells(runs):
    columns = _COLUMNS[runs[0]["workload"]]
    rows = [[text(run) for _, text in columns] for run in runs]
    return [heading for heading, _ in columns], rows


def _summary_cells(report):
    verdicts = {True: "yes", False: "NO", None: ""}
    rows = [[figure.name, f"{figure.value:g}", figure.unit, figure.target,
             verdicts[figure.passed()]] for figure in summary(report)]
    return ["figure", "value", "unit", "target", "reached"], rows


def summary(report):
    """Medians and ratios; none from reports of before passes had their own counters."""
    if any("asked" not in one for run in report["runs"] for one in run["passes"]):
        return []
    if compare.is_comparison(report):
        return compare.figures(report)
    return targets.figures(report["runs"])


def _by_workload(report):
    """The runs of each workload that is in the report."""
    found = {}
    for run in report["runs"]:
        found.setdefault(run["workload"], []).append(run)
    return found.values()


def align(heads, rows):
    """Plain text, columns wide enough for what is in them."""
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
             for row in [heads, ["-" * width for width in widths], *rows]]
    return "\n".join(lines)


def _describe(report, runs):
    first, machine = runs[0], report["machine"]
    what = {"swap": "memory hog", "tree": "tree", "memhog": "memhog", "fit": "memhog",
            "overhead": "fault loops", "migrate": "memory used",
            "report-cost": "memory given back"}
    what = what.get(first["workload"], "file")
    return (f"{first['workload']}: guest of {first['guest_mib']} MiB, {first['cpus']} vCPU, "
            f"{what} of {first['workload_bytes'] // MIB} MiB; "
            f"{machine['cpus']} x {machine['cpu']}, "
            f"{machine['qemu']}, {machine['accelerator']}, host Linux {machine['host_kernel']}; "
            f"load before {machine['load_average']:.1f}")


def _summary_head(report):
    most = max(run.get("repetition", 0) for run in report["runs"]) + 1
    return f"Summary: {'medians of ' if most > 1 else ''}{most} run{'s' if most > 1 else ''} each"


def _pipes(heads, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows])


def _parts(report, draw):
    parts = []
    if compare.is_comparison(report):
        parts.append(f"Both doorbells, first / second half:\n\n{draw(*compare.cells(report))}\n")
    heads, rows = _summary_cells(report)
    if rows:
        parts.append(f"{_summary_head(report)}\n\n{draw(heads, rows)}\n")
    parts += [f"{note}\n" for note in report.get("notes", [])]
    for runs in _by_workload(report):
        parts.append(f"{_describe(report, runs)}\n\n{draw(*_cells(runs))}\n")
    return "\n".join(parts)


def plain(report):
    return _parts(report, align)


def markdown(report):
    return _parts(report, _pipes)
