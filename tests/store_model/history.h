// SPDX-License-Identifier: GPL-2.0-only
// What was done to keys, when, with what result; and whether a correct store could have answered
// so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tmem {

// Something that happened to one key between two moments. Moments are values of one counter that
// each thread moves on before and after its call, so of two events that do not overlap it is known
// which came first, and of two that do, nothing.
struct Event {
  enum class Kind : uint8_t {
    kPut,     // succeeded with `value`
    kRemove,  // a flush, a put that failed, the end of the pool
    kHit,     // a get that returned `value`
    kMiss,
  };
  uint64_t key;  // whatever the caller tells keys apart by
  uint64_t begin;
  uint64_t end;
  uint32_t value;  // no two puts have the same
  Kind kind;
};

enum class KeyKind : uint8_t { kEphemeral, kPersistent };

// The history of one key, in any order, against the rules. Answers what is wrong, or nothing.
//  - A hit returns a value that was put to this key, by a put that began before the get ended (G3).
//  - No other event that shows the value gone lies wholly between that put and the get: not another
//    put or a removal (P1, P2, F1), not a miss (G2), not a hit of another value, and for an
//    ephemeral key not even a hit of the same (G1).
//  - A persistent key's get misses only if a removal may have come after each put that ended before
//    the get began (P3, G1). An ephemeral key may miss at any time: the page may have been evicted.
// The events are sorted here. Cost: n log n.
std::optional<std::string> CheckKeyHistory(KeyKind kind, std::vector<Event>& events);

}  // namespace tmem
