// SPDX-License-Identifier: GPL-2.0-only
// Counts lines per period.
#include "host-store/daemon/log_limiter.h"

#include <utility>

namespace tmem {

std::optional<std::uint64_t> LogLimiter::Admit() {
  const std::uint64_t now_ns = clock_.NowNs();
  MutexLock lock(mutex_);
  if (now_ns - period_start_ns_ >= kPeriodNs) {
    period_start_ns_ = now_ns;
    lines_ = 0;
  }
  if (lines_ == kLines) {
    ++suppressed_;
    return std::nullopt;
  }
  ++lines_;
  return std::exchange(suppressed_, 0);
}

}  // namespace tmem
