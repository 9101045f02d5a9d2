# SPDX-License-Identifier: GPL-2.0-only
"""From the runs of a report to medians, ratios and targets; no guest is needed here."""

import dataclasses
import importlib
import statistics

# Extra system time a page that the tmem series of 2012 measured for its zcache, zero to random.
SERIES_2012_US = "6.6 to 19 in the 2012 series"


@dataclasses.dataclass
class Figure:
    """One row of a summary."""

    name: str
    value: float
    unit: str
    target: str = ""  # "<= 1.25"; empty: for information

    def passed(self):
        """True, False, or None without a target."""
        if not self.target:
            return None
        sign, _, limit = self.target.partition(" ")
        return {"<=": self.value <= float(limit), ">=": self.value >= float(limit),
                "<": self.value < float(limit), "==": self.value == float(limit)}[sign]

    def row(self):
        return {"name": self.name, "value": self.value, "unit": self.unit, "target": self.target,
                "pass": self.passed()}


def ratio(value, by):
    """A quotient to four digits; 0 by 0 is 0, and anything by 0 is infinite."""
    if by == 0:
        return 0.0 if value == 0 else float("inf")
    return float(f"{value / by:.4g}")


class Runs:
    """The runs of a report, looked up by what they have in common."""

    def __init__(self, runs):
        self._runs = runs

    def of(self, **wanted):
        return Runs([run for run in self._runs
                     if all(run[name] == value for name, value in wanted.items())])

    def but(self, **unwanted):
        return Runs([run for run in self._runs
                     if not any(run[name] == value for name, value in unwanted.items())])

    def __bool__(self):
        return bool(self._runs)

    def __iter__(self):
        return iter(self._runs)

    def __len__(self):
        return len(self._runs)

    def values(self, name):
        """The different values of a key, in the order of the runs."""
        return list(dict.fromkeys(run[name] for run in self._runs))

    def median(self, figure):
        """The median over the runs of a function of a run."""
        return statistics.median(figure(run) for run in self._runs)

    def greatest(self, figure):
        return max(figure(run) for run in self._runs)


def _passes(run, kind):
    return [one for one in run["passes"] if one["kind"] == kind]


def of_pass(number, key):
    """The function of a run that gives a key of its `number`th pass, from 0."""
    return lambda run: run["passes"][number][key]


def bells_per_page(passes, per="asked"):
    """(rung + suppressed) / pages of these passes; suppressed: the host was awake anyway."""
    return ratio(sum(one["rung"] + one["suppressed"] for one in passes),
                 sum(one[per] for one in passes))


def _streaming(runs, rows):
    for corpus in runs.values("corpus"):
        of_corpus = runs.of(corpus=corpus)
        cached = of_corpus.of(disk_mb_s=0)
        for rate in of_corpus.values("disk_mb_s"):
            if rate:
                _streaming_throttled(corpus, rate, of_corpus.of(disk_mb_s=rate), cached, rows)
        if cached.of(variant="off") and cached.of(variant="tmem"):
            _streaming_cached(corpus, cached, rows)
        _streaming_bells(corpus, of_corpus.of(variant="tmem"), rows)


def _streaming_throttled(corpus, rate, runs, cached, rows):
    off, tmem = runs.of(variant="off"), runs.of(variant="tmem")
    if not off or not tmem:
        return
    second = tmem.median(of_pass(1, "seconds"))
    rows.append(Figure(f"{corpus}, {rate:g} MB/s: second pass, speed against off",
                       ratio(off.median(of_pass(1, "seconds")), second), "x",
                       ">= 6" if corpus == "text" else ""))
    if cached.of(variant="off"):
        rows.append(Figure(
            f"{corpus}, {rate:g} MB/s: second pass, speed against the host-cached disk",
            ratio(cached.of(variant="off").median(of_pass(1, "seconds")), second), "x"))


