// SPDX-License-Identifier: GPL-2.0-only
// Swapped-out pages that no host has acknowledged: read from where they wait, put to the next host.
#include <chrono>
#include <thread>

#include "tests/guest_core/client_fixture.h"

namespace tmem {
namespace {

class Replay : public SwapFixture {
 protected:
  // The host has taken slots 0 to 9 and stops; then 5 to 39 are stored, 5 to 9 of them again,
  // and 50.
  void StoreOverTaken() {
    ConnectSwap(TMEM_POOL_PERSISTENT, 1000, {.key_lanes = 2, .ring_entries = 64, .lane_slots = 40});
    for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(Store(i, i));
    Kick();
    Kick();  // acknowledged
    host_->Stop();
    for (std::uint64_t i = 5; i < 40; ++i) ASSERT_TRUE(Store(i, 100 + i));  // 5..9 again
    ASSERT_EQ(tmem_swap_store(client_.get(), kArea, 50, kFilled.data()), TMEM_SWAP_KEPT);
  }

  // Those are right, if since then 20 was invalidated and 21 stored with 999.
  void ExpectUntaken() {
    for (std::uint64_t i = 5; i < 40; ++i) {
      if (i == 20) {
        EXPECT_EQ(Load(i, 120), Loaded::kDevice);
      } else {
        EXPECT_EQ(Load(i, i == 21 ? 999 : 100 + i), Loaded::kRight) << i;
      }
    }
    EXPECT_EQ(LoadPage(50), kFilled);
  }

 private:
  static constexpr Page kFilled = [] {
    Page page{};
    page.fill(0x11);
    return page;
  }();
};

TEST_F(Replay, P3_WhatTheHostHasNotTakenIsReadFromItsSlot) {
  ASSERT_NO_FATAL_FAILURE(StoreOverTaken());
  Kick();  // published; nobody takes them
  Invalidate(20);
  ASSERT_TRUE(Store(21, 999));
  EXPECT_EQ(Load(0, 0), Loaded::kError) << "the host has it, and is lost";
  ExpectUntaken();
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_load_unacknowledged), 35u);
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_load_errors), 1u);
  host_->Start();
  host_->Process();
  Settle();
  EXPECT_EQ(Load(0, 0), Loaded::kRight) << "late is not lost";
  EXPECT_EQ(Load(30, 130), Loaded::kRight);
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_load_unacknowledged), 35u);
}

TEST_F(Replay, P3_UnacknowledgedPutsAreReplayedAndTheOthersAreErrors) {
  ASSERT_NO_FATAL_FAILURE(StoreOverTaken());
  Invalidate(20);
  ASSERT_TRUE(Store(21, 999));  // replaced meanwhile
  host_->Start();
  host_->Reset();
  // A new host grants credits as soon as there is a persistent pool.
  host_->intercept = [&](const tmem_desc& desc) -> std::uint16_t {
    if (desc.op == TMEM_OP_POOL_CREATE) host_->Grant(1000);
    return 0;
  };
  Settle();
  EXPECT_EQ(Count(TMEM_COUNT_resets), 1u);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(Load(i, i), Loaded::kError) << i;
  ExpectUntaken();
}

TEST_F(Replay, P3_AReplayWithoutCreditsIsKeptReadAndTriedAgain) {
  ConnectSwap(TMEM_POOL_PERSISTENT, 1000, {.key_lanes = 2, .ring_entries = 64, .lane_slots = 40});
  host_->Stop();
  for (std::uint64_t i = 0; i < 30; ++i) ASSERT_TRUE(Store(i, 100 + i));
  host_->Start();
  host_->Reset();
  tmem_client_work(client_.get());  // registers; waits for credits in vain
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_replayed), 0u);
  for (std::uint64_t i = 0; i < 30; ++i) EXPECT_EQ(Load(i, 100 + i), Loaded::kRight) << i;
  Invalidate(3);
  host_->Grant(10);
  EXPECT_GT(tmem_client_work(client_.get()), 0u) << "some is left";
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_replayed), 10u);
  // The next host takes over before all is put: what this one took is lost, the rest is not.
  Kick();
  Kick();
  host_->Reset();
  tmem_client_work(client_.get());
  std::uint64_t errors = 0;
  for (std::uint64_t i = 0; i < 30; ++i) {
    const Loaded loaded = Load(i, 100 + i);
    if (i == 3) {
      EXPECT_EQ(loaded, Loaded::kDevice);
    } else {
      EXPECT_NE(loaded, Loaded::kWrong);
      errors += loaded == Loaded::kError;
    }
  }
  EXPECT_EQ(errors, 10u);
  host_->Grant(1000);
  Settle();
  tmem_client_work(client_.get());
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_replayed), 29u);
  Kick();
  EXPECT_EQ(host_->pages(), 19u);
  EXPECT_EQ(Load(29, 129), Loaded::kRight);
}

