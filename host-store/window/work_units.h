// SPDX-License-Identifier: GPL-2.0-only
// What a worker's work costs, so that guests can be given equal shares of it.
//
// A unit is about 100 ns. The figures are those of text pages in bench/micro/store_bench; they need
// only be near enough that no kind of work is a way to take more than one's share.
#ifndef HOST_STORE_WINDOW_WORK_UNITS_H_
#define HOST_STORE_WINDOW_WORK_UNITS_H_

#include <cstdint>

namespace tmem {

using WorkUnits = std::uint64_t;

// Every descriptor: copied, decoded, looked up, answered.
inline constexpr WorkUnits kDescriptorUnits = 2;
// Beyond that: a page copied into the landing buffer; the rest of its cost is kSettledPageUnits.
inline constexpr WorkUnits kLandedPageUnits = 4;
// A page decompressed, verified and copied out.
inline constexpr WorkUnits kGotPageUnits = 14;
// A page hashed, looked up, compressed and put into a slab.
inline constexpr WorkUnits kSettledPageUnits = 80;
// A page removed by a flush: index, slab, and its part of giving memory back.
inline constexpr WorkUnits kFlushedPageUnits = 10;
// A block or object that a flush looks at, also if nothing of it is removed.
inline constexpr WorkUnits kFlushStepUnits = 1;
// A registration zeroes nine lane heads and ends up to 64 pools.
inline constexpr WorkUnits kRegistrationUnits = 100;

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_WORK_UNITS_H_
