#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of memhog's and fit's figures and plots, and of the control group and swap file."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests"), str(ROOT / "bench")]

from style_test import CaseResult  # noqa: E402
from guest import crowd, memory_group, plots, tables, targets  # noqa: E402
from lab import paths  # noqa: E402

MIB = 1 << 20
_MACHINE = {"cpus": 2, "cpu": "C", "qemu": "Q", "accelerator": "tcg", "host_kernel": "6",
            "load_average": 0.0}


def a_run(workload, variant, steps, **others):
    """`steps`: (name, seconds, MiB)."""
    return {"workload": workload, "variant": variant, "setting": "", "guests": 3,
            "guest_mib": 512, "workload_bytes": 448 * MIB, "budget_mib": 0, "cpus": 1,
            "doorbell": "none", "repetition": 0, "passes": [], "guest_counters": {},
            "console_trouble": [], "series": [],
            "steps": [{"step": name, "t_s": 0, "seconds": seconds, "held": {},
                       "host_resident_bytes": mib * MIB, "host_swapped_bytes": 0}
                      for name, seconds, mib in steps], **others}


def _in_room(variant, rested_mib):
    return a_run("memhog", variant, [("booted", 0, 100), ("memhog in guest 1", 1, 400),
                                     ("rested", 0, rested_mib)], setting="room")


def _in_budget(variant, seconds, rounds):
    steps = [(f"memhog in guest {number + 1}", one, 0) for number, one in enumerate(seconds)]
    steps += [(f"round 1, guest {number + 1}", one, 0) for number, one in enumerate(rounds)]
    return a_run("memhog", variant, steps, setting="budget", budget_mib=900)


def _figures(runs):
    return {row.name: (row.value, row.passed()) for row in targets.figures(runs)}


class TheFigures(unittest.TestCase):
    def test_memory_is_compared_at_the_end_and_with_both_peers(self):
        rows = _figures([_in_room("off", 1000), _in_room("virtio-balloon", 400),
                         _in_room("tmem", 420)])
        name = "memhog: host memory some time after three, against "
        self.assertEqual(rows[name + "off"], (0.42, True))
        self.assertEqual(rows[name + "virtio-balloon"], (1.05, True))

    def test_a_set_up_in_which_off_is_not_slow_fails(self):
        rows = _figures([_in_budget("off", [2, 2, 3.9], [2]),
                         _in_budget("tmem", [2, 2, 2.4], [5, 1])])
        self.assertEqual(rows["memhog in a budget: third by first, off"], (1.95, False))
        self.assertEqual(rows["memhog in a budget: third by first, tmem"], (1.2, False))
        self.assertEqual(rows["memhog in a budget: slowest of the rounds by first, tmem"],
                         (2.5, None))

    def test_a_run_without_rounds_has_the_other_figures(self):
        rows = _figures([_in_budget("off", [2, 2, 5], [])])
        self.assertEqual(rows, {"memhog in a budget: third by first, off": (2.5, True)})

    def test_fit_is_the_ratio_of_counts(self):
        runs = [a_run("fit", variant, [("job in guest 1", 1, 10)], fits=fits, ended_by=None)
                for variant, fits in [("off", 3), ("tmem", 5)]]
        self.assertEqual(_figures(runs)["fit: guests with tmem by guests without"],
                         (targets.ratio(5, 3), True))

    def test_a_report_has_tables_and_its_notes(self):
        fit = a_run("fit", "off", [("job in guest 1", 1, 10)], fits=1, ended_by="guest 2: no")
        report = {"machine": _MACHINE, "notes": ["no budget here"],
                  "runs": [_in_room("off", 77), _in_budget("off", [1.5, 2, 3], [4]), fit]}
        for text in (tables.plain(report), tables.markdown(report)):
            for part in ("no budget here", "100 / 400 / 77", "1.5 / 2.0 / 3.0", "guest 2: no"):
                self.assertIn(part, text)

    def test_a_hog_leaves_a_guest_what_it_needs(self):
        self.assertEqual(crowd.hog_bytes(1000), 900 * MIB)
        self.assertEqual(crowd.hog_bytes(256), 192 * MIB)

    def test_a_run_is_known_again_by_what_it_is(self):
        one = crowd.Setup("fit", "tmem", 3, 256, 1, 0)
        self.assertNotEqual(one.key(), crowd.Setup("fit", "tmem", 3, 256, 1, 9).key())
        self.assertEqual(one.key(), crowd.Setup("fit", "tmem", 3, 256, 1, 0).key())


