# SPDX-License-Identifier: GPL-2.0-only
"""From the counters of the guest's module and of the daemon to the keys of a report."""

_POOL_KEYS = ["limit_bytes", "used_bytes", "pages", "same_filled", "duplicates", "compressed",
              "raw", "slab_bytes", "metadata_bytes", "saved_by_dedup_bytes"]


def _ratio(count, pages):
    return round(count / pages, 5) if pages else 0.0


def of_guest(before, after):
    """Keys that come from the guest's module (/sys/kernel/tmem/stats/); zeros without it.

    Cleancache and frontswap together: a store is a put, a load that found its page is a hit.
    """
    moved = {name: after[name] - before.get(name, 0) for name in after}

    def sum_of(*names):
        return sum(moved.get(name, 0) for name in names)

    puts = sum_of("puts", "frontswap_stores")
    hits = sum_of("get_hits", "frontswap_loads") - sum_of("frontswap_load_device",
                                                         "frontswap_load_errors")
    misses = sum_of("get_misses")
    # Misses that the guest's own table answers ring nothing; the others share their batch's bell.
    asked = misses - sum_of("get_misses_local", "get_misses_debt", "get_misses_lost")
    flushes = sum_of("flushes", "frontswap_invalidates")
    bells_of_a_get = _ratio(sum_of("doorbells_get"), hits + asked)
    return {
        "puts": puts,
        "get_hits": hits,
        "get_misses": misses,
        "flushes": flushes,
        "doorbells": {
            "rung": sum_of("doorbells_rung"),
            "suppressed": sum_of("doorbells_suppressed"),
            "put": _ratio(sum_of("doorbells_put"), puts),
            "get": bells_of_a_get,
            "miss": round(bells_of_a_get * _ratio(asked, misses), 5),
            "flush": _ratio(sum_of("doorbells_flush"), flushes),
        },
        "guest_counters": {name: count for name, count in sorted(moved.items()) if count},
    }


def of_pool(status):
    """Key `pool`: what the daemon holds after the last pass; null without a daemon."""
    if status is None:
        return None
    return {key: status["pool"][key] for key in _POOL_KEYS}
