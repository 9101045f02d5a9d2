#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the table of both doorbells, on runs whose figures are known."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from targets_test import a_pass, a_run  # noqa: E402
from guest import compare, doorbells, measure, tables  # noqa: E402


def a_report(accelerator, *runs):
    machine = {"cpu": "x", "cpus": 2, "qemu": "QEMU", "accelerator": accelerator,
               "host_kernel": "6", "load_average": 0.0}
    return {"machine": machine, "runs": list(runs)}


def a_stream(doorbell, seconds, cpu, bells=0.0, exits=0):
    passes = [a_pass("read", seconds * turn, guest_cpu_us_per_page=cpu - 1.0,
                     daemon_cpu_us_per_page=1.0, kvm={"exits": exits * turn})
              for turn in (1, 2)]
    return a_run("streaming", "off" if doorbell == "none" else "tmem", passes, doorbell=doorbell,
                 doorbells={"rung": 0, "suppressed": 0, "put": bells, "get": 2 * bells})


def never(doorbell, rung, other=0):
    return a_run("never-put", "tmem", [a_pass()], doorbell=doorbell,
                 guest_counters={"doorbells_other": other},
                 doorbells={"rung": rung + other, "suppressed": 0, "put": 0, "get": 0})


RUNS = [a_stream("none", 1.0, 10.0, exits=100),
        a_stream("ivshmem", 2.0, 20.0, 1 / 32, exits=300),
        a_stream("hypercall", 1.5, 15.0, 1 / 64, exits=200),
        never("ivshmem", 0), never("hypercall", 0, other=3)]


class TheTable(unittest.TestCase):
    def rows(self, accelerator):
        heads, rows = compare.cells(a_report(accelerator, *RUNS))
        return {row[1]: dict(zip(heads, row)) for row in rows}

    def test_ratios_and_counts(self):
        rows = self.rows("tcg")
        self.assertEqual(list(rows), ["none", "ivshmem", "hypercall"])
        one = rows["hypercall"]
        self.assertEqual(one["rung a page put"], "1/64")
        self.assertEqual(one["a page got"], "1/32")
        self.assertEqual(one["exits a page"], "0.20 / 0.40")
        self.assertEqual(one["time / off"], "1.50 / 1.50")
        self.assertEqual(one["time / ivshmem"], "0.75 / 0.75")
        self.assertEqual(one["CPU / ivshmem"], "0.75 / 0.75")
        self.assertEqual(rows["ivshmem"]["time / ivshmem"], "-")
        self.assertEqual(rows["none"]["time / off"], "1")

    def test_microseconds_only_where_the_processor_runs_the_guests(self):
        self.assertEqual(self.rows("kvm")["hypercall"]["us a page"], "1500.0 / 3000.0")
        for accelerator in ["tcg", "kvm in an emulated host"]:
            self.assertNotIn("us a page", self.rows(accelerator)["hypercall"])

    def test_without_the_statistics_of_kvm_exits_are_not_known(self):
        for run in (runs := [a_stream("ivshmem", 1.0, 1.0), a_stream("hypercall", 1.0, 1.0)]):
            for one in run["passes"]:
                del one["kvm"]
        heads, rows = compare.cells(a_report("kvm", *runs))
        self.assertEqual({row[heads.index("exits a page")] for row in rows}, {"-"})

    def test_swap_is_halved_by_what_its_passes_do(self):
        passes = [a_pass("fill", 1.0), a_pass("verify", 2.0), a_pass("verify", 3.0)]
        run = a_run("swap", "tmem", passes, doorbell="hypercall",
                    doorbells={"rung": 0, "suppressed": 0, "put": 0, "get": 0})
        heads, rows = compare.cells(a_report("kvm", run))
        self.assertEqual(rows[0][heads.index("us a page")], "1000.0 / 2500.0")

    def test_it_stands_first_in_the_report_of_both_and_in_no_other(self):
        text = tables.markdown(a_report("tcg", *RUNS))
        self.assertLess(text.index("Both doorbells"), text.index("Summary"))
        self.assertIn("tmem by hypercall", text)
        self.assertNotIn("Both doorbells", tables.markdown(a_report("tcg", *RUNS[:2])))


class TheTargets(unittest.TestCase):
    def passed(self, *runs):
        return {one.name: one.passed() for one in compare.figures(a_report("tcg", *runs))}

    def test_all_reached(self):
        self.assertEqual(set(self.passed(*RUNS).values()), {True})
        self.assertEqual(len(self.passed(*RUNS)), 5)

    def test_too_many_hypercalls(self):
        passed = self.passed(a_stream("hypercall", 1.0, 1.0, 1 / 15),
                             {**never("hypercall", 1), "rings_since_boot": 1})
        self.assertEqual(set(passed.values()), {False})


class ThePlan(unittest.TestCase):
    def test_each_doorbell_follows_the_other(self):
        options = measure.Options(quick=True, disk_mb_s=0, demo=True)
        names = [(setup.workload, setup.variant, setup.doorbell)
                 for setup, _ in doorbells.plan(options, None, None)]
        both = ["ivshmem", "hypercall"]
        self.assertEqual(names, [
            *(("streaming", "off", ""), *(("streaming", "tmem", one) for one in both)),
            *(("swap", "off", ""), *(("swap", "tmem", one) for one in both)),
            *(("never-put", "tmem", one) for one in both)])


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
