#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of what turns runs into medians, ratios and targets, on runs whose figures are known."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from guest import figures, measure, session, tables, targets  # noqa: E402
from lab import guest as lab_guest  # noqa: E402


def a_pass(kind="read", seconds=1.0, **others):
    figures_of_pass = {"pages": 1000, "guest_cpu_us_per_page": 20.0,
                       "guest_system_us_per_page": 10.0, "daemon_cpu_us_per_page": 0.0,
                       "disk_read_bytes": 0, "disk_write_bytes": 0, "puts": 0, "get_hits": 0,
                       "get_misses": 0, "undone": 0, "asked": 0, "rung": 0, "suppressed": 0,
                       "rings_received": 0, "pages_evicted": 0, "inodes": [0, 0]}
    return {"kind": kind, "seconds": seconds, **figures_of_pass, **others}


def a_run(workload, variant, passes, **others):
    return {"workload": workload, "variant": variant, "corpus": "text", "disk_mb_s": 0,
            "thp": "off", "seed": 1, "guest_mib": 128, "cpus": 1, "workload_bytes": 256 << 20,
            "limit_mib": 384, "pool_min_mib": 32, "repetition": 0, "passes": passes, "puts": 0,
            "get_hits": 0, "daemon_cpu_us_per_page": 0.0, "disk_read_bytes": 0,
            "disk_write_bytes": 0, "pool": None, "wrong_pages": 0, "guest_counters": {},
            "doorbells": {"rung": 0, "suppressed": 0}, "rings_since_boot": 0, "rings_received": 0,
            **others}


def value_of(rows, part):
    found = [row for row in rows if part in row.name]
    assert len(found) == 1, (part, [row.name for row in rows])
    return found[0]


class Ratios(unittest.TestCase):
    def test_each_sign_of_a_target(self):
        verdicts = [targets.Figure("f", value, "", target).passed()
                    for value, target in [(6.0, ">= 6"), (5.9, ">= 6"), (1.25, "<= 1.25"),
                                          (1.26, "<= 1.25"), (1.0, "< 1"), (0, "== 0"),
                                          (1, "== 0")]]
        self.assertEqual(verdicts, [True, False, True, False, False, True, False])
        self.assertIsNone(targets.Figure("f", 1.0, "").passed())

    def test_a_ratio_by_zero_passes_no_upper_bound(self):
        self.assertEqual(targets.ratio(0, 0), 0)
        self.assertFalse(targets.Figure("f", targets.ratio(1, 0), "", "<= 1").passed())

    def test_suppressed_bells_count_as_bells(self):
        passes = [a_pass(rung=1, suppressed=3, asked=64), a_pass(rung=0, suppressed=0, asked=64)]
        self.assertEqual(targets.bells_per_page(passes), 4 / 128)


class Streaming(unittest.TestCase):
    def setUp(self):
        # The second repetition was disturbed: a mean would show it, a median does not.
        self.runs = []
        for repetition, factor in enumerate([1, 9, 1]):
            for rate in [20, 0]:
                off = [a_pass(seconds=(12.0 if rate else 1.0) * factor)] * 2
                tmem = [a_pass(seconds=1.2 * factor, guest_cpu_us_per_page=24.0, rung=10,
                               asked=1000, guest_system_us_per_page=14.5),
                        a_pass(seconds=2.0 * factor, guest_cpu_us_per_page=30.0, rung=200,
                               asked=1000)]
                for variant, passes in [("off", off), ("tmem", tmem)]:
                    self.runs.append(a_run("streaming", variant, passes, disk_mb_s=rate,
                                           repetition=repetition))
        self.rows = targets.figures(self.runs)

    def test_medians_ignore_one_disturbed_repetition(self):
        speed = value_of(self.rows, "20 MB/s: second pass, speed against off")
        self.assertEqual((speed.value, speed.passed()), (6.0, True))
        cached = value_of(self.rows, "cached disk: second pass, speed against off")
        self.assertEqual((cached.value, cached.passed()), (0.5, False))
        first = value_of(self.rows, "first pass, time against off")
        self.assertEqual((first.value, first.passed()), (1.2, True))

    def test_each_pass_has_figures_of_its_own(self):
        self.assertTrue(value_of(self.rows, "first pass, guest CPU against off").passed())
        self.assertFalse(value_of(self.rows, "second pass, guest CPU against off").passed())
        self.assertTrue(value_of(self.rows, "first pass, bells").passed())
        self.assertFalse(value_of(self.rows, "second pass, bells").passed())
        self.assertEqual(value_of(self.rows, "first pass, extra system time").value, 4.5)

    def test_bells_that_one_end_missed_are_seen(self):
        self.assertTrue(value_of(self.rows, "did not count").passed())
        self.runs[-1]["rings_received"] = 1
        self.assertFalse(value_of(targets.figures(self.runs), "did not count").passed())


