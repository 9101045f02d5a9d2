# SPDX-License-Identifier: GPL-2.0-only
"""`overhead`: page faults and hackbench with reports of free memory on and off, in turn."""

from guest import single

MIB = single.MIB
# What is free is reported 2 s after the first of it was freed, what was freed since 2 s later.
_REST_S = 2.2
_SAMPLE_S = 2.1
_QUICK_SAMPLE_S = 0.4
PAIRS, _QUICK_PAIRS = 15, 6
# `faults` after a rest: all that a round takes has been given back before.
TASKS = ("faults", "faults-thp", "hackbench", "faults-rested")
_FAULTS_MIB = 128
_HACKBENCH_LOOPS = 100


def sizes(options):
    """(guest MiB, MiB that the fault loops take together)"""
    if options.guest_mib:
        return options.guest_mib, options.guest_mib // 4
    return (256, 64) if options.quick else (4 * _FAULTS_MIB, _FAULTS_MIB)


def _all_tasks(options):
    """(task, vCPUs)"""
    if options.quick and not options.only:
        yield "faults", options.vcpus or 2
        return
    for count in [options.vcpus] if options.vcpus else [2] if options.quick else [1, 2]:
        for task in TASKS:
            yield task, count


def plan(options, _, progress):
    """Yields (setup, a function that runs it). All pairs of a task are of one boot."""
    guest_mib, faults_mib = sizes(options)
    pairs = options.pairs or (_QUICK_PAIRS if options.quick else PAIRS)
    for task, cpus in _all_tasks(options):
        setup = single.Setup("overhead", "tmem", guest_mib, faults_mib * MIB, task, cpus,
                             options.seed)
        if not options.only or options.only in setup.title():
            yield setup, lambda setup=setup: _run(setup, pairs, options.quick, progress)


class _Task:
    """A fixed piece of work that takes about `sample_s` seconds; sized by first runs of it."""

    def __init__(self, bench, sample_s):
        self._bench = bench
        self._work = 1
        # What is short is mostly start, and a machine is slow at times.
        while (once := self.sample()) < sample_s / 2:
            self._work = max(self._work + 1, round(self._work * sample_s / once))

    def sample(self):
        """Seconds by the guest's clock."""
        setup = self._bench.setup
        if setup.task == "hackbench":
            # Pipes: the small guest kernel has no sockets. Each message is a page or less of them.
            text = self._bench.guest.run(f"hackbench --pipe -g {2 * setup.cpus}"
                                         f" -l {_HACKBENCH_LOOPS * self._work}", 600)
            return float(text.rpartition("Time:")[2])
        return self._bench.faults(setup.workload_bytes // MIB // setup.cpus, self._work,
                                  setup.cpus, int(setup.task == "faults-thp"), 600)


def _sample(bench, task, on, quick):
    reported = bench.reported_bytes()
    bench.switch(on)
    if bench.setup.task == "faults-rested" or quick and on:
        bench.guest.run(f"sleep {_REST_S}")
    elif not quick:
        task.sample()  # not counted: until the first report has come
    before = bench.cpu_ns()
    seconds = task.sample()
    return {"seconds": seconds, "host_cpu_s": round((bench.cpu_ns() - before) / 1e9, 4),
            "reported_bytes": bench.reported_bytes() - reported}


def _run(setup, pairs, quick, progress):
    with single.Single(setup, progress, reporting=False, shims=True,
                       installed=("hackbench",)) as bench:
        task = _Task(bench, _QUICK_SAMPLE_S if quick else _SAMPLE_S)
        # For the first time all is reported that has been free since boot.
        bench.phase("first reports")
        _sample(bench, task, True, quick)
        done = []
        for number in range(pairs):
            bench.phase(f"pair {number + 1} of {pairs}")
            # Which comes first changes, so that a drift within pairs hits both.
            order = (True, False) if number % 2 == 0 else (False, True)
            samples = {on: _sample(bench, task, on, quick) for on in order}
            done.append({"first": "on" if order[0] else "off", "on": samples[True],
                         "off": samples[False]})
        bench.step("done")
        return bench.result(pairs=done)
