#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Runs the tests that need real guests, at most two guests at once."""

import argparse
import os
import pathlib
import queue
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lab import (case, cases_bench, cases_budget, cases_files, cases_hosts,  # noqa: E402
                 cases_lab, cases_lab_guests, cases_lab_life, cases_lab_lost, cases_lost,
                 cases_report, cases_rollback, cases_rules, cases_shrink, cases_swap)
from lab import guest as lab_guest  # noqa: E402
from lab import host as lab_host  # noqa: E402
from lab import images, initramfs, l1, paths, place, progress  # noqa: E402

# Name -> test.
CASES = {**cases_files.CASES, **cases_rules.CASES, **cases_swap.CASES, **cases_hosts.CASES,
         **cases_bench.CASES, **cases_lost.CASES, **cases_rollback.CASES,
         **cases_report.CASES, **cases_shrink.CASES, **cases_budget.CASES}
_BY_HYPERCALL = [cases_lab, cases_lab_lost, cases_lab_life, cases_lab_guests]
# Those that run with --lab or --kvm unless others are named.
HYPERCALL = {**{name: case for cases in _BY_HYPERCALL for name, case in cases.CASES.items()},
             **cases_report.LAB_CASES, **cases_shrink.LAB_CASES, **cases_budget.LAB_CASES}
# These boot two guests, so nothing runs beside them.
ALONE = cases_hosts.ALONE | cases_lost.ALONE | cases_budget.ALONE


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tests/lab/check.sh", description=__doc__)
    parser.add_argument("--long", action="store_true", default=os.environ.get("TMEM_LONG") == "1",
                        help="more operations, more seeds, more data")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("TMEM_SEED", "0"), 0))
    place.add_arguments(parser)
    parser.add_argument("names", nargs="*")
    return parser.parse_args()


def run_case(name, options, shared):
    """PASS, FAIL or SKIP, with the reason."""
    try:
        with case.Context(name, options, shared) as context:
            try:
                note = {**CASES, **HYPERCALL}[name](context)
            except lab_guest.GuestError as error:
                # A warning on the console explains more than the time-out that followed it.
                context.look_for_trouble()
                said = context.hosts_say()
                if isinstance(error, lab_guest.TimedOut):
                    said += "\n" + context.guests_say()
                raise lab_guest.GuestError(f"{error}\n{said}") from None
            context.look_for_trouble()
        return "PASS", note or ""
    except case.Skipped as reason:
        return "SKIP", str(reason)
    except (case.Failed, paths.Missing, lab_guest.GuestError, lab_host.HostError) as error:
        return "FAIL", str(error)
    except Exception:  # A fault of the test itself fails it, too.
        return "FAIL", traceback.format_exc()


class Runner:
    """Prints each outcome as it comes and counts them."""

    def __init__(self, options, shared, line):
        self._options = options
        self._shared = shared
        self._line = line
        self._lock = threading.Lock()
        self.counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}

    def run(self, name):
        self._line.phase(name)
        begin = time.monotonic()
        outcome, note = run_case(name, self._options, self._shared)
        took = time.monotonic() - begin
        with self._lock:
            self._line.done()
            self.counts[outcome] += 1
            if outcome == "PASS":
                print(f"PASS {name} ({took:.1f} s{', ' + note if note else ''})", flush=True)
            else:
                print(f"{outcome} {name}: {note}", flush=True)

    def run_in_pairs(self, names):
        work = queue.SimpleQueue()
        for name in names:
            work.put(name)

        def take():
            while True:
                try:
                    name = work.get_nowait()
                except queue.Empty:
                    return
                self.run(name)

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main():
    options = parse_arguments()
    names = options.names or list(HYPERCALL if options.lab or options.kvm else CASES)
    unknown = [name for name in names if name not in {**CASES, **HYPERCALL}]
    if unknown:
        print(f"no such test: {' '.join(unknown)}; --list prints them", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(names))
        return 0
    options.seed = options.seed or random.randrange(1, 1 << 31)
    print(f"guest tests: seed {options.seed} (TMEM_SEED={options.seed} repeats them)", flush=True)
    if not shutil.which("qemu-system-x86_64"):
        print("SKIP guest tests: no qemu-system-x86_64; `make setup` installs it")
        return 0
    try:
        if options.lab:
            os.environ["TMEM_SEED"] = str(options.seed)
            # Files that are made once take less time here.
            for size_mib in {size_mib for cases in _BY_HYPERCALL
                             for name, size_mib in cases.CORPORA.items() if name in names}:
                images.build_text(size_mib)
            for name in cases_budget.PREPARE.keys() & set(names):
                cases_budget.PREPARE[name]()
            return place.run_in_l1(sys.argv[1:])
        if options.kvm:
            place.use_kvm()
        # Looked for once, before two threads would build them.
        paths.guest_kernel()
        paths.binary("tmemd")
        initramfs.build()
    except (paths.Missing, l1.L1Error) as reason:
        print(f"FAIL guest tests: {reason}")
        return 1
    return run_cases(options, names)


def run_cases(options, names):
    line = progress.Progress("guest tests")
    with tempfile.TemporaryDirectory(prefix="tmem-images-") as directory:
        runner = Runner(options, images.Images(pathlib.Path(directory)), line)
        # The host module serves one daemon at a time.
        alone = set(names) if options.kvm else ALONE
        for name in [name for name in names if name in alone]:
            runner.run(name)
        runner.run_in_pairs([name for name in names if name not in alone])
    counts = runner.counts
    print(f"guest tests: {counts['PASS']} passed, {counts['FAIL']} failed, "
          f"{counts['SKIP']} skipped in {line.elapsed():.0f} s")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
