#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Proves that `make check` counts right and never passes in silence: scripts/check.py is run in a
tree of stand-ins whose verdicts are known."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from style_test import ROOT, CaseResult  # noqa: E402

# A Google Test program as check.py sees it: a JSON report, an exit code.
FAKE_GTEST = """#!/usr/bin/env bash
cat >"${{GTEST_OUTPUT#json:}}{name}.json" <<'END'
{{"testsuites": [{{"name": "S", "testsuite": [{cases}]}}]}}
END
exit {code}
"""
GTEST_CASE = '{{"name": "{name}", "classname": "S", "result": "{result}"{more}}}'
GOOD = GTEST_CASE.format(name="Good", result="COMPLETED", more="")
BAD = GTEST_CASE.format(name="Bad", result="COMPLETED", more=', "failures": [{"failure": "no"}]')
SKIPPED = GTEST_CASE.format(name="Skipped", result="SKIPPED", more="")


class CheckRunner(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tmem-check-")
        self.addCleanup(shutil.rmtree, self.root)
        for name in ("check.py", "cases.py"):
            os.makedirs(os.path.join(self.root, "scripts"), exist_ok=True)
            shutil.copy(os.path.join(ROOT, "scripts", name), os.path.join(self.root, "scripts"))
        self.script("scripts/build.sh", "exit 0")
        os.makedirs(os.path.join(self.root, "build", "release"))

    def script(self, path, text):
        target = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text if text.startswith("#!") else f"#!/usr/bin/env bash\n{text}\n")
        os.chmod(target, os.stat(target).st_mode | stat.S_IXUSR)
        return target

    def register(self, **programs):
        """Makes ctest of the release configuration run these: name -> text of the program."""
        build = os.path.join(self.root, "build", "release")
        lines = []
        for name, text in programs.items():
            path = self.script(f"build/release/{name}", text)
            lines.append(f'add_test({name} "{path}")\n')
        with open(os.path.join(build, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            file.writelines(lines)

    def check(self, *phases):
        """Exit code and last line."""
        environment = {key: value for key, value in os.environ.items()
                       if key not in ("TMEM_BUILD_ROOT", "TMEM_CHECK_OUT", "TMEM_LONG")}
        done = subprocess.run([sys.executable, "scripts/check.py", *phases], cwd=self.root,
                              capture_output=True, text=True, check=False, env=environment)
        last = done.stdout.splitlines()[-1]
        self.assertRegex(last, re.compile(r"^\d+ passed, \d+ failed, \d+ skipped$"))
        return done.returncode, last

    def test_all_good(self):
        self.register(good=FAKE_GTEST.format(name="good", cases=f"{GOOD}, {GOOD}", code=0))
        self.assertEqual(self.check("test"), (0, "3 passed, 0 failed, 0 skipped"))

    def test_a_failed_case_fails_the_whole(self):
        self.register(mixed=FAKE_GTEST.format(name="mixed", cases=f"{GOOD}, {BAD}, {SKIPPED}",
                                              code=1))
        self.assertEqual(self.check("test"), (1, "2 passed, 1 failed, 1 skipped"))

    def test_a_finding_at_the_end_of_good_cases_fails(self):
        self.register(leaks=FAKE_GTEST.format(name="leaks", cases=GOOD, code=1))
        self.assertEqual(self.check("test"), (1, "2 passed, 1 failed, 0 skipped"))

    def test_a_crash_fails(self):
        self.register(crash="kill -SEGV $$")
        self.assertEqual(self.check("test"), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_plain_program_counts_as_one(self):
        self.register(plain="exit 0")
        self.assertEqual(self.check("test"), (0, "2 passed, 0 failed, 0 skipped"))

    def test_a_missing_program_fails(self):
        self.register(gone="exit 0")
        os.remove(os.path.join(self.root, "build", "release", "gone"))
        self.assertEqual(self.check("test")[0], 1)

    def test_no_tests_at_all_fail(self):
        self.register()
        self.assertEqual(self.check("test")[0], 1)

    def test_a_failed_build_fails(self):
        self.script("scripts/build.sh", "exit 1")
        self.assertEqual(self.check("test"), (1, "0 passed, 1 failed, 0 skipped"))

    def test_guests_are_not_run_with_the_daemon_of_an_earlier_build(self):
        self.script("scripts/build.sh", "exit 1")
        self.script("tests/lab/check.sh", "echo 'PASS a'")
        self.script("tests/torture/check.py", "echo 'PASS b'")
        self.assertEqual(self.check("guest", "torture"), (1, "0 passed, 2 failed, 0 skipped"))

    def test_lines_of_a_runner_are_counted(self):
        self.script("tests/lab/check.sh", "echo 'PASS a'; echo 'SKIP b: why'; echo 'PASS c'")
        self.assertEqual(self.check("guest"), (0, "2 passed, 0 failed, 1 skipped"))

    def test_a_failed_line_fails_even_with_exit_0(self):
        self.script("tests/lab/check.sh", "echo 'PASS a'; echo 'FAIL b: why'")
        self.assertEqual(self.check("guest")[0], 1)

    def test_a_silent_runner_fails(self):
        self.script("tests/lab/check.sh", "exit 0")
        self.assertEqual(self.check("guest"), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_runner_that_dies_fails(self):
        self.script("tests/lab/check.sh", "echo 'PASS a'; exit 3")
        self.assertEqual(self.check("guest"), (1, "1 passed, 1 failed, 0 skipped"))

    def test_a_missing_runner_fails(self):
        self.assertEqual(self.check("guest"), (1, "0 passed, 1 failed, 0 skipped"))

    def test_phases_add_up(self):
        self.register(good=FAKE_GTEST.format(name="good", cases=GOOD, code=0))
        self.script("tests/lab/check.sh", "echo 'SKIP b: why'")
        self.script("tests/model/run.sh", "echo 'FAIL m: why'; exit 1")
        self.assertEqual(self.check("test", "guest", "model"),
                         (1, "2 passed, 1 failed, 1 skipped"))


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromTestCase(CheckRunner))
    sys.exit(0 if result.wasSuccessful() else 1)
