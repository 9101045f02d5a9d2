# SPDX-License-Identifier: GPL-2.0-only
"""From the counters of the guest's module and of the daemon to the keys of a report."""

_POOL_KEYS = ["limit_bytes", "used_bytes", "pages", "same_filled", "duplicates", "compressed",
              "raw", "slab_bytes", "metadata_bytes", "saved_by_dedup_bytes"]


def _ratio(count, pages):
    return round(count / pages, 5) if pages else 0.0


def _sums(before, after):
    """A function that adds up by how much the counters of these names moved."""
    moved = {name: after[name] - before.get(name, 0) for name in after}
    return moved, lambda *names: sum(moved.get(name, 0) for name in names)


def _pages(sum_of):
    """(puts, hits, misses, misses that asked the host, flushes)

    Cleancache and frontswap together: a store is a put, a load that found its page is a hit.
    """
    puts = sum_of("puts", "frontswap_stores")
    hits = sum_of("get_hits", "frontswap_loads") - sum_of("frontswap_load_device",
                                                         "frontswap_load_errors")
    # The module counts misses by who answered them. Those that the guest answers by itself ring
    # nothing; the others share their batch's bell.
    asked = sum_of("get_misses", "get_failed")
    misses = asked + sum_of("get_misses_local", "get_misses_debt", "get_misses_lost",
                            "get_misses_no_room")
    return puts, hits, misses, asked, sum_of("flushes", "frontswap_invalidates")


def of_guest(before, after):
    """Keys that come from the guest's module (/sys/kernel/tmem/stats/); zeros without it."""
    moved, sum_of = _sums(before, after)
    puts, hits, misses, asked, flushes = _pages(sum_of)
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


def of_pass(before, after):
    """What the guest's module did between the ends of one pass.

    `asked` leaves out what the guest answers by itself: misses its table knows, flushes of pages
    the host cannot have. `undone` are puts that left nothing behind on the host.
    """
    _, sum_of = _sums(before, after)
    puts, hits, misses, asked, _ = _pages(sum_of)
    flushes = sum_of("flushes_posted", "frontswap_invalidates")
    return {
        "puts": puts,
        "get_hits": hits,
        "get_misses": misses,
        "undone": sum_of("puts_replaced", "puts_cancelled", "puts_refused_no_space",
                         "puts_refused_frozen", "puts_refused_other"),
        "asked": puts + hits + asked + flushes,
        "rung": sum_of("doorbells_rung"),
        "suppressed": sum_of("doorbells_suppressed"),
    }


def of_host(status, guest):
    """What the daemon counted for a guest so far; zeros without a daemon."""
    for one in status["guests"] if status else []:
        if one["name"] == guest:
            counters = one["counters"]
            return {"rings_received": counters.get("rings_received", 0),
                    "pages_evicted": counters.get("pages_evicted", 0)}
    return {"rings_received": 0, "pages_evicted": 0}


def of_pool(status):
    """Key `pool`: what the daemon holds after the last pass; null without a daemon."""
    if status is None:
        return None
    return {key: status["pool"][key] for key in _POOL_KEYS}
