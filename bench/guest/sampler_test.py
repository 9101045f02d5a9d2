#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the sampler: times, names, sources that go, and what a file with holes holds."""

import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from guest import sampler  # noqa: E402


def _of(series, name):
    return [one["bytes"] for one in series if one["name"] == name]


class TheSeries(unittest.TestCase):
    def test_every_source_is_sampled_in_the_order_of_time(self):
        seen = threading.Event()
        counts = iter(range(1000))

        def count():
            number = next(counts)
            if number == 5:
                seen.set()
            return number

        with sampler.MemorySampler(0.001, {"a": count, "b": lambda: 7}) as one:
            self.assertTrue(seen.wait(30))
        self.assertEqual(_of(one.series, "a"), list(range(len(_of(one.series, "a")))))
        self.assertEqual(set(_of(one.series, "b")), {7})
        times = [sample["t_s"] for sample in one.series]
        self.assertEqual(times, sorted(times))
        self.assertGreaterEqual(times[0], 0)

    def test_the_end_is_sampled_however_long_the_interval(self):
        value = [1]
        one = sampler.MemorySampler(3600, {"a": lambda: value[0]})
        one.start()
        while not one.series:
            time.sleep(0.001)
        value[0] = 2
        one.stop()
        one.stop()
        self.assertEqual(_of(one.series, "a"), [1, 2])

    def test_a_source_that_has_gone_leaves_the_others(self):
        def gone():
            raise FileNotFoundError

        with sampler.MemorySampler(0.01, {"gone": gone, "here": lambda: 3}) as one:
            pass
        self.assertEqual(_of(one.series, "gone"), [])
        self.assertIn(3, _of(one.series, "here"))

    def test_each_sample_is_told(self):
        told = []
        with sampler.MemorySampler(3600, {"a": lambda: 4},
                                   lambda t_s, taken: told.append(taken)):
            pass
        self.assertEqual(told[-1], {"a": 4})


class TheSources(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name) / "ram"

    def test_a_file_counts_what_it_holds_not_its_length(self):
        with open(self.path, "wb") as file:
            file.truncate(1 << 30)
            os.pwrite(file.fileno(), b"x" * 8192, 1 << 20)
            os.fsync(file.fileno())
        held = sampler.file_bytes(self.path)()
        self.assertGreaterEqual(held, 8192)
        self.assertLess(held, 1 << 20)
        self.assertEqual(sampler.files_bytes([self.path, self.path.with_name("none")])(), held)

    def test_a_number(self):
        self.path.write_text("4096\n", encoding="ascii")
        self.assertEqual(sampler.number_in(self.path)(), 4096)


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
