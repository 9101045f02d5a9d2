#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of making a guest's initial file system."""

import os
import pathlib
import sys
import tempfile
import threading
import unittest
from concurrent import futures
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "tidy"), str(ROOT / "tests")]

from style_test import CaseResult  # noqa: E402
from lab import initramfs, paths  # noqa: E402

_THREADS = 4


class Pack(unittest.TestCase):
    def test_threads_may_make_the_same_one(self):
        """Two cases that run side by side need the same one, and it is not there yet."""
        barrier = threading.Barrier(_THREADS)
        rename = pathlib.Path.rename

        def rename_together(self, target):
            barrier.wait(timeout=60)
            return rename(self, target)

        def pack(_):
            return initramfs.pack("test", paths.GUEST_SOURCES / "init", {"bin/x": b""}, ["bin"], [])

        with tempfile.TemporaryDirectory() as cache, \
                mock.patch.dict(os.environ, {"TMEM_CACHE": cache}), \
                mock.patch.object(pathlib.Path, "rename", rename_together), \
                futures.ThreadPoolExecutor(_THREADS) as pool:
            made = set(pool.map(pack, range(_THREADS)))
            self.assertEqual(len(made), 1)
            self.assertEqual(os.listdir(pathlib.Path(cache) / "lab"), [made.pop().name])


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
