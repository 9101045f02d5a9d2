# SPDX-License-Identifier: GPL-2.0-only
"""From the runs of `doorbells` to its table: what each costs, against off and the other one."""

from guest.targets import Figure, Runs, bells_for_pages, ratio

_NONE, _IVSHMEM, _HYPERCALL = "none", "ivshmem", "hypercall"
# The passes that mostly put, and those that mostly get.
_HALVES = {"streaming": [lambda passes: passes[:1], lambda passes: passes[1:]],
           "swap": [lambda passes: [one for one in passes if one["kind"] == "fill"],
                    lambda passes: [one for one in passes if one["kind"] == "verify"]]}
# Hypercalls a page. Swap-in faults in runs of at most eight pages, and often of fewer.
_MOST = {"streaming": {"put": "<= 0.0625", "get": "<= 0.125"},
         "swap": {"put": "<= 0.0625", "get": "<= 0.25"}}


def is_comparison(report):
    """Whether the report has both doorbells."""
    return {_IVSHMEM, _HYPERCALL} <= {run.get("doorbell") for run in report["runs"]}


def _half(run, half):
    return _HALVES[run["workload"]][half](run["passes"])


def _seconds(run, half):
    return sum(one["seconds"] for one in _half(run, half))


def _pages(run, half):
    return sum(one["pages"] for one in _half(run, half))


def _cpu_us(run, half):
    """Guest and daemon, a page."""
    used = sum((one["guest_cpu_us_per_page"] + one["daemon_cpu_us_per_page"]) * one["pages"]
               for one in _half(run, half))
    return ratio(used, _pages(run, half))


def _exits(run, half):
    return ratio(sum(one["kvm"]["exits"] for one in _half(run, half)), _pages(run, half))


def _medians(runs, figure):
    """Of both halves."""
    return [runs.median(lambda run, half=half: figure(run, half)) for half in (0, 1)]


def _pair(values, digits=2):
    return " / ".join(f"{value:.{digits}f}" for value in values)


def _against(runs, other, figure):
    if not runs or not other:
        return "-"
    pairs = zip(_medians(runs, figure), _medians(other, figure))
    return _pair([ratio(value, by) for value, by in pairs])


def _share(value):
    return f"1/{1 / value:.0f}" if value else "0"


def _row(workload, doorbell, cell, absolute):
    runs, off, other = cell.of(doorbell=doorbell), cell.of(doorbell=_NONE), Runs([])
    if doorbell == _HYPERCALL:
        other = cell.of(doorbell=_IVSHMEM)
    handed = ["-", "-"]
    if doorbell != _NONE:
        handed = [_share(runs.median(lambda run, of=of: run["doorbells"][of]))
                  for of in ("put", "get")]
    known = all("kvm" in one for run in runs for half in (0, 1) for one in _half(run, half))
    row = [workload, doorbell, *handed, _pair(_medians(runs, _exits)) if known else "-"]
    for figure in (_seconds, _cpu_us):
        row += ["1" if doorbell == _NONE else _against(runs, off, figure),
                _against(runs, other, figure)]
    if absolute:
        per_page = [ratio(seconds * 1e6, pages) for seconds, pages in
                    zip(_medians(runs, _seconds), _medians(runs, _pages))]
        row += [_pair(per_page, 1), _pair(_medians(runs, _cpu_us), 1)]
    return row


def cells(report):
    """Headings and rows. Microseconds only where the processor itself runs the guests."""
    absolute = report["machine"]["accelerator"] == "kvm"
    heads = ["workload", "doorbell", "rung a page put", "a page got", "exits a page",
             "time / off", "time / ivshmem", "CPU / off", "CPU / ivshmem"]
    if absolute:
        heads += ["us a page", "CPU us a page"]
    runs = Runs(report["runs"])
    return heads, [_row(workload, doorbell, runs.of(workload=workload), absolute)
                   for workload in _HALVES for doorbell in (_NONE, _IVSHMEM, _HYPERCALL)
                   if runs.of(workload=workload, doorbell=doorbell)]


def figures(report):
    """The counts that have a target."""
    rows = []
    runs = Runs(report["runs"]).of(doorbell=_HYPERCALL)
    for workload in _HALVES:
        of_workload = runs.of(workload=workload)
        for operation, most in _MOST[workload].items() if of_workload else []:
            rows.append(Figure(
                f"{workload}: hypercalls of a page {operation}",
                of_workload.greatest(lambda run, of=operation: run["doorbells"][of]), "", most))
    never = Runs(report["runs"]).of(workload="never-put")
    for doorbell in never.values("doorbell") if never else []:
        rows.append(Figure(f"pages never put, {doorbell}: rung and suppressed",
                           never.of(doorbell=doorbell).greatest(bells_for_pages), "", "== 0"))
    if runs:
        rows.append(Figure("hypercalls that guest and module did not count alike", runs.greatest(
            lambda run: abs(run["rings_since_boot"] - run["rings_received"])), "", "== 0"))
    return rows
