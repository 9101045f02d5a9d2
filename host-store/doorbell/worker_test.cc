// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/doorbell/worker.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <thread>

#include "host-store/doorbell/in_process.h"
#include "host-store/window/shared_memory_access.h"
#include "host-store/window/test_guest.h"

namespace tmem {
namespace {

InProcessOptions Options(std::uint32_t workers, std::uint64_t poll_ns) {
  InProcessOptions options{};
  options.store.limit_bytes = 96u << 20;
  options.store.pool_min_bytes = 32u << 20;
  options.store.seed = 1;
  options.workers = workers;
  options.worker.poll_ns = poll_ns;
  return options;
}

// Kick suppression loses no wake-up: with a poll time of 0 the worker goes to sleep after each
// operation, in a race with the guest that publishes the next one. A lost one hangs the lane, and
// TestGuest gives up after a minute.
TEST(Worker, NoWakeUpIsLost) {
  SteadyClock clock;
  for (const std::uint64_t poll_ns : {std::uint64_t{0}, std::uint64_t{2'000}}) {
    const auto host = InProcessHost::Create(Options(1, poll_ns), clock).value();
    const auto guest = host->Connect({.name = "a", .domain = ""}).value();
    std::uint64_t kicks = 0;
    TestGuest side(guest->window().data(), [&] {
      ++kicks;
      guest->Kick();
    });
    ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
    constexpr std::uint64_t kRounds = 5000;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
      const auto lane = static_cast<std::uint32_t>(i % side.view().lane_count());
      ASSERT_EQ(side.Do(lane, tmem_desc{}).status, TMEM_STATUS_OK) << i;
    }
    std::printf("poll %llu ns: %llu rings for %llu hand-overs\n",
                static_cast<unsigned long long>(poll_ns), static_cast<unsigned long long>(kicks),
                static_cast<unsigned long long>(kRounds));
  }
}

// The other direction: a guest that sets guest_waits and sleeps is always rung.
TEST(Worker, NoNotificationIsLost) {
  SteadyClock clock;
  const auto host = InProcessHost::Create(Options(1, 1'000), clock).value();
  const auto guest = host->Connect({.name = "a", .domain = ""}).value();
  TestGuest side(guest->window().data(), [&] { guest->Kick(); });
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  tmem_lane_head& head = side.view().lane(0).head();
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t counter = side.Stage(0, tmem_desc{});
    side.Publish(0);
    for (;;) {
      const std::uint64_t seen = guest->notifications();
      StoreRelaxed(head.guest_waits, tmem_u32{1});
      FullFence();
      if (side.IsDone(0, counter)) break;
      ASSERT_TRUE(guest->WaitForNotification(seen, 60'000'000'000)) << i;
    }
    StoreRelaxed(head.guest_waits, tmem_u32{0});
  }
}

// The daemon's count of rings is exact although rings of a worker that is awake come together.
TEST(Worker, EachRingIsCounted) {
  SteadyClock clock;
  const auto host = InProcessHost::Create(Options(1, 1'000), clock).value();
  const auto guest = host->Connect({.name = "a", .domain = ""}).value();
  std::uint64_t kicks = 0;
  TestGuest side(guest->window().data(), [&] {
    ++kicks;
    guest->Kick();
  });
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(side.Do(0, tmem_desc{}).status, TMEM_STATUS_OK) << i;
    for (int more = 0; more < i % 3; ++more) {
      ++kicks;
      guest->Kick();
    }
  }
  const std::uint64_t deadline_ns = clock.NowNs() + 10'000'000'000;
  while (guest->counters().rings_received.value() < kicks && clock.NowNs() < deadline_ns) {
    std::this_thread::yield();
  }
  EXPECT_EQ(guest->counters().rings_received.value(), kicks);
}

// Several guests, each in its own thread, on fewer workers; every page comes back as it was put.
TEST(Worker, ManyGuestsAtOnce) {
  SteadyClock clock;
  const auto host = InProcessHost::Create(Options(2, 20'000), clock).value();
  std::vector<std::unique_ptr<InProcessGuest>> guests;
  for (int i = 0; i < 5; ++i) {
    guests.push_back(host->Connect({.name = "g" + std::to_string(i), .domain = "d"}).value());
  }
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < guests.size(); ++number) {
    threads.emplace_back([&, number] {
      InProcessGuest& guest = *guests[number];
      TestGuest side(guest.window().data(), [&] { guest.Kick(); });
      ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
      const std::uint64_t pool = side.CreatePool(TMEM_POOL_EPHEMERAL);
      for (std::uint64_t i = 0; i < 300; ++i) {
        // Odd ones are equal in all guests.
        const TestPage put =
            MakeTestPage(i % 2 == 0 ? number * 1000 + i : i, TestPageKind::kCompressible);
        ASSERT_EQ(side.Put({pool, 1, i}, put), TMEM_STATUS_OK);
        TestPage got;
        ASSERT_EQ(side.Get({pool, 1, i}, got), TMEM_STATUS_OK);
        ASSERT_EQ(got, put);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A guest that floods its lanes does not keep another one waiting: the other one's operation is
// done while the flood goes on.
TEST(Worker, NoGuestHogs) {
  SteadyClock clock;
  const auto host = InProcessHost::Create(Options(1, 0), clock).value();
  const auto hog = host->Connect({.name = "hog", .domain = ""}).value();
  const auto quiet = host->Connect({.name = "quiet", .domain = ""}).value();
  TestGuest hog_side(hog->window().data(), [&] { hog->Kick(); });
  TestGuest quiet_side(quiet->window().data(), [&] { quiet->Kick(); });
  ASSERT_EQ(hog_side.Register(), TMEM_STATUS_OK);
  ASSERT_EQ(quiet_side.Register(), TMEM_STATUS_OK);
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop.load()) {
      for (std::uint32_t lane = 0; lane < 8; ++lane) {
        for (int i = 0; i < 64; ++i) (void)hog_side.Stage(lane, tmem_desc{});
        hog_side.Publish(lane);
      }
    }
  });
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(quiet_side.Do(0, tmem_desc{}).status, TMEM_STATUS_OK);
  }
  stop = true;
  flood.join();
}

// A guest that waits again and again finds the worker awake, although it works longer between two
// waits than a worker polls otherwise; when it stops, the worker sleeps.
TEST(Worker, AStreamKeepsTheWorkerAwakeForLonger) {
  FakeClock clock(1'000'000'000);
  InProcessOptions options = Options(1, 1'000);
  options.worker.stream_poll_ns = 500'000;
  const auto host = InProcessHost::Create(options, clock).value();
  const auto guest = host->Connect({.name = "a", .domain = ""}).value();
  TestGuest side(guest->window().data(), [&] { guest->Kick(); });
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = side.CreatePool(TMEM_POOL_EPHEMERAL);
  const auto sleeps_within = [&](std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (LoadRelaxed(side.view().host_page().awake) != 0) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::yield();
    }
    return true;
  };
  constexpr std::chrono::milliseconds kLong(20'000);
  TestPage page;
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(side.Get({pool, 1, i}, page), TMEM_STATUS_MISS);
    clock.AdvanceNs(100'000);
    // The worker may have noted its work only now, at the later time.
    for (int tries = 0; tries < 100 && !sleeps_within(std::chrono::milliseconds(100)); ++tries) {
      clock.AdvanceNs(2'000);
    }
    ASSERT_TRUE(sleeps_within(kLong)) << "a few gets are no stream";
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(side.Get({pool, 1, i}, page), TMEM_STATUS_MISS);
    clock.AdvanceNs(10'000);
  }
  clock.AdvanceNs(300'000);
  EXPECT_FALSE(sleeps_within(std::chrono::milliseconds(200)));
  clock.AdvanceNs(3'000'000);
  EXPECT_TRUE(sleeps_within(kLong)) << "the stream has ended";
}

TEST(Worker, AnIdleWorkerUsesNoCpu) {
  SteadyClock clock;
  const auto host = InProcessHost::Create(Options(2, 100'000), clock).value();
  const auto guest = host->Connect({.name = "a", .domain = ""}).value();
  TestGuest side(guest->window().data(), [&] { guest->Kick(); });
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  const auto process_cpu_ns = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto start_ns = process_cpu_ns();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(process_cpu_ns() - start_ns, 20'000'000);  // 2 %; a poller would take 100 %
}

}  // namespace
}  // namespace tmem
