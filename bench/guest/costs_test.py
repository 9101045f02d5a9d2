#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of what reports cost: intervals, ratios of pairs, targets; and of what one guest runs."""

import math
import pathlib
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from guest import costs, measure, overhead, report_cost, single, tables, targets  # noqa: E402
from lab import paths, progress  # noqa: E402
from targets_test import value_of  # noqa: E402

MIB = single.MIB
MACHINE = {"cpu": "c", "cpus": 2, "memory_mib": 1, "host_kernel": "k", "qemu": "q",
           "accelerator": "tcg", "load_average": 0.0}


def a_run(workload, variant="tmem", task="", guest_mib=1024, **others):
    setup = single.Setup(workload, variant, guest_mib, 512 * MIB, task)
    return {**vars(setup), "passes": [], "steps": [], "series": [], "wrong_pages": 0,
            "console_trouble": [], **others}


def a_side(seconds):
    return {"seconds": seconds, "host_cpu_s": seconds, "reported_bytes": 0}


def overhead_of(ratios, off_s=2.0):
    return a_run("overhead", task="faults", pairs=[
        {"first": "on", "on": a_side(off_s * ratio), "off": a_side(off_s)} for ratio in ratios])


def a_cost(host_cpu_s, dropped_mib=512, idle_cpu_s=0.1):
    return {"seconds": 1.0, "host_cpu_s": host_cpu_s, "idle_cpu_s": idle_cpu_s,
            "dropped_bytes": dropped_mib * MIB}


def huge_run(reported_mib, end_mib, before_mib=900):
    steps = [{"step": name, "t_s": 0, "host_resident_bytes": 0, "pmd_mapped_bytes": mib * MIB}
             for name, mib in [("before report", before_mib), ("reported", reported_mib),
                               ("before balloon", end_mib), ("inflated", 100),
                               ("at the end", 0)]]
    return a_run("report-cost", task="huge", steps=steps,
                 costs={"report": a_cost(0.2), "balloon": a_cost(0.5)})


class Interval(unittest.TestCase):
    # From the tables of the sign test: of 15 the 4th and the 12th, of 20 the 6th and the 15th.
    def test_ends_are_those_of_the_sign_test(self):
        for count, low, high in [(6, 1, 6), (15, 4, 12), (20, 6, 15), (25, 8, 18)]:
            self.assertEqual(costs.median_interval(range(1, count + 1))[::2], (low, high))

    def test_too_few_say_nothing(self):
        low, median, high = costs.median_interval([1, 2, 3, 4, 5])
        self.assertEqual((low, median, high), (-math.inf, 3, math.inf))

    def test_one_wild_value_changes_little(self):
        calm = [1.0 + at / 1000 for at in range(15)]
        self.assertEqual(costs.median_interval([*calm[:-1], 9.0]), costs.median_interval(calm))


class Overhead(unittest.TestCase):
    def rows(self, ratios):
        return targets.figures([overhead_of(ratios)])

    def test_the_upper_end_is_what_the_target_holds(self):
        rows = self.rows([1.0] * 11 + [1.2] * 4)
        upper = value_of(rows, "time, upper end")
        self.assertEqual((upper.value, upper.passed()), (1.2, False))
        self.assertEqual(value_of(rows, "time, reports on by off").value, 1.0)
        self.assertTrue(value_of(self.rows([1.04] * 15), "time, upper end").passed())

    def test_six_pairs_are_enough_for_an_end_and_five_are_not(self):
        self.assertEqual(value_of(self.rows([1.01] * 6), "time, upper end").value, 1.01)
        self.assertFalse(value_of(self.rows([1.01] * 5), "time, upper end").passed())

    def test_tasks_of_the_full_form(self):
        def titles(**options):
            plan = overhead.plan(measure.Options(**options), None, progress.Silent())
            return [(setup.task, setup.cpus) for setup, _ in plan]

        self.assertEqual(titles(), [(task, cpus) for cpus in (1, 2) for task in overhead.TASKS])
        self.assertEqual(titles(vcpus=16), [(task, 16) for task in overhead.TASKS])
        self.assertEqual(titles(quick=True), [("faults", 2)])

    # Sized by one short run, most of which was its start, hackbench took a third of the time it
    # was to take, and its pairs differed by more than what they were to show.
    def test_a_task_is_sized_until_it_takes_half_the_time_at_least(self):
        bench = mock.Mock(setup=single.Setup("overhead", "tmem", 512, 128 * MIB, "hackbench"))
        bench.guest.run.side_effect = lambda command, _: (
            f"Time: {0.5 + 0.001 * int(command.split()[-1]) / 100}")
        task = overhead._Task(bench, 2.0)
        self.assertTrue(1.0 <= task.sample() <= 2.0)

    def test_no_rows_about_bells_that_nobody_counted(self):
        self.assertFalse([row for row in self.rows([1.0] * 15) if "bells" in row.name])


