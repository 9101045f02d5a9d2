#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""`make torture-faults`: each fault on purpose must be noticed, and nothing without a fault."""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lab import progress  # noqa: E402
from torture import jobs, run, setups  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", nargs="*", default=[], metavar="NAME",
                        help=f"of {', '.join(setups.FAULTS)}; default all")
    parser.add_argument("--seed", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--duration-s", type=float, default=120)
    parser.add_argument("--control-s", type=float, default=jobs.CONTROL_S,
                        help="each set-up without its fault, with the first seed (0: not)")
    parser.add_argument("--guests", type=int, default=jobs.GUESTS_AT_ONCE, help="guests at once")
    parser.add_argument("--consoles", help="keep the guests' consoles in this directory")
    arguments = parser.parse_args()
    for fault in arguments.fault:
        if fault not in setups.FAULTS:
            parser.error(f"no fault {fault}; there are: {' '.join(setups.FAULTS)}")
    return arguments


def main():
    arguments = parse_arguments()
    line = progress.Progress("torture-faults")
    todo = jobs.of_faults(arguments.fault or list(setups.FAULTS), arguments.seed,
                          arguments.duration_s, arguments.control_s)
    failed = jobs.run_all(todo, line, arguments.guests, arguments.consoles)
    print(f"torture-faults: {len(todo)} runs, {failed} failed in {line.elapsed():.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    run.main(main)
