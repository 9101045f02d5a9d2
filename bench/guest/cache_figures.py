# SPDX-License-Identifier: GPL-2.0-only
"""From the runs of `cache-return` to the rows of a summary."""

from guest import targets

MIB = 1 << 20
# Seconds after the guest has read its files.
LOOKS_S = (10, 30, 60)


def _at(run, step, key="host_resident_bytes"):
    return next(one[key] for one in run["steps"] if one["step"] == step)


def fallen(run, look_s):
    """Of the files' size, what the guest holds less of at this look than after it had read."""
    return targets.ratio(_at(run, "read") - _at(run, f"{look_s} s"), run["workload_bytes"])


def store_growth(run):
    """What the store grew until the last look, by the stored size of what it took."""
    last = f"{LOOKS_S[-1]} s"
    return targets.ratio(_at(run, last, "store_bytes") - _at(run, "read", "store_bytes"),
                         _at(run, last, "stored_bytes") - _at(run, "read", "stored_bytes"))


def figures(runs, rows):
    for variant in runs.values("variant"):
        some = runs.of(variant=variant)
        for look_s in LOOKS_S:
            target = ">= 0.8" if variant == "tmem" and look_s == 30 else ""
            rows.append(targets.Figure(
                f"cache-return, {variant}: of the cache, back at the host after {look_s} s",
                round(some.median(lambda run, look_s=look_s: fallen(run, look_s)), 4), "x",
                target))
        rows.append(targets.Figure(
            f"cache-return, {variant}: reading again by the disk's time",
            targets.ratio(some.median(lambda run: run["again_seconds"]),
                          some.median(lambda run: run["first_seconds"])), "x",
            "<= 0.25" if variant == "tmem" else ""))
        if variant == "tmem":
            rows.append(targets.Figure(
                "cache-return, tmem: growth of the store by the stored size of what it took",
                round(some.median(store_growth), 4), "x", "<= 1.1"))


def _growth_text(run):
    if run["variant"] != "tmem":
        return "-"
    last = f"{LOOKS_S[-1]} s"
    return f"{(_at(run, last, 'store_bytes') - _at(run, 'read', 'store_bytes')) / MIB:.0f}"


def _looks_text(run):
    return " / ".join(f"{_at(run, f'{look_s} s') / MIB:.0f}" for look_s in LOOKS_S)


COLUMNS = [
    ("disk", lambda run: run["task"]),
    ("variant", lambda run: run["variant"]),
    ("guest / files MiB", lambda run: f"{run['guest_mib']} / {run['workload_bytes'] // MIB}"),
    ("host holds MiB, booted / read", lambda run: " / ".join(
        f"{_at(run, step) / MIB:.0f}" for step in ("booted", "read"))),
    ("after " + " / ".join(f"{look_s}" for look_s in LOOKS_S) + " s", _looks_text),
    ("store grew MiB", _growth_text),
    ("seconds, read / again", lambda run:
     f"{run['first_seconds']:.1f} / {run['again_seconds']:.1f}"),
    ("wrong", lambda run: str(run["wrong_pages"])),
]
