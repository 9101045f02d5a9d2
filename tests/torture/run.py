# SPDX-License-Identifier: GPL-2.0-only
"""One run of the torture: a daemon, a guest, the program in it, and the verdict."""

import dataclasses
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

from lab import disks
from lab import guest as lab_guest
from lab import host as lab_host
from lab import l1, paths
from torture import images

ON = "tmem.cleancache=1 tmem.frontswap=1"
FAULT = "/sys/module/tmem/parameters/fault"
NO_FAULTS = "the guest kernel has no faults on purpose (CONFIG_TMEM_FAULTS)"
PROGRAMS = ("workload", "torture")


@dataclasses.dataclass
class Result:
    """What a run came to. `red`: the torture found bytes that are wrong, or pages that are lost."""

    red: str = ""  # the first mismatch, as one line
    error: str = ""  # why the run says nothing
    seconds: float = 0.0  # of torture
    last: dict = dataclasses.field(default_factory=dict)  # the program's last event
    counters: dict = dataclasses.field(default_factory=dict)

    def figures(self):
        count = self.counters.get
        last = self.last.get
        return (f"{last('ops', 0)} ops, {last('rounds', 0)} rounds;"
                f" {last('checked', 0)} sectors and {last('swap_checked', 0)} swapped pages checked"
                f" ({last('raced', 0)} raced, {last('skipped', 0)} skipped),"
                f" {last('failed_writes', 0)} failed writes;"
                f" puts {count('puts', 0)}, dropped {self._dropped()}, gets {count('gets', 0)},"
                f" hits {count('get_hits', 0)}; swap stores {count('frontswap_stores', 0)},"
                f" loads {count('frontswap_loads', 0)}, SIGBUS {last('sigbus', 0)}")

    def _dropped(self):
        return sum(value for name, value in self.counters.items()
                   if name.startswith("puts_dropped"))


def _line(event, seed):
    where = f"{event.get('name')}, page {event.get('page')}"
    if "sector" in event:
        where += f", sector {event['sector']} (file {event['file']} of mount {event['mount']})"
    raced = " (raced)" if event.get("raced") else ""
    return (f"{event['op']}: {where}: expected {event['expected']}, found {event['found']}{raced};"
            f" round {event['round']}, seed {seed}")


class _Pauser:
    """Lets the daemon stand still now and then, as on a machine that has no time for it."""

    def __init__(self, host, pause):
        self._host = host
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        every_s, for_s = self._pause
        while not self._stop.wait(every_s):
            self._host.stop_for(for_s)

    def __enter__(self):
        if self._pause:
            self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        if self._pause:
            self._thread.join()


def _prepare(guest, setup, swap_device):
    thp = "always" if setup.thp else "never"
    guest.run(f"echo {thp} > /sys/kernel/mm/transparent_hugepage/enabled;"
              f"echo {'advise' if setup.thp else 'never'} >"
              " /sys/kernel/mm/transparent_hugepage/shmem_enabled;"
              "echo 100 > /proc/sys/vm/swappiness")
    if setup.swaps:
        # Non-rotational before swapon, or huge pages are split before they are swapped out.
        guest.run(f"echo 0 > /sys/block/{swap_device}/queue/rotational;"
                  f"mkswap /dev/{swap_device} > /dev/null")


def _torture(guest, host, setup, swap_device, seed, duration_s, on_progress):
    result = Result()
    mismatches = []
    errors = []
    begin = time.monotonic()

    def on_event(event):
        if "error" in event:
            errors.append(event["error"])
        elif event.get("event") == "mismatch":
            mismatches.append(event)
        elif "ops" in event:
            result.last = event
            on_progress(f"round {event['rounds']}, {event['ops']} ops")

    options = {**setup.program_options(), "seed": seed, "duration_ms": int(duration_s * 1000)}
    if setup.swaps:
        options["swap"] = f"/dev/{swap_device}"
    words = " ".join(f"{name}={value}" for name, value in options.items())
    with _Pauser(host, setup.pause):
        output = guest.run(f"torture {words}", duration_s + 180, on_event, check=False)
    result.seconds = time.monotonic() - begin
    if mismatches:
        result.red = _line(mismatches[0], seed)
    elif errors or result.last.get("event") != "end":
        result.error = "; ".join(errors) or f"the program did not finish: {output[-300:]}"
    result.counters = guest.counters()
    return result


def _judge(result, setup, guest, host):
    """A run that tested nothing, or whose guest complained, is no pass."""
    if result.red or result.error:
        return
    if guest.trouble():
        result.error = f"console:\n{guest.around_trouble()}"
    elif not host.alive():
        result.error = f"tmemd ended: {host.log()[-300:]}"
    elif not result.counters.get("get_hits"):
        result.error = "no get was a hit: nothing was tested"
    elif setup.swaps and not result.counters.get("frontswap_loads"):
        result.error = "no page was swapped in from the host: nothing was tested"


def run(setup, seed, duration_s, on_progress=lambda text: None, keep_console=None, fault=None):
    """Runs the torture once in a new guest; `fault`: the kernel must have faults, this one on."""
    with tempfile.TemporaryDirectory(prefix="tmem-torture-") as name:
        directory = pathlib.Path(name)
        on_progress("boot")
        file_systems = [disks.Disk(path, writes_s=setup.writes_s)
                        for path in images.make(directory, setup)]
        swap = disks.Disk(disks.empty(directory / "swap.img", 384 * disks.MIB))
        swap_device = "vd" + "abc"[len(file_systems)]
        host_directory = directory / "host"
        guest_directory = directory / "guest"
        host_directory.mkdir()
        guest_directory.mkdir()
        try:
            with lab_host.Host(["guest"], setup.limit_mib, setup.pool_min_mib,
                               host_directory) as host:
                options = lab_guest.Options(
                    memory_mib=setup.memory_mib, cpus=setup.cpus, append=f"{ON} {setup.append}",
                    disks=[*file_systems, swap], doorbell=host.doorbell("guest"),
                    programs=PROGRAMS)
                with lab_guest.Guest("guest", options, guest_directory) as guest:
                    if fault and guest.run(f"cat {FAULT} 2>&1", check=False) != fault:
                        return Result(error=NO_FAULTS)
                    return _run_in(guest, host, setup, swap_device, seed, duration_s, on_progress)
        except (lab_guest.GuestError, lab_host.HostError) as error:
            return Result(error=str(error))
        finally:
            if keep_console:
                for console in guest_directory.glob("*.console"):
                    shutil.copy(console, keep_console)


def _run_in(guest, host, setup, swap_device, seed, duration_s, on_progress):
    _prepare(guest, setup, swap_device)
    on_progress("fill the file systems")
    try:
        result = _torture(guest, host, setup, swap_device, seed, duration_s, on_progress)
    except lab_guest.GuestError:
        # A warning on the console explains more than the time-out that followed it.
        if guest.trouble():
            return Result(error=f"console:\n{guest.around_trouble()}")
        raise
    _judge(result, setup, guest, host)
    return result


def main(function):
    """Runs a command; Ctrl-C or SIGTERM ends it, its guests and daemons, and clears up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        code = function()
    except (paths.Missing, l1.L1Error) as reason:
        print(f"FAIL torture: {reason}")
        code = 1
    except KeyboardInterrupt:
        print("\ntorture: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
