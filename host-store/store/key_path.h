// SPDX-License-Identifier: GPL-2.0-only
// A key with the guest whose it is: how the index and the landing buffer name pages.
#pragma once

#include <cstdint>

#include "abi/tmem_abi.h"
#include "host-store/store/store.h"

namespace tmem {

// The bits of a key's lane hash: the low ones choose the shard, as they choose the lane.
inline constexpr uint32_t kLaneHashRange = uint32_t{1} << 31;

// A key whose pool handle was found among the guest's own.
struct KeyPath {
  uint32_t guest = 0;
  uint32_t pool_id = 0;
  uint64_t pool = 0;  // handle
  ObjectId object = {};
  uint64_t index = 0;

  uint64_t base() const { return index >> TMEM_LANE_BLOCK_SHIFT; }
  uint32_t position() const { return index & (TMEM_LANE_BLOCK_PAGES - 1); }
  uint32_t LaneHash() const {
    return tmem_lane_of(pool, object.words.data(), index, kLaneHashRange);
  }
};

}  // namespace tmem