class Migrate(unittest.TestCase):
    def rows(self, used_mib):
        return targets.figures([
            a_run("migrate", variant, task, migrated_bytes=mib * MIB, seconds=1.0)
            for variant, task, mib in [("off", "fresh", 100), ("off", "used", 900),
                                       ("tmem", "fresh", 100), ("tmem", "used", used_mib)]])

    def test_only_ours_has_a_target(self):
        rows = self.rows(115)
        self.assertTrue(value_of(rows, "tmem: bytes").passed())
        self.assertIsNone(value_of(rows, "off: bytes").passed())
        self.assertFalse(value_of(self.rows(116), "tmem: bytes").passed())


class ReportCost(unittest.TestCase):
    def test_cost_is_for_what_was_dropped(self):
        run = a_run("report-cost", task="small",
                    costs={"report": a_cost(0.3, 1024), "balloon": a_cost(0.4, 512)})
        rows = targets.figures([run])
        self.assertEqual(value_of(rows, "idle guest's left out").value, 0.3333)
        self.assertEqual(rows[0].value, 0.375)
        self.assertTrue(rows[0].passed())

    def test_huge_pages_that_were_split_are_seen(self):
        self.assertTrue(value_of(targets.figures([huge_run(388, 900)]), "split").passed())
        self.assertFalse(value_of(targets.figures([huge_run(380, 900)]), "split").passed())
        self.assertFalse(value_of(targets.figures([huge_run(388, 898)]), "in use again").passed())

    def test_with_less_than_half_huge_nothing_is_said(self):
        rows = targets.figures([huge_run(0, 500, before_mib=500)])
        self.assertFalse([row for row in rows if "ShmemPmdMapped" in row.name])

    def test_no_huge_pages_is_a_run_with_its_reason(self):
        setup = single.Setup("report-cost", "tmem", 1024, 512 * MIB, "huge")
        with mock.patch.object(report_cost.subprocess, "run") as mount:
            mount.return_value = mock.Mock(returncode=32, stderr="not root\n")
            run = report_cost._run(setup, progress.Silent())
        self.assertIn("not root", run["skipped"])
        self.assertIn("not root", tables.plain({"runs": [run], "machine": MACHINE}))

    def test_the_quick_form_is_short_if_it_is_not_told(self):
        def tasks(**options):
            plan = report_cost.plan(measure.Options(quick=True, **options), None,
                                    progress.Silent())
            return [setup.task for setup, _ in plan]

        self.assertEqual((tasks(), tasks(only="huge")), (["small"], ["huge"]))

    def test_what_else_is_missing_is_an_error(self):
        setup = single.Setup("report-cost", "tmem", 1024, 512 * MIB, "small")
        with mock.patch.object(report_cost, "_measured", side_effect=paths.Missing("no tmemd")):
            self.assertRaises(paths.Missing, report_cost._run, setup, progress.Silent())


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
