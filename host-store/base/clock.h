// SPDX-License-Identifier: GPL-2.0-only
// Time as something passed in, so that a test owns it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tmem {

// Nanoseconds that never go back; the origin means nothing. Safe from any thread.
class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  virtual std::uint64_t NowNs() const = 0;
};

// The machine's monotonic clock. About 25 ns a call (vDSO).
class SteadyClock final : public Clock {
 public:
  std::uint64_t NowNs() const override {
    const auto since_origin = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(since_origin).count());
  }
};

// A clock that moves only when a test says so.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(std::uint64_t start_ns = 0) : now_ns_(start_ns) {}
  std::uint64_t NowNs() const override { return now_ns_.load(std::memory_order_acquire); }
  void AdvanceNs(std::uint64_t ns) { now_ns_.fetch_add(ns, std::memory_order_acq_rel); }

 private:
  std::atomic<std::uint64_t> now_ns_;
};

}  // namespace tmem
