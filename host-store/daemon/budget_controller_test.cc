// SPDX-License-Identifier: GPL-2.0-only
// The controller against guests that are a formula.
#include "host-store/daemon/budget_controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <string>

namespace tmem {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kTickNs = BudgetController::kIntervalNs;
constexpr std::uint64_t kTicksPerSecond = 1'000'000'000 / kTickNs;

// What a host of 4 GiB for guests and store does, tick by tick. The controller looks only when it
// asked to; the store is always as full as it may be, and may follow a tick late.
class Host {
 public:
  enum class Store : std::uint8_t { kFollowsAtOnce, kFollowsATickLate };
  explicit Host(Store store = Store::kFollowsAtOnce)
      : store_(store),
        controller_({.budget_bytes = kBudgetBytes,
                     .reserve_bytes = kReserveBytes,
                     .max_limit_bytes = kMaxLimitBytes}) {}

  static constexpr std::uint64_t kBudgetBytes = 4096 * kMiB;
  static constexpr std::uint64_t kReserveBytes = 128 * kMiB;
  static constexpr std::uint64_t kMaxLimitBytes = 3072 * kMiB;
  static constexpr std::uint64_t kMinLimitBytes = 512 * kMiB;

  void Tick(std::uint64_t guests_bytes, std::uint64_t stalled_ns = 0) {
    guests_bytes_ = guests_bytes;
    stalled_ns_ += stalled_ns;
    // Before the look: the guests have grown already.
    const std::uint64_t limit = controller_.limit_bytes();
    const std::uint64_t held =
        store_ == Store::kFollowsAtOnce ? limit : std::max(limit, former_limit_bytes_);
    worst_bytes = std::max(worst_bytes, guests_bytes + held);
    former_limit_bytes_ = limit;
    if (now_ns_ >= next_look_ns_) Look();
    now_ns_ += kTickNs;
  }
  void Run(std::uint64_t ticks, const std::function<std::uint64_t(std::uint64_t)>& guests_bytes) {
    for (std::uint64_t i = 0; i < ticks; ++i) Tick(guests_bytes(i));
  }
  std::uint64_t limit_bytes() const { return controller_.limit_bytes(); }
  const BudgetController& controller() const { return controller_; }

  std::uint64_t worst_bytes = 0;  // guests and store
  std::uint64_t turns = 0;        // times that the limit changed its direction
  std::uint64_t looks = 0;
  std::uint64_t largest_rise_bytes = 0;

 private:
  void Look() {
    const std::uint64_t before = looks++ == 0 ? 0 : controller_.limit_bytes();
    const std::uint64_t limit = controller_.Next({.now_ns = now_ns_,
                                                  .guests_bytes = guests_bytes_,
                                                  .min_limit_bytes = kMinLimitBytes,
                                                  .stalled_ns = stalled_ns_});
    next_look_ns_ = now_ns_ + controller_.next_sample_ns();
    if (before == 0 || limit == before) return;
    if (limit > before) largest_rise_bytes = std::max(largest_rise_bytes, limit - before);
    const int direction = limit > before ? 1 : -1;
    if (direction != direction_ && direction_ != 0) ++turns;
    direction_ = direction;
  }

