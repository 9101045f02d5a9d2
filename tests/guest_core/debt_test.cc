// SPDX-License-Identifier: GPL-2.0-only
// What is owed always covers what was asked for, in bounded room; windows that lie are refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <set>
#include <tuple>

#include "tests/guest_core/core.h"
#include "tests/guest_core/fake_host.h"

namespace {

TEST(Debt, RangesThatTouchBecomeOne) {
  tmem_debt debt{};
  const u64 object[3] = {1, 2, 3};
  for (u64 i = 0; i < 100; ++i) tmem_debt_add_range(&debt, 0, object, i, i);
  EXPECT_EQ(debt.count, 1u);
  EXPECT_TRUE(tmem_debt_covers(&debt, 0, object, 99));
  EXPECT_FALSE(tmem_debt_covers(&debt, 0, object, 100));
}

TEST(Debt, EscalatesFromPageToObjectToPool) {
  tmem_debt debt{};
  const u64 object[3] = {1, 0, 0};
  for (u64 i = 0; i < TMEM_DEBT_ENTRIES; ++i) tmem_debt_add_range(&debt, 0, object, i * 10, i * 10);
  EXPECT_FALSE(tmem_debt_covers(&debt, 0, object, 5));
  tmem_debt_add_range(&debt, 0, object, 1000, 1000);
  EXPECT_EQ(debt.count, 1u);
  EXPECT_TRUE(tmem_debt_covers(&debt, 0, object, 5)) << "the whole object is owed now";
  for (u64 i = 2; i < 2 + TMEM_DEBT_ENTRIES; ++i) {
    const u64 other[3] = {i, 0, 0};
    tmem_debt_add_range(&debt, 0, other, 0, 0);
  }
  const u64 never[3] = {77, 0, 0};
  EXPECT_TRUE(tmem_debt_covers(&debt, 0, never, 0)) << "the whole pool is owed now";
  EXPECT_FALSE(tmem_debt_covers(&debt, 1, never, 0));
}

TEST(Debt, RandomDebtsCoverAllThatWasAsked) {
  const char* given = std::getenv("TMEM_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  std::cout << "TMEM_SEED=" << seed << '\n';
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    tmem_debt debt{};
    std::set<std::tuple<u32, u64, u64>> asked;
    const u64 objects = 1 + random() % 30;
    for (int step = 0; step < 60; ++step) {
      const u32 pool = static_cast<u32>(random() % 3);
      const u64 object[3] = {random() % objects, 0, 0};
      const u64 first = random() % 200;
      const u64 last = first + random() % 4;
      tmem_debt_add_range(&debt, pool, object, first, last);
      for (u64 index = first; index <= last; ++index) asked.insert({pool, object[0], index});
      ASSERT_LE(debt.count, TMEM_DEBT_ENTRIES);
    }
    for (const auto& [pool, word, index] : asked) {
      const u64 object[3] = {word, 0, 0};
      ASSERT_TRUE(tmem_debt_covers(&debt, pool, object, index));
    }
  }
}

class Window : public ::testing::Test {
 protected:
  int Attach() {
    tmem_window window;
    return tmem_window_attach(&window, host_.window(), host_.window_bytes());
  }
  tmem::FakeHost host_{tmem::FakeHostOptions{}};
};

TEST_F(Window, IsTakenWhenItsGeometryIsPossible) {
  EXPECT_EQ(Attach(), 0);
}

TEST_F(Window, OfAnotherDeviceIsLeftAlone) {
  host_.header().geometry.magic ^= 1;
  EXPECT_EQ(Attach(), -ENODEV);
}

TEST_F(Window, WithoutACommonVersionIsRefused) {
  host_.header().geometry.version_min = TMEM_ABI_VERSION + 1;
  host_.header().geometry.version = TMEM_ABI_VERSION + 2;
  EXPECT_EQ(Attach(), -EPROTO);
}

TEST_F(Window, ImpossibleGeometriesAreRefused) {
  const tmem_geometry good = host_.header().geometry;
  const auto refused = [&](auto change) {
    host_.header().geometry = good;
    change(host_.header().geometry);
    return Attach() == -EINVAL;
  };
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.page_bytes = 65536; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.key_lanes = 0; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.key_lanes = 3; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.key_lanes = 64; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.ring_entries = 48; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.ring_entries = 8; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.ring_entries = 1u << 31; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.lane_slots = 0; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.lane_slots = TMEM_MAX_LANE_SLOTS + 1; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.control_ring_entries = 0; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.window_bytes += TMEM_PAGE_BYTES; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.window_bytes -= TMEM_PAGE_BYTES; }));
  EXPECT_TRUE(refused([](tmem_geometry& g) { g.lane_slots += 1; }));
}

}  // namespace
