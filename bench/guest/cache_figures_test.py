#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of the figures of `cache-return`: python3 bench/guest/cache_figures_test.py."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from guest import cache_figures, targets  # noqa: E402

MIB = cache_figures.MIB


def _run(variant, resident, store=(), again=5.0):
    steps = [{"step": name, "host_resident_bytes": mib * MIB}
             for name, mib in zip(("booted", "read", "10 s", "30 s", "60 s"), resident)]
    for step, (used, stored) in zip(steps, store):
        step |= {"store_bytes": used * MIB, "stored_bytes": stored * MIB}
    return {"workload": "cache-return", "variant": variant, "workload_bytes": 100 * MIB,
            "task": "20 MB/s", "guest_mib": 300, "steps": steps, "first_seconds": 50.0,
            "again_seconds": again, "wrong_pages": 0}


class CacheFigures(unittest.TestCase):
    def rows(self, *runs):
        rows = []
        cache_figures.figures(targets.Runs(list(runs)), rows)
        return {row.name: row for row in rows}

    def test_what_fell_is_a_part_of_the_files(self):
        rows = self.rows(_run("tmem", (50, 150, 100, 60, 55),
                              [(10, 0), (20, 5), (40, 25), (60, 45), (62, 45)]))
        late = rows["cache-return, tmem: of the cache, back at the host after 30 s"]
        self.assertEqual((late.value, late.passed()), (0.9, True))
        growth = rows["cache-return, tmem: growth of the store by the stored size of what it took"]
        self.assertEqual((growth.value, growth.passed()), (1.05, True))
        again = rows["cache-return, tmem: reading again by the disk's time"]
        self.assertEqual((again.value, again.passed()), (0.1, True))

    def test_only_tmem_has_targets(self):
        rows = self.rows(_run("off", (50, 150, 150, 150, 150)))
        self.assertEqual({row.target for row in rows.values()}, {""})
        self.assertEqual(rows["cache-return, off: of the cache, back at the host after 60 s"].value,
                         0)

    def test_each_run_has_a_row_of_text(self):
        for run in (_run("off", (50, 150, 150, 150, 150)),
                    _run("tmem", (50, 150, 100, 60, 55),
                         [(10, 0), (20, 5), (40, 25), (60, 45), (62, 45)])):
            cells = [text(run) for _, text in cache_figures.COLUMNS]
            self.assertIn("50 / 150", cells)


if __name__ == "__main__":
    unittest.main()
