#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""`make check`: runs every phase, keeps each one's output in out/check/, counts all cases.

    scripts/check.py [phase...]     all phases without arguments; `list` names them

The last line is `N passed, N failed, N skipped`; the exit code is 0 only when nothing failed. A
phase that cannot run, or that reports no case, is a failure: silence never passes. TMEM_LONG=1
makes runners do their long versions (make check-long).
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

from cases import Counts, count_lines

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.environ.get("TMEM_CHECK_OUT") or os.path.join(ROOT, "out", "check")
BUILD_ROOT = os.environ.get("TMEM_BUILD_ROOT") or os.path.join(ROOT, "build")
JOBS = os.environ.get("TMEM_JOBS") or str(os.cpu_count() or 1)
LONG = os.environ.get("TMEM_LONG") == "1"
# A phase that takes longer hangs. The longest takes about 8 minutes on two cores.
PHASE_TIMEOUT_S = 4 * 3600 if LONG else 45 * 60
HEARTBEAT_S = 30


class Phase:
    """One running phase: its log, its commands, its counts."""

    def __init__(self, name):
        self.name = name
        self.log_path = os.path.join(OUT, f"{name}.log")
        self.counts = Counts()
        self.start = time.monotonic()

    def case(self, verdict, text):
        self.counts.add_case(verdict, f"{self.name}: {text}")

    def run(self, *command, **environment):
        """Runs a command, output to the log; returns exit code and what it printed."""
        with open(self.log_path, "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            begin = log.tell()
            try:
                child = subprocess.Popen(
                    command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, start_new_session=True,
                    env={**os.environ, **environment})
            except OSError as error:
                log.write(f"{error}\n")
                return 127, str(error)
            code = self._wait(child)
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            log.seek(begin)
            return code, log.read()

    def _wait(self, child):
        try:
            while True:
                try:
                    return child.wait(timeout=HEARTBEAT_S)
                except subprocess.TimeoutExpired:
                    elapsed_s = time.monotonic() - self.start
                    if elapsed_s > PHASE_TIMEOUT_S:
                        self.case("FAIL", f"hangs: ended after {PHASE_TIMEOUT_S} s")
                        return -1
                    print(f"          {self.name} {elapsed_s:4.0f} s: {self._last_line()}",
                          flush=True)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGTERM)
                try:
                    child.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()

    def _last_line(self):
        with open(self.log_path, "rb") as log:
            log.seek(max(0, os.path.getsize(self.log_path) - 2000))
            lines = log.read().decode("utf-8", "replace").replace("\r", "\n").split("\n")
        return next((line.strip()[:90] for line in reversed(lines) if line.strip()), "")

    def step(self, text, *command, **environment):
        """A command that is one case."""
        code, _ = self.run(*command, **environment)
        self.case("PASS" if code == 0 else "FAIL", text)
        return code == 0

    def runner(self, *command, **environment):
        """A command that reports its cases by the protocol of cases.py."""
        if not os.path.exists(os.path.join(ROOT, command[0])) and not os.path.isabs(command[0]):
            self.case("FAIL", f"{command[0]} is missing")
            return
        code, output = self.run(*command, **environment)
        counts = count_lines(output)
        self.counts.add(counts)
        if code != 0 and counts.failed == 0:
            self.case("FAIL", f"{command[0]} ended with {code} and named no case")
        elif code == 0 and counts.failed > 0:
            self.case("FAIL", f"{command[0]} ended with 0 although a case failed")
        elif counts.passed + counts.failed + counts.skipped == 0:
            self.case("FAIL", f"{command[0]} reported no case")

    def ctest(self, config, *options):
        """Runs the tests of one configuration; counts Google Test cases where there are any."""
        build = os.path.join(BUILD_ROOT, config)
        gtest_dir = os.path.join(OUT, f"gtest-{config}")
        junit = os.path.join(OUT, f"ctest-{config}.xml")
        shutil.rmtree(gtest_dir, ignore_errors=True)
        os.makedirs(gtest_dir)
        if os.path.exists(junit):
            os.remove(junit)
        code, _ = self.run("ctest", "--test-dir", build, "-j", JOBS, "--output-on-failure",
                           "--no-tests=error", "--output-junit", junit, *options,
                           GTEST_OUTPUT=f"json:{gtest_dir}/")
        failed_before = self.counts.failed
        try:
            tests = xml.etree.ElementTree.parse(junit).getroot().findall("testcase")
        except (OSError, xml.etree.ElementTree.ParseError):
            tests = []
        for test in tests:
            self._count_test(test, gtest_dir)
        if code != 0 and self.counts.failed == failed_before:
            self.case("FAIL", f"ctest ended with {code} and named no test")

    def _count_test(self, test, gtest_dir):
        name = test.get("name")
        status = test.get("status")
        cases = Counts()
        try:
            with open(os.path.join(gtest_dir, f"{name}.json"), encoding="utf-8") as file:
                suites = json.load(file)["testsuites"]
        except (OSError, ValueError, KeyError):
            suites = []
        for case in [case for suite in suites for case in suite["testsuite"]]:
            full_name = f"{self.name}: {name} {case['classname']}.{case['name']}"
            if case.get("failures"):
                cases.add_case("FAIL", full_name)
            elif case["result"] in ("SKIPPED", "SUPPRESSED"):
                cases.add_case("SKIP", full_name)
            else:
                cases.add_case("PASS")
        self.counts.add(cases)
        if status == "fail" and cases.failed == 0:
            self.case("FAIL", f"{name} (crash, time-out, or a finding at its end)")
        elif status in ("notrun", "disabled"):
            self.case("SKIP", f"{name}: {status}")
        elif not suites and status == "run":
            self.case("PASS", name)


