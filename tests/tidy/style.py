#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""Rules about the tree that no other tool holds: who may include whom, licence lines, sizes.

    tests/tidy/style.py [ROOT]

One case a rule, by the protocol of scripts/cases.py; what breaks it is printed before its line.
"""

import os
import posixpath
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))

from cases import report  # noqa: E402
from project_files import is_kernel_c, is_python, is_shell, project_files  # noqa: E402

# The folders, and what each may include besides itself (docs/architecture.md). The part of
# guest-shims/ that compiles in user space is a layer of its own.
LAYERS = {
    "abi": set(),
    "compress": {"abi"},
    "host-store": {"abi", "compress"},
    "guest-shims": {"abi", "guest-shims/tmem/core"},
    "guest-shims/tmem/core": {"abi"},
    "tests": {"abi", "compress", "host-store", "guest-shims/tmem/core", "tests/lab"},
    "tests/lab": {"abi", "compress", "host-store", "guest-shims/tmem/core", "tests"},
    "bench": {"abi", "compress", "host-store", "guest-shims/tmem/core", "tests/lab"},
}

MAX_COLUMNS = 100
MAX_LINES = 600
KERNEL_TAB_COLUMNS = 8

GPL = "SPDX-License-Identifier: GPL-2.0-only"
DUAL = "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
# Split, so that this file does not break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:ro" r"ot|ho" r"me|wo" r"rk|Us" r"ers)/\w")
RAW_LOCK = re.compile(r"\bstd::(?:recursive_|timed_|shared_)?mutex\b|\bstd::lock_guard\b|"
                      r"\bstd::(?:unique|scoped|shared)_lock\b|\bstd::condition_variable\b")
RAW_LOCK_HOME = "host-store/base/mutex.h"


def read_lines(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def is_c_or_cpp(path):
    return path.endswith((".h", ".cc", ".c"))


def is_source(root, path):
    """Files that a person writes and a tool runs or compiles."""
    name = os.path.basename(path)
    return (is_c_or_cpp(path) or path.endswith((".cmake", ".pml", ".S", ".lua"))
            or name in ("CMakeLists.txt", "Makefile", "Kbuild", "Kconfig", "packages.txt")
            or is_shell(root, path) or is_python(root, path))


def layer_of(path):
    """The layer a file belongs to, or None for files outside of all layers."""
    best = None
    for layer in LAYERS:
        if path.startswith(layer + "/") and (best is None or len(layer) > len(best)):
            best = layer
    return best


def resolve_include(root, path, wanted):
    """Root-relative path of an include, or None. C may also name a neighbour, as in the kernel."""
    if os.path.isfile(os.path.join(root, wanted)):
        return posixpath.normpath(wanted)
    if path.endswith(".c") or path.startswith("guest-shims/"):
        beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), wanted))
        if os.path.isfile(os.path.join(root, beside)):
            return beside
    if path.startswith("guest-shims/"):
        # The module's Kbuild has abi/ in its search path.
        if os.path.isfile(os.path.join(root, "abi", wanted)):
            return posixpath.join("abi", wanted)
    return None


def rule_include_table(root, files):
    """Includes start at the root, and only go where the table of layers allows."""
    for path in files:
        layer = layer_of(path)
        if not is_c_or_cpp(path) or layer is None:
            continue
        for number, line in enumerate(read_lines(root, path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = resolve_include(root, path, match.group(1))
            if target is None:
                yield f"{path}:{number}: \"{match.group(1)}\" is not a path from the root"
                continue
            target_layer = layer_of(target)
            if target_layer != layer and target_layer not in LAYERS[layer]:
                yield f"{path}:{number}: {layer} may not include {target}"


def rule_licence_line(root, files):
    """The licence stands on line 1, or 2 after the interpreter: dual in abi/, GPL-2.0 elsewhere."""
    for path in files:
        if not is_source(root, path):
            continue
        lines = read_lines(root, path)[:2]
        first = lines[1] if len(lines) > 1 and lines[0].startswith("#!") else (lines or [""])[0]
        wanted = DUAL if path == "abi/tmem_abi.h" else GPL
        if wanted not in first or (wanted == GPL and "abi/" not in path and DUAL in first):
            yield f"{path}: line 1 is not '{wanted}'"


def rule_file_comment(root, files):
    """A C++ file says in a comment on line 2 what it is; a test of the file beside it need not."""
    for path in files:
        if not path.endswith((".cc", ".h")) or is_kernel_c(path):
            continue
        tested = path.removesuffix("_test.cc")
        if tested != path and any(tested + end in files for end in (".cc", ".h")):
            continue
        lines = read_lines(root, path)
        if len(lines) < 2 or not re.match(r"(//|/?\*) ?\S", lines[1].strip()):
            yield f"{path}: line 2 does not say what the file is"


def rule_columns(root, files):
    """No line is longer than 100 columns."""
    for path in files:
        if not is_source(root, path):
            continue
        for number, line in enumerate(read_lines(root, path), 1):
            columns = len(line.expandtabs(KERNEL_TAB_COLUMNS if is_kernel_c(path) else 1))
            if columns > MAX_COLUMNS:
                yield f"{path}:{number}: {columns} columns"


def rule_no_tabs(root, files):
    """No tabs in C++ and Python; the kernel's C has them."""
    for path in files:
        cpp = is_c_or_cpp(path) and not is_kernel_c(path)
        if not cpp and not is_python(root, path):
            continue
        for number, line in enumerate(read_lines(root, path), 1):
            if "\t" in line:
                yield f"{path}:{number}: a tab"


