// SPDX-License-Identifier: GPL-2.0-only
// Makes the n-th call at a chosen point fail, so that tests can walk through every failure.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tmem {

// Each point counts its calls; the one whose number was asked for fails, once. Safe from any
// thread.
class FaultPlan {
 public:
  enum class Point : uint8_t {
    kMemory,      // the kernel gives no memory for a chunk
    kCompress,    // the codec refuses a page
    kDecompress,  // a stored page comes out altered
  };

  // The `nth` call from now on fails, 1 being the next; 0: none.
  void FailNth(Point point, uint64_t nth) {
    calls_[Index(point)].store(0);
    failing_call_[Index(point)].store(nth);
  }
  uint64_t calls(Point point) const { return calls_[Index(point)].load(); }
  // Whether the asked-for call has come.
  bool fired(Point point) const {
    const uint64_t nth = failing_call_[Index(point)].load();
    return nth != 0 && calls(point) >= nth;
  }

  // Asked by the store at each call.
  bool Fails(Point point) {
    return calls_[Index(point)].fetch_add(1) + 1 == failing_call_[Index(point)].load();
  }

 private:
  static constexpr size_t kPoints = 3;
  static size_t Index(Point point) { return static_cast<size_t>(point); }

  std::array<std::atomic<uint64_t>, kPoints> calls_{};
  std::array<std::atomic<uint64_t>, kPoints> failing_call_{};
};

}  // namespace tmem
