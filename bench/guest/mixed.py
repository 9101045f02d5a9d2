# SPDX-License-Identifier: GPL-2.0-only
"""`mixed`: one guest streams a file bigger than its memory, another takes memory and frees it.

Both and the store have one budget. Somebody other than the daemon adds up every 50 ms what they
have. The file is of random bytes, so that the store is offered as much as it may take.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import tempfile
import time

from guest import budget_series, images, measure, sampler
from lab import disks, doorbells, place
from lab import guest as lab_guest
from lab import host as lab_host

MIB = disks.MIB
STREAMER, TAKER = "streamer", "taker"
# Within this time after memory was freed the store is to have taken what it takes; where guests'
# processors are emulated twice over, reports and the stream alone need longer.
TAKE_S = 15
_TAKE_IN_L1_S = 50
_SAMPLE_S = 0.05
_STATUS_S = 0.2
# What the daemon needs besides pages for two guests, and the VMMs where their groups are counted.
_FIXED_MIB = 16
_VMM_MIB = 56
_WINDOW_BYTES = 4 * MIB  # the daemon's default
# A limit that turns by less follows what guests do, and is no oscillation.
_TURN_SHARE = 4


@dataclasses.dataclass
class Sizes:
    streamer_mib: int
    taker_mib: int
    hog_mib: int  # what the taker takes and frees
    file_mib: int
    pool_min_mib: int
    turns: int
    short: bool
    take_s: int = TAKE_S


# For a test, and guests whose processor is emulated twice over. In less than 64 MiB of free memory
# the kernel reports no huge pages.
LEAST = Sizes(80, 224, 96, 384, 16, 1, True, _TAKE_IN_L1_S if place.inside_l1() else TAKE_S)


def sizes(quick):
    if quick:
        return Sizes(112, 224, 128, 384, 16, 2, True)
    return Sizes(256, 768, 512, 1280, 64, 3, False)


def budget_mib(size, variant, doorbell):
    """`within`: all guests in full fit. `beyond`: not even what the two really use."""
    vmm_mib = 2 * _VMM_MIB if doorbell == "hypercall" else 0
    fixed_mib = size.pool_min_mib + _FIXED_MIB + vmm_mib
    if variant == "within":
        return size.streamer_mib + size.taker_mib + fixed_mib
    return size.streamer_mib + size.hog_mib + fixed_mib // 2


def plan(options, store, progress):
    """Yields (setup, a function that runs it)."""
    size = sizes(options.quick)
    for variant in ["within", "beyond"]:
        setup = setup_of(size, variant, options.seed)
        if not options.only or options.only in setup.title():
            yield setup, lambda setup=setup: run(setup, size, store, progress)


def setup_of(size, variant, seed):
    return measure.Setup(
        workload="mixed", variant=variant, corpus="random", disk_mb_s=0, thp="off", seed=seed,
        guest_mib=size.taker_mib, workload_bytes=size.hog_mib * MIB,
        pool_min_mib=size.pool_min_mib, limit_mib=budget_mib(size, variant, doorbells.kind()))


# ---- what guests and store have ----


def _ram_file(name):
    return pathlib.Path("/dev/shm") / f"tmem-mixed-{os.getpid()}-{name}"


def group_bytes(group):
    """What a guest's control group holds that only swapping could take from it."""
    stat = dict(line.split() for line in
                (group / "memory.stat").read_text(encoding="ascii").splitlines())
    return (int(stat["anon"]) + int(stat["shmem"]) + int(stat["kernel"])
            - int(stat["slab_reclaimable"]))


def _guest_source(host, name):
    group = host.doorbell(name).cgroup
    if group is None:
        return sampler.file_bytes(_ram_file(name))
    return lambda: group_bytes(group)


def _store_source(host):
    """The daemon's memory; by hypercall its windows are the module's, and in no process."""
    windows = 2 * _WINDOW_BYTES if doorbells.kind() == "hypercall" else 0
    return lambda: host.memory_bytes() + windows


def _ask(directory):
    """The daemon's status, without a process for each question."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(directory / "control.sock"))
        connection.sendall(b"status\n")
        with connection.makefile("rb") as answer:
            return json.loads(answer.read())


# ---- a run ----


def _boot(stack, setup, size, host, image, sums, directory):
    """Both guests, by name."""
    guests = {}
    for name, mib, its_disks in [
            (STREAMER, size.streamer_mib,
             [disks.Disk(image, mb_s=setup.disk_mb_s, readonly=True),
              disks.Disk(sums, readonly=True)]),
            (TAKER, size.taker_mib, [])]:
        stack.callback(_ram_file(name).unlink, missing_ok=True)
        guests[name] = stack.enter_context(lab_guest.Guest(
            name, lab_guest.Options(
                memory_mib=mib, disks=its_disks, ram_file=_ram_file(name),
                append="tmem.cleancache=1 tmem.reporting=1", doorbell=host.doorbell(name)),
            directory))
        measure.demand_registered(setup.title(), host, name)
    return guests


def _offered_bytes(streamer):
    """What the streamer has put so far and has not got back."""
    counters = streamer.counters()
    return 4096 * (counters.get("puts", 0) - counters.get("get_hits", 0))


def _take_and_free(setup, size, guests, watch, progress):
    """The taker's turns: when each began and ended, its events, what the store was offered then."""
    turns = []
    for number in range(size.turns):
        progress.phase(f"{setup.title()}: turn {number + 1} of {size.turns}")
        begin_s = watch.now()
        ends = []
        events = guests[TAKER].workload(
            f"hog bytes={size.hog_mib * MIB} seed={setup.seed + number} plan=fvv", 300,
            lambda event: ends.append(watch.now()) if event.get("event") == "end" else None)
        turns.append({"begin_s": begin_s, "full_s": ends[0], "free_s": watch.now(),
                      "events": [event for event in events if event.get("event") == "end"]})
        before = _offered_bytes(guests[STREAMER])
        _pause(size, watch, turns[-1]["free_s"])
        turns[-1]["offered_bytes"] = _offered_bytes(guests[STREAMER]) - before
        time.sleep(3)
    return turns