def _streaming_cached(corpus, runs, rows):
    off, tmem = runs.of(variant="off"), runs.of(variant="tmem")

    def against(number, key):
        return ratio(tmem.median(of_pass(number, key)), off.median(of_pass(number, key)))

    def more(number, key):
        return round(tmem.median(of_pass(number, key)) - off.median(of_pass(number, key)), 2)

    bounded = corpus in ("text", "zero", "random")
    rows.append(Figure(f"{corpus}, cached disk: second pass, speed against off",
                       ratio(1, against(1, "seconds")), "x", ">= 0.8"))
    rows.append(Figure(f"{corpus}, cached disk: first pass, time against off",
                       against(0, "seconds"), "x", "<= 1.25" if bounded else ""))
    for number, name in enumerate(["first", "second"]):
        rows.append(Figure(f"{corpus}, cached disk: {name} pass, guest CPU against off",
                           against(number, "guest_cpu_us_per_page"), "x",
                           "<= 1.25" if bounded else ""))
    for number, name in enumerate(["first", "second"]):
        rows.append(Figure(f"{corpus}, cached disk: {name} pass, extra system time"
                           f" ({SERIES_2012_US})",
                           more(number, "guest_system_us_per_page"), "us/page"))
        rows.append(Figure(f"{corpus}, cached disk: {name} pass, extra guest CPU",
                           more(number, "guest_cpu_us_per_page"), "us/page"))


def _streaming_bells(corpus, tmem, rows):
    if not tmem:
        return
    for number, name, target in [(0, "first", "<= 0.0625"), (1, "second", "<= 0.1")]:
        rows.append(Figure(
            f"{corpus}: {name} pass, bells rung and suppressed",
            tmem.median(lambda run, number=number: bells_per_page([run["passes"][number]])),
            "a page", target))
        rows.append(Figure(f"{corpus}: {name} pass, daemon CPU",
                           round(tmem.median(of_pass(number, "daemon_cpu_us_per_page")), 2),
                           "us/page"))


def _swap(runs, rows):
    def total(run):
        return sum(one["seconds"] for one in run["passes"])

    for thp in runs.values("thp"):
        cell = runs.of(thp=thp)
        off = cell.of(variant="off")
        if not off:
            continue
        # The run with half a pool is not meant to be fast.
        pool_mib = max(off.values("pool_min_mib"))
        tmem = cell.of(variant="tmem", pool_min_mib=pool_mib)
        if not tmem:
            continue
        rows.append(Figure(f"swap, THP {thp}: total time against off",
                           ratio(tmem.median(total), off.median(total)), "x", "< 1"))
        rows.append(Figure(
            f"swap, THP {thp}: out, bells rung and suppressed",
            tmem.median(lambda run: bells_per_page(_passes(run, "fill"), "puts")),
            "a page", "<= 0.0625"))
        rows.append(Figure(
            f"swap, THP {thp}: in, bells rung and suppressed",
            tmem.median(lambda run: bells_per_page(_passes(run, "verify"), "get_hits")),
            "a page", "<= 0.25"))
        rows.append(Figure(f"swap, THP {thp}: daemon CPU",
                           round(tmem.median(lambda run: run["daemon_cpu_us_per_page"]), 2),
                           "us/page"))


def _random(runs, rows):
    off, tmem = runs.of(variant="off"), runs.of(variant="tmem")
    if not off or not tmem:
        return

    def last(key):
        return lambda run: run["passes"][-1][key]

    for key, name, target in [("median_us", "median time", "<= 0.3"), ("p99_us", "p99", ""),
                              ("seconds", "total time", ""),
                              ("guest_cpu_us_per_page", "guest CPU", "")]:
        rows.append(Figure(f"random 4 KiB reads: {name} against the cached disk",
                           ratio(tmem.median(last(key)), off.median(last(key))), "x", target))
    for key, name in [("median_us", "median time"), ("p99_us", "p99")]:
        rows.append(Figure(f"random 4 KiB reads: {name} with tmem",
                           round(tmem.median(last(key)), 1), "us"))
    rows.append(Figure(
        "random 4 KiB reads: share that hit",
        round(tmem.median(lambda run: run["passes"][-1]["get_hits"]
                          / run["passes"][-1]["pages"]), 4), "", ">= 0.99"))
    rows.append(Figure("random 4 KiB reads: bells rung and suppressed",
                       tmem.median(lambda run: bells_per_page([run["passes"][-1]])), "a page"))


