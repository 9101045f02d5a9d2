#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only
"""`make lint`: layout, names, suspicious code, locks, kernel style, scripts, layers.

    scripts/lint.py [phase...]      format tidy kernel shell style; all without arguments
    scripts/lint.py --fix-format    lets clang-format rewrite the C++ files

Reports one case a phase and file by the protocol of scripts/cases.py. What clang-tidy found clean
is remembered by the contents of the file and of all project files it includes.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

from cases import report
from project_files import is_cpp, is_kernel_c, is_shell, project_files

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CACHE = os.path.join(os.environ.get("TMEM_CACHE") or os.path.expanduser("~/.cache/tmem"), "lint")
JOBS = int(os.environ.get("TMEM_JOBS") or os.cpu_count() or 1)
BUILD_ROOT = os.environ.get("TMEM_BUILD_ROOT") or os.path.join(ROOT, "build")
KERNEL_TARBALL = "/usr/src/linux-source-6.1.tar.xz"
CHECKPATCH_FILES = ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")
# Out of a kernel tree these say nothing: no MAINTAINERS file, no Documentation folder.
CHECKPATCH_IGNORE = ("FILE_PATH_CHANGES", "LINUX_VERSION_CODE", "CONFIG_DESCRIPTION",
                     "SPDX_LICENSE_TAG", "EMBEDDED_FILENAME",
                     # Lists of counters are written once, as a macro of macros.
                     "COMPLEX_MACRO", "MACRO_ARG_REUSE", "TRAILING_SEMICOLON")
# In a patch the kernel's own lines move: what they say is the kernel's affair.
CHECKPATCH_IGNORE_PATCH = ("MISSING_SIGN_OFF", "COMMIT_LOG_LONG_LINE", "AVOID_BUG")
# What also compiles in user space has neither the kernel's types nor its macros.
CHECKPATCH_IGNORE_USER = ("NEW_TYPEDEFS", "PREFER_KERNEL_TYPES", "BIT_MACRO", "AVOID_EXTERNS",
                          "CAMELCASE")
USER_SPACE_TOO = ("abi/", "guest-shims/tmem/core/")
# Tracepoints are laid out as all of the kernel's are.
CHECKPATCH_IGNORE_TRACE = ("OPEN_ENDED_LINE", "PARENTHESIS_ALIGNMENT")


def run(command, cwd=ROOT):
    """Exit code and merged output."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", check=False)
    return done.returncode, done.stdout


def map_files(check, paths):
    """Runs check(path) -> (ok, output) on a pool; reports each; returns whether all passed."""
    all_ok = True
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for path, (ok, output) in zip(paths, pool.map(check, paths)):
            if not ok:
                print(output.rstrip(), flush=True)
            report("PASS" if ok else "FAIL", f"{check.__name__} {path}")
            all_ok = all_ok and ok
    return all_ok


def phase_format(files):
    def clang_format(path):
        code, output = run(["clang-format", "--dry-run", "-Werror", path])
        return code == 0, output

    return map_files(clang_format, [path for path in files if is_cpp(path)])


class TidyCache:
    """Remembers clean files. An entry lists the project files it depends on and their hashes."""

    def __init__(self):
        self.directory = os.path.join(CACHE, "tidy")
        os.makedirs(self.directory, exist_ok=True)
        version = subprocess.run(["clang-tidy", "--version"], capture_output=True, text=True,
                                 check=True).stdout
        with open(os.path.join(ROOT, ".clang-tidy"), encoding="utf-8") as file:
            self.common = version + file.read()

    def _entry(self, entry):
        # The root is cut out, so that another clone profits too.
        flags = entry["command"].replace(entry["directory"], "").replace(ROOT, "")
        path = os.path.relpath(entry["file"], ROOT)
        key = hashlib.sha256((self.common + flags + path).encode()).hexdigest()
        return os.path.join(self.directory, key)

    @staticmethod
    def _hash(path):
        try:
            with open(os.path.join(ROOT, path), "rb") as file:
                return hashlib.sha256(file.read()).hexdigest()
        except OSError:
            return "missing"

    def is_clean(self, entry):
        try:
            with open(self._entry(entry), encoding="utf-8") as file:
                known = json.load(file)
        except (OSError, ValueError):
            return False
        return all(self._hash(path) == value for path, value in known.items())

    def remember(self, entry):
        command = [word for word in entry["command"].split() if word not in ("-c", "-MD")]
        for option in ("-o", "-MF", "-MT"):
            while option in command:
                at = command.index(option)
                del command[at:at + 2]
        code, output = run(command + ["-MM"])
        if code != 0:
            return
        paths = [os.path.relpath(os.path.join(entry["directory"], word), ROOT)
                 for word in output.replace("\\\n", " ").split()[1:]]
        known = {path: self._hash(path) for path in paths if not path.startswith("..")}
        temporary = f"{self._entry(entry)}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(known, file)
        os.replace(temporary, self._entry(entry))


