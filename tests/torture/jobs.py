# SPDX-License-Identifier: GPL-2.0-only
"""What is run: torture without a fault, which must be green, and with one, which must be red."""

import concurrent.futures
import dataclasses
import pathlib
import threading

from lab import initramfs, paths, processes
from torture import run, setups

GUESTS_AT_ONCE = 2
CONTROL_S = 30


def _verdict(result):
    return "SKIP" if result.error == run.NO_FAULTS else "FAIL"


@dataclasses.dataclass(frozen=True)
class Run:
    """All of it on one file system."""

    fs: str
    seed: int
    duration_s: float
    setup: setups.Setup | None = None  # rather than that of the seed

    @property
    def name(self):
        return f"torture {self.fs} seed {self.seed} ({self._setup().cpus} vCPU)"

    def _setup(self):
        return self.setup or setups.whole(self.fs, self.seed)

    def do(self, on_progress, console):
        result = run.run(self._setup(), self.seed, self.duration_s, on_progress, console)
        why = result.red or result.error
        text = f"{why or f'{result.seconds:.0f} s'}\n  {result.figures()}"
        return "FAIL" if why else "PASS", text


@dataclasses.dataclass(frozen=True)
class Control:
    """A fault's set-up without the fault."""

    fault: str
    seed: int
    duration_s: float = CONTROL_S

    @property
    def name(self):
        return f"control {self.fault} seed {self.seed}"

    def do(self, on_progress, console):
        result = run.run(setups.FAULTS[self.fault], self.seed, self.duration_s, on_progress,
                         console, fault="none")
        why = result.red or result.error
        if why:
            return _verdict(result), f"{why}\n  {result.figures()}"
        return "PASS", f"green for {result.seconds:.0f} s"


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault's set-up with the fault: over as soon as it is noticed."""

    fault: str
    seed: int
    duration_s: float

    @property
    def name(self):
        return f"fault {self.fault} seed {self.seed}"

    def do(self, on_progress, console):
        setup = setups.FAULTS[self.fault]
        setup = dataclasses.replace(setup, append=f"{setup.append} tmem.fault={self.fault}".strip())
        result = run.run(setup, self.seed, self.duration_s, on_progress, console, fault=self.fault)
        if result.red:
            return "PASS", f"red after {result.seconds:.0f} s: {result.red}"
        why = result.error or f"not noticed in {result.seconds:.0f} s"
        return _verdict(result), f"{why}\n  {result.figures()}"


def of_faults(faults, seeds, duration_s, control_s=CONTROL_S):
    jobs = []
    for fault in faults:
        if control_s:
            jobs.append(Control(fault, seeds[0], control_s))
        jobs += [Fault(fault, seed, duration_s) for seed in seeds]
    return jobs


def run_all(jobs, line, guests=GUESTS_AT_ONCE, consoles=None):
    """Prints PASS, FAIL or SKIP a job; returns how many failed."""
    failed = 0
    lock = threading.Lock()
    interrupted = threading.Event()
    # Looked for once, before two threads would build them.
    paths.guest_kernel()
    paths.binary("tmemd")
    initramfs.build(run.PROGRAMS)

    def one(job):
        nonlocal failed
        console = None
        if consoles:
            console = pathlib.Path(consoles) / f"{job.name.replace(' ', '-')}.console"
        verdict, text = job.do(lambda text: line.phase(f"{job.name}: {text}"), console)
        if interrupted.is_set():
            return
        with lock:
            failed += verdict == "FAIL"
            line.done()
            print(f"{verdict} {job.name}: {text}", flush=True)

    pool = concurrent.futures.ThreadPoolExecutor(guests)
    futures = [pool.submit(one, job) for job in jobs]
    try:
        for future in futures:
            future.result()
    except BaseException:
        # Who waits for a guest finds it gone, and clears up.
        interrupted.set()
        pool.shutdown(wait=False, cancel_futures=True)
        processes.stop_all()
        raise
    finally:
        pool.shutdown()
    return failed