def _pause(size, watch, free_s):
    """Until the store has had its time; in the short form, until it has taken what it should."""
    while watch.now() < free_s + size.take_s:
        time.sleep(0.5)
        store = budget_series.of(watch.series, "store")
        if size.short and budget_series.seconds_until(store, free_s, _wanted(size)) is not None:
            break


def _settle(watch, timeout_s=60):
    """Until the store has stopped to grow."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        time.sleep(1)
        points = budget_series.of(watch.series, "store")
        now_s = watch.now()
        if now_s > 8 and budget_series.grown(points, now_s - 4, 4) < 4 * MIB:
            return


def run(setup, size, store, progress):
    image, sums = store.corpus(setup.corpus, size.file_mib * MIB, progress)
    doorbell = doorbells.kind()
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="tmem-bench-")))
        progress.phase(f"{setup.title()}: boot")
        host = stack.enter_context(lab_host.Host(
            [f"{name},ram={_ram_file(name)}" for name in [STREAMER, TAKER]], None,
            setup.pool_min_mib, directory, budget_mib=setup.limit_mib))
        guests = _boot(stack, setup, size, host, image, sums, directory)
        streamer = guests[STREAMER]
        streamer.run(images.MOUNT)
        watch = stack.enter_context(sampler.MemorySampler(
            _SAMPLE_S, {**{name: _guest_source(host, name) for name in guests},
                        "store": _store_source(host)}))
        told = stack.enter_context(sampler.MemorySampler(
            _STATUS_S, {"limit": lambda: _ask(directory)["limit_bytes"]}))
        streamer.run("workload stream file=/mnt/data index=/dev/vdb passes=1000"
                     " until=/tmp/stop > /tmp/stream & true")
        _settle(watch)
        turns = _take_and_free(setup, size, guests, watch, progress)
        watch.stop()
        told.stop()
        status = host.status()
        streamer.run("touch /tmp/stop; wait", 120)
        streamed = _events(streamer.run("cat /tmp/stream"))
        result = dataclasses.asdict(setup)
        result |= {"variant": "tmem", "setting": setup.variant, "budget_mib": setup.limit_mib}
        result |= figures(setup, size, watch.series, told.series, turns)
        result |= _pages(streamed, [event for turn in turns for event in turn["events"]])
        result |= {
            "doorbell": doorbell, "budget": status["budget"], "passes": [],
            "seen": {row["name"]: {key: row[key] for key in
                                   ["resident_bytes", "resident_from", "doorbell"]}
                     for row in status["guests"]},
            "guest_counters": {name: guest.counters() for name, guest in guests.items()},
            "series": [*watch.series, *told.series, *_total(watch.series)],
            "console_trouble": [line for guest in guests.values() for line in guest.trouble()]}
    return result


def _events(text):
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    errors = [event["error"] for event in events if "error" in event]
    if errors or not events:
        raise lab_guest.GuestError(f"{STREAMER}: {errors or text}")
    return events


def _pages(streamed, hogs):
    ends = [event for event in [*streamed, *hogs] if event.get("event") == "end"]
    return {"streamed_bytes": 4096 * sum(event["pages"] for event in streamed
                                         if event.get("event") == "end"),
            "wrong_pages": sum(event["wrong"] for event in ends),
            "failed_pages": sum(event["sigbus"] for event in ends)}


# ---- figures ----


def _total(series):
    return [{"t_s": t_s, "name": "all", "bytes": count}
            for t_s, count in budget_series.sums(series, [STREAMER, TAKER, "store"])]


def _wanted(size):
    return size.hog_mib * MIB * 8 // 10


def _of_turn(turn, store, limit, size):
    """What the store did after this turn freed its memory."""
    free_s = turn["free_s"]
    return {"begin_s": turn["begin_s"], "full_s": turn["full_s"], "free_s": free_s,
            "offered_bytes": turn["offered_bytes"],
            "taken_bytes": budget_series.grown(store, free_s, size.take_s),
            "seconds_to_80_percent": budget_series.seconds_until(store, free_s, _wanted(size)),
            "limit_grown_bytes": budget_series.grown(limit, free_s, size.take_s),
            "store_at_full_bytes": budget_series.value_at(store, turn["full_s"])}


def figures(setup, size, series, limit_series, turns):
    """Keys of a run that follow from what was sampled."""
    budget_bytes = setup.limit_mib * MIB
    sums = budget_series.sums(series, [STREAMER, TAKER, "store"])
    store = budget_series.of(series, "store")
    limit = budget_series.of(limit_series, "limit")
    overs = budget_series.overs(sums, budget_bytes)
    first_s, last_s = turns[0]["begin_s"], turns[-1]["free_s"] + size.take_s
    return {
        "turns": [_of_turn(turn, store, limit, size) for turn in turns],
        "samples": len(sums),
        "longest_gap_s": round(budget_series.longest_gap_s(sums), 3),
        "times_over": len(overs),
        "worst_over_bytes": max((over.worst_bytes for over in overs), default=0),
        "longest_over_s": max((over.seconds for over in overs), default=0.0),
        "most_store_bytes": max(count for _, count in store),
        "least_free_bytes": budget_bytes - max(sum_bytes for _, sum_bytes in sums),
        "limit_turns": budget_series.turns(budget_series.within(limit, first_s, last_s),
                                           size.hog_mib * MIB // _TURN_SHARE),
        "overs": [dataclasses.asdict(over) for over in overs],
    }