def phase_tidy(files):
    """clang-tidy with Clang's thread-safety analysis as errors, on every C++ file that is built."""
    code, output = run(["scripts/build.sh", "lint"])
    if code != 0:
        print(output)
        report("FAIL", "tidy", "the build cannot be configured")
        return False
    with open(os.path.join(BUILD_ROOT, "lint", "compile_commands.json"), encoding="utf-8") as file:
        entries = {os.path.relpath(entry["file"], ROOT): entry for entry in json.load(file)}
    cache = TidyCache()

    def clang_tidy(path):
        entry = entries[path]
        if cache.is_clean(entry):
            return True, ""
        code, output = run(["clang-tidy", "-p", os.path.join(BUILD_ROOT, "lint"), "--quiet",
                            "--extra-arg=-Werror=thread-safety", path])
        if code == 0:
            cache.remember(entry)
        return code == 0, output

    cpp = [path for path in files if path.endswith(".cc")]
    unbuilt = [path for path in cpp if path not in entries
               and not path.startswith(("tests/fuzz/", "tests/tidy/"))]
    for path in unbuilt:
        report("FAIL", f"clang_tidy {path}", "no target builds this file")
    return map_files(clang_tidy, [path for path in cpp if path in entries]) and not unbuilt


def checkpatch():
    """The kernel's own style checker, taken from the kernel source package once."""
    status = os.stat(KERNEL_TARBALL)
    directory = os.path.join(CACHE, f"checkpatch-{status.st_size}-{int(status.st_mtime)}")
    script = os.path.join(directory, "checkpatch.pl")
    if not os.path.exists(script):
        # It looks for names in the headers of a kernel tree; out of one it finds none.
        os.makedirs(os.path.join(directory, "include"), exist_ok=True)
        members = [f"linux-source-6.1/scripts/{name}" for name in CHECKPATCH_FILES]
        # --occurrence ends the reading of the tarball once all were found.
        code, output = run(["tar", "-xJf", KERNEL_TARBALL, "-C", directory, "--strip-components=2",
                            "--occurrence=1", *members])
        if code != 0:
            raise RuntimeError(f"cannot take checkpatch from {KERNEL_TARBALL}: {output}")
    return script


def phase_kernel(files):
    script = checkpatch()

    def checkpatch_file(path):
        ignore = CHECKPATCH_IGNORE
        if path.startswith(USER_SPACE_TOO):
            ignore += CHECKPATCH_IGNORE_USER
        if os.path.basename(path) == "trace.h":
            ignore += CHECKPATCH_IGNORE_TRACE
        what = [] if path.endswith(".patch") else ["-f"]
        if not what:
            ignore += CHECKPATCH_IGNORE_PATCH
        # Not from the root: it would leave a file of names there.
        code, output = run(["perl", script, "--no-tree",
                            f"--root={os.path.dirname(script)}", "--strict", "--terse",
                            "--show-types", "--no-summary", "--max-line-length=100",
                            "--ignore", ",".join(ignore), *what, os.path.join(ROOT, path)],
                           cwd=os.path.dirname(script))
        return code == 0 and not output.strip(), output.replace(ROOT + "/", "")

    return map_files(checkpatch_file,
                     [path for path in files if is_kernel_c(path) or path.endswith(".patch")])


def phase_shell(files):
    def shellcheck(path):
        code, output = run(["shellcheck", "-x", path])
        return code == 0, output

    return map_files(shellcheck, [path for path in files if is_shell(ROOT, path)])


def phase_style(_):
    all_ok = True
    for script in ("tests/tidy/style.py", "tests/tidy/style_test.py", "tests/tidy/check_test.py",
                   "bench/guest/targets_test.py", "bench/guest/compare_test.py",
                   "bench/guest/costs_test.py", "bench/guest/cache_figures_test.py",
                   "bench/store/zram_test.py",
                   "bench/guest/choice_test.py", "bench/guest/measure_test.py",
                   "bench/guest/sampler_test.py", "bench/guest/crowd_test.py",
                   "bench/guest/budget_series_test.py",
                   "tests/lab/standstill_test.py", "tests/lab/initramfs_test.py"):
        code, output = run(["/usr/bin/python3", script])
        print(output, end="", flush=True)
        # A runner that fails without saying which case would not be counted.
        if code != 0 and not re.search(r"^FAIL ", output, re.MULTILINE):
            report("FAIL", script, f"exit code {code}")
        all_ok = all_ok and code == 0
    return all_ok


PHASES = {"format": phase_format, "tidy": phase_tidy, "kernel": phase_kernel,
          "shell": phase_shell, "style": phase_style}


def main(arguments):
    files = project_files(ROOT)
    if arguments == ["--fix-format"]:
        return run(["clang-format", "-i", *[path for path in files if is_cpp(path)]])[0]
    unknown = [name for name in arguments if name not in PHASES]
    if unknown:
        print(f"lint: no phase {' '.join(unknown)}; there are: {' '.join(PHASES)}", file=sys.stderr)
        return 2
    all_ok = True
    for name in arguments or PHASES:
        try:
            all_ok = PHASES[name](files) and all_ok
        except (OSError, RuntimeError, ValueError) as error:
            report("FAIL", f"lint {name}", str(error))
            all_ok = False
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
