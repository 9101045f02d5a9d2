# SPDX-License-Identifier: GPL-2.0-only
"""`figures`: every workload that a target stands on, in sizes that keep it short."""

import dataclasses

from guest import never_put, random_reads, streaming, swap, tree

# Measured on two cores under TCG with nothing beside it.
_SECONDS_ONCE = 45  # the tree is made, corpora are read
_SECONDS_A_REPETITION = 160


def minutes(repeat):
    return (_SECONDS_ONCE + repeat * _SECONDS_A_REPETITION) / 60


def plan(options, store, progress):
    """Yields (setup, a function that runs it)."""
    for setup, start in _all(options, store, progress):
        if not options.only or options.only in setup.title():
            yield setup, start


def _all(options, store, progress):
    # One image is kept at a time: what shares one follows each other.
    yield from streaming.plan(options, store, progress, names=["text"])
    for name in ["zero", "random"]:
        yield from streaming.plan(options, store, progress, names=[name], rates=[0])
    for setup, start in swap.plan(options, store, progress):
        if setup.thp == "off" and setup.variant != "writethrough":
            yield setup, start
    yield from random_reads.plan(options, store, progress)
    yield from never_put.plan(options, store, progress)
    # Of the whole size: 20,000 files are the point of it.
    large = dataclasses.replace(options, quick=False, disk_mb_s=0)
    yield from tree.plan(large, store, progress)
