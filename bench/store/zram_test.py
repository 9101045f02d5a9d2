#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""A device is removed on every way out; where there is no zram, it says so."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from store import report, zram  # noqa: E402


class Zram(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.control = pathlib.Path(directory.name) / "control"
        self.block = pathlib.Path(directory.name) / "block"
        (self.block / "zram7").mkdir(parents=True)
        self.control.mkdir()
        (self.control / "hot_add").write_text("7\n", encoding="ascii")
        (self.control / "hot_remove").write_text("", encoding="ascii")

    def removed(self):
        return (self.control / "hot_remove").read_text(encoding="ascii")

    def test_is_set_up_and_removed(self):
        with zram.device(4096, self.control, self.block) as name:
            self.assertEqual(name, "zram7")
            disk = self.block / name
            self.assertEqual((disk / "comp_algorithm").read_text(encoding="ascii"), "lz4")
            self.assertEqual((disk / "disksize").read_text(encoding="ascii"), "4096")
            self.assertEqual(self.removed(), "")
        self.assertEqual(self.removed(), "7")

    def test_is_removed_after_an_interruption(self):
        with self.assertRaises(KeyboardInterrupt):
            with zram.device(4096, self.control, self.block):
                raise KeyboardInterrupt
        self.assertEqual(self.removed(), "7")

    def test_is_removed_when_it_cannot_be_set_up(self):
        (self.block / "zram7" / "comp_algorithm").mkdir()  # no file to write to
        with self.assertRaises(OSError):
            with zram.device(4096, self.control, self.block):
                self.fail("it was set up")
        self.assertEqual(self.removed(), "7")

    def test_says_where_there_is_none(self):
        self.assertEqual(zram.why_not(self.control), "")
        self.assertIn("no zram", zram.why_not(self.control / "missing"))


class Report(unittest.TestCase):
    ROWS = [{"name": "put", "page_kind": "text", "value": 1.25, "unit": "x floor",
             "target": "<= 1.2", "detail_unit": "ns", "ours": 8000.0, "floor": 6400.0,
             "peer": None, "pass": False},
            {"name": "recompression", "page_kind": "all", "value": None, "unit": "x",
             "target": ">= 1.3", "detail_unit": "", "ours": None, "floor": None, "peer": None,
             "pass": False},
            {"name": "index", "page_kind": "all", "value": 40, "unit": "bytes", "target": None,
             "detail_unit": "", "ours": None, "floor": None, "peer": None, "pass": True}]

    def test_a_row_says_whether_it_is_reached(self):
        lines = report.table(self.ROWS).splitlines()
        self.assertRegex(lines[2], r"put +text +1\.250 x floor +8000 +6400 +- +ns +<= 1\.2 +NO")
        self.assertRegex(lines[3], r"recompression +all +not built .*NO")
        self.assertRegex(lines[4], r"index +all +40 bytes .* - *$")
        self.assertEqual(lines[-1], "0 of 2 targets reached")


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
