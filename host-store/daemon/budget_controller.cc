// SPDX-License-Identifier: GPL-2.0-only
// Down at once, up smoothly.
#include "host-store/daemon/budget_controller.h"

#include <algorithm>

namespace tmem {
namespace {

// In this time the limit makes up for most of what it lacks, and half of a growth is forgotten.
constexpr std::uint64_t kGrowNs = 800'000'000;
constexpr std::uint64_t kForgetNs = 800'000'000;

// The limit does not begin to grow for less than this part of the reserve, and ends when it lacks
// less than the last bytes.
constexpr std::uint64_t kGrowShare = 8;
constexpr std::uint64_t kLastBytes = 1u << 20;

// More than a tenth of the time, by more than 20 ms: one slow read is no pressure, and a host whose
// tasks all wait is seen at the next look.
constexpr std::uint64_t kStalledShare = 10;
constexpr std::uint64_t kStalledLevelNs = 20'000'000;
constexpr std::uint64_t kMaxStalledLevelNs = 30'000'000;
constexpr std::uint64_t kPressureShare = 8;

// a - b, not below 0.
std::uint64_t Less(std::uint64_t a, std::uint64_t b) {
  return a > b ? a - b : 0;
}

// bytes * part / whole, the part at most the whole, without overflow.
std::uint64_t Part(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole) {
  if (part >= whole) return bytes;
  return static_cast<std::uint64_t>(static_cast<double>(bytes) * static_cast<double>(part) /
                                    static_cast<double>(whole));
}

}  // namespace

BudgetController::BudgetController(const Options& options) : options_(options) {}

std::uint64_t BudgetController::Next(const BudgetSample& sample) {
  const std::uint64_t elapsed_ns = begun_ ? Less(sample.now_ns, last_.now_ns) : 0;
  if (begun_) {
    NotePressure(sample, elapsed_ns);
    NoteGrowth(sample, elapsed_ns);
  }
  const std::uint64_t target = TargetFor(sample);
  const std::uint64_t goal = LeastTarget(sample, target);
  if (!begun_ || target < limit_bytes_) {
    limit_bytes_ = target;
    growing_ = false;
  } else if (sample.now_ns >= grow_from_ns_) {
    Grow(goal, elapsed_ns);
  }
  limit_bytes_ = std::max(limit_bytes_, std::min(sample.min_limit_bytes, options_.max_limit_bytes));
  begun_ = true;
  last_ = sample;

  // As long as guests that grow by the reserve in an interval need for what is free.
  const std::uint64_t free = Less(options_.budget_bytes, sample.guests_bytes + limit_bytes_);
  const std::uint64_t intervals =
      growing_ || pressed_
          ? 1
          : std::clamp<std::uint64_t>(free / options_.reserve_bytes, 1, kMaxIntervals);
  next_sample_ns_ = intervals * kIntervalNs;
  return limit_bytes_;
}

void BudgetController::NotePressure(const BudgetSample& sample, std::uint64_t elapsed_ns) {
  const std::uint64_t stalled_ns = Less(sample.stalled_ns, last_.stalled_ns);
  stalled_level_ns_ = Less(stalled_level_ns_ + stalled_ns, elapsed_ns / kStalledShare);
  stalled_level_ns_ = std::min(stalled_level_ns_, kMaxStalledLevelNs);
  pressed_ = stalled_ns > 0 && stalled_level_ns_ > kStalledLevelNs;
  if (!pressed_) return;
  ++times_pressed_;
  grow_from_ns_ = sample.now_ns + kPressureHoldNs;
}

void BudgetController::NoteGrowth(const BudgetSample& sample, std::uint64_t elapsed_ns) {
  growth_bytes_ -= Part(growth_bytes_, elapsed_ns, 2 * kForgetNs);
  const std::uint64_t grown = Less(sample.guests_bytes, last_.guests_bytes);
  // Not more than they are expected to: a guest that comes has not grown by all it has.
  growth_bytes_ = std::max(growth_bytes_, std::min(grown, options_.reserve_bytes));
}

std::uint64_t BudgetController::TargetFor(const BudgetSample& sample) const {
  const std::uint64_t most = options_.max_limit_bytes;
  const std::uint64_t least = std::min(sample.min_limit_bytes, most);
  std::uint64_t target = Less(options_.budget_bytes, sample.guests_bytes);
  target = Less(target, options_.reserve_bytes + growth_bytes_);
  if (pressed_) {
    const std::uint64_t above = Less(limit_bytes_, least);
    target = std::min(target, limit_bytes_ - (above + kPressureShare - 1) / kPressureShare);
  }
  return std::clamp(target, least, most);
}

std::uint64_t BudgetController::LeastTarget(const BudgetSample& sample, std::uint64_t target) {
  while (!targets_.empty() && targets_.back().bytes >= target) targets_.pop_back();
  targets_.push_back({sample.now_ns, target});
  while (targets_.front().at_ns + kCalmNs < sample.now_ns) targets_.pop_front();
  return targets_.front().bytes;
}

void BudgetController::Grow(std::uint64_t goal, std::uint64_t elapsed_ns) {
  const std::uint64_t lacking = Less(goal, limit_bytes_);
  if (!growing_ && lacking <= options_.reserve_bytes / kGrowShare) return;
  growing_ = lacking > kLastBytes;
  // However long ago the last look was.
  const std::uint64_t for_ns = std::min(elapsed_ns, kIntervalNs);
  limit_bytes_ += growing_ ? Part(lacking, for_ns, kGrowNs) : lacking;
}

}  // namespace tmem
