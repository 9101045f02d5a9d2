// SPDX-License-Identifier: GPL-2.0-only
// What one channel has done: counters that its worker writes and anybody may read.
#ifndef HOST_STORE_WINDOW_CHANNEL_COUNTERS_H_
#define HOST_STORE_WINDOW_CHANNEL_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "host-store/window/wire_names.h"

namespace tmem {

// One writer at a time, any number of readers. An increment costs a load and a store.
class Counter {
 public:
  void Add(std::uint64_t amount = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct ChannelCounters {
  Counter registrations;  // that were accepted
  Counter registrations_refused;
  Counter resets;              // by X3: counters that did not match
  Counter rings_received;      // the guest rang, counted when the worker sleeps next
  Counter notifications_sent;  // the host rang the guest
  Counter visits;              // that found work
  Counter work_units;          // done in those visits, see work_units.h
  Counter settle_units;        // done to settle this guest's pages
  // A worker's CPU time for this guest: visits, and the two that follow.
  Counter cpu_ns;
  Counter settle_cpu_ns;   // compressing its pages
  Counter report_cpu_ns;   // not a worker's: dropping what it reported free
  Counter reported_bytes;  // dropped
  Counter poll_cpu_ns;     // looking for more of its work before sleeping
  // Completed descriptors by kOpNames and kStatusNames.
  std::array<std::array<Counter, kStatusNames.size()>, kOpNames.size()> operations;
};

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_CHANNEL_COUNTERS_H_
