#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""The micro-guest's tests of the host module, in the lab's KVM host (L1).

    tests/kvm/check.py [--filter GTEST_FILTER] [--long]

Builds the module for the kernel of L1, boots L1 and runs kvm_test there; once more with a device
that can be assigned, for the tests of that. One case a test, by the protocol of scripts/cases.py.
kvm_test, tmemd and tmemctl are those of the release build.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT / "scripts"))

from cases import report  # noqa: E402
from lab import host_module, paths  # noqa: E402

_TIMEOUT_S = 600
# They need an L1 with an IOMMU.
_WITH_DEVICE = "AssignedDevice.*"
_LINE = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] (\w+\.\w+)(?:,.*?)?(?: \((\d+) ms\))?$")


class Reader:
    """Turns Google Test's lines into cases."""

    def __init__(self):
        self._running = None
        self._why = []
        self.seen = set()
        self.failed = 0

    def take(self, line):
        print(line, flush=True)
        match = _LINE.match(line)
        if not match:
            if self._running and line.strip():
                self._why.append(line.strip())
            return
        word, name, milliseconds = match.groups()
        if word == "RUN":
            self._running, self._why = name, []
        elif name == self._running:
            self._finish(word, name, f"{int(milliseconds or 0) / 1000:.1f} s")

    def _finish(self, word, name, time):
        self._running = None
        self.seen.add(name)
        why = " ".join(self._why)[:300]
        if word == "OK":
            report("PASS", f"{name} ({time})")
        elif word == "SKIPPED":
            report("SKIP", name, self._why[-1] if self._why else "")
        else:
            self.failed += 1
            report("FAIL", name, why)

    def end(self, code):
        """What did not come to its end, and what was wrong beside the tests."""
        if self._running:
            self.failed += 1
            report("FAIL", self._running, f"did not end (exit code {code}): {self._why[-1:]}")
        elif code != 0 and self.failed == 0:
            self.failed += 1
            report("FAIL", "kvm_test", f"ended with {code}; 125: its kernel complained, see above")


def run_in_l1(tests, *l1_options):
    """Whether all of them passed."""
    program = paths.binary("kvm_test")
    environment = {**os.environ, "TMEM_KVM_MODULE": str(host_module.build())}
    command = [str(ROOT / "tests" / "lab" / "l1"), "run", "--timeout-s", str(_TIMEOUT_S),
               *l1_options, "--", str(program), f"--gtest_filter={tests}"]
    reader = Reader()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as child:
        for line in child.stdout:
            reader.take(line.rstrip())
    reader.end(child.returncode)
    return not reader.failed


def run(options):
    if options.filter != "*":
        return 0 if run_in_l1(options.filter, "--assignable") else 1
    plain = run_in_l1(f"-{_WITH_DEVICE}")
    return 0 if run_in_l1(_WITH_DEVICE, "--assignable") and plain else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="*")
    parser.add_argument("--long", action="store_true", help="as the others' runners have it")
    options = parser.parse_args()
    try:
        return run(options)
    except paths.Missing as error:
        report("FAIL", "kvm_test", " ".join(str(error).split()))
        return 1


if __name__ == "__main__":
    sys.exit(main())
