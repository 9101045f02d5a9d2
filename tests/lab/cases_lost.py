# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of lost and slow hosts: tmemd killed, stopped, slowed, replaced by a new one."""

import json
import threading
import time

from lab import disks
from lab.case import (ON, SWITCH, disk_reads, disk_writes, expect, expect_no_wrong, swap_on)

MIB = disks.MIB

# What one ephemeral get of the largest batch waits for a lost host, and a store.
_EPHEMERAL_BOUND_S = 0.164
_STREAM = "stream file=/mnt/data index=/dev/vdb"


class At:
    """Calls `action` in a thread of its own, `delay_s` after a pass of a workload has begun."""

    def __init__(self, number, delay_s, action):
        self._number = number
        self._thread = threading.Thread(target=self._run, args=(delay_s, action))
        self._begun = False

    def _run(self, delay_s, action):
        time.sleep(delay_s)
        action()

    def __call__(self, event):
        if event.get("event") == "begin" and event["pass"] == self._number and not self._begun:
            self._begun = True
            self._thread.start()

    def join(self):
        expect(self._begun, f"pass {self._number} did not begin")
        self._thread.join()


def _ends(events):
    return [event for event in events if event.get("event") == "end"]


def _total_s(events):
    return sum(event["seconds"] for event in _ends(events))


def no_wrong_bytes(events, what):
    """Pages may have failed, none may be wrong; returns how many failed in each pass."""
    ends = _ends(events)
    expect(ends, f"{what}: the workload did not finish")
    for event in ends:
        expect(event["wrong"] == 0, f"{what}: {event['wrong']} wrong pages in pass {event['pass']}")
    return [event["sigbus"] for event in ends]


# ---- killed ----


def _stream_guest(context, disk_mb_s):
    image, sums = context.images.corpus("text", 192)
    host = context.host(limit_mib=320, pool_min_mib=96)
    guest = context.guest(host, memory_mib=96, disks=[
        disks.Disk(image, mb_s=disk_mb_s, readonly=True), disks.Disk(sums, readonly=True)])
    guest.run("mount -t ext4 -o ro,noatime /dev/vda /mnt")
    return host, guest


def _expect_waited_once(guest, kinds, what):
    """No kind of page waited for the lost host in vain more than once a vCPU."""
    timeouts = guest.counters()["timeouts"]
    expect(timeouts <= kinds, f"{what}: waited in vain {timeouts} times")
    return timeouts


def killed_while_streaming(context):
    """tmemd dies for good in the second or the first pass: right data, within twice of `off`."""
    disk_mb_s = 20 if context.long else 60
    host, guest = _stream_guest(context, disk_mb_s)
    guest.run(f"echo 0 > {SWITCH}cleancache")
    off_s = _total_s(expect_no_wrong(guest.workload(f"{_STREAM} passes=2", 300), "off"))
    guest.run(f"echo 1 > {SWITCH}cleancache")
    figures = []
    for number, delay_s in [(2, 0.4), (1, 0.2 * off_s)]:
        if number == 1:
            guest.kill()
            host, guest = _stream_guest(context, disk_mb_s)
        killing = At(number, delay_s, host.kill)
        events = guest.workload(f"{_STREAM} passes=2", 300, killing)
        killing.join()
        what = f"killed in pass {number}"
        took_s = _total_s(expect_no_wrong(events, what))
        counters = guest.counters()
        noticed = counters["breaker_trips"] + counters["channels_lost"]
        expect(noticed > 0, f"{what}: the guest did not notice")
        expect(took_s <= 2 * off_s, f"{what}: {took_s:.1f} s, off {off_s:.1f} s")
        waits = _expect_waited_once(guest, 1, what)
        figures.append(f"{what} {took_s:.1f} s (waited {waits} x {_EPHEMERAL_BOUND_S} s at most)")
    reads, events = disk_reads(guest, 0, lambda: guest.workload(f"{_STREAM} passes=1", 300))
    expect_no_wrong(events, "after")
    expect(reads > 150 * MIB, f"without tmemd only {reads} bytes came from the disk")
    return f"off {off_s:.1f} s, " + ", ".join(figures)


