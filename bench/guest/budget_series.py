# SPDX-License-Identifier: GPL-2.0-only
"""What a series of samples of guests and store says about one budget; no guest is needed here."""

import dataclasses

MIB = 1 << 20


@dataclasses.dataclass
class Over:
    """A time in which guests and store had more than the budget, by samples."""

    t_s: float
    seconds: float  # to the first sample that was not over
    worst_bytes: int


def by_time(series):
    """[(t_s, {name: bytes})] of samples that were taken together."""
    found = {}
    for sample in series:
        found.setdefault(sample["t_s"], {})[sample["name"]] = sample["bytes"]
    return sorted(found.items())


def sums(series, names):
    """[(t_s, bytes of all these together)] of the times at which all of them were seen."""
    return [(t_s, sum(seen[name] for name in names)) for t_s, seen in by_time(series)
            if all(name in seen for name in names)]


def of(series, name):
    """[(t_s, bytes)] of one of them."""
    return sums(series, [name])


def overs(points, budget_bytes):
    """When the points were over the budget, one Over for each time in a row."""
    found = []
    begin = None
    for t_s, sum_bytes in points:
        if sum_bytes > budget_bytes:
            if begin is None:
                begin, worst = t_s, 0
            worst = max(worst, sum_bytes - budget_bytes)
        elif begin is not None:
            found.append(Over(begin, round(t_s - begin, 3), worst))
            begin = None
    if begin is not None:
        found.append(Over(begin, round(points[-1][0] - begin, 3), worst))
    return found


def within(points, begin_s, end_s):
    return [(t_s, value) for t_s, value in points if begin_s <= t_s <= end_s]


def value_at(points, t_s):
    """The last one until then, or the first of all."""
    before = [value for at_s, value in points if at_s <= t_s]
    return before[-1] if before else points[0][1]


def grown(points, t_s, within_s):
    """By how much the value rose at most from its value at t_s."""
    later = within(points, t_s, t_s + within_s)
    return max((value for _, value in later), default=0) - value_at(points, t_s)


def seconds_until(points, t_s, rise):
    """Until the value is that much above its value at t_s; None if it never is."""
    wanted = value_at(points, t_s) + rise
    return next((round(at_s - t_s, 3) for at_s, value in points
                 if at_s >= t_s and value >= wanted), None)


def longest_gap_s(points):
    times = [t_s for t_s, _ in points]
    return max((after - before for before, after in zip(times, times[1:])), default=0.0)


def turns(points, least):
    """How often the value turned round: fell by `least` from a top, or rose by it from a bottom.

    A square wave that is followed without oscillation has two turns a period.
    """
    count = 0
    low = high = points[0][1] if points else 0
    direction = 0
    for _, value in points:
        low, high = min(low, value), max(high, value)
        if direction >= 0 and high - value >= least:
            count += direction > 0
            direction, low = -1, value
        elif direction <= 0 and value - low >= least:
            count += direction < 0
            direction, high = 1, value
    return count
