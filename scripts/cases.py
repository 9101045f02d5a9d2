# SPDX-License-Identifier: GPL-2.0-only
"""The line protocol by which every runner reports its cases: `PASS name`, `FAIL name: why`,
`SKIP name: why`, each alone on its line."""

import re
import sys

CASE_LINE = re.compile(r"^(PASS|FAIL|SKIP) (\S.*)$")


def report(verdict, name, why=""):
    """Prints one case."""
    print(f"{verdict} {name}{': ' + why if why else ''}", flush=True)


class Counts:
    """How many cases passed, failed and were skipped, and the lines of those that did not pass."""

    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.skipped = 0
        self.notes = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.notes += other.notes

    def add_case(self, verdict, text=""):
        if verdict == "PASS":
            self.passed += 1
        elif verdict == "FAIL":
            self.failed += 1
            self.notes.append(f"FAIL {text}")
        else:
            self.skipped += 1
            self.notes.append(f"SKIP {text}")

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def count_lines(text):
    """The cases that `text`, the output of a runner, reports."""
    counts = Counts()
    for line in text.splitlines():
        match = CASE_LINE.match(line)
        if match:
            counts.add_case(match.group(1), match.group(2))
    return counts


if __name__ == "__main__":
    print(count_lines(sys.stdin.read()))
