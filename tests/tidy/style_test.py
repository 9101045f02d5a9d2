#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Proves that each rule of style.py finds a violation, in a tree made for it, and that a tree
without violations passes. The same for the checks of lint that live in other tools."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import style  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# As style.py's own patterns: split, so that this file does not break the rules it tests.
GPL = "// SPDX-License-Identifier: " "GPL-2.0-only\n"
DUAL = "/* SPDX-License-Identifier: " "GPL-2.0-only OR BSD-2-Clause */\n"

CLEAN_TREE = {
    "abi/tmem_abi.h": DUAL + "#ifndef TMEM_ABI_H\n#define TMEM_ABI_H\n#endif\n",
    "compress/page.h": GPL + "// A page.\n#pragma once\n",
    "compress/page.cc": GPL + '// The page.\n#include "compress/page.h"\n',
    "host-store/base/mutex.h": GPL + "// Locks.\n#pragma once\nstd::" "mutex mutex_;\n",
    "host-store/store/store.cc": GPL + '// Store.\n#include "compress/page.h"\n'
                                       '#include "host-store/base/mutex.h"\n#include <vector>\n',
    "guest-shims/tmem/core/lane.h": GPL + "/* A lane. */\n#pragma once\n",
    "guest-shims/tmem/core/lane.c": GPL + '/* Lane. */\n#include "lane.h"\n#include "tmem_abi.h"\n',
    "tests/guest_core/core_test.cc": GPL + '// Core.\n#include "guest-shims/tmem/core/lane.h"\n'
                                           '#include "host-store/base/mutex.h"\n',
}


class StyleRules(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="tmem-style-")
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in CLEAN_TREE.items():
            self.write(path, text)

    def write(self, path, text):
        target = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)

    def append(self, path, text):
        with open(os.path.join(self.root, path), "a", encoding="utf-8") as file:
            file.write(text)

    def expect_only(self, rule, path):
        findings = {name: found for name, found in style.broken(self.root) if found}
        self.assertEqual(list(findings), [rule])
        self.assertTrue(findings[rule][0].startswith(path), findings)

    def test_clean_tree_passes(self):
        self.assertEqual([found for _, found in style.broken(self.root) if found], [])

    def test_abi_includes_nothing_of_ours(self):
        self.append("abi/tmem_abi.h", '#include "compress/page.h"\n')
        self.expect_only("include_table", "abi/tmem_abi.h:5")

    def test_compress_does_not_include_the_store(self):
        self.append("compress/page.cc", '#include "host-store/base/mutex.h"\n')
        self.expect_only("include_table", "compress/page.cc:4")

    def test_host_store_does_not_include_the_guest(self):
        self.append("host-store/store/store.cc", '#include "guest-shims/tmem/core/lane.h"\n')
        self.expect_only("include_table", "host-store/store/store.cc:6")

    def test_guest_does_not_include_the_codecs(self):
        self.append("guest-shims/tmem/core/lane.c", '#include "compress/page.h"\n')
        self.expect_only("include_table", "guest-shims/tmem/core/lane.c:5")

    def test_guest_core_does_not_include_the_rest_of_the_module(self):
        self.write("guest-shims/tmem/sysfs.h", GPL + "#pragma once\n")
        self.append("guest-shims/tmem/core/lane.c", '#include "../sysfs.h"\n')
        self.expect_only("include_table", "guest-shims/tmem/core/lane.c:5")

    def test_tests_include_only_the_core_of_the_guest(self):
        self.write("guest-shims/tmem/sysfs.h", GPL + "#pragma once\n")
        self.append("tests/guest_core/core_test.cc", '#include "guest-shims/tmem/sysfs.h"\n')
        self.expect_only("include_table", "tests/guest_core/core_test.cc:5")

    def test_includes_start_at_the_root(self):
        self.append("compress/page.cc", '#include "page.h"\n')
        self.expect_only("include_table", "compress/page.cc:4")

    def test_licence_is_on_line_1(self):
        self.write("compress/page.cc", "\n// The page.\n")
        self.expect_only("licence_line", "compress/page.cc")

    def test_only_the_contract_is_dual_licensed(self):
        self.write("guest-shims/tmem/core/lane.h", DUAL + "/* A lane. */\n#pragma once\n")
        self.expect_only("licence_line", "guest-shims/tmem/core/lane.h")

    def test_the_contract_is_dual_licensed(self):
        self.write("abi/tmem_abi.h", CLEAN_TREE["abi/tmem_abi.h"].replace(" OR BSD-2-Clause", ""))
        self.expect_only("licence_line", "abi/tmem_abi.h")

    def test_a_script_has_its_licence_on_line_2(self):
        self.write("scripts/run", "#!/usr/bin/env bash\nset -e\n")
        self.expect_only("licence_line", "scripts/run")

    def test_a_file_says_what_it_is(self):
        self.write("compress/page.cc", GPL + '#include "compress/page.h"\n')
        self.expect_only("file_comment", "compress/page.cc")

    def test_long_line(self):
        self.append("compress/page.cc", "// " + "x" * 98 + "\n")
        self.expect_only("columns", "compress/page.cc:4")

    def test_tab(self):
        self.append("compress/page.cc", "\tint x;\n")
        self.expect_only("no_tabs", "compress/page.cc:4")

    def test_long_file(self):
        self.append("compress/page.cc", "//\n" * 598)
        self.expect_only("file_size", "compress/page.cc")

    def test_machine_path(self):
        self.write("docs/testing.md", "Look in /ho" "me/anna/tmem.\n")
        self.expect_only("no_machine_paths", "docs/testing.md:1")

    def test_raw_lock(self):
        self.append("host-store/store/store.cc", "std::" "mutex mutex_;\n")
        self.expect_only("annotated_locks", "host-store/store/store.cc:6")

    def test_header_without_guard(self):
        self.write("compress/page.h", GPL + "// A page.\n")
        self.expect_only("headers_once", "compress/page.h")


    def test_rules_of_behaviour_name_tests_that_exist(self):
        row = "| P1 | A put replaces. | %s |\n"
        for held in ("`tests/guest_core/core_test.cc`", "`core_test.cc` later"):
            self.write("docs/semantics.md", row % held)
            self.append("tests/guest_core/core_test.cc", "// core_test.cc\n")
            self.assertEqual([found for _, found in style.broken(self.root) if found], [])
        for held in ("", "`CoreTest.Nowhere`"):
            self.write("docs/semantics.md", row % held)
            self.expect_only("semantics_are_held", "docs/semantics.md:1")