class OtherWorkloads(unittest.TestCase):
    def test_swap_counts_out_and_in_apart(self):
        passes = [a_pass("fill", puts=1600, rung=100), a_pass("verify", get_hits=400, rung=100),
                  a_pass("verify", get_hits=400, suppressed=200)]
        rows = targets.figures([
            a_run("swap", "off", [a_pass("fill", 9.0), a_pass("verify", 9.0)]),
            a_run("swap", "tmem", passes),
            # Half a pool: not what the target is about.
            a_run("swap", "tmem", [a_pass("fill", 99.0)], pool_min_mib=16)])
        self.assertEqual(value_of(rows, "out, bells").value, 0.0625)
        self.assertTrue(value_of(rows, "out, bells").passed())
        self.assertEqual(value_of(rows, "in, bells").value, 0.375)
        self.assertFalse(value_of(rows, "in, bells").passed())
        self.assertEqual(value_of(rows, "total time").value, 0.1667)

    def test_random_compares_medians_of_reads(self):
        def passes(median_us, p99_us, hits):
            return [a_pass(), a_pass("drop", pages=0),
                    a_pass("random", median_us=median_us, p99_us=p99_us, get_hits=hits)]
        rows = targets.figures([a_run("random", "off", passes(100.0, 200.0, 0)),
                                a_run("random", "tmem", passes(40.0, 100.0, 980))])
        self.assertEqual(value_of(rows, "median time against").value, 0.4)
        self.assertFalse(value_of(rows, "median time against").passed())
        self.assertFalse(value_of(rows, "share that hit").passed())

    def tree(self, **last):
        return a_run("tree", "tmem", [
            a_pass(puts=800, undone=20, pages_evicted=30, inodes=[100, 900]),
            a_pass("squeeze", pages=0, puts=150, inodes=[900, 300]),
            a_pass(**{"get_hits": 810, "inodes": [300, 900], **last})],
            corpus="ext4", files=1000, puts=950, get_hits=810)

    def test_tree_counts_what_the_host_could_have_kept(self):
        rows = targets.figures([self.tree()])
        self.assertEqual(value_of(rows, "pages hit").value, 0.9)
        self.assertTrue(value_of(rows, "pages hit").passed())
        self.assertEqual(value_of(rows, "inodes pruned").value, 0.8)
        self.assertFalse(value_of(targets.figures([self.tree(get_hits=800)]), "pages hit").passed())

    def test_a_tree_whose_inodes_stayed_proves_nothing(self):
        rows = targets.figures([self.tree(inodes=[1050, 1100])])
        self.assertFalse(value_of(rows, "inodes pruned").passed())

    def test_pages_never_put_ring_nothing_in_any_run(self):
        quiet = a_run("never-put", "tmem", [a_pass(), a_pass()])
        loud = {**quiet, "doorbells": {"rung": 0, "suppressed": 1}}
        self.assertTrue(value_of(targets.figures([quiet]), "never put").passed())
        self.assertFalse(value_of(targets.figures([quiet, loud, quiet]), "never put").passed())


