// SPDX-License-Identifier: GPL-2.0-only
// Address arithmetic of a window.
#include "host-store/window/window_view.h"

#include <cstdio>
#include <cstdlib>

namespace tmem {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "tmem: window view: %s\n", what);
  std::abort();
}

}  // namespace

LaneView::LaneView(std::byte* lane, std::uint32_t ring_entries, std::uint32_t slots)
    : head_(reinterpret_cast<tmem_lane_head*>(lane)),
      ring_(reinterpret_cast<tmem_desc*>(lane + TMEM_PAGE_BYTES)),
      slot_bytes_(lane + tmem_slots_offset(ring_entries)),
      ring_mask_(ring_entries - 1),
      slots_(slots) {}

PageBuffer LaneView::Slot(std::uint32_t slot) const {
  Require(slot < slots_, "slot out of range");
  return PageBuffer(slot_bytes_ + std::size_t{slot} * TMEM_PAGE_BYTES, kPageBytes);
}

WindowView::WindowView(std::byte* memory, const tmem_geometry& geometry)
    : memory_(memory), geometry_(geometry) {
  Require(reinterpret_cast<std::uintptr_t>(memory) % TMEM_PAGE_BYTES == 0, "memory not aligned");
  Require(tmem_window_bytes_needed(&geometry) <= geometry.window_bytes, "geometry does not fit");
  lanes_.reserve(lane_count());
  for (std::uint32_t lane = 0; lane < geometry.key_lanes; ++lane) {
    lanes_.emplace_back(memory + tmem_lane_offset(&geometry, lane), geometry.ring_entries,
                        geometry.lane_slots);
  }
  lanes_.emplace_back(memory + tmem_lane_offset(&geometry, control_lane()),
                      geometry.control_ring_entries, geometry.control_slots);
}

void WindowView::PublishGeometry() const {
  header().geometry = geometry_;
}

}  // namespace tmem