def phase_test(phase):
    if phase.step("build release", "scripts/build.sh", "release"):
        phase.ctest("release")


def phase_asan(phase):
    if phase.step("build asan", "scripts/build.sh", "asan"):
        phase.ctest("asan")


def phase_tsan(phase):
    """Only what has threads: the rest cannot race."""
    phase.run("scripts/build.sh", "tsan", "build.ninja")
    listed = subprocess.run(
        ["ctest", "--test-dir", os.path.join(BUILD_ROOT, "tsan"), "-L", "threads",
         "--show-only=json-v1"], capture_output=True, text=True, check=False).stdout
    try:
        targets = [test["name"] for test in json.loads(listed)["tests"]]
    except (ValueError, KeyError):
        targets = []
    if not targets:
        phase.case("FAIL", "no test is labelled threads")
    elif phase.step("build tsan", "scripts/build.sh", "tsan", *targets):
        phase.ctest("tsan", "-L", "threads")


def phase_lint(phase):
    phase.runner("scripts/lint.py")


def phase_model(phase):
    phase.runner("tests/model/run.sh", *([] if LONG else ["--bounded"]))


def phase_kernel(phase):
    phase.step("guest kernel builds", "guest-shims/kernel/build.sh", "--print")


def phase_abi(phase):
    """The contract as the kernel's compiler lays it out."""
    phase.runner("abi/check-kernel-layout.sh")


def guest_runner(phase, command, *arguments):
    """A runner whose guests need a daemon: of this tree, not one that an earlier build left."""
    code, _ = phase.run("scripts/build.sh", "release", "tmemd", "tmemctl")
    if code != 0:
        phase.case("FAIL", "tmemd does not build")
        return
    phase.runner(command, *arguments, *(["--long"] if LONG else []))


def phase_guest(phase):
    guest_runner(phase, "tests/lab/check.sh")


def phase_torture(phase):
    guest_runner(phase, "tests/torture/check.py")


def phase_lab(phase):
    """Guests under KVM, in a host of the lab's own, by hypercall."""
    phase.runner("tests/lab/check_l1.py")
    if phase.step("kvm_test builds", "scripts/build.sh", "release", "kvm_test", "tmemd", "tmemctl"):
        phase.runner("tests/kvm/check.py")
    guest_runner(phase, "tests/lab/check.sh", "--lab")
    phase.runner("tests/torture/torture.py", "--lab", "--cpus", "1", "--duration-s", "30")
    phase.step("bench/guest-bench streaming in the lab", "bench/guest-bench", "streaming",
               "--quick", "--disk-mb-s", "0", "--lab", "--json", "-")


PHASES = {"test": phase_test, "lint": phase_lint, "kernel": phase_kernel,
          "abi": phase_abi, "model": phase_model, "guest": phase_guest,
          "torture": phase_torture, "lab": phase_lab, "asan": phase_asan, "tsan": phase_tsan}


def main(arguments):
    if arguments == ["list"]:
        print(" ".join(PHASES))
        return 0
    unknown = [name for name in arguments if name not in PHASES]
    if unknown:
        print(f"check: no phase {' '.join(unknown)}; there are: {' '.join(PHASES)}",
              file=sys.stderr)
        return 2
    names = arguments or list(PHASES)
    os.makedirs(OUT, exist_ok=True)
    total = Counts()
    rows = []
    start = time.monotonic()
    for number, name in enumerate(names, 1):
        phase = Phase(name)
        open(phase.log_path, "w", encoding="utf-8").close()
        print(f"[{number}/{len(names)}] {name} ... ({os.path.relpath(phase.log_path, ROOT)})",
              flush=True)
        PHASES[name](phase)
        seconds = time.monotonic() - phase.start
        print(f"[{number}/{len(names)}] {name}: {phase.counts} in {seconds:.0f} s "
              f"(total {time.monotonic() - start:.0f} s)", flush=True)
        for note in phase.counts.notes:
            print(f"          {note}", flush=True)
        total.add(phase.counts)
        rows.append((name, phase.counts, seconds))
    print("\nphase    seconds  passed  failed  skipped")
    for name, counts, seconds in rows:
        print(f"{name:8} {seconds:7.0f} {counts.passed:7} {counts.failed:7} {counts.skipped:8}")
    for note in total.notes:
        print(note)
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
