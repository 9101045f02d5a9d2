# SPDX-License-Identifier: GPL-2.0-only
"""Guest tests of several guests of one tmemd by hypercall: what they share, and what never."""

import pathlib
import threading
import time

from lab import disks, kvm_stats
from lab.case import (expect, expect_no_wrong, finish_swapped, losses, need_host_module,
                      swapped_out)
from lab.cases_lab_lost import STREAM, TEXT_MIB, small_guest

MIB = disks.MIB
CORPORA = {"hypercall_domains": TEXT_MIB, "hypercall_rules": TEXT_MIB}
# Of guest one; the other has 1.
_WEIGHT = 3
_ENOUGH_EVICTED = 1000
_MOST_FLOODS = 5
_MAX_GUESTS = pathlib.Path("/sys/module/kvm_tmem/parameters/max_guests")


def _stream(guest, passes=1):
    expect_no_wrong(guest.workload(f"{STREAM} passes={passes}", 300), guest.name)


# ---- dedup ----


def _shared(host, guests, domains):
    """Both read the same under a tmemd with these domains: (pages held by each, bytes saved)."""
    if not host.alive():
        host.start_again([f"{name},domain={domain}" for name, domain in domains.items()])
    for guest in guests:
        host.await_guest(guest.name)
    # One after the other: how much of the file's end each has does not depend on who was quicker.
    for guest in guests:
        _stream(guest)
    pages = [host.guest_status(guest.name)["ephemeral_pages"] for guest in guests]
    expect(min(pages) > 2000, f"{domains}: pages held: {pages}; {losses(guests[0])}")
    return pages, host.status()["pool"]


def hypercall_domains(context):
    """Two guests with the same data: held once within a domain, twice across domains."""
    need_host_module()
    host = context.host(["one,domain=both", "two,domain=both"], limit_mib=192, pool_min_mib=32)
    guests = [small_guest(context, host, name) for name in ["one", "two"]]
    pages, pool = _shared(host, guests, {"one": "both", "two": "both"})
    within = pool["duplicates"], pool["saved_by_dedup_bytes"]
    host.kill()
    apart, pool = _shared(host, guests, {"one": "first", "two": "second"})
    across = pool["duplicates"], pool["saved_by_dedup_bytes"]
    note = (f"in one domain {within[0]} of {pages} pages are shared,"
            f" {within[1] / MIB:.1f} MiB saved;"
            f" in two {across[0]} of {apart}, {across[1] / MIB:.1f} MiB")
    expect(within[0] > min(pages) // 2, note)
    expect(within[1] > 0 and across[1] <= within[1] // 50, note)
    return note


# ---- rules ----


def _refused(host, reason):
    return host.status()["hypercall"]["refused"][reason]


def _await(condition, what):
    deadline = time.monotonic() + 20
    while not condition():
        expect(time.monotonic() < deadline, what)
        time.sleep(0.1)


def _without_tmem(guest, what):
    """The guest works, and nothing is put."""
    _stream(guest)
    expect(guest.counters()["puts"] == 0, f"{what}: it puts pages")


def _refused_as_it_should(context, host):
    """A guest of no group that calls itself `one`, then beyond max_guests; returns it."""
    before = kvm_stats.of_module()
    # Named as another guest, in a control group that no rule names.
    stranger = small_guest(context, host, "stranger", label="one")
    _await(lambda: _refused(host, "no_rule") > 0, "it is not refused")
    registrations = host.guest_status("one")["counters"]["registrations"]
    expect(registrations == 1, f"guest one was registered {registrations} times")
    _without_tmem(stranger, "without a rule")
    usual = _MAX_GUESTS.read_text(encoding="ascii")
    _MAX_GUESTS.write_text("1", encoding="ascii")
    try:
        count = "refused_too_many_guests"
        _await(lambda: kvm_stats.of_module()[count] > before[count], "max_guests is not kept")
    finally:
        _MAX_GUESTS.write_text(usual, encoding="ascii")
    return stranger


def _becomes_two(host, stranger):
    """In the group of `two` it is that guest, whatever it calls itself."""
    group = host.doorbell("two").cgroup
    (group / "cgroup.procs").write_text(str(stranger.pid), encoding="ascii")
    row = host.await_guest("two")
    expect(row["label"] == "one" and row["pid"] == stranger.pid, f"guest two is {row}")
    expect(kvm_stats.of_module()["channels"] == 2, "not two channels")


def _flood(two, sampled, evicted):
    """Guest two puts until the host had to evict enough of it; calls `sampled` meanwhile."""
    done = threading.Event()

    def sample():
        while not done.wait(0.2):
            sampled()

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        # On a slow machine a pass puts less: pages that find no slot free are dropped.
        for _ in range(_MOST_FLOODS):
            _stream(two, passes=2)
            if evicted() > _ENOUGH_EVICTED:
                break
    finally:
        done.set()
        thread.join()


def hypercall_rules(context):
    """A name gains nothing, nor do puts without end; who is refused runs on without tmem."""
    need_host_module()
    limit_mib = 34  # Less than both would hold of the file: then puts push pages out.
    host = context.host([f"one,weight={_WEIGHT}", "two"], limit_mib=limit_mib, pool_min_mib=12)
    one = small_guest(context, host, "one")
    swapped_out(context, one, first_mib=12, second_mib=36)
    _stream(one)
    two = _refused_as_it_should(context, host)
    _becomes_two(host, two)
    held = host.guest_status("one")
    expect(held["persistent_pages"] > 500, f"one holds {held['persistent_pages']} swapped pages")
    samples = []
    _flood(two, lambda: samples.append(host.guest_status("one")),
           lambda: host.guest_status("two")["counters"]["pages_evicted"])
    status = host.status()
    flooded = host.guest_status("two")
    fewest = min(row["persistent_pages"] for row in samples)
    expect(fewest == held["persistent_pages"], f"one had only {fewest} swapped pages of {held}")
    # What it held, or its share of what there is for ephemeral pages.
    least = min(row["ephemeral_pages"] for row in samples)
    note = (f"one holds {held['persistent_pages']} swapped, {held['ephemeral_pages']} file pages,"
            f" at least {fewest} and {least} while two puts {flooded['counters']['puts_ok']} and"
            f" holds {flooded['ephemeral_pages']} of {limit_mib} MiB")
    evicted = flooded["counters"]["pages_evicted"]
    expect(evicted > _ENOUGH_EVICTED, f"only {evicted} pages were evicted: {note}")
    expect(least >= 0.8 * min(held["ephemeral_pages"], _WEIGHT * flooded["ephemeral_pages"]), note)
    expect(status["used_bytes"] <= status["limit_bytes"], note)
    expect_no_wrong([finish_swapped(one)], "guest one after the flood")
    counters = one.counters()
    expect(counters["frontswap_load_errors"] == 0, note)
    return note


CASES = {case.__name__: case for case in [hypercall_domains, hypercall_rules]}
