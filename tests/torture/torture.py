#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""`make torture`: random operations on files and memory of a guest against a shadow of them."""

import argparse
import dataclasses
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lab import place, progress  # noqa: E402
from torture import jobs, run, setups  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fs", choices=setups.FILE_SYSTEMS, default="ext4")
    parser.add_argument("--seed", type=int, nargs="*", default=[])
    parser.add_argument("--duration-s", type=float, default=120)
    parser.add_argument("--cpus", type=int, help="virtual CPUs (default: by the seed, 1 or 4)")
    parser.add_argument("--append", default="", help="for the guest kernel's command line")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="for the guest's program")
    parser.add_argument("--guests", type=int, default=1, help="guests at once")
    parser.add_argument("--consoles", help="keep the guests' consoles in this directory")
    place.add_arguments(parser)
    return parser.parse_args()


def job_of(arguments, seed):
    setup = setups.whole(arguments.fs, seed)
    options = dict(option.split("=", 1) for option in arguments.option)
    setup = setup.with_options(**{name: int(value) if value.isdigit() else value
                                  for name, value in options.items()})
    setup = dataclasses.replace(setup, cpus=arguments.cpus or setup.cpus,
                                append=f"{setup.append} {arguments.append}".strip())
    return jobs.Run(arguments.fs, seed, arguments.duration_s, setup)


def main():
    arguments = parse_arguments()
    if arguments.lab:
        return place.run_in_l1(sys.argv[1:], run.PROGRAMS)
    if arguments.kvm:
        place.use_kvm()
    line = progress.Progress("torture")
    todo = [job_of(arguments, seed)
            for seed in arguments.seed or [random.randrange(1, 1 << 31)]]
    for job in todo:
        print(f"{job.name}: SEED={job.seed} repeats its choices", flush=True)
    return 1 if jobs.run_all(todo, line, arguments.guests, arguments.consoles) else 0


if __name__ == "__main__":
    run.main(main)
