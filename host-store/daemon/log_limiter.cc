// SPDX-License-Identifier: GPL-2.0-only
// Counts lines per period.
#include "host-store/daemon/log_limiter.h"

#include <utility>

namespace tmem {

std::optional<std::string> LogLimiter::Admit() {
  const std::uint64_t now_ns = clock_.NowNs();
  MutexLock lock(mutex_);
  if (now_ns - period_start_ns_ >= kPeriodNs) {
    period_start_ns_ = now_ns;
    lines_ = 0;
  }
  if (lines_ == kLines) {
    ++held_back_;
    return std::nullopt;
  }
  ++lines_;
  const std::uint64_t held_back = std::exchange(held_back_, 0);
  if (held_back == 0) return std::string();
  return " (" + std::to_string(held_back) + " lines held back before)";
}

}  // namespace tmem
