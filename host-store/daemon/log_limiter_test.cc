// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/daemon/log_limiter.h"

#include <gtest/gtest.h>

namespace tmem {
namespace {

// "A guest able to fill the host's log" is a fault of earlier systems.
TEST(LogLimiter, AGuestCannotFillTheLog) {
  FakeClock clock(LogLimiter::kPeriodNs);
  LogLimiter limiter(clock);
  std::uint64_t admitted = 0;
  for (int i = 0; i < 1000; ++i) admitted += limiter.Admit().has_value() ? 1 : 0;
  EXPECT_EQ(admitted, LogLimiter::kLines);
  clock.AdvanceNs(LogLimiter::kPeriodNs);
  EXPECT_EQ(limiter.Admit(), " (990 lines held back before)");
  EXPECT_EQ(limiter.Admit(), "");
}

}  // namespace
}  // namespace tmem