def killed_while_swapping(context):
    """tmemd dies for good: what it held are errors; later pages use the disk; none is wrong."""
    timeout_s = 20 if context.long else 3
    host = context.host(limit_mib=256, pool_min_mib=160)
    swap = disks.empty(context.directory / "swap.img", 400 * MIB)
    guest = context.guest(host, memory_mib=128, append=f"{ON} tmem.load_timeout_s={timeout_s}",
                          disks=[disks.Disk(swap)])
    swap_on(guest, "vda")
    killing = At(2, 0.5, host.kill)
    begin = time.monotonic()
    events = guest.workload(f"hog bytes={176 * MIB} seed={context.seed} plan=fvfv", 300, killing)
    took_s = time.monotonic() - begin
    killing.join()
    failed = no_wrong_bytes(events, "hog")
    expect(failed[0] == 0, f"{failed[0]} pages failed before tmemd was killed")
    expect(failed[1] > 1000, f"only {failed[1]} pages failed: where did the others come from?")
    waits = _expect_waited_once(guest, 1, "hog")
    errors = guest.counters()["frontswap_load_errors"]
    expect(errors >= failed[1], f"{errors} load errors counted, {failed[1]} seen")
    # Nothing is promised by a host that is known to be lost: the disk has what comes now.
    second = f"hog bytes={160 * MIB} seed={context.seed + 2} plan=fvfv"
    written, events = disk_writes(guest, 0, lambda: guest.workload(second, 300))
    expect_no_wrong(events, "second hog")
    expect(written > 16 * MIB, f"only {written} bytes were swapped to the disk")
    return (f"{failed[1]} pages failed, none wrong, in {took_s:.1f} s (waited {waits} x {timeout_s}"
            f" s at most); later {written / MIB:.0f} MiB to the disk and back")


# ---- stopped, slowed ----


def _swap_and_file_guest(context, **options):
    """A guest that swaps on vda and has a file of 64 MiB on the slow vdb, sums on vdc."""
    image, sums = context.images.corpus("text", 64)
    host = context.host(limit_mib=320, pool_min_mib=160)
    swap = disks.empty(context.directory / f"swap-{time.monotonic_ns()}.img", 400 * MIB)
    guest = context.guest(host, memory_mib=128, disks=[
        disks.Disk(swap), disks.Disk(image, mb_s=20, readonly=True),
        disks.Disk(sums, readonly=True)], **options)
    swap_on(guest, "vda")
    guest.run("mount -t ext4 -o ro,noatime /dev/vdb /mnt")
    return host, guest


class Reader:
    """Reads a file again and again beside others, by a process that is never swapped itself."""

    def __init__(self, guest):
        self.guest = guest
        guest.run("[ ! -d /cgroup/shell ] || echo $$ > /cgroup/shell/cgroup.procs;"
                  " workload stream file=/mnt/data index=/dev/vdc passes=100000 > /tmp/reader &"
                  " echo $! > /tmp/reader.pid")

    def await_pass(self):
        """Returns when one more pass is done."""
        self.guest.run("n=$(grep -c end /tmp/reader);"
                        " until [ $(grep -c end /tmp/reader) -gt $n ]; do sleep 0.1; done", 300)

    def finish(self):
        """Ends the reader; returns how many passes it has done, all of them right."""
        self.guest.run("kill $(cat /tmp/reader.pid)")
        lines = self.guest.run("cat /tmp/reader").splitlines()
        # The last line may be cut off where the reader ended.
        events = [json.loads(line) for line in lines if line.endswith("}")]
        expect(all(event["event"] in ("begin", "end") for event in events),
               f"the reader: {lines[-3:]}")
        return len(expect_no_wrong(events, "reader"))


def stopped_and_continued(context):
    """tmemd stands still: reading goes on from the disk, swapping after it, nothing is lost."""
    stop_s = 30 if context.long else 8
    host, guest = _swap_and_file_guest(context)
    reader = Reader(guest)
    read_bytes = []

    def stop():
        before = guest.usage().disk_bytes[1][0]
        host.stop_for(stop_s)
        read_bytes.append(guest.usage().disk_bytes[1][0] - before)

    stopping = At(2, 0.5, stop)
    events = guest.workload(f"hog bytes={136 * MIB} seed={context.seed} plan=fv", 300, stopping)
    stopping.join()
    expect_no_wrong(events, "hog")
    passes = reader.finish()
    pages = read_bytes[0] // 4096
    # A quarter of what the disk gives in that time, for a machine that is busy.
    expect(pages > stop_s * 20e6 / 4096 / 4, f"only {pages} pages were read during the stop")
    counters = guest.counters()
    expect(counters["frontswap_load_errors"] == 0, "a page was an error")
    stores = counters["frontswap_stores"]
    expect_no_wrong(guest.workload(f"hog bytes={128 * MIB} seed={context.seed + 1} plan=fv", 300),
                    "second hog")
    stores = guest.counters()["frontswap_stores"] - stores
    expect(stores > 1000, f"after the stop only {stores} stores were taken")
    return (f"stopped for {stop_s} s: {pages} pages read meanwhile, {passes} passes in all,"
            f" {counters['breaker_trips']} breaker trips; later {stores} stores")


