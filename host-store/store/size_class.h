// SPDX-License-Identifier: GPL-2.0-only
// The sizes of slots, and of the slabs they are cut from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/page.h"
#include "host-store/store/memory_file.h"

namespace tmem {

// 1.4 % of a typical compressed page is lost to rounding, and about as much to the ends of slabs.
// Steps of 128 bytes above 1 KiB lose 2.7 %; steps of 32, or larger slabs, lose more in slabs begun
// and not filled than they gain, up to sets of some 100 MiB (docs/store.md).
inline constexpr size_t kSlotStepBytes = 64;
inline constexpr size_t kSizeClasses = kPageBytes / kSlotStepBytes;
// Slots of whole pages, for pages that are kept raw, and for any page when a promise is at stake.
inline constexpr size_t kRawClass = kSizeClasses - 1;

inline constexpr size_t kMinSlabPages = 2;
inline constexpr size_t kMaxSlabPages = 8;
inline constexpr size_t kSlabStrideBytes = kMaxSlabPages * kPageBytes;

constexpr size_t SlotBytes(size_t size_class) {
  return (size_class + 1) * kSlotStepBytes;
}

// `bytes` is 1 .. kPageBytes.
constexpr size_t ClassFor(size_t bytes) {
  return (bytes - 1) / kSlotStepBytes;
}

// The number of pages of which the least is left over behind the last slot; the smallest such.
constexpr size_t SlabPages(size_t size_class) {
  if (size_class == kRawClass) return 4;  // nothing is ever left over: few, as they go back whole
  const size_t slot_bytes = SlotBytes(size_class);
  size_t best_pages = kMinSlabPages;
  for (size_t pages = kMinSlabPages; pages <= kMaxSlabPages; ++pages) {
    // Left over per page, compared crosswise.
    const size_t left = pages * kPageBytes % slot_bytes;
    const size_t best_left = best_pages * kPageBytes % slot_bytes;
    if (left * best_pages < best_left * pages) best_pages = pages;
  }
  return best_pages;
}

struct SizeClass {
  uint32_t slot_bytes;
  uint32_t slots;
  uint32_t slab_bytes;
};

namespace internal {
constexpr std::array<SizeClass, kSizeClasses> MakeSizeClassTable() {
  std::array<SizeClass, kSizeClasses> table{};
  for (size_t i = 0; i < kSizeClasses; ++i) {
    const size_t slab_bytes = SlabPages(i) * kPageBytes;
    table[i] = {static_cast<uint32_t>(SlotBytes(i)),
                static_cast<uint32_t>(slab_bytes / SlotBytes(i)),
                static_cast<uint32_t>(slab_bytes)};
  }
  return table;
}
}  // namespace internal

inline constexpr std::array<SizeClass, kSizeClasses> kSizeClassTable =
    internal::MakeSizeClassTable();
static_assert(kSizeClassTable[kRawClass].slot_bytes == kPageBytes);

}  // namespace tmem
