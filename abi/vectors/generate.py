#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Test vectors of the ABI, computed from the prose of abi/README.md and from nothing else.

`generate.py` writes the files beside it; `generate.py --check` compares them with what it would
write.
"""
import json
import pathlib
import struct
import sys

MASK = (1 << 64) - 1
MAGIC = int.from_bytes(b"tmem-kvm", "little")
GEOMETRY = dict(key_lanes=8, ring_entries=256, lane_slots=120, control_ring_entries=64,
                control_slots=8)
CONTROL = GEOMETRY["key_lanes"]
OPS = dict(NOP=0, PUT=1, GET=2, FLUSH=3, FLUSH_OBJECT=4, FLUSH_POOL=5, POOL_CREATE=16,
           POOL_DESTROY=17, CREDIT_RETURN=18, REPORT=19, SHRUNK=20, DRAINED=21)
POOL = (7 << 32) | 3
OBJECT = [0x1122334455667788, 0x99AABBCCDDEEFF00, 0x0123456789ABCDEF]


def mix(state, word):
    product = ((state ^ word) * 0x9E3779B97F4A7C15) & MASK
    return product ^ (product >> 32)


def lane_of(pool, obj, index, key_lanes):
    state = mix(0, pool)
    for word in obj:
        state = mix(state, word)
    return mix(state, index >> 5) & (key_lanes - 1)


def lane_vectors():
    cases = [(0, [0, 0, 0], 0), (POOL, OBJECT, 0), (POOL, OBJECT, 31), (POOL, OBJECT, 32),
             (POOL + (1 << 32), OBJECT, 32), (POOL, OBJECT[::-1], 32), (POOL, OBJECT, MASK),
             (MASK, [MASK] * 3, MASK), (1 << 32, [2, 0, 0], 12345678),
             (1 << 32, [0, 2, 0], 12345678)]
    return [dict(pool=f"{p:#x}", object=[f"{w:#x}" for w in o], index=f"{i:#x}", key_lanes=n,
                 lane=lane_of(p, o, i, n)) for p, o, i in cases for n in (1, 2, 8, 32)]


def descriptor(name, lane, verdict, op, **fields):
    op = OPS.get(op, op)
    full = dict(op=op, flags=0, status=0, state=0, pool=0, object=[0, 0, 0], index=0, count=0,
                tag=0,
                value=0)
    full.update(fields)
    raw = struct.pack("<BBHI Q3QQ IIQ", full["op"], full["flags"], full["status"], full["state"],
                      full["pool"], *full["object"], full["index"], full["count"], full["tag"],
                      full["value"])
    assert len(raw) == 64
    shown = {key: ([f"{w:#x}" for w in value] if key == "object" else f"{value:#x}")
             for key, value in full.items()}
    return dict(name=name, lane=lane, verdict=verdict, bytes=raw.hex(), fields=shown)


def descriptor_vectors():
    key = dict(pool=POOL, object=OBJECT, index=0x1234)
    home = lane_of(POOL, OBJECT, 0x1234, GEOMETRY["key_lanes"])
    away = (home + 1) % GEOMETRY["key_lanes"]
    every = []

    def add(*args, **fields):
        every.append(descriptor(*args, **fields))

    add("nop in a key lane", home, "OK", "NOP")
    add("nop in the control lane", CONTROL, "OK", "NOP")
    add("put from a slot", home, "OK", "PUT", **key, value=119)
    add("put of a fill word", home, "OK", "PUT", **key, flags=1, value=0xA5A5A5A5A5A5A5A5)
    add("put with a tag", home, "OK", "PUT", **key, value=0, tag=0xDEADBEEF)
    add("get into a slot", home, "OK", "GET", **key, value=5)
    add("flush of one page", home, "OK", "FLUSH", **key, count=1)
    add("flush of the longest range, from any lane", away, "OK", "FLUSH", **key, count=0xFFFFFFFF)
    add("flush of an object", away, "OK", "FLUSH_OBJECT", pool=POOL, object=OBJECT)
    add("flush of a pool", away, "OK", "FLUSH_POOL", pool=POOL)
    add("ephemeral pool", CONTROL, "OK", "POOL_CREATE", value=1)
    add("persistent pool", CONTROL, "OK", "POOL_CREATE", value=2)
    add("end of a pool", CONTROL, "OK", "POOL_DESTROY", pool=POOL)
    add("credits back", CONTROL, "OK", "CREDIT_RETURN", value=1000)
    add("report", CONTROL, "OK", "REPORT", state=1, count=32, value=7)
    add("cache given up", CONTROL, "OK", "SHRUNK", value=256)
    add("no more cache", CONTROL, "OK", "SHRUNK", value=0, count=1)
    add("persistent pages home", CONTROL, "OK", "DRAINED", value=64)
    add("persistent pages that cannot be read", CONTROL, "OK", "DRAINED", value=0, count=3)

    add("put through another lane", away, "BAD_LANE", "PUT", **key, value=1)
    add("get through another lane", away, "BAD_LANE", "GET", **key, value=1)
    add("put in the control lane", CONTROL, "BAD_OP", "PUT", **key, value=1)
    add("pool made in a key lane", home, "BAD_OP", "POOL_CREATE", value=1)
    add("unknown operation", home, "BAD_OP", 6)
    add("unknown operation, largest", CONTROL, "BAD_OP", 255)
    add("put from a slot beyond the last", home, "BAD_SLOT", "PUT", **key, value=120)
    add("put from slot 2^32", home, "BAD_SLOT", "PUT", **key, value=1 << 32)
    add("get into a slot beyond the last", home, "BAD_SLOT", "GET", **key, value=120)
    add("report in a slot beyond the last", CONTROL, "BAD_SLOT", "REPORT", state=1, count=1,
        value=8)
    add("unknown flag", home, "BAD_FIELD", "PUT", **key, flags=2, value=1)
    add("fill flag in a get", home, "BAD_FIELD", "GET", **key, flags=1, value=1)
    add("fill flag in a flush", home, "BAD_FIELD", "FLUSH", **key, flags=1, count=1)
    add("status not zero", home, "BAD_FIELD", "PUT", **key, status=1, value=1)
    add("state in a put", home, "BAD_FIELD", "PUT", **key, state=1, value=1)
    add("count in a put", home, "BAD_FIELD", "PUT", **key, count=1, value=1)
    add("count in a get", home, "BAD_FIELD", "GET", **key, count=1, value=1)
    add("tag in a get", home, "BAD_FIELD", "GET", **key, tag=1, value=1)
    add("flush of no page", home, "BAD_FIELD", "FLUSH", **key, count=0)
    add("value in a flush", home, "BAD_FIELD", "FLUSH", **key, count=1, value=1)
    add("index in a flush of an object", home, "BAD_FIELD", "FLUSH_OBJECT", **key)
    add("object in a flush of a pool", home, "BAD_FIELD", "FLUSH_POOL", pool=POOL, object=OBJECT)
    add("nop with a pool", home, "BAD_FIELD", "NOP", pool=1)
    add("shared pool", CONTROL, "BAD_FIELD", "POOL_CREATE", value=1 | 1 << 32)
    add("pool of kind 0", CONTROL, "BAD_FIELD", "POOL_CREATE", value=0)
    add("pool of kind 3", CONTROL, "BAD_FIELD", "POOL_CREATE", value=3)
    add("pool made with a handle", CONTROL, "BAD_FIELD", "POOL_CREATE", value=1, pool=POOL)
    add("end of a pool with an object", CONTROL, "BAD_FIELD", "POOL_DESTROY", pool=POOL,
        object=[1, 0, 0])
    add("credits with a count", CONTROL, "BAD_FIELD", "CREDIT_RETURN", value=1, count=1)
    add("report not posted", CONTROL, "BAD_FIELD", "REPORT", state=0, count=1, value=0)
    add("report of nothing", CONTROL, "BAD_FIELD", "REPORT", state=1, count=0, value=0)
    add("report of too many ranges", CONTROL, "BAD_FIELD", "REPORT", state=1, count=129, value=0)
    add("cache given up for an unknown reason", CONTROL, "BAD_FIELD", "SHRUNK", value=1, count=2)
    add("cache given up of a pool", CONTROL, "BAD_FIELD", "SHRUNK", value=1, pool=POOL)
    add("cache given up in a key lane", home, "BAD_OP", "SHRUNK", value=1)
    add("pages home for an unknown reason", CONTROL, "BAD_FIELD", "DRAINED", value=1, count=4)
    add("pages home with a tag", CONTROL, "BAD_FIELD", "DRAINED", value=1, tag=1)
    return every


def layout_vectors():
    def pages(count):
        return (count + 4095) // 4096

    def lane_bytes(entries, slots):
        return 4096 * (1 + pages(entries * 64) + slots)

    cases = []
    for geometry in (GEOMETRY, dict(key_lanes=1, ring_entries=16, lane_slots=1,
                                    control_ring_entries=16, control_slots=1),
                     dict(key_lanes=32, ring_entries=4096, lane_slots=1000,
                          control_ring_entries=128, control_slots=9)):
        lane = lane_bytes(geometry["ring_entries"], geometry["lane_slots"])
        control = 4096 + geometry["key_lanes"] * lane
        cases.append(dict(geometry, lane_bytes=lane, control_offset=control,
                          slots_offset=4096 * (1 + pages(geometry["ring_entries"] * 64)),
                          needed=control + lane_bytes(geometry["control_ring_entries"],
                                                      geometry["control_slots"])))
    # Header of a 4 MiB window as its allocator leaves it: geometry, then zero.
    header = struct.pack("<QIIQIIIIII16x", MAGIC, 1, 1, 4 << 20, 4096, *GEOMETRY.values())
    return dict(geometries=cases, geometry_bytes=header.hex(), geometry_window_bytes=4 << 20)


def main():
    here = pathlib.Path(__file__).parent
    files = {"lanes.json": lane_vectors(), "layout.json": layout_vectors(),
             "descriptors.json": dict(geometry=GEOMETRY, cases=descriptor_vectors())}
    stale = []
    for name, content in files.items():
        text = json.dumps(content, indent=1) + "\n"
        if "--check" not in sys.argv[1:]:
            (here / name).write_text(text)
        elif (here / name).read_text() != text:
            stale.append(name)
    if stale:
        sys.exit(f"differ from what the prose says: {', '.join(stale)}")
    print(f"{len(files)} files of vectors are as the prose says")


if __name__ == "__main__":
    main()
