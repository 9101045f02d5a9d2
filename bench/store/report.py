# SPDX-License-Identifier: GPL-2.0-only
"""Figures of the store as a table and as plots."""

import sys

_HEAD = ["figure", "pages", "value", "ours", "floor", "peer", "unit", "target", "reached"]
_LEFT = {0, 1, 6, 7, 8}


def _number(value):
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _row(figure):
    value = figure["value"]
    said = "not built" if value is None else f"{_number(value)} {figure['unit']}".strip()
    reached = "-" if figure["target"] is None else "yes" if figure["pass"] else "NO"
    return [figure["name"], figure["page_kind"], said, _number(figure["ours"]),
            _number(figure["floor"]), _number(figure["peer"]), figure["detail_unit"] or "-",
            figure["target"] or "-", reached]


def table(figures):
    """One line a figure; the last says how many of those with a target are reached."""
    rows = [_HEAD] + [_row(figure) for figure in figures]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(width) if i in _LEFT else cell.rjust(width)
                       for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
             for row in rows]
    lines.insert(1, "-" * len(lines[0]))
    aimed = [figure for figure in figures if figure["target"] is not None]
    reached = sum(figure["pass"] for figure in aimed)
    return "\n".join(lines + ["", f"{reached} of {len(aimed)} targets reached"])


def markdown(figures):
    lines = ["| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD)]
    lines += ["| " + " | ".join(_row(figure)) + " |" for figure in figures]
    return "\n".join(lines) + "\n"


def draw(figures, directory):
    """Bars of ours, the floor and the peer: times.png, bytes.png. Returns the files written."""
    try:
        import matplotlib
    except ImportError:
        print("no plots: python3-matplotlib is missing (make setup)", file=sys.stderr)
        return []
    matplotlib.use("Agg")
    from matplotlib import pyplot
    written = []
    for name, unit in (("store-times", "ns"), ("store-bytes", "bytes/page")):
        rows = {}
        for figure in figures:
            if figure["detail_unit"] == unit:
                title = figure["name"].partition(",")[0]
                rows.setdefault((title, figure["page_kind"]), figure)
        if not rows:
            continue
        axes = pyplot.subplots(figsize=(8, 0.5 * len(rows) + 1.2))[1]
        for offset, (key, colour) in enumerate(
                (("ours", "tab:blue"), ("floor", "tab:gray"), ("peer", "tab:orange"))):
            axes.barh([i + 0.27 * offset for i in range(len(rows))],
                      [figure[key] or 0 for figure in rows.values()], 0.25, label=key,
                      color=colour)
        axes.set_yticks([i + 0.27 for i in range(len(rows))],
                        [f"{title} ({kind})" for title, kind in rows])
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.legend()
        path = directory / f"{name}.png"
        axes.figure.tight_layout()
        axes.figure.savefig(path, dpi=80)
        pyplot.close(axes.figure)
        written.append(path)
    return written