class Reports(unittest.TestCase):
    MACHINE = {"cpus": 2, "cpu": "x", "qemu": "q", "accelerator": "tcg", "host_kernel": "6",
               "load_average": 0.0}

    def test_a_summary_stands_before_the_runs(self):
        report = {"machine": self.MACHINE, "runs": [OtherWorkloads().tree()]}
        text = tables.markdown(report)
        self.assertLess(text.index("pages hit by pages put"), text.index("| file system |"))
        self.assertIn("| >= 0.9 | yes |", text)

    def test_reports_of_schema_1_have_runs_only(self):
        old = a_run("streaming", "off", [{"kind": "read", "seconds": 1.0, "disk_read_bytes": 0,
                                          "guest_cpu_us_per_page": 1.0}] * 2)
        text = tables.plain({"machine": self.MACHINE, "runs": [old]})
        self.assertIn("streaming:", text)
        self.assertNotIn("Summary", text)


class Counters(unittest.TestCase):
    def test_misses_that_the_table_answers_ask_nobody(self):
        after = {"gets": 300, "get_hits": 100, "get_misses": 20, "get_misses_local": 180,
                 "puts": 50, "flushes": 9, "flushes_posted": 4, "doorbells_get": 12,
                 "doorbells_rung": 15}
        one = figures.of_pass({}, after)
        self.assertEqual(one["asked"], 50 + 100 + 20 + 4)
        self.assertEqual(one["get_misses"], 200)
        run = figures.of_guest({}, after)
        self.assertEqual(run["doorbells"]["get"], 0.1)
        self.assertEqual(run["doorbells"]["miss"], 0.01)

    def test_a_run_without_the_module_has_zeros(self):
        self.assertEqual(set(figures.of_pass({}, {}).values()), {0})


class Sessions(unittest.TestCase):
    class Setup:
        repetition = 0

        def __init__(self, name):
            self.name = name

        def key(self):
            return f"{self.name}-{self.repetition}"

    def test_a_resumed_session_runs_what_is_left(self):
        started = []

        def plan(_, fail_at=None):
            for name in ["a", "b"]:
                def start(name=name):
                    if len(started) == fail_at:
                        raise KeyboardInterrupt
                    started.append(name)
                    return {"of": name}
                yield self.Setup(name), start

        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "kept"
            with self.assertRaises(KeyboardInterrupt):
                list(session.runs(lambda store: plan(store, 3), 2, session.Kept(path, False)))
            self.assertEqual(started, ["a", "b", "a"])
            path.write_text(path.read_text(encoding="utf-8") + '["cut', encoding="utf-8")
            done = list(session.runs(plan, 2, session.Kept(path, True)))
            self.assertEqual([run["of"] for run in done], ["a", "b", "a", "b"])
            self.assertEqual(started, ["a", "b", "a", "b"])
            self.assertEqual(len(session.Kept(path, True).runs), 4)
            self.assertEqual(session.Kept(path, False).runs, {})

class Registration(unittest.TestCase):
    """Once a kernel and a daemon that did not understand each other reached every target."""

    class Host:
        def __init__(self, counters):
            self.counters = counters

        def guest_status(self, _name):
            return {"counters": self.counters}

    def test_a_guest_that_never_registered_is_no_measurement_of_tmem(self):
        setup = measure.Setup(
            workload="streaming", variant="tmem", corpus="text", disk_mb_s=0, thp="off", seed=1,
            guest_mib=128, workload_bytes=1 << 20, limit_mib=64, pool_min_mib=32)
        for counters in ({}, {"registrations": 0}):
            with self.assertRaisesRegex(lab_guest.GuestError, "has not registered"):
                measure.demand_registered(setup.title(), self.Host(counters), tries=1)
        measure.demand_registered(setup.title(), self.Host({"registrations": 1}), tries=1)
        measure.demand_registered(setup.title(), None)


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
