// SPDX-License-Identifier: GPL-2.0-only
// The geometry of a window: made for one that the host allocates, checked in one that a guest
// describes. Either way it is not read again.
#ifndef HOST_STORE_WINDOW_GEOMETRY_H_
#define HOST_STORE_WINDOW_GEOMETRY_H_

#include <cstdint>

#include "abi/tmem_abi.h"
#include "host-store/base/result.h"

namespace tmem {

struct WindowOptions {
  std::uint64_t window_bytes = 4u << 20;
  std::uint32_t key_lanes = 8;
  std::uint32_t ring_entries = 256;
  std::uint32_t lane_slots = 120;
  std::uint32_t control_ring_entries = 64;
  std::uint32_t control_slots = 8;
};

// Lanes, rings and slots that fill a window of this size: 8 key lanes, about two descriptors a
// slot. 4 MiB gives the numbers above. Errors: not a power of two (a PCI BAR must be), out of
// range.
Result<WindowOptions> WindowOptionsFor(std::uint64_t window_bytes);

// Checks every bound that abi/README.md section 1 states.
Result<tmem_geometry> MakeGeometry(const WindowOptions& options);

// The same for a copy of what a guest wrote about a window of which `mapped_bytes` are there.
Result<void> CheckGeometry(const tmem_geometry& geometry, std::uint64_t mapped_bytes);

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_GEOMETRY_H_
