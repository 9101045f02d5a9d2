# SPDX-License-Identifier: GPL-2.0-only
"""Tables for people from the JSON of a report."""

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
    return " / ".join(f"{one[key] / scale:.{digits}f}" for one in run["passes"])


def _bells(run):
    rung = run["doorbells"].get("rung", 0)
    moved = run["puts"] + run["get_hits"]
    return f"1/{moved / rung:.0f}" if rung and moved else "-"


# (heading, text of one run)
_COMMON_HEAD = [("variant", lambda run: run["variant"])]
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
}


def _cells(report):
    columns = _COLUMNS[report["runs"][0]["workload"]]
    rows = [[text(run) for _, text in columns] for run in report["runs"]]
    return [heading for heading, _ in columns], rows


def align(heads, rows):
    """Plain text, columns wide enough for what is in them."""
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
             for row in [heads, ["-" * width for width in widths], *rows]]
    return "\n".join(lines)


def _describe(report):
    first, machine = report["runs"][0], report["machine"]
    what = "file" if first["workload"] == "streaming" else "memory hog"
    return (f"{first['workload']}: guest of {first['guest_mib']} MiB, {first['cpus']} vCPU, "
            f"{what} of {first['workload_bytes'] // MIB} MiB; "
            f"{machine['cpus']} x {machine['cpu']}, "
            f"{machine['qemu']}, {machine['accelerator']}, host Linux {machine['host_kernel']}; "
            f"load before {machine['load_average']:.1f}")


def plain(report):
    heads, rows = _cells(report)
    return f"{_describe(report)}\n\n{align(heads, rows)}\n"


def markdown(report):
    heads, rows = _cells(report)
    lines = [f"| {' | '.join(row)} |" for row in [heads, ["---"] * len(heads), *rows]]
    return _describe(report) + "\n\n" + "\n".join(lines) + "\n"
