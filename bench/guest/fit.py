# SPDX-License-Identifier: GPL-2.0-only
"""`fit`: how many guests run a job that takes nearly all their memory, within one budget."""

import contextlib

from guest import crowd, memory_group
from lab import guest as lab_guest

MIB = crowd.MIB
# Of as many guests' RAM as this is the budget, besides their VMMs: three fit if none gives back.
_BUDGET_GUESTS = 3.4
_PLAIN_GUESTS = 3
# More are not tried: 8 by 3 is beyond the target.
_MOST_GUESTS = 8
# What a VMM under TCG needs besides its guest's RAM.
_VMM_MIB = 64
_BETWEEN_S = 8
_JOB_TIMEOUT_S = 90


def sizes(options):
    """(guest MiB, guests that are tried)"""
    if options.quick:
        return options.guest_mib or 256, 5
    return options.guest_mib or 512, _MOST_GUESTS


def budget_mib(guest_mib):
    return int(_BUDGET_GUESTS * guest_mib) + _PLAIN_GUESTS * _VMM_MIB


def plan(options, _, progress):
    """Yields (setup, a function that runs it)."""
    guest_mib, most = sizes(options)
    for variant in crowd.VARIANTS:
        setup = crowd.Setup(
            workload="fit", variant=variant, guests=most, guest_mib=guest_mib,
            workload_bytes=crowd.hog_bytes(guest_mib), budget_mib=budget_mib(guest_mib))
        if not options.only or options.only in setup.title():
            yield setup, lambda setup=setup: _run(setup, progress)


def _run(setup, progress):
    """Guests are added until one does not end its job, or the kernel ends one: without swap."""
    with contextlib.ExitStack() as stack:
        group = memory_group.MemoryGroup()
        stack.callback(group.close)
        group.limit(setup.budget_mib * MIB, swap=False)
        guests = stack.enter_context(crowd.Crowd(setup, progress, group, daemon_in_group=True))
        fits, ended_by = 0, None
        while fits < setup.guests and (ended_by := _one_more(guests, group)) is None:
            fits += 1
        return guests.result(fits=fits, ended_by=ended_by, oom_kills=group.oom_kills())


def _one_more(guests, group):
    """Why the next guest does not fit; None: it has done its job, and all others still live."""
    number = len(guests.guests)
    failed = None
    try:
        guests.add_guest()
        seconds = guests.memhog(number, _JOB_TIMEOUT_S)
        guests.wait(_BETWEEN_S, "after a job")
    except lab_guest.GuestError as error:
        failed = str(error).partition("\n")[0]
    if group.oom_kills() == 0 and failed is None and all(
            guest.alive() for guest in guests.guests):
        guests.step(f"job in guest {number + 1}", seconds=seconds)
        return None
    if group.oom_kills() == 0 and not group.is_full():
        raise lab_guest.GuestError(f"guest {number + 1} fails, and not for want of memory:"
                                   f" {failed}")
    return f"guest {number + 1}: {failed or 'the kernel ended a guest to make room'}"


def demand(options, _):
    """Raises Missing where no memory can be limited, or it is not there."""
    memory_group.MemoryGroup().close()
    crowd.demand_memory("fit", budget_mib(sizes(options)[0]))
    return []