def tree_hit_share(run):
    """Pages hit in the last pass by those put before it that the host has neither refused nor
    evicted, up to its end."""
    before, last = run["passes"][:-1], run["passes"][-1]
    stored = sum(one["puts"] - one["undone"] - one["pages_evicted"] for one in before)
    return ratio(last["get_hits"], stored - last["pages_evicted"])


def tree_pruned(run, files):
    """Inodes of the files read in the first pass that have left the inode cache before the last
    one, by all of them."""
    return ratio(run["passes"][0]["inodes"][0] + files - run["passes"][-1]["inodes"][0], files)


def _tree(runs, rows):
    tmem = runs.of(variant="tmem")
    for fs in tmem.values("corpus"):
        cell = tmem.of(corpus=fs)
        first = [("pages put", "puts"), ("pages evicted by the host", "pages_evicted")]
        rows.append(Figure(f"tree, {fs}: pages hit by pages put and not evicted",
                           cell.median(tree_hit_share), "", ">= 0.9"))
        rows.append(Figure(f"tree, {fs}: inodes pruned between the passes, by files",
                           cell.median(lambda run: tree_pruned(run, run["files"])), "", ">= 0.5"))
        for name, key in first:
            rows.append(Figure(
                f"tree, {fs}: {name} before the second read",
                cell.median(lambda run, key=key: sum(one[key] for one in run["passes"][:-1])),
                "pages"))
        off = runs.of(variant="off", corpus=fs)
        if off:
            rows.append(Figure(f"tree, {fs}: second read, speed against off",
                               ratio(off.median(of_pass(-1, "seconds")),
                                     cell.median(of_pass(-1, "seconds"))), "x"))


def bells_for_pages(run):
    """Rung and suppressed, without what is for no page: registrations, an idle guest's look at the
    host's notices."""
    bells = run["doorbells"]
    return bells["rung"] + bells["suppressed"] - run["guest_counters"].get("doorbells_other", 0)


def _never_put(runs, rows):
    rows.append(Figure("pages never put: bells rung and suppressed",
                       runs.greatest(bells_for_pages), "", "== 0"))


def _both_ends(runs, rows):
    with_tmem = Runs([run for run in runs.but(variant="off") if "rings_received" in run])
    if with_tmem:
        rows.append(Figure(
            "bells rung by the guest that the other end did not count, or the other way round",
            with_tmem.greatest(lambda run: abs(run["rings_since_boot"] - run["rings_received"])),
            "", "== 0"))


def _elsewhere(module, name):
    """Figures of a module that needs this one, looked up when there is a run of that kind."""
    return lambda runs, rows: getattr(importlib.import_module(module), name)(runs, rows)


_OF_WORKLOAD = {"streaming": _streaming, "swap": _swap, "random": _random, "tree": _tree,
                "never-put": _never_put,
                "memhog": _elsewhere("guest.crowd_figures", "memhog"),
                "fit": _elsewhere("guest.crowd_figures", "fit"),
                "overhead": _elsewhere("guest.costs", "overhead"),
                "migrate": _elsewhere("guest.costs", "migrate"),
                "report-cost": _elsewhere("guest.costs", "report_cost"),
                "cache-return": _elsewhere("guest.cache_figures", "figures"),
                "mixed": _elsewhere("guest.mixed_figures", "mixed")}


def figures(runs):
    """The rows of a summary."""
    all_runs = Runs(runs)
    rows = []
    for workload in all_runs.values("workload"):
        _OF_WORKLOAD[workload](all_runs.of(workload=workload), rows)
    _both_ends(all_runs, rows)
    return rows