def rule_file_size(root, files):
    """No source has more than 600 lines."""
    for path in files:
        if is_source(root, path):
            count = len(read_lines(root, path))
            if count > MAX_LINES:
                yield f"{path}: {count} lines"


def rule_no_machine_paths(root, files):
    """No path of one person's machine in sources and texts."""
    for path in files:
        if not is_source(root, path) and not path.endswith((".md", ".txt", ".json", ".yml")):
            continue
        for number, line in enumerate(read_lines(root, path), 1):
            if MACHINE_PATH.search(line):
                yield f"{path}:{number}: {line.strip()}"


def rule_annotated_locks(root, files):
    """Locks are the annotated ones of host-store/base/mutex.h, so that Clang can check them."""
    for path in files:
        if not path.endswith((".cc", ".h")) or path == RAW_LOCK_HOME:
            continue
        for number, line in enumerate(read_lines(root, path), 1):
            if RAW_LOCK.search(line):
                yield f"{path}:{number}: {line.strip()}"


def rule_headers_once(root, files):
    """A header is read once: #pragma once, or a guard that ends in the file's name."""
    for path in files:
        if not path.endswith(".h"):
            continue
        name = re.sub(r"\W", "_", os.path.basename(path)).upper()
        guard = re.compile(rf"#pragma once$|#ifndef \w*{name}_?$|"
                           # A header of tracepoints is read several times, on demand.
                           rf"#if !defined\(\w*{name}_?\) \|\| defined\(TRACE_HEADER_MULTI_READ\)$")
        if not any(guard.match(line.strip()) for line in read_lines(root, path)):
            yield f"{path}: neither #pragma once nor #ifndef ..._{name}_"


def is_held(root, sources, name):
    """Whether a test of this name, as `Suite.Case`, a path, or one word, is in the tree."""
    if os.path.exists(os.path.join(root, name)):
        return True
    words = [re.compile(rf"\b{re.escape(word)}\b") for word in name.split(".")]
    return any(all(word.search(text) for word in words) for text in sources)


def rule_semantics_are_held(root, files):
    """Each rule of docs/semantics.md names tests that exist, or says `later`."""
    table = "docs/semantics.md"
    if table not in files:
        return
    sources = ["\n".join(read_lines(root, path)) for path in files
               if is_source(root, path) and path != table]
    for number, line in enumerate(read_lines(root, table), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 3 or not re.fullmatch(r"[A-Z]\d+", cells[0]):
            continue
        names = re.findall(r"`([^`]+)`", cells[2])
        if not names and "later" not in cells[2]:
            yield f"{table}:{number}: no test holds {cells[0]}"
        for name in names:
            if not is_held(root, sources, name):
                yield f"{table}:{number}: {cells[0]} is held by {name}, which does not exist"


RULES = (rule_include_table, rule_licence_line, rule_file_comment, rule_columns, rule_no_tabs,
         rule_file_size, rule_no_machine_paths, rule_annotated_locks, rule_headers_once,
         rule_semantics_are_held)


def broken(root):
    """Pairs of rule name and what breaks it."""
    files = project_files(root)
    return [(rule.__name__.removeprefix("rule_"), list(rule(root, files))) for rule in RULES]


def main(arguments):
    root = arguments[0] if arguments else os.path.join(os.path.dirname(__file__), "..", "..")
    all_ok = True
    for name, findings in broken(os.path.abspath(root)):
        for finding in findings:
            print(f"{name}: {finding}")
        report("FAIL" if findings else "PASS", f"style {name}",
               f"{len(findings)} findings" if findings else "")
        all_ok = all_ok and not findings
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
