# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of how guests by hypercall, their VMMs and the host module end and begin anew."""

import os
import pathlib
import subprocess
import time

from lab import cases_lab_lost, doorbells, kvm_stats, monitor
from lab.case import (SWITCH, Skipped, expect, expect_no_wrong, finish_swapped, losses,
                      need_host_module, swapped_out)
from lab.cases_lab_lost import MEMORY_MIB, MONITOR_MS, STREAM, TEXT_MIB, small_guest
from lab.cases_lost import Reader

CORPORA = {"hypercall_life_cycle": TEXT_MIB, "hypercall_migrated_to_file": TEXT_MIB}


def _swap_out(context, guest):
    swapped_out(context, guest, first_mib=12, second_mib=36)


def _expect_nothing_held(row, what):
    for kind in ["persistent_pages", "ephemeral_pages"]:
        expect(row[kind] == 0, f"{what}: {row[kind]} {kind}")


# ---- one guest until its VMM is killed, and the module after it ----


def _plugged(guest, cleancache):
    """Memory is added while a file is read; how long the monitor let one wait, plugging too."""
    guest.run(f"echo {cleancache} > {SWITCH}cleancache")
    reader = Reader(guest)
    with monitor.Sampler(guest) as sampler:
        for _ in range(3):
            time.sleep(0.5)
            sampler.measure(lambda: guest.plug(16))
    reader.await_pass()
    reader.finish()
    return sampler


def _started_over(context, host, guest, start_over, what):
    """A guest that starts over with calls in flight has nothing of before, and goes on."""
    _swap_out(context, guest)
    Reader(guest)
    time.sleep(0.5)
    held = host.guest_status("guest")
    expect(held["persistent_pages"] > 1000, f"{what}: only {held['persistent_pages']} were held")
    start_over()
    row = host.await_guest()
    _expect_nothing_held(row, what)
    expect(row["connections"] > held["connections"], f"{what}: it did not register anew")
    expect(kvm_stats.of_module()["channels"] == 1, f"{what}: more than one channel")
    cases_lab_lost.set_up(guest)
    return held["persistent_pages"]


def _await_no_channel(what):
    deadline = time.monotonic() + 10
    while (counters := kvm_stats.of_module())["channels"] and time.monotonic() < deadline:
        time.sleep(0.05)
    for name in ["channels", "channel_bytes", "guests_waiting"]:
        expect(counters[name] == 0, f"{what}: {name} is {counters[name]}")
    left = _kernel_memory_of("[kvm_tmem]")
    expect(not left, f"{what}: memory is left behind:\n" + "\n".join(left))


def _kernel_memory_of(name):
    """Lines of the kernel's lists of slabs and of virtual memory that name a module."""
    files = [pathlib.Path("/proc/slabinfo"), pathlib.Path("/proc/vmallocinfo")]
    return [line for file in files for line in file.read_text(encoding="ascii").splitlines()
            if name in line]


def _remove_module():
    done = subprocess.run(["rmmod", "kvm_tmem"], capture_output=True, text=True, check=False)
    return done.returncode == 0


def _reload_module(host):
    """rmmod is refused while tmemd has the device; afterwards nothing is left; and insmod."""
    expect(not _remove_module(), "the module was removed under tmemd")
    host.kill()
    expect(_remove_module(), "the module cannot be removed")
    expect(not doorbells.DEVICE.exists(), "the device is still there")
    left = _kernel_memory_of("kvm_tmem")
    expect(not left, "memory is left behind by the module:\n" + "\n".join(left))
    subprocess.run(["insmod", os.environ["TMEM_LAB_HOST_MODULE"]], check=True)
    host.start_again()


