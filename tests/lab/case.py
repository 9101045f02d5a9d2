# SPDX-License-Identifier: GPL-2.0-only
"""What a guest test is: a function that boots guests through a Context and expects things."""

import contextlib
import itertools
import json
import pathlib
import subprocess
import tempfile
import time

from lab import disks, doorbells
from lab import guest as lab_guest
from lab import host as lab_host
from lab import standstill

ON = "tmem.cleancache=1 tmem.frontswap=1"


# A switch of the module, at run time.
SWITCH = "/sys/module/tmem/parameters/"


class Failed(Exception):
    """An expectation did not hold; the text says which."""


class Skipped(Exception):
    """The test cannot run here; the text says why."""


class Context:
    """What one test may use. Everything it starts ends with it, and is looked at before that."""

    def __init__(self, name, options, images):
        self.name = name
        self.seed = options.seed
        self.long = options.long
        self.images = images
        self._stack = contextlib.ExitStack()
        self._guests = []
        self._numbers = itertools.count()  # of guests, those forgotten too
        self._hosts = []
        self.directory = None

    def __enter__(self):
        self.directory = pathlib.Path(self._stack.enter_context(
            tempfile.TemporaryDirectory(prefix=f"tmem-{self.name}-")))
        return self

    def __exit__(self, *_):
        self._stack.close()

    def host(self, guests=("guest",), limit_mib=256, pool_min_mib=64):
        host = lab_host.Host(list(guests), limit_mib, pool_min_mib,
                             self._directory(f"host{len(self._hosts)}"))
        self._hosts.append(self._stack.enter_context(host))
        return host

    def guest(self, host=None, name="guest", append=None, doorbell=None, **options):
        """Boots a guest: with a host it is connected and tmem is on, unless `append` differs."""
        if append is None:
            append = ON if host or doorbell else ""
        doorbell = doorbell or (host.doorbell(name) if host else None)
        guest = lab_guest.Guest(
            name, lab_guest.Options(append=append, doorbell=doorbell, **options),
            self._directory(f"{name}{next(self._numbers)}"))
        self._guests.append(guest)
        return self._stack.enter_context(guest)

    def wait(self, condition, what, patience_s=40):
        """Until it holds; else fails with what() says."""
        deadline = time.monotonic() + patience_s
        while not condition():
            expect(time.monotonic() < deadline, what())
            time.sleep(0.2)

    def forget(self, guest):
        """What this guest says is not looked at: it was broken on purpose."""
        self._guests.remove(guest)

    def _directory(self, name):
        path = self.directory / name
        path.mkdir()
        return path

    def hosts_say(self):
        """The daemons' figures, for the text of a failure: does a guest wait for its host?"""
        said = []
        for host in self._hosts:
            try:
                said.append(json.dumps(host.status()))
            except (lab_host.HostError, OSError, subprocess.SubprocessError) as error:
                said.append(str(error))
        return "\n".join(said)

    def guests_say(self):
        """Where those that run are, when one of them has not answered in time."""
        host = next((host for host in self._hosts if host.alive()), None)
        return "\n".join(standstill.report(guest, host) for guest in self._guests
                         if guest.alive())

    def look_for_trouble(self):
        """No guest may have warned, no daemon may have died (unless the test killed it)."""
        for guest in self._guests:
            if guest.trouble():
                raise Failed(f"console of {guest.name}:\n{guest.around_trouble()}")
        for host in self._hosts:
            if not host.killed and not host.alive():
                raise Failed(f"tmemd ended: {host.log()[-300:]}")


def make_and_mount(context, kind, size_mib=160, host=None, **options):
    """A guest with a new file system of this kind on /mnt."""
    image = disks.make_file_system(context.directory / f"{kind}.img", kind, size_mib * disks.MIB)
    guest = context.guest(host, disks=[disks.Disk(image)], **options)
    if kind not in guest.run("cat /proc/filesystems"):
        raise Skipped(f"the guest kernel has no {kind}")
    guest.run(f"mount -t {kind} -o noatime /dev/vda /mnt")
    return guest


def swap_on(guest, device):
    """Non-rotational before swapon, or huge pages are split before they are swapped out."""
    guest.run(f"echo 0 > /sys/block/{device}/queue/rotational;"
              f"mkswap /dev/{device} > /dev/null && swapon /dev/{device}")


def swapped_out(context, guest, first_mib=64, second_mib=104):
    """A hog whose pages a second one has pushed out; finish_swapped() lets it verify them."""
    guest.run("rm -f /tmp/gate2 /tmp/hog")
    first = f"hog bytes={first_mib * disks.MIB} seed={context.seed} plan=fv gate=/tmp/gate"
    guest.run(f"workload {first} > /tmp/hog & until grep -q end /tmp/hog; do sleep 0.1; done")
    second = f"hog bytes={second_mib * disks.MIB} seed={context.seed + 1} plan=fv"
    expect_no_wrong(guest.workload(second), "second hog")


def finish_swapped(guest):
    """Lets the hog of swapped_out() verify its pages; returns its last event."""
    guest.run("touch /tmp/gate2;"
              " until [ $(grep -c end /tmp/hog) = 2 ]; do sleep 0.1; done", 150)
    return json.loads(guest.run("cat /tmp/hog").splitlines()[-1])


def fewest_reads(guest, disk, run, enough):
    """The fewest bytes read from a disk in up to four runs, all of them right.

    A machine that runs other things besides starves the daemon for milliseconds at a time, in which
    puts find no slot and are dropped, as they must be. Later runs show that this is all it was.
    """
    fewest = None
    for _ in range(4):
        reads, events = disk_reads(guest, disk, run)
        expect_no_wrong(events, "reading again")
        fewest = reads if fewest is None else min(fewest, reads)
        if fewest <= enough:
            break
    return fewest


def losses(guest):
    """The counters that say why pages did not come from the host, for a failure's text."""
    prefixes = ("puts_dropped", "puts_refused", "get_misses", "get_failed", "timeouts", "breaker",
                "frontswap_refused", "frontswap_load_")
    counters = guest.counters()
    return ", ".join(f"{name} {counters[name]}" for name in sorted(counters)
                     if name.startswith(prefixes) and counters[name])


def need_host_module():
    if doorbells.kind() != "hypercall":
        raise Skipped("kvm_tmem is not loaded; --lab runs this in a host that has it")


def expect(condition, text):
    if not condition:
        raise Failed(text)


def expect_no_wrong(events, what):
    """Every verifying event of a workload says that no page was wrong or failed."""
    ends = [event for event in events if event.get("event") == "end"]
    expect(ends, f"{what}: the workload did not finish")
    for event in ends:
        for key in ["wrong", "stale", "sigbus"]:
            expect(event.get(key, 0) == 0, f"{what}: {key} = {event.get(key)}")
    return ends


def disk_reads(guest, disk, run):
    """Bytes read from disk number `disk` while `run()` runs, and what it returns."""
    before = guest.usage().disk_bytes[disk][0]
    result = run()
    return guest.usage().disk_bytes[disk][0] - before, result


def disk_writes(guest, disk, run):
    before = guest.usage().disk_bytes[disk][1]
    result = run()
    return guest.usage().disk_bytes[disk][1] - before, result
