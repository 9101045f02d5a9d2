#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of when a measured guest is at rest, with a guest made for it."""

import pathlib
import sys
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from guest import measure  # noqa: E402
from lab import kvm_stats  # noqa: E402


class Guest:
    """Enters its host `looks` times whenever somebody reads its counters, which takes seconds;
    hands pages over the first `busy` times."""

    def __init__(self, looks, busy=0):
        self.asked = 0
        self.hypercalls = 7
        self._looks = looks
        self._busy = busy
        self._counters = {"doorbells_rung": 7, "doorbells_other": 3, "gets": 100}

    def counters(self):
        self.asked += 1
        self.hypercalls += self._looks
        self._counters["doorbells_rung"] += self._looks
        self._counters["doorbells_other"] += self._looks
        self._counters["gets"] += self.asked <= self._busy
        return dict(self._counters)

    def run(self, _command):
        pass


class AtRest(unittest.TestCase):
    def measure(self, guest):
        with mock.patch.object(kvm_stats, "of_module",
                               lambda: {"hypercalls": guest.hypercalls + 2, "negotiates": 2}):
            return measure._at_rest(guest, object(), "hypercall", 0)

    # It was asked 20 times, a minute in the lab, in which nobody was told what was waited for.
    def test_a_guest_that_only_looks_at_its_host_is_at_rest(self):
        guest = Guest(looks=3)
        counters, received = self.measure(guest)
        self.assertEqual(guest.asked, 2)
        self.assertEqual(counters["doorbells_rung"], received)

    def test_a_guest_that_still_hands_pages_over_is_not(self):
        guest = Guest(looks=0, busy=4)
        self.measure(guest)
        self.assertEqual(guest.asked, 5)


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
