# SPDX-License-Identifier: GPL-2.0-only
"""`memhog`: three guests take nearly all their memory one after the other, and give it back."""

import contextlib

from guest import crowd, memory_group

MIB = crowd.MIB
_GUESTS = 3
# Of all guests' memory together: this many guests.
_BUDGET_GUESTS = 1.7
# What a VMM under TCG needs besides its guest's RAM.
_VMM_MIB = 48
# Reports come 2 s after memory is free; the same wait in all variants.
_BETWEEN_S = 8


def sizes(options):
    """(guest MiB, seconds of rest after the third memhog)"""
    return options.guest_mib or (256 if options.quick else 512), 15 if options.quick else 60


def plan(options, directory, progress):
    """Yields (setup, a function that runs it): with room for all, then within a budget."""
    guest_mib, rest_s = sizes(options)
    settings = [("room", 0)]
    if not memory_group.why_not(directory):
        settings.append(("budget", int(_BUDGET_GUESTS * guest_mib + _GUESTS * _VMM_MIB)))
    for setting, limit_mib in settings:
        for variant in crowd.VARIANTS:
            setup = crowd.Setup(
                workload="memhog", variant=variant, guests=_GUESTS, guest_mib=guest_mib,
                workload_bytes=crowd.hog_bytes(guest_mib), budget_mib=limit_mib, setting=setting)
            if options.only and options.only not in setup.title():
                continue
            if setting == "room":
                yield setup, lambda setup=setup: _in_room(setup, rest_s, progress)
            else:
                rounds = 0 if options.quick else 1
                yield setup, lambda setup=setup, rounds=rounds: _in_budget(
                    setup, rounds, directory, progress)


def _boot(guests):
    for _ in range(guests.setup.guests):
        guests.add_guest()
    guests.wait(_BETWEEN_S, "after boot")
    guests.step("booted")


def _sequential(guests):
    for number in range(guests.setup.guests):
        seconds = guests.memhog(number)
        guests.wait(_BETWEEN_S, "after a memhog")
        guests.step(f"memhog in guest {number + 1}", seconds=seconds)


def _in_room(setup, rest_s, progress):
    with crowd.Crowd(setup, progress) as guests:
        _boot(guests)
        _sequential(guests)
        guests.wait(rest_s - _BETWEEN_S, f"rests for {rest_s} s")
        guests.step("rested")
        return guests.result()


def _in_budget(setup, rounds, directory, progress):
    with contextlib.ExitStack() as stack:
        group = memory_group.MemoryGroup()
        stack.callback(group.close)
        swap_bytes = setup.guests * (setup.guest_mib + 128) * MIB
        stack.enter_context(memory_group.SwapFile(directory, swap_bytes))
        group.limit(setup.budget_mib * MIB)
        guests = stack.enter_context(crowd.Crowd(setup, progress, group))
        _boot(guests)
        _sequential(guests)
        for turn in range(rounds):
            for number in range(setup.guests):
                seconds = guests.memhog(number)
                guests.wait(_BETWEEN_S / 2, "after a memhog")
                guests.step(f"round {turn + 1}, guest {number + 1}", seconds=seconds)
        return guests.result()


def demand(options, directory):
    """Returns what cannot be done here and why; raises Missing if nothing can."""
    crowd.demand_memory("memhog", _GUESTS * (sizes(options)[0] + 2 * _VMM_MIB))
    reason = memory_group.why_not(directory)
    return [f"memhog in a budget is skipped: {reason}"] if reason else []
