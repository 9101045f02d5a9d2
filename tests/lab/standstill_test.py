#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the watch over a guest that stands still, with a guest and counters made for them."""

import os
import pathlib
import queue
import sys
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests")]

from style_test import CaseResult  # noqa: E402
from lab import kvm_stats, standstill  # noqa: E402


class Guest:
    name = "guest"
    pid = os.getpid()

    @staticmethod
    def where():
        return "vCPUs at ffffffff81000000"

    @staticmethod
    def console():
        return "[   1.0] the last words"


class StandStill(unittest.TestCase):
    def setUp(self):
        self.counters = {"descs_in": 5, "descs_out": 4}
        patch = mock.patch.object(kvm_stats, "of_module", lambda: dict(self.counters))
        patch.start()
        self.addCleanup(patch.stop)
        self.said = queue.SimpleQueue()

    def watch(self, after_s):
        return standstill.Watch(Guest(), None, self.said.put, after_s, look_s=0.005)

    def test_a_guest_that_stands_still_leaves_a_trace(self):
        with self.watch(0.05):
            text = self.said.get(timeout=20)
        for part in ["nothing has moved for 0.05 s", '"descs_out": 4', f"thread {os.getpid()}: ",
                     "vCPUs at ffffffff81000000", "the last words", "-- first", "-- then"]:
            self.assertIn(part, text)

    def test_a_guest_that_moves_is_left_alone(self):
        with self.watch(10) as watch:
            for _ in range(10):
                self.counters["descs_out"] += 1
                watch.moved()
                time.sleep(0.01)
        self.assertTrue(self.said.empty())


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