  const Store store_;
  BudgetController controller_;
  std::uint64_t now_ns_ = 1'000'000'000;
  std::uint64_t next_look_ns_ = 0;
  std::uint64_t guests_bytes_ = 0;
  std::uint64_t stalled_ns_ = 0;
  std::uint64_t former_limit_bytes_ = 0;
  int direction_ = 0;
};

std::mt19937_64 Random() {
  const char* const given = std::getenv("TMEM_SEED");
  const std::uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device{}();
  std::cout << "seed: TMEM_SEED=" << seed << '\n';
  return std::mt19937_64(seed);
}

TEST(BudgetController, BeginsWithWhatGuestsLeave) {
  Host host;
  host.Tick(2048 * kMiB);
  EXPECT_EQ(host.limit_bytes(), Host::kBudgetBytes - 2048 * kMiB - Host::kReserveBytes);
  Host empty;
  empty.Tick(0);
  EXPECT_EQ(empty.limit_bytes(), Host::kMaxLimitBytes);
  Host full;
  full.Tick(4096 * kMiB);
  EXPECT_EQ(full.limit_bytes(), Host::kMinLimitBytes);
}

TEST(BudgetController, AStepUpShrinksAtOnceAndOnce) {
  Host host;
  host.Run(100, [](auto) { return 1024 * kMiB; });
  host.Tick(2048 * kMiB);
  while (host.limit_bytes() == Host::kBudgetBytes - 1024 * kMiB - Host::kReserveBytes) {
    host.Tick(2048 * kMiB);
  }
  EXPECT_LE(host.limit_bytes(), Host::kBudgetBytes - 2048 * kMiB - Host::kReserveBytes);
  host.Run(20 * kTicksPerSecond, [](auto) { return 2048 * kMiB; });
  EXPECT_LE(host.turns, 1u) << "what was held ready for more growth comes back";
  EXPECT_GE(host.limit_bytes() + Host::kReserveBytes / 8,
            Host::kBudgetBytes - 2048 * kMiB - Host::kReserveBytes);
}

// A guest frees 512 MiB: most of it is the store's within 15 s, and no look gives much at once.
TEST(BudgetController, AStepDownGrowsSmoothly) {
  Host host;
  host.Run(100, [](auto) { return 2048 * kMiB; });
  const std::uint64_t before = host.limit_bytes();
  host.largest_rise_bytes = 0;
  host.Run(kTicksPerSecond, [](auto) { return 1536 * kMiB; });
  EXPECT_EQ(host.limit_bytes(), before) << "it may be gone again";
  host.Run(14 * kTicksPerSecond, [](auto) { return 1536 * kMiB; });
  EXPECT_GT(host.limit_bytes(), before + 512 * kMiB / 100 * 95);
  EXPECT_LT(host.largest_rise_bytes, 40 * kMiB);
  EXPECT_EQ(host.turns, 0u);
}

TEST(BudgetController, ARampIsFollowedBothWays) {
  Host host;
  host.Run(21, [](std::uint64_t i) { return (1024 + 100 * i) * kMiB; });
  EXPECT_LE(host.worst_bytes, Host::kBudgetBytes);
  EXPECT_EQ(host.turns, 0u);
  const std::uint64_t lowest = host.limit_bytes();
  host.Run(800,
           [](std::uint64_t i) { return (3024 - std::min<std::uint64_t>(i * 4, 2000)) * kMiB; });
  EXPECT_GT(host.limit_bytes(), lowest + 1500 * kMiB);
  EXPECT_LE(host.worst_bytes, Host::kBudgetBytes);
  EXPECT_EQ(host.turns, 1u);
}

// Faster than the calm time: the limit stays where the high half of the wave leaves it.
TEST(BudgetController, AFastSquareWaveMovesNothing) {
  Host host;
  const auto wave = [](std::uint64_t i) { return (i / 15 % 2 == 0 ? 2048u : 1700u) * kMiB; };
  host.Run(100, wave);
  const std::uint64_t settled = host.limit_bytes();
  host.turns = 0;
  host.Run(60 * kTicksPerSecond, wave);
  EXPECT_LE(host.turns, 1u);
  EXPECT_LE(std::max(host.limit_bytes(), settled) - std::min(host.limit_bytes(), settled),
            Host::kReserveBytes);
}

// Slower: once up and once down a period.
TEST(BudgetController, ASlowSquareWaveIsFollowedOnceAPeriod) {
  Host host;
  constexpr std::uint64_t kPeriodTicks = 20 * kTicksPerSecond;
  host.Run(10 * kPeriodTicks, [](std::uint64_t i) {
    const std::uint64_t at = i % kPeriodTicks;
    const std::uint64_t high = at < kPeriodTicks / 2 ? std::min<std::uint64_t>(at, 10) : 0;
    return (1024 + high * 100) * kMiB;
  });
  EXPECT_LE(host.worst_bytes, Host::kBudgetBytes);
  EXPECT_GE(host.turns, 18u);
  EXPECT_LE(host.turns, 20u);
}

TEST(BudgetController, SmallNoiseMovesNothing) {
  std::mt19937_64 random = Random();
  Host host;
  const auto noise = [&](auto) { return 2048 * kMiB + random() % (4 * kMiB); };
  host.Run(20 * kTicksPerSecond, noise);
  host.turns = 0;
  host.Run(120 * kTicksPerSecond, noise);
  EXPECT_LE(host.turns, 1u);
}

// Whatever guests do: the limit changes its direction at most twice in a calm time.
TEST(BudgetController, LargeNoiseTurnsItSeldom) {
  std::mt19937_64 random = Random();
  for (int round = 0; round < 20; ++round) {
    Host host;
    const std::uint64_t spread = (64 + random() % 1024) * kMiB;
    constexpr std::uint64_t kSeconds = 60;
    host.Run(kSeconds * kTicksPerSecond, [&](auto) { return 1024 * kMiB + random() % spread; });
    EXPECT_LE(host.turns, 2 * kSeconds * 1'000'000'000 / BudgetController::kCalmNs + 2) << spread;
  }
}

// Guests that grow, shrink, rest and jump down at random, by less than `most` bytes up in a tick.
void WalkRandomly(Host& host, std::mt19937_64& random, std::uint64_t most) {
  constexpr std::uint64_t kTop = Host::kBudgetBytes - Host::kMinLimitBytes;
  std::uint64_t guests = random() % kTop;
  for (int stretch = 0; stretch < 100; ++stretch) {
    const std::uint64_t kind = random() % 4;
    const std::uint64_t ticks = 1 + random() % 80;
    for (std::uint64_t i = 0; i < ticks; ++i) {
      if (kind == 0) guests = std::min(guests + random() % most, kTop);
      if (kind == 1) guests -= std::min(guests, random() % (200 * kMiB));
      if (kind == 2) guests = std::min(guests + most - 1, kTop);
      host.Tick(guests);
    }
    if (random() % 8 == 0) guests /= 2;
  }
}

TEST(BudgetController, GuestsThatGrowByLessThanTheReserveNeverPassTheBudget) {
  std::mt19937_64 random = Random();
  for (int round = 0; round < 50; ++round) {
    Host host;
    WalkRandomly(host, random, Host::kReserveBytes);
    ASSERT_LE(host.worst_bytes, Host::kBudgetBytes) << round;
    EXPECT_GT(host.worst_bytes, Host::kBudgetBytes / 2);
  }
}

TEST(BudgetController, AStoreThatFollowsALookLateIsCoveredByHalfTheReserve) {
  std::mt19937_64 random = Random();
  for (int round = 0; round < 50; ++round) {
    Host host(Host::Store::kFollowsATickLate);
    WalkRandomly(host, random, Host::kReserveBytes / 2);
    ASSERT_LE(host.worst_bytes, Host::kBudgetBytes) << round;
  }
}

TEST(BudgetController, FewLooksWhileThereIsRoomToSpare) {
  Host idle;
  idle.Run(20 * kTicksPerSecond, [](auto) { return 0; });
  EXPECT_LT(idle.looks, 20 * kTicksPerSecond / 6);
  Host tight;
  tight.Run(20 * kTicksPerSecond, [](auto) { return 2048 * kMiB; });
  EXPECT_GT(tight.looks, 20 * kTicksPerSecond / 2);
}

TEST(BudgetController, PressureShrinksAtOnceAndHoldsGrowthBack) {
  Host host;
  host.Run(100, [](auto) { return 1024 * kMiB; });
  const std::uint64_t before = host.limit_bytes();
  const std::uint64_t times = host.controller().times_pressed();
  host.Tick(1024 * kMiB, kTickNs);
  while (!host.controller().pressed()) host.Tick(1024 * kMiB, kTickNs);
  EXPECT_LT(host.limit_bytes(), before - before / 16);
  EXPECT_EQ(host.controller().times_pressed(), times + 1);
  for (std::uint64_t i = 0; i < 2 * kTicksPerSecond; ++i) host.Tick(1024 * kMiB, kTickNs);
  EXPECT_LT(host.limit_bytes(), Host::kMinLimitBytes + 20 * kMiB);
  const std::uint64_t lowest = host.limit_bytes();
  host.Run(9 * kTicksPerSecond, [](auto) { return 1024 * kMiB; });
  EXPECT_EQ(host.limit_bytes(), lowest);
  EXPECT_EQ(host.turns, 0u);
  host.Run(11 * kTicksPerSecond, [](auto) { return 1024 * kMiB; });
  EXPECT_GT(host.limit_bytes(), before - Host::kReserveBytes / 4);
  EXPECT_EQ(host.turns, 1u);
}

TEST(BudgetController, AnOccasionalWaitIsNoPressure) {
  Host host;
  for (std::uint64_t i = 0; i < 60 * kTicksPerSecond; ++i) {
    host.Tick(1024 * kMiB, i % 4 == 0 ? 15'000'000 : 0);
  }
  EXPECT_EQ(host.controller().times_pressed(), 0u);
}

// The lowest limit rises as guests come, and cannot be argued with.
TEST(BudgetController, TheLowestLimitHoldsWhateverTheGuestsHave) {
  BudgetController controller(
      {.budget_bytes = 1024 * kMiB, .reserve_bytes = 64 * kMiB, .max_limit_bytes = 800 * kMiB});
  BudgetSample sample{
      .now_ns = 1, .guests_bytes = 900 * kMiB, .min_limit_bytes = 200 * kMiB, .stalled_ns = 5};
  EXPECT_EQ(controller.Next(sample), 200 * kMiB);
  sample.now_ns += kTickNs;
  sample.min_limit_bytes = 210 * kMiB;
  sample.guests_bytes = UINT64_MAX;
  sample.stalled_ns = 0;  // the counter went back: another one
  EXPECT_EQ(controller.Next(sample), 210 * kMiB);
  sample.now_ns += kTickNs;
  sample.min_limit_bytes = 5000 * kMiB;
  EXPECT_EQ(controller.Next(sample), 800 * kMiB);
}

}  // namespace
}  // namespace tmem
