# SPDX-License-Identifier: GPL-2.0-only
"""Runs plans one run after the other, each repetition after the one before."""

import contextlib
import json
import pathlib
import tempfile

from guest import images


class Kept:
    """Runs that an earlier, interrupted session has done: one JSON object a line."""

    def __init__(self, path, resume):
        self._path = path
        self.runs = {}
        if resume and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError):  # the last line, if it was cut off
                    key, run = json.loads(line)
                    self.runs[key] = run
        path.write_text("".join(json.dumps(pair) + "\n" for pair in self.runs.items()),
                        encoding="utf-8")

    def add(self, key, run):
        self.runs[key] = run
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps([key, run]) + "\n")


def runs(plan_all, repeat, kept=None):
    """Yields the result of each run. `plan_all(store)` yields (setup, function) of one repetition.

    Repetitions follow each other as a whole, so that a drift of the machine hits all runs alike.
    """
    with tempfile.TemporaryDirectory(prefix="tmem-disk-") as directory:
        store = images.Images(pathlib.Path(directory))
        for repetition in range(repeat):
            for setup, start in plan_all(store):
                setup.repetition = repetition
                done = kept.runs.get(setup.key()) if kept else None
                if done is None:
                    done = start()
                    if kept:
                        kept.add(setup.key(), done)
                yield done