class OtherTools(unittest.TestCase):
    """Each tool of lint, as configured here, finds what it is there for."""

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tmem-lint-")
        self.addCleanup(shutil.rmtree, self.directory)

    def check(self, name, text, *command):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return subprocess.run([*command, path], cwd=ROOT, capture_output=True, text=True,
                              check=False)

    def clang_tidy(self, text):
        path = os.path.join(self.directory, "sample.cc")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return subprocess.run(
            ["clang-tidy", "--quiet", f"--config-file={ROOT}/.clang-tidy", path, "--", "-std=c++20",
             f"-I{ROOT}", "-Wthread-safety", "-Werror=thread-safety"],
            capture_output=True, text=True, check=False)

    def test_thread_safety_analysis_finds_a_missing_lock(self):
        text = ('#include "host-store/base/mutex.h"\n'
                "class Counter {\n public:\n  void Add() { %s++count_; }\n\n private:\n"
                "  tmem::Mutex mutex_;\n  int count_ TMEM_GUARDED_BY(mutex_) = 0;\n};\n"
                "void AddTo(Counter& counter) { counter.Add(); }\n")
        good = self.clang_tidy(text % "const tmem::MutexLock lock(mutex_); ")
        self.assertEqual(good.returncode, 0, good.stdout + good.stderr)
        bad = self.clang_tidy(text % "")
        self.assertNotEqual(bad.returncode, 0)
        self.assertIn("thread-safety", bad.stdout)

    def test_clang_tidy_finds_a_wrong_name(self):
        bad = self.clang_tidy("int wrong_name() { return 1; }\n")
        self.assertNotEqual(bad.returncode, 0)
        self.assertIn("readability-identifier-naming", bad.stdout)

    def test_clang_format_finds_a_wrong_layout(self):
        bad = self.check("sample.cc", "int  main( ){return 0;}\n", "clang-format", "--dry-run",
                         "-Werror", f"--style=file:{ROOT}/.clang-format")
        self.assertNotEqual(bad.returncode, 0)

    def test_shellcheck_finds_an_unquoted_variable(self):
        bad = self.check("sample.sh", "#!/usr/bin/env bash\nrm $1\n", "shellcheck")
        self.assertNotEqual(bad.returncode, 0)

    def test_checkpatch_finds_wrong_kernel_style(self):
        sys.path.insert(0, os.path.join(ROOT, "scripts"))
        import lint  # pylint: disable=import-outside-toplevel
        bad = self.check("sample.c", "// SPDX-License-Identifier: " "GPL-2.0-only\nint f(){\n"
                         "  return (1);\n}\n", "perl", lint.checkpatch(), "--no-tree", "--strict",
                         "--terse", "-f")
        self.assertNotEqual(bad.returncode, 0)


class CaseResult(unittest.TextTestResult):
    """Reports each test as a case of the protocol."""

    @staticmethod
    def _name(test):
        return " ".join(test.id().split(".")[-2:])

    def addSuccess(self, test):
        super().addSuccess(test)
        style.report("PASS", self._name(test))

    def _bad(self, test, error):
        style.report("FAIL", self._name(test), str(error[1]).split("\n")[0])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._bad(test, err)

    def addError(self, test, err):
        super().addError(test, err)
        self._bad(test, err)


if __name__ == "__main__":
    runner = unittest.TextTestRunner(resultclass=CaseResult, verbosity=0, stream=sys.stderr)
    result = runner.run(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    sys.exit(0 if result.wasSuccessful() else 1)