def _let_pass(guest, number):
    """Lets a hog with a gate do this pass."""
    guest.run(f"touch /tmp/gate{number};"
              f" until [ $(grep -c end /tmp/hog) = {number} ]; do sleep 0.1; done", 150)


def stopped_beyond_the_time_out(context):
    """Longer than swapped pages are waited for: errors, none wrong; late is not lost."""
    host = context.host(limit_mib=256, pool_min_mib=160)
    swap = disks.empty(context.directory / "swap.img", 400 * MIB)
    guest = context.guest(host, memory_mib=128, append=f"{ON} tmem.load_timeout_s=2",
                          disks=[disks.Disk(swap)])
    swap_on(guest, "vda")
    guest.run(f"workload hog bytes={160 * MIB} seed={context.seed} plan=fvv gate=/tmp/gate"
              " > /tmp/hog & until grep -q end /tmp/hog; do sleep 0.1; done")
    stopping = threading.Thread(target=host.stop_for, args=(5,))
    stopping.start()
    _let_pass(guest, 2)
    stopping.join()
    _let_pass(guest, 3)
    events = [json.loads(line) for line in guest.run("cat /tmp/hog").splitlines()]
    failed = no_wrong_bytes(events, "hog")
    expect(sum(failed) > 0, "no page failed: the stop was not noticed")
    expect(failed[-1] == 0, f"{failed[-1]} pages are still lost: {failed}")
    return f"pages that failed in each pass: {failed}"


def slowed(context):
    """tmemd has the processor for 20 of 120 ms: all is right, and the guest believes it again."""
    host, guest = _swap_and_file_guest(context)
    plan, hog_mib = ("fvfvfv", 152) if context.long else ("fv", 128)
    done = threading.Event()

    def slow():
        while not done.wait(0.02):
            host.stop_for(0.1)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        reader = Reader(guest)
        events = guest.workload(f"hog bytes={hog_mib * MIB} seed={context.seed} plan={plan}", 300)
        passes = reader.finish()
    finally:
        done.set()
        thread.join()
    expect_no_wrong(events, "hog")
    before = guest.counters()
    expect_no_wrong(guest.workload(f"hog bytes={128 * MIB} seed={context.seed + 1} plan=fv", 300),
                    "hog after")
    after = guest.counters()
    stores = after["frontswap_stores"] - before["frontswap_stores"]
    expect(stores > 1000, f"at full speed again only {stores} stores were taken")
    return (f"{before['breaker_trips']} breaker trips, {before['timeouts']} time-outs, "
            f"{_total_s(events):.1f} s for the hog, {passes} passes of the reader; "
            f"later {stores} stores")


# ---- replaced ----


def replaced(context):
    """A new tmemd on the same sockets: the old guest goes on without it, a new one has it."""
    host = context.host(["one", "two"], limit_mib=320, pool_min_mib=200)

    def boot(name):
        swap = disks.empty(context.directory / f"swap-{name}.img", 400 * MIB)
        guest = context.guest(host, name, memory_mib=96, disks=[disks.Disk(swap)],
                              append=f"{ON} tmem.load_timeout_s=2")
        swap_on(guest, "vda")
        return guest

    def hog(guest, seed):
        return disk_writes(guest, 0, lambda: guest.workload(
            f"hog bytes={120 * MIB} seed={seed} plan=fv", 200))

    one = boot("one")
    written, events = hog(one, context.seed)
    expect_no_wrong(events, "one before")
    host.kill()
    host.start_again()
    # Those that ask first notice it; what they are told is promised is still in the window.
    _, events = hog(one, context.seed + 1)
    no_wrong_bytes(events, "one when its host has gone")
    before = one.counters()
    written, events = hog(one, context.seed + 2)
    expect_no_wrong(events, "one without its host")
    expect(written > 8 * MIB, f"one wrote only {written} bytes to its disk")
    stores = one.counters()["frontswap_stores"] - before["frontswap_stores"]
    expect(stores == 0, f"{stores} stores went to a host that one cannot reach")
    two = boot("two")
    two_written, events = hog(two, context.seed + 3)
    expect_no_wrong(events, "two")
    stores = two.counters()["frontswap_stores"]
    expect(stores > 1000, f"two gave the new tmemd only {stores} pages")
    status = {name: host.guest_status(name)["connected"] for name in ["one", "two"]}
    expect(status == {"one": False, "two": True}, f"connected: {status}")
    return (f"one: {written / MIB:.0f} MiB to its disk; two: {stores} stores,"
            f" {two_written / MIB:.1f} MiB to its disk")


CASES = {case.__name__: case for case in
         [killed_while_streaming, killed_while_swapping, stopped_and_continued,
          stopped_beyond_the_time_out, slowed, replaced]}
ALONE = {"replaced"}
