// SPDX-License-Identifier: GPL-2.0-only
// The names of operations and statuses, and a dense numbering of both for tables of counters.
#ifndef HOST_STORE_WINDOW_WIRE_NAMES_H_
#define HOST_STORE_WINDOW_WIRE_NAMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "abi/tmem_abi.h"

namespace tmem {

struct WireName {
  std::uint16_t number;
  std::string_view name;
};

inline constexpr std::array kOpNames = {
    WireName{TMEM_OP_NOP, "nop"},
    WireName{TMEM_OP_PUT, "put"},
    WireName{TMEM_OP_GET, "get"},
    WireName{TMEM_OP_FLUSH, "flush"},
    WireName{TMEM_OP_FLUSH_OBJECT, "flush_object"},
    WireName{TMEM_OP_FLUSH_POOL, "flush_pool"},
    WireName{TMEM_OP_POOL_CREATE, "pool_create"},
    WireName{TMEM_OP_POOL_DESTROY, "pool_destroy"},
    WireName{TMEM_OP_CREDIT_RETURN, "credit_return"},
    WireName{TMEM_OP_REPORT, "report"},
    WireName{TMEM_OP_SHRUNK, "shrunk"},
    WireName{TMEM_OP_DRAINED, "drained"},
    WireName{0xffff, "unknown"},  // stands for all others
};

inline constexpr std::array kStatusNames = {
    WireName{TMEM_STATUS_OK, "ok"},
    WireName{TMEM_STATUS_MISS, "miss"},
    WireName{TMEM_STATUS_NOT_TAKEN, "not_taken"},
    WireName{TMEM_STATUS_NO_SPACE, "no_space"},
    WireName{TMEM_STATUS_NO_CREDIT, "no_credit"},
    WireName{TMEM_STATUS_FROZEN, "frozen"},
    WireName{TMEM_STATUS_CORRUPT, "corrupt"},
    WireName{TMEM_STATUS_TOO_MANY, "too_many"},
    WireName{TMEM_STATUS_UNSUPPORTED, "unsupported"},
    WireName{TMEM_STATUS_INHIBITED, "inhibited"},
    WireName{TMEM_STATUS_CODEC, "codec"},
    WireName{TMEM_STATUS_BAD_OP, "bad_op"},
    WireName{TMEM_STATUS_BAD_FIELD, "bad_field"},
    WireName{TMEM_STATUS_BAD_SLOT, "bad_slot"},
    WireName{TMEM_STATUS_BAD_POOL, "bad_pool"},
    WireName{TMEM_STATUS_STALE_POOL, "stale_pool"},
    WireName{TMEM_STATUS_BAD_LANE, "bad_lane"},
    WireName{TMEM_STATUS_BAD_RANGE, "bad_range"},
    WireName{0xffff, "unknown"},
};

// Positions in the tables above; the last one for a number that is in none.
std::size_t OpPosition(std::uint8_t op);
std::size_t StatusPosition(std::uint16_t status);

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_WIRE_NAMES_H_
