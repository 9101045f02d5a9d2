// SPDX-License-Identifier: GPL-2.0-only
// Tests of the clocks.
#include "host-store/base/clock.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tmem {
namespace {

TEST(ClockTest, SteadyClockNeverGoesBack) {
  const SteadyClock clock;
  std::uint64_t last_ns = clock.NowNs();
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t now_ns = clock.NowNs();
    ASSERT_GE(now_ns, last_ns);
    last_ns = now_ns;
  }
}

TEST(ClockTest, FakeClockMovesOnlyWhenTold) {
  FakeClock clock(5);
  EXPECT_EQ(clock.NowNs(), 5U);
  clock.AdvanceNs(10);
  EXPECT_EQ(clock.NowNs(), 15U);
}

}  // namespace
}  // namespace tmem