TEST_F(Replay, P3_AReplayDoneTwiceIsHarmless) {
  ConnectSwap(TMEM_POOL_PERSISTENT, 1000, {.key_lanes = 2, .ring_entries = 64, .lane_slots = 40});
  host_->Stop();
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(Store(i, 100 + i));
  host_->Start();
  for (int turn = 0; turn < 3; ++turn) {
    host_->Reset();
    host_->intercept = [&](const tmem_desc& desc) -> std::uint16_t {
      if (desc.op == TMEM_OP_POOL_CREATE) {
        host_->Grant(1000);
        host_->Stop();  // takes no put of the replay
      }
      return 0;
    };
    tmem_client_work(client_.get());
    host_->Start();
  }
  host_->intercept = nullptr;
  host_->Process();
  Settle();
  EXPECT_EQ(host_->pages(), 20u);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(Load(i, 100 + i), Loaded::kRight) << i;
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_load_errors), 0u);
}

TEST_F(Replay, AWaiterRingsAgainWhateverAwakeSays) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  ASSERT_TRUE(Store(1, 1));
  Kick();
  Kick();
  client_->options.load_timeout_ns = TMEM_NS_PER_S;
  host_->header().host.awake = 1;  // from before a rollback, or of a daemon that died
  const std::uint64_t before_ns = tmem_now_ns();
  EXPECT_EQ(Load(1, 1), Loaded::kRight);
  EXPECT_LT(tmem_now_ns() - before_ns, TMEM_NS_PER_S / 2);
}

// It knew nothing of the guest, which waited for it in vain for ever.
TEST_F(Replay, AHostThatTakesOverRightAfterTheAnswerOfItsPredecessorIsAskedAgain) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  int answers = 0;
  host_->answered = [&] {
    if (++answers == 1) host_->Reset();
  };
  ASSERT_EQ(tmem_client_register(client_.get()), 0);
  EXPECT_EQ(answers, 2);
  host_->Grant(1000);
  ASSERT_TRUE(Store(0, 7));
  EXPECT_EQ(Load(0, 7), Loaded::kRight);
}

TEST_F(Replay, AHostThatNeverStopsStartingOverIsTriedLater) {
  Connect();
  host_->answered = [&] { host_->Reset(); };
  EXPECT_NE(tmem_client_register(client_.get()), 0);
  host_->answered = nullptr;
  tmem_client_work(client_.get());
  EXPECT_EQ(Count(TMEM_COUNT_resets), 1u);
}

// The wait was two seconds long, and the next host as good as lost meanwhile.
TEST_F(Replay, AWaitEndsWhenTheHostIsReplaced) {
  Connect();
  host_->Stop();
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    host_->Reset();
    tmem_client_interrupt(client_.get());
  });
  const std::uint64_t start_ns = tmem_now_ns();
  const int pool = tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL);
  EXPECT_LT(tmem_now_ns() - start_ns, TMEM_CONTROL_TIMEOUT_NS / 2);
  other.join();
  ASSERT_GE(pool, 0);
  EXPECT_EQ(client_->pools[pool].handle, 0u);
  host_->Start();
  tmem_client_work(client_.get());
  EXPECT_NE(client_->pools[pool].handle, 0u);
}

}  // namespace
}  // namespace tmem
