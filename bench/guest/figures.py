# SPDX-License-Identifier: GPL-2.0-only
"""From the counters of the guest's module and of the daemon to the keys of a report."""


def _delta(before, after, names):
    return sum(after.get(name, 0) - before.get(name, 0) for name in names)


# Our key: the module's counters it is the sum of (/sys/kernel/tmem/stats/).
_SUMS = {
    "puts": ["puts"],
    "get_hits": ["get_hits"],
    "get_misses": ["get_misses"],
    "flushes": ["flushes"],
}


def of_guest(before, after, pages):
    """Keys that come from the guest; zeros without the module."""
    result = {key: _delta(before, after, names) for key, names in _SUMS.items()}
    result["doorbells"] = {}
    result["guest_counters"] = {
        name: after[name] - before.get(name, 0) for name in sorted(after)
        if after[name] != before.get(name, 0)
    }
    return result


def of_pool(status, guest):
    """Key `pool`: the daemon's side after the last pass; null without a daemon."""
    if status is None:
        return None
    return status
