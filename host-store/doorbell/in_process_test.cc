// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/doorbell/in_process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "host-store/window/shared_memory_access.h"
#include "host-store/window/test_guest.h"

namespace tmem {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

InProcessOptions Options(std::uint32_t workers) {
  InProcessOptions options{};
  options.store.limit_bytes = 64u << 20;
  options.store.pool_min_bytes = 32u << 20;
  options.store.seed = 1;
  options.workers = workers;
  return options;
}

// Everything here holds with and without workers.
class InProcess : public testing::TestWithParam<std::uint32_t> {
 protected:
  InProcess() : host_(InProcessHost::Create(Options(GetParam()), clock_).value()) {}

  std::unique_ptr<InProcessGuest> Connect(const std::string& name) {
    return host_->Connect({.name = name, .domain = ""}).value();
  }
  static TestGuest Attach(InProcessGuest& guest) {
    return TestGuest(guest.window().data(), [&guest] { guest.Kick(); });
  }

  SteadyClock clock_;
  std::unique_ptr<InProcessHost> host_;
};

INSTANTIATE_TEST_SUITE_P(Workers, InProcess, testing::Values(0u, 1u, 2u));

TEST_P(InProcess, PagesGoInAndComeBack) {
  const auto guest = Connect("a");
  TestGuest side = Attach(*guest);
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = side.CreatePool(TMEM_POOL_EPHEMERAL);
  ASSERT_NE(pool, 0u);
  for (std::uint64_t i = 0; i < 300; ++i) {
    const auto kind = i % 2 == 0 ? TestPageKind::kRandom : TestPageKind::kCompressible;
    ASSERT_EQ(side.Put({pool, 1, i}, MakeTestPage(i, kind)), TMEM_STATUS_OK) << i;
  }
  for (std::uint64_t i = 0; i < 300; ++i) {
    const auto kind = i % 2 == 0 ? TestPageKind::kRandom : TestPageKind::kCompressible;
    TestPage page;
    ASSERT_EQ(side.Get({pool, 1, i}, page), TMEM_STATUS_OK) << i;
    EXPECT_EQ(page, MakeTestPage(i, kind)) << i;
    EXPECT_EQ(side.Get({pool, 1, i}, page), TMEM_STATUS_MISS) << i;  // G1
  }
}

TEST_P(InProcess, PersistentPagesStayAndKeepTheirTag) {
  const auto guest = Connect("a");
  TestGuest side = Attach(*guest);
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = side.CreatePool(TMEM_POOL_PERSISTENT);
  // The notice follows the answer: a worker may be between the two.
  for (int tries = 0; side.CreditsGranted() == 0 && tries < 10'000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_GT(side.CreditsGranted(), 0u);
  ASSERT_EQ(side.Put({pool, 0, 5}, MakeTestPage(5, TestPageKind::kRandom), 77), TMEM_STATUS_OK);
  ASSERT_EQ(side.PutFilled({pool, 0, 6}, 0, 78), TMEM_STATUS_OK);
  for (int round = 0; round < 2; ++round) {
    TestPage page;
    std::uint32_t tag = 0;
    ASSERT_EQ(side.Get({pool, 0, 5}, page, &tag), TMEM_STATUS_OK);
    EXPECT_EQ(page, MakeTestPage(5, TestPageKind::kRandom));
    EXPECT_EQ(tag, 77u);
    ASSERT_EQ(side.Get({pool, 0, 6}, page, &tag), TMEM_STATUS_OK);
    EXPECT_EQ(page, TestPage{});
    EXPECT_EQ(tag, 78u);
  }
  ASSERT_EQ(side.Flush({pool, 0, 0}, 100), TMEM_STATUS_OK);
  TestPage page;
  EXPECT_EQ(side.Get({pool, 0, 5}, page), TMEM_STATUS_MISS);
}

TEST_P(InProcess, GuestsDoNotSeeEachOther) {
  const auto a = Connect("a");
  const auto b = Connect("b");
  TestGuest side_a = Attach(*a);
  TestGuest side_b = Attach(*b);
  ASSERT_EQ(side_a.Register(), TMEM_STATUS_OK);
  ASSERT_EQ(side_b.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool_a = side_a.CreatePool(TMEM_POOL_EPHEMERAL);
  const std::uint64_t pool_b = side_b.CreatePool(TMEM_POOL_EPHEMERAL);
  ASSERT_EQ(side_a.Put({pool_a, 1, 1}, MakeTestPage(1, TestPageKind::kRandom)), TMEM_STATUS_OK);
  TestPage page;
  EXPECT_EQ(side_b.Get({pool_b, 1, 1}, page), TMEM_STATUS_MISS);
  EXPECT_NE(side_b.Get({pool_a, 1, 1}, page), TMEM_STATUS_OK);
  EXPECT_EQ(side_a.Get({pool_a, 1, 1}, page), TMEM_STATUS_OK);
}

TEST_P(InProcess, TheEndOfAGuestGivesItsNameAndMemoryBack) {
  for (int round = 0; round < 20; ++round) {  // 20 x 4 MiB of window pass 64 MiB if leaked
    const auto guest = Connect("a");
    TestGuest side = Attach(*guest);
    ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
    const std::uint64_t pool = side.CreatePool(TMEM_POOL_EPHEMERAL);
    ASSERT_EQ(side.PutFilled({pool, 1, 1}, 1), TMEM_STATUS_OK);
  }
  EXPECT_FALSE(host_->Connect({.name = "a", .domain = ""}).value() == nullptr);
}

TEST_P(InProcess, CallWaitsForTheLanesNamed) {
  const auto guest = Connect("a");
  TestGuest side = Attach(*guest);
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  const std::uint64_t first = side.Stage(2, tmem_desc{});
  StoreRelease(side.view().lane(2).head().posted, tmem_u64{1});
  ASSERT_TRUE(guest->Call(1u << 2, 60 * kSecondNs));
  EXPECT_EQ(side.Result(2, first).status, TMEM_STATUS_OK);
}

TEST_P(InProcess, APausedHostAnswersNothingAndGoesOnLater) {
  const auto guest = Connect("a");
  TestGuest side = Attach(*guest);
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  guest->Pause();
  const std::uint64_t counter = side.Stage(0, tmem_desc{});
  side.Publish(0);
  EXPECT_FALSE(guest->Call(1, kSecondNs / 100));
  EXPECT_FALSE(side.IsDone(0, counter));
  guest->Resume();
  EXPECT_TRUE(side.WaitDone(0, counter));
}

// X2: credits come back first, then puts are refused, with P2; gets and flushes go on.
TEST_P(InProcess, X2FreezeTakesCreditsBackAndThenRefusesPuts) {
  const auto guest = Connect("a");
  TestGuest side = Attach(*guest);
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = side.CreatePool(TMEM_POOL_PERSISTENT);
  const std::uint64_t ephemeral = side.CreatePool(TMEM_POOL_EPHEMERAL);
  ASSERT_EQ(side.PutFilled({pool, 0, 1}, 1), TMEM_STATUS_OK);
  ASSERT_EQ(side.PutFilled({ephemeral, 0, 1}, 1), TMEM_STATUS_OK);
  guest->Freeze();
  const tmem_host_page& host = side.view().host_page();
  EXPECT_EQ(LoadAcquire(host.credits_target), 0u);
  EXPECT_EQ(LoadAcquire(host.frozen), 0u);
  ASSERT_EQ(side.PutFilled({pool, 0, 2}, 2), TMEM_STATUS_OK);  // made with a credit: no refusal
  tmem_desc back{};
  back.op = TMEM_OP_CREDIT_RETURN;
  back.value = side.CreditsGranted() - 2;
  const tmem_desc result = side.Do(side.view().control_lane(), back);
  EXPECT_EQ(result.status, TMEM_STATUS_OK);
  EXPECT_EQ(result.value, back.value);
  (void)side.Do(0, tmem_desc{});
  EXPECT_EQ(LoadAcquire(host.frozen), 1u);
  EXPECT_EQ(side.PutFilled({ephemeral, 0, 1}, 9), TMEM_STATUS_FROZEN);
  TestPage page;
  EXPECT_EQ(side.Get({ephemeral, 0, 1}, page), TMEM_STATUS_MISS);  // P2
  EXPECT_EQ(side.Get({pool, 0, 2}, page), TMEM_STATUS_OK);
  guest->Thaw();
  EXPECT_EQ(side.PutFilled({ephemeral, 0, 1}, 9), TMEM_STATUS_OK);
}

TEST(InProcessNotify, AWaitingGuestIsRungOncePerVisit) {
  SteadyClock clock;
  const auto host = InProcessHost::Create(Options(0), clock).value();
  std::atomic<int> rings{0};
  const auto guest = host->Connect({.name = "a", .domain = ""}, [&] { ++rings; }).value();
  TestGuest side(guest->window().data(), [&] { guest->Kick(); });
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  EXPECT_EQ(rings, 1);  // the answer to the registration
  (void)side.Do(0, tmem_desc{});
  EXPECT_EQ(rings, 1);
  StoreRelaxed(side.view().lane(0).head().guest_waits, tmem_u32{1});
  const std::uint64_t seen = guest->notifications();
  for (int i = 0; i < 5; ++i) (void)side.Stage(0, tmem_desc{});
  side.Publish(0);
  EXPECT_TRUE(guest->WaitForNotification(seen, kSecondNs));
  EXPECT_EQ(rings, 2);
}

}  // namespace
}  // namespace tmem
