// SPDX-License-Identifier: GPL-2.0-only
// Fuzz target: whatever a descriptor holds, what the decoder lets through may be executed as it is.
//
// Input: number of the lane, features in the low byte, then the 64 bytes of a descriptor.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "host-store/window/decoder.h"

namespace {

using tmem::LaneContext;
using tmem::PageKey;
namespace op = tmem::op;

constexpr std::uint32_t kKeyLanes = 8;
constexpr std::uint32_t kKeySlots = 120;
constexpr std::uint32_t kControlSlots = 8;

void Require(bool condition) {
  if (!condition) std::abort();
}

void RequireOwnLane(const PageKey& key, const LaneContext& lane) {
  Require(tmem_lane_of(static_cast<std::uint64_t>(key.pool), key.object.words.data(), key.index,
                       kKeyLanes) == lane.lane);
}

struct Checker {
  const tmem_desc& desc;
  const LaneContext& lane;

  template <typename T>
  void operator()(const T& checked) const {
    constexpr bool kIsControl =
        std::is_same_v<T, op::PoolCreate> || std::is_same_v<T, op::PoolDestroy> ||
        std::is_same_v<T, op::CreditReturn> || std::is_same_v<T, op::Report> ||
        std::is_same_v<T, op::ReportDone> || std::is_same_v<T, op::Shrunk> ||
        std::is_same_v<T, op::Drained>;
    constexpr bool kIsEither = std::is_same_v<T, op::Nop> || std::is_same_v<T, op::Refused>;
    if constexpr (!kIsEither) Require((lane.lane == kKeyLanes) == kIsControl);
    if constexpr (!std::is_same_v<T, op::Refused>) Require(desc.status == 0);
    if constexpr (requires { checked.slot; }) Require(checked.slot < lane.slots);
    if constexpr (requires { checked.key; }) RequireOwnLane(checked.key, lane);
    if constexpr (requires { checked.range; }) Require(checked.range.count != 0);
    if constexpr (requires { checked.ranges; }) {
      Require(checked.ranges != 0 && checked.ranges <= TMEM_MAX_REPORT_RANGES);
    }
    if constexpr (std::is_same_v<T, op::PutFilled>) Require((lane.features & TMEM_FEATURE_FILL));
    if constexpr (std::is_same_v<T, op::Shrunk> || std::is_same_v<T, op::Drained>) {
      Require((lane.features & TMEM_FEATURE_SHRINK));
    }
    if constexpr (std::is_same_v<T, op::Refused>) {
      Require(checked.status >= TMEM_STATUS_NO_SPACE);
      if (checked.gone) RequireOwnLane(*checked.gone, lane);
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2 + sizeof(tmem_desc)) return 0;
  LaneContext lane{};
  lane.lane = data[0] % (kKeyLanes + 1);
  lane.key_lanes = kKeyLanes;
  lane.slots = lane.lane == kKeyLanes ? kControlSlots : kKeySlots;
  lane.features = data[1];
  tmem_desc desc;
  std::memcpy(&desc, data + 2, sizeof desc);
  std::visit(Checker{desc, lane}, tmem::Decode(desc, lane));
  return 0;
}
