# SPDX-License-Identifier: GPL-2.0-only
"""Host memory over time, drawn by matplotlib from the `series` of a report's runs."""

import sys

MIB = 1 << 20
# Of which of a run's series there is a line, by workload; of others all.
_LINES = {"memhog": ("total",), "fit": ("group",)}
_COLOURS = {"off": "tab:red", "virtio-balloon": "tab:orange", "tmem": "tab:blue"}
_INCHES = (8, 2.8)  # of one panel
_DPI = 80  # documents embed them: some ten thousand bytes


def panels(report):
    """[(title, [(label, colour, times, MiB)], budget in MiB or 0)] of the runs that have series.

    A workload's settings are panels of their own; of repetitions the first is drawn.
    """
    found = {}
    for run in report["runs"]:
        if run.get("series") and not run.get("repetition", 0):
            key = run["workload"], run.get("setting", "")
            found.setdefault(key, []).append(run)
    return [(" ".join(key).strip(),
             [line for run in runs for line in _lines(run, len(runs) == 1)],
             max(run.get("budget_mib", 0) for run in runs)) for key, runs in found.items()]


def _lines(run, alone):
    wanted = _LINES.get(run["workload"]) or dict.fromkeys(
        sample["name"] for sample in run["series"])
    for name in wanted:
        samples = [one for one in run["series"] if one["name"] == name]
        label = (run["variant"] if len(wanted) == 1
                 else name if alone else f"{run['variant']}: {name}")
        colour = _COLOURS.get(run["variant"]) if len(wanted) == 1 else None
        yield (label, colour, [one["t_s"] for one in samples],
               [one["bytes"] / MIB for one in samples])


def draw(report, path):
    """Writes a picture (.png or .svg); returns whether there was something to draw, and with."""
    found = panels(report)
    if not found:
        return False
    try:
        import matplotlib
    except ImportError:
        print("no plot: python3-matplotlib is missing (make setup)", file=sys.stderr)
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    width, height = _INCHES
    figure, axes = pyplot.subplots(len(found), 1, squeeze=False, layout="constrained",
                                   figsize=(width, height * len(found)))
    for axis, (title, lines, budget_mib) in zip(axes[:, 0], found):
        for label, colour, times, mib in lines:
            axis.plot(times, mib, label=label, color=colour, linewidth=1.2)
        if budget_mib:
            axis.axhline(budget_mib, color="gray", linestyle="--", linewidth=1, label="budget")
        axis.set(title=title, xlabel="seconds", ylabel="host memory, MiB", ylim=(0, None))
        axis.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=_DPI)
    pyplot.close(figure)
    return True