class ThePlots(unittest.TestCase):
    @staticmethod
    def _report():
        series = [{"t_s": 0, "name": "total", "bytes": MIB},
                  {"t_s": 1, "name": "vmm", "bytes": 9 * MIB},
                  {"t_s": 2, "name": "total", "bytes": 3 * MIB}]
        runs = [_in_room("off", 1), _in_room("tmem", 1), _in_budget("off", [1], [1]),
                {**_in_room("off", 1), "repetition": 1}]
        return {"runs": [{**run, "series": series} for run in runs]}

    def test_a_setting_is_a_panel_and_a_variant_a_line(self):
        room, budget = plots.panels(self._report())
        self.assertEqual([line[0] for line in room[1]], ["off", "tmem"])
        self.assertEqual(room[1][0][2:], ([0, 2], [1.0, 3.0]))
        self.assertEqual((room[2], budget[2]), (0, 900))

    def test_a_picture_is_drawn(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "one.png"
            self.assertTrue(plots.draw(self._report(), path))
            self.assertEqual(path.read_bytes()[:4], b"\x89PNG")

    def test_a_report_without_series_has_none(self):
        self.assertFalse(plots.draw({"runs": [_in_room("off", 1)]}, "none.png"))


class TheGroup(unittest.TestCase):
    """On directories that look like the kernel's."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def _group(self, version, files):
        """A group at a top of which the kernel would fill each new directory."""
        really = pathlib.Path.mkdir

        def mkdir(path, *arguments, **named):
            really(path, *arguments, **named)
            for name, text in files.items():
                (path / name).write_text(text, encoding="ascii")

        with (mock.patch.object(memory_group, "_parents", lambda root: [(root, version)]),
              mock.patch.object(pathlib.Path, "mkdir", mkdir)):
            return memory_group.MemoryGroup(self.root)

    def test_version_1(self):
        group = self._group(1, {"memory.usage_in_bytes": "7", "memory.limit_in_bytes": "",
                                "memory.memsw.limit_in_bytes": "", "memory.failcnt": "1",
                                "memory.oom_control": "under_oom 0\noom_kill 2\n",
                                "memory.stat": "swap 0\ntotal_swap 4096\n"})
        group.limit(100, swap=False)
        self.assertEqual((group.path / "memory.memsw.limit_in_bytes").read_text(), "100")
        self.assertEqual((group.path / "memory.limit_in_bytes").read_text(), "100")
        self.assertEqual((group.usage_bytes(), group.swapped_bytes(), group.oom_kills(),
                          group.is_full()), (7, 4096, 2, True))

    def test_version_2(self):
        group = self._group(2, {"memory.current": "7", "memory.max": "", "memory.swap.max": "max",
                                "memory.swap.current": "4096",
                                "memory.events": "low 0\nmax 0\noom_kill 2\n"})
        group.limit(100)
        self.assertEqual((group.path / "memory.swap.max").read_text(), "max")
        group.limit(100, swap=False)
        self.assertEqual((group.path / "memory.swap.max").read_text(), "0")
        self.assertEqual((group.usage_bytes(), group.swapped_bytes(), group.oom_kills(),
                          group.is_full()), (7, 4096, 2, False))

    def test_processes_go_below_a_group_of_version_2(self):
        """In itself the kernel takes none once its groups have the controller (guests' own)."""
        files = {"memory.current": "0", "memory.usage_in_bytes": "0"}
        two = self._group(2, files)
        self.assertEqual(two.own(), two.path / "own")
        self.assertTrue(two.own().is_dir())
        for version, doorbell, where in [(2, "hypercall", ()), (2, "ivshmem", (two.own(),))]:
            setup = crowd.Setup("fit", "off", 1, 256, 1, 0, doorbell=doorbell)
            self.assertEqual(crowd.Crowd(setup, None, two)._guest_groups(), where, version)

    def test_a_place_without_the_controller_is_left_as_it_was(self):
        with self.assertRaisesRegex(paths.Missing, "no memory control group"):
            self._group(2, {})
        self.assertEqual(list(self.root.iterdir()), [])


class TheSwapFile(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.calls = []

    def _run(self, refused):
        def run(program, path):
            self.calls.append(program)
            if program == refused:
                raise OSError("the host says no")
            self.assertTrue(path.exists())

        return mock.patch.object(memory_group, "_run", run)

    def test_it_is_off_and_gone_whatever_happens(self):
        with self._run(""), self.assertRaises(KeyboardInterrupt):
            with memory_group.SwapFile(self.directory, 1 << 20):
                raise KeyboardInterrupt
        self.assertEqual(self.calls, ["mkswap", "swapon", "swapoff"])
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_a_host_without_says_why(self):
        with self._run("swapon"), self.assertRaisesRegex(paths.Missing, "the host says no"):
            memory_group.SwapFile(self.directory, 1 << 20).__enter__()
        self.assertEqual(list(self.directory.iterdir()), [])

    def test_what_a_killed_run_left_goes_and_a_living_one_s_stays(self):
        dead = self.directory / "tmem-bench-999999999.swap"
        alive = self.directory / f"tmem-bench-{os.getppid()}.swap"
        foreign = self.directory / "swapfile"
        for path in (dead, alive, foreign):
            path.write_bytes(b"")
        with self._run(""), memory_group.SwapFile(self.directory, 4096):
            self.assertEqual(self.calls[0], "swapoff")
            self.assertFalse(dead.exists())
        self.assertTrue(alive.exists() and foreign.exists())


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
