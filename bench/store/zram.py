# SPDX-License-Identifier: GPL-2.0-only
"""A zram device of our own: added, set up with lz4, removed on every way out."""

import contextlib
import pathlib
import sys

CONTROL = pathlib.Path("/sys/class/zram-control")
BLOCK = pathlib.Path("/sys/block")


def why_not(control=CONTROL):
    """Why there can be no device here; empty if there can."""
    if not (control / "hot_add").exists():
        return f"this kernel has no zram ({control}/hot_add is missing)"
    try:
        with open(control / "hot_remove", "wb"):
            return ""
    except OSError as error:
        return f"zram devices cannot be added here: {error.strerror}"


@contextlib.contextmanager
def device(size_bytes, control=CONTROL, block=BLOCK):
    """The name of a new device; it is reset and removed at the end, whatever happened."""
    number = (control / "hot_add").read_text(encoding="ascii").strip()  # reading adds
    name = f"zram{number}"
    try:
        (block / name / "comp_algorithm").write_text("lz4", encoding="ascii")
        (block / name / "disksize").write_text(str(size_bytes), encoding="ascii")
        yield name
    finally:
        _remove(name, number, control, block)


def _remove(name, number, control, block):
    try:
        (block / name / "reset").write_text("1", encoding="ascii")
        (control / "hot_remove").write_text(number, encoding="ascii")
    except OSError as error:
        print(f"store-bench: {name} could not be removed: {error}; "
              f"echo {number} > {control}/hot_remove", file=sys.stderr)
