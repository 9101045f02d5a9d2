#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""`make torture`: random operations on files and memory of a guest against a shadow of them."""

import argparse
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lab import paths, progress  # noqa: E402
from torture import run, setups  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fs", choices=setups.FILE_SYSTEMS, default="ext4")
    parser.add_argument("--seed", type=int, nargs="*", default=[])
    parser.add_argument("--duration-s", type=float, default=120)
    parser.add_argument("--cpus", type=int, help="virtual CPUs (default: by the seed, 1 or 4)")
    parser.add_argument("--append", default="", help="for the guest kernel's command line")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE",
                        help="for the guest's program")
    parser.add_argument("--console", help="keep the guest's console in this file")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    line = progress.Progress("torture")
    failed = False
    for seed in arguments.seed or [random.randrange(1, 1 << 31)]:
        setup = setups.whole(arguments.fs, seed)
        options = dict(option.split("=", 1) for option in arguments.option)
        options = {name: int(value) if value.isdigit() else value
                   for name, value in options.items()}
        setup = setup.with_options(**options)
        setup = setups.dataclasses.replace(
            setup, cpus=arguments.cpus or setup.cpus,
            append=f"{setup.append} {arguments.append}".strip())
        name = f"torture {setup.fs} seed {seed} ({setup.cpus} vCPU, {arguments.duration_s:.0f} s)"
        print(f"{name}: SEED={seed} repeats its choices", flush=True)
        result = run.run(setup, seed, arguments.duration_s, line.phase, arguments.console)
        line.done()
        if result.red or result.error:
            failed = True
            print(f"FAIL {name}: {result.red or result.error}")
        else:
            print(f"PASS {name}")
        print(f"  {result.figures()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except paths.Missing as reason:
        print(f"FAIL torture: {reason}")
        sys.exit(1)
    except KeyboardInterrupt:
        print("\ntorture: interrupted", file=sys.stderr)
        sys.exit(130)