def hypercall_life_cycle(context):
    """Hot-plug, reset, reboot, SIGKILL, each with calls in flight; rmmod, insmod, a new guest."""
    need_host_module()
    if "TMEM_LAB_HOST_MODULE" not in os.environ:
        raise Skipped("removes kvm_tmem: only in the lab's own host")
    host = context.host(limit_mib=160, pool_min_mib=80)
    guest = small_guest(context, host, reboots=True, spare_mib=512)
    # A machine that does other things besides lets everybody wait at times.
    for _ in range(3):
        control = _plugged(guest, cleancache=0)
        sampler = _plugged(guest, cleancache=1)
        note = f"monitor while memory is plugged {sampler}, without tmem {control}"
        if sampler.worst_ms <= MONITOR_MS + control.worst_ms:
            break
    expect(sampler.worst_ms <= MONITOR_MS + control.worst_ms, note)
    expect(guest.counters()["puts"] > 1000, f"nothing was put meanwhile: {losses(guest)}")
    gone = [_started_over(context, host, guest, start_over, what)
            for start_over, what in [(guest.reset, "reset"), (guest.reboot, "reboot")]]
    _swap_out(context, guest)
    Reader(guest)
    time.sleep(0.5)
    guest.kill()
    _expect_nothing_held(host.await_guest(connected=False), "after the kill")
    _await_no_channel("after the kill")
    _reload_module(host)
    guest = small_guest(context, host)
    expect_no_wrong(guest.workload(f"{STREAM} passes=2", 300), "after rmmod and insmod")
    hits = guest.counters()["get_hits"]
    expect(hits > 1000, f"only {hits} hits after rmmod and insmod: {losses(guest)}")
    guest.kill()
    _await_no_channel("at the end")
    return f"{note}; pages gone with reset, reboot: {gone}; {hits} hits with the module loaded anew"


# ---- migrated ----


def _moved(context, host, guest, name):
    """The guest into a file while it reads, its VMM ends, a new one goes on from the file."""
    reader = Reader(guest)
    time.sleep(0.5)
    path = context.directory / name
    guest.migrate_to(path)
    guest.kill()
    host.await_guest(connected=False)
    restored = context.guest(host, memory_mib=MEMORY_MIB, disks=guest.options.disks, incoming=path)
    row = host.await_guest()
    reader.guest = restored
    reader.await_pass()
    reader.finish()
    return restored, row


def _swap_works(context, guest, seed):
    before = guest.counters()["frontswap_stores"]
    _swap_out(context, guest)
    expect_no_wrong([finish_swapped(guest)], f"hog {seed}")
    return guest.counters()["frontswap_stores"] - before


def hypercall_migrated_to_file(context):
    """In a new VMM: what was with the host is errors, none wrong; nothing after swapoff."""
    need_host_module()
    host = context.host(limit_mib=160, pool_min_mib=80)
    guest = small_guest(context, host)
    _swap_out(context, guest)
    held = host.guest_status("guest")
    counters = guest.counters()
    guest, row = _moved(context, host, guest, "with-swap")
    expect(row["persistent_pages"] == 0, f"{row['persistent_pages']} pages after the restore")
    last = finish_swapped(guest)
    expect(last["wrong"] == 0, f"{last['wrong']} wrong pages")
    expect(last["sigbus"] > 1000, f"only {last['sigbus']} of {held['persistent_pages']} pages"
           " failed: where did the others come from?")
    now = guest.counters()
    lost, errors = (now[name] - counters[name]
                    for name in ["frontswap_lost", "frontswap_load_errors"])
    expect(errors >= last["sigbus"], f"{last['sigbus']} pages failed, {errors} counted")
    stores = _swap_works(context, guest, 1)
    expect(stores > 1000, f"after the restore only {stores} stores: {losses(guest)}")
    _swap_out(context, guest)
    guest.run("swapoff /dev/vda", 120)
    counters = guest.counters()
    guest, _ = _moved(context, host, guest, "without-swap")
    expect_no_wrong([finish_swapped(guest)], "moved after swapoff")
    now = guest.counters()
    for name in ["frontswap_lost", "frontswap_load_errors"]:
        expect(now[name] == counters[name], f"after swapoff {name} moved: {now[name]}")
    hits = now["get_hits"] - counters["get_hits"]
    return (f"{held['persistent_pages']} pages with the host: {last['sigbus']} failed,"
            f" {lost} counted as lost,"
            f" then {stores} stores; after swapoff none failed, {hits} hits")


CASES = {case.__name__: case for case in [hypercall_life_cycle, hypercall_migrated_to_file]}
