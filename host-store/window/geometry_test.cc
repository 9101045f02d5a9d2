// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/window/geometry.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tmem {
namespace {

TEST(Geometry, TheUsualWindowIsFourMebibytes) {
  const WindowOptions options = WindowOptionsFor(4u << 20).value();
  const WindowOptions usual;
  EXPECT_EQ(options.key_lanes, usual.key_lanes);
  EXPECT_EQ(options.ring_entries, usual.ring_entries);
  EXPECT_EQ(options.lane_slots, usual.lane_slots);
  EXPECT_TRUE(MakeGeometry(usual).ok());
}

TEST(Geometry, EveryWindowSizeFitsItsLanes) {
  for (std::uint64_t bytes = 1u << 20; bytes <= TMEM_MAX_WINDOW_BYTES; bytes *= 2) {
    const Result<WindowOptions> options = WindowOptionsFor(bytes);
    ASSERT_TRUE(options.ok()) << bytes;
    const Result<tmem_geometry> geometry = MakeGeometry(*options);
    ASSERT_TRUE(geometry.ok()) << bytes << ": " << geometry.error().message;
    EXPECT_GE(options->ring_entries, options->lane_slots) << bytes;
    // Nine tenths of the window are slots, as long as the ABI allows that many.
    if (options->lane_slots < TMEM_MAX_LANE_SLOTS - 8) {
      EXPECT_GT(std::uint64_t{options->lane_slots} * 8 * TMEM_PAGE_BYTES * 10, bytes * 7) << bytes;
    }
  }
}

TEST(Geometry, RefusesWindowSizesThatNoBarCanHave) {
  for (const std::uint64_t bytes : {0ull, 4096ull, 3ull << 20, (4ull << 20) + 4096, 512ull << 20}) {
    EXPECT_FALSE(WindowOptionsFor(bytes).ok()) << bytes;
  }
}

TEST(Geometry, RefusesEachBoundOfTheContract) {
  const auto refused = [](auto change) {
    WindowOptions options;
    change(options);
    return !MakeGeometry(options).ok();
  };
  EXPECT_TRUE(refused([](WindowOptions& o) { o.key_lanes = 0; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.key_lanes = 3; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.key_lanes = 64; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.ring_entries = 8; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.ring_entries = 100; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.ring_entries = 8192; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.control_ring_entries = 8; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.lane_slots = 0; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.lane_slots = 4097; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.lane_slots = 128; }));  // does not fit 4 MiB
  EXPECT_TRUE(refused([](WindowOptions& o) { o.control_slots = 0; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.window_bytes = (4u << 20) + 1; }));
  EXPECT_TRUE(refused([](WindowOptions& o) { o.window_bytes = 512u << 20; }));
}

// What a guest describes is held to the same bounds, and to the memory that is there.
TEST(Geometry, ChecksWhatAGuestDescribes) {
  const tmem_geometry usual = MakeGeometry(WindowOptions()).value();
  const std::uint64_t bytes = usual.window_bytes;
  EXPECT_TRUE(CheckGeometry(usual, bytes).ok());
  const auto refused = [&](auto change) {
    tmem_geometry geometry = usual;
    change(geometry);
    return !CheckGeometry(geometry, bytes).ok();
  };
  EXPECT_FALSE(refused([](tmem_geometry& g) { g.version = TMEM_ABI_VERSION + 3; }));
  EXPECT_FALSE(refused([](tmem_geometry& g) { g.key_lanes = 4; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.magic ^= 1; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.version_min = TMEM_ABI_VERSION + 1; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.version = 0; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.page_bytes = 65536; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.key_lanes = 0; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.key_lanes = 1u << 31; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.ring_entries = 1u << 31; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.lane_slots = UINT32_MAX; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.control_slots = 0; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.window_bytes += TMEM_PAGE_BYTES; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.window_bytes -= 1; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.window_bytes = 1u << 20; })) << "too small";
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.window_bytes = UINT64_MAX - 4095; }));
}

}  // namespace
}  // namespace tmem
