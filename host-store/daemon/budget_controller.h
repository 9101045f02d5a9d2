// SPDX-License-Identifier: GPL-2.0-only
// Decides how much of a host's budget the store may hold, from what guests have resident.
#ifndef HOST_STORE_DAEMON_BUDGET_CONTROLLER_H_
#define HOST_STORE_DAEMON_BUDGET_CONTROLLER_H_

#include <cstdint>
#include <deque>

namespace tmem {

// One look at the host.
struct BudgetSample {
  std::uint64_t now_ns;
  std::uint64_t guests_bytes;     // what all guests have resident
  std::uint64_t min_limit_bytes;  // below which the store's limit cannot go now
  std::uint64_t stalled_ns;       // free-running: time that some task waited for memory
};

// The limit is what the budget leaves beside the guests, less a reserve and less what they will
// have taken by the next look if they go on as they did:
//     limit <= budget - guests - reserve - growth
// so that their sum stays within the budget while guests grow by less than the reserve in one
// kIntervalNs; by less than half of it if the store needs as long to follow. It falls at once, and
// grows smoothly to the least that it could have been within kCalmNs: guests that come and go
// within that time do not move it. Pressure on the host's memory, whoever makes it, takes an eighth
// of what is above the lowest limit at each look, and lets nothing grow for kPressureHoldNs.
//
// Thread rule: one thread. Cost: some arithmetic; memory for the looks of kCalmNs.
class BudgetController {
 public:
  struct Options {
    std::uint64_t budget_bytes;
    std::uint64_t reserve_bytes;    // at least 1
    std::uint64_t max_limit_bytes;  // as the store was made with
  };
  // While memory is short. With room to spare there are fewer looks, down to one in kMaxIntervals.
  static constexpr std::uint64_t kIntervalNs = 50'000'000;
  static constexpr std::uint64_t kMaxIntervals = 10;
  static constexpr std::uint64_t kCalmNs = 2'000'000'000;
  static constexpr std::uint64_t kPressureHoldNs = 10'000'000'000;

  explicit BudgetController(const Options& options);

  // The limit from now on. Samples come in order of time.
  std::uint64_t Next(const BudgetSample& sample);

  // When to look again, after the last sample.
  std::uint64_t next_sample_ns() const { return next_sample_ns_; }
  std::uint64_t limit_bytes() const { return limit_bytes_; }
  // At the last sample; and how many samples were.
  bool pressed() const { return pressed_; }
  std::uint64_t times_pressed() const { return times_pressed_; }

 private:
  struct Target {
    std::uint64_t at_ns;
    std::uint64_t bytes;
  };
  void NotePressure(const BudgetSample& sample, std::uint64_t elapsed_ns);
  void NoteGrowth(const BudgetSample& sample, std::uint64_t elapsed_ns);
  std::uint64_t TargetFor(const BudgetSample& sample) const;
  std::uint64_t LeastTarget(const BudgetSample& sample, std::uint64_t target);
  void Grow(std::uint64_t goal, std::uint64_t elapsed_ns);

  const Options options_;
  bool begun_ = false;
  BudgetSample last_{};
  std::uint64_t limit_bytes_ = 0;
  std::uint64_t growth_bytes_ = 0;  // of the guests between two looks; forgotten slowly
  std::deque<Target> targets_;      // of the last kCalmNs that were not undercut since: they rise
  bool growing_ = false;
  std::uint64_t stalled_level_ns_ = 0;
  bool pressed_ = false;
  std::uint64_t times_pressed_ = 0;
  std::uint64_t grow_from_ns_ = 0;
  std::uint64_t next_sample_ns_ = kIntervalNs;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_BUDGET_CONTROLLER_H_
