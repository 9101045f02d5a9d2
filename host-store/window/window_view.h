// SPDX-License-Identifier: GPL-2.0-only
// Where the parts of a window lie; the only code that turns a lane, entry or slot into an address.
#ifndef HOST_STORE_WINDOW_WINDOW_VIEW_H_
#define HOST_STORE_WINDOW_WINDOW_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/tmem_abi.h"
#include "compress/page.h"

namespace tmem {

// One lane of a window. Out-of-range numbers stop the program: whoever asks has checked them.
class LaneView {
 public:
  LaneView(std::byte* lane, std::uint32_t ring_entries, std::uint32_t slots);

  tmem_lane_head& head() const { return *head_; }
  std::uint32_t ring_entries() const { return ring_mask_ + 1; }
  std::uint32_t slots() const { return slots_; }

  // The ring entry of a free-running counter.
  tmem_desc& Entry(std::uint64_t counter) const { return ring_[counter & ring_mask_]; }
  PageBuffer Slot(std::uint32_t slot) const;

 private:
  tmem_lane_head* head_;
  tmem_desc* ring_;
  std::byte* slot_bytes_;
  std::uint32_t ring_mask_;
  std::uint32_t slots_;
};

// A window mapped at `memory`. Addresses are computed once, from the geometry given here and never
// from the one in the window. Does not own the memory. Copies share it.
class WindowView {
 public:
  // `memory` is page-aligned and geometry.window_bytes long; `geometry` comes from MakeGeometry.
  WindowView(std::byte* memory, const tmem_geometry& geometry);

  const tmem_geometry& geometry() const { return geometry_; }
  tmem_host_page& host_page() const { return header().host; }
  tmem_guest_page& guest_page() const { return header().guest; }

  std::uint32_t lane_count() const { return geometry_.key_lanes + 1; }
  std::uint32_t control_lane() const { return geometry_.key_lanes; }
  const LaneView& lane(std::uint32_t lane) const { return lanes_[lane]; }

  // Writes the geometry into the window, for the guest.
  void PublishGeometry() const;

 private:
  tmem_header& header() const { return *reinterpret_cast<tmem_header*>(memory_); }

  std::byte* memory_;
  tmem_geometry geometry_;
  std::vector<LaneView> lanes_;
};

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_WINDOW_VIEW_H_
