// SPDX-License-Identifier: GPL-2.0-only
// Makes and checks window geometries.
#include "host-store/window/geometry.h"

#include <algorithm>
#include <bit>
#include <string>

namespace tmem {
namespace {

// Below this a window has too few slots to be of use (about 24 a lane at 1 MiB).
constexpr std::uint64_t kMinWindowBytes = 1u << 20;

// Slots are handed out in groups; the rest of the window stays unused.
constexpr std::uint64_t kSlotGroup = 8;

Error Invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

bool IsRingSize(std::uint32_t entries) {
  return std::has_single_bit(entries) && entries >= TMEM_MIN_RING_ENTRIES &&
         entries <= TMEM_MAX_RING_ENTRIES;
}

bool IsSlotCount(std::uint32_t slots) {
  return slots >= 1 && slots <= TMEM_MAX_LANE_SLOTS;
}

}  // namespace

Result<WindowOptions> WindowOptionsFor(std::uint64_t window_bytes) {
  if (!std::has_single_bit(window_bytes) || window_bytes < kMinWindowBytes ||
      window_bytes > TMEM_MAX_WINDOW_BYTES) {
    return Invalid("window size must be a power of two from 1 MiB to 256 MiB");
  }
  WindowOptions options;
  options.window_bytes = window_bytes;
  const std::uint64_t control_pages =
      tmem_lane_bytes(options.control_ring_entries, options.control_slots) / TMEM_PAGE_BYTES;
  const std::uint64_t lane_pages =
      (window_bytes / TMEM_PAGE_BYTES - 1 - control_pages) / options.key_lanes;
  const std::uint64_t ring_entries =
      std::clamp<std::uint64_t>(std::bit_ceil(lane_pages) * 2, 64, TMEM_MAX_RING_ENTRIES);
  options.ring_entries = static_cast<std::uint32_t>(ring_entries);
  const std::uint64_t fixed_pages = tmem_slots_offset(options.ring_entries) / TMEM_PAGE_BYTES;
  const std::uint64_t slots = (lane_pages - fixed_pages) / kSlotGroup * kSlotGroup;
  options.lane_slots =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(slots, TMEM_MAX_LANE_SLOTS));
  return options;
}

Result<tmem_geometry> MakeGeometry(const WindowOptions& options) {
  tmem_geometry geometry{};
  geometry.magic = TMEM_MAGIC;
  geometry.version = TMEM_ABI_VERSION;
  geometry.version_min = TMEM_ABI_VERSION;
  geometry.window_bytes = options.window_bytes;
  geometry.page_bytes = TMEM_PAGE_BYTES;
  geometry.key_lanes = options.key_lanes;
  geometry.ring_entries = options.ring_entries;
  geometry.lane_slots = options.lane_slots;
  geometry.control_ring_entries = options.control_ring_entries;
  geometry.control_slots = options.control_slots;
  if (Result<void> checked = CheckGeometry(geometry, options.window_bytes); !checked) {
    return checked.error();
  }
  return geometry;
}

Result<void> CheckGeometry(const tmem_geometry& geometry, std::uint64_t mapped_bytes) {
  if (geometry.magic != TMEM_MAGIC) return Invalid("this is no window: the magic is another one");
  if (geometry.version_min > TMEM_ABI_VERSION || geometry.version < TMEM_ABI_VERSION) {
    return Invalid("the window has ABI versions " + std::to_string(geometry.version_min) + " to " +
                   std::to_string(geometry.version));
  }
  if (geometry.page_bytes != TMEM_PAGE_BYTES) return Invalid("pages must have 4096 bytes");
  if (!std::has_single_bit(geometry.key_lanes) || geometry.key_lanes > TMEM_MAX_KEY_LANES) {
    return Invalid("key lanes must be a power of two from 1 to 32");
  }
  if (!IsRingSize(geometry.ring_entries) || !IsRingSize(geometry.control_ring_entries)) {
    return Invalid("ring entries must be a power of two from 16 to 4096");
  }
  if (!IsSlotCount(geometry.lane_slots) || !IsSlotCount(geometry.control_slots)) {
    return Invalid("slots of a lane must be from 1 to 4096");
  }
  if (geometry.window_bytes % TMEM_PAGE_BYTES != 0 ||
      geometry.window_bytes > TMEM_MAX_WINDOW_BYTES) {
    return Invalid("window size must be a multiple of 4096, at most 256 MiB");
  }
  if (geometry.window_bytes > mapped_bytes) {
    return Invalid("a window of " + std::to_string(geometry.window_bytes) + " bytes in " +
                   std::to_string(mapped_bytes) + " bytes of memory");
  }
  if (tmem_window_bytes_needed(&geometry) > geometry.window_bytes) {
    return Invalid("a window of " + std::to_string(geometry.window_bytes) +
                   " bytes is too small for its lanes: they need " +
                   std::to_string(tmem_window_bytes_needed(&geometry)));
  }
  return Ok();
}

}  // namespace tmem
