#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of budget_series.py: when a budget was passed, how fast a store grew, how it turned."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from guest import budget_series  # noqa: E402


def _samples(name, values):
    return [{"t_s": t_s, "name": name, "bytes": value} for t_s, value in values]


class Sums(unittest.TestCase):
    def test_only_times_at_which_all_were_seen(self):
        series = _samples("a", [(0, 1), (1, 2), (2, 3)]) + _samples("b", [(0, 10), (2, 30)])
        self.assertEqual(budget_series.sums(series, ["a", "b"]), [(0, 11), (2, 33)])


class Overs(unittest.TestCase):
    def test_each_time_in_a_row_counts_once(self):
        points = [(0, 5), (1, 11), (2, 14), (3, 10), (4, 12)]
        self.assertEqual(budget_series.overs(points, 10),
                         [budget_series.Over(1, 2, 4), budget_series.Over(4, 0, 2)])

    def test_all_of_the_budget_is_not_over_it(self):
        self.assertEqual(budget_series.overs([(0, 10)], 10), [])


class Growth(unittest.TestCase):
    POINTS = [(0, 4), (1, 3), (2, 7), (3, 9), (9, 20)]

    def test_from_the_value_at_that_time(self):
        self.assertEqual(budget_series.grown(self.POINTS, 1.5, 2), 6)

    def test_until(self):
        self.assertEqual(budget_series.seconds_until(self.POINTS, 1.5, 4), 0.5)
        self.assertIsNone(budget_series.seconds_until(self.POINTS, 1.5, 40))

    def test_longest_gap(self):
        self.assertEqual(budget_series.longest_gap_s(self.POINTS), 6)


class Turns(unittest.TestCase):
    def _turns(self, *values):
        return budget_series.turns(list(enumerate(values)), 10)

    def test_a_square_wave_has_two_a_period(self):
        self.assertEqual(self._turns(0, 50, 50, 0, 0, 50, 50, 0, 0, 50), 4)

    def test_little_waves_are_none(self):
        self.assertEqual(self._turns(0, 50, 45, 50, 44, 50, 100), 0)

    def test_oscillation_is_counted(self):
        self.assertEqual(self._turns(0, 50, 30, 50, 30, 50), 4)


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
