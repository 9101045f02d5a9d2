#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Phase `torture` of `make check`: short runs of each file system and a few faults, or all.

    tests/torture/check.py [--long]
"""

import argparse
import os
import pathlib
import random
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from lab import progress  # noqa: E402
from torture import jobs, run, setups  # noqa: E402

LONG_SEEDS = (1, 2, 3, 4, 5)
LONG_S = 120
SHORT_S = 25
LONG_FILE_SYSTEMS = ("ext4", "xfs", "btrfs")


def jobs_of(seed, long):
    if long:
        runs = [jobs.Run(fs, seed, LONG_S) for fs in LONG_FILE_SYSTEMS for seed in LONG_SEEDS]
        runs += [jobs.Run("ext4-1k", seed, LONG_S) for seed in LONG_SEEDS[:1]]
        return runs + jobs.of_faults(setups.FAULTS, LONG_SEEDS, LONG_S)
    # Odd seeds have 4 vCPUs, even ones 1.
    runs = [jobs.Run(fs, seed + number, SHORT_S) for number, fs in enumerate(LONG_FILE_SYSTEMS)]
    return runs + [jobs.Fault(fault, seed, LONG_S) for fault in setups.QUICK_FAULTS]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", default=os.environ.get("TMEM_LONG") == "1")
    long = parser.parse_args().long
    if not shutil.which("qemu-system-x86_64"):
        print("SKIP torture: no qemu-system-x86_64; `make setup` installs it")
        return 0
    seed = int(os.environ.get("TMEM_SEED", "0"), 0) or random.randrange(1, 1 << 31)
    print(f"torture: seed {seed} (TMEM_SEED={seed} repeats its choices)", flush=True)
    line = progress.Progress("torture")
    todo = jobs_of(seed, long)
    failed = jobs.run_all(todo, line)
    print(f"torture: {len(todo)} runs, {failed} failed in {line.elapsed():.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    run.main(main)
