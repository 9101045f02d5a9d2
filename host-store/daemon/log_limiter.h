// SPDX-License-Identifier: GPL-2.0-only
// Keeps a guest from filling the host's log.
#ifndef HOST_STORE_DAEMON_LOG_LIMITER_H_
#define HOST_STORE_DAEMON_LOG_LIMITER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "host-store/base/clock.h"
#include "host-store/base/mutex.h"

namespace tmem {

// For one guest: at most kLines lines in kPeriodNs. Safe from any thread.
class LogLimiter {
 public:
  static constexpr std::uint64_t kLines = 10;
  static constexpr std::uint64_t kPeriodNs = 10'000'000'000;

  explicit LogLimiter(const Clock& clock) : clock_(clock) {}

  // Nothing: keep silent. Else the end of the line: empty, or how many were held back before it.
  std::optional<std::string> Admit() TMEM_EXCLUDES(mutex_);

 private:
  const Clock& clock_;
  Mutex mutex_;
  std::uint64_t period_start_ns_ TMEM_GUARDED_BY(mutex_) = 0;
  std::uint64_t lines_ TMEM_GUARDED_BY(mutex_) = 0;
  std::uint64_t held_back_ TMEM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_LOG_LIMITER_H_
