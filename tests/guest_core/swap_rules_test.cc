// SPDX-License-Identifier: GPL-2.0-only
// Swapped-out pages: promises, tags, credits, writethrough.
#include "tests/guest_core/client_fixture.h"

namespace tmem {
namespace {

class SwapRules : public SwapFixture {};

TEST_F(SwapRules, G1_APersistentPageStaysUntilInvalidated) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  ASSERT_TRUE(Store(7, 7));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Load(7, 7), Loaded::kRight);
  Invalidate(7);
  Kick();
  EXPECT_EQ(host_->pages(), 0u);
  EXPECT_EQ(Load(7, 7), Loaded::kDevice);
}

TEST_F(SwapRules, StoringIsNotWaitingForTheHost) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  const std::uint64_t rings = host_->rings();
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(Store(i, i));
  EXPECT_EQ(host_->rings(), rings);
  for (std::uint64_t i = 0; i < 16; ++i) EXPECT_EQ(Load(i, i), Loaded::kRight);
}

TEST_F(SwapRules, WithoutACreditAStoreIsRefusedAndNothingOlderIsHeld) {
  ConnectSwap(TMEM_POOL_PERSISTENT, 2);
  EXPECT_TRUE(Store(1, 1));
  EXPECT_TRUE(Store(2, 2));
  EXPECT_FALSE(Store(3, 3));
  EXPECT_FALSE(Store(1, 11));
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_refused_no_credit), 2u);
  Kick();
  EXPECT_EQ(Load(1, 1), Loaded::kDevice);
  EXPECT_EQ(Load(2, 2), Loaded::kRight);
  EXPECT_EQ(host_->pages(), 1u);
  host_->Grant(1);
  EXPECT_TRUE(Store(1, 12));
  EXPECT_EQ(Load(1, 12), Loaded::kRight);
}

TEST_F(SwapRules, CreditsThatCannotBeRightAreNone) {
  ConnectSwap(TMEM_POOL_PERSISTENT, ~0ULL - 5);
  EXPECT_FALSE(Store(1, 1));
}

TEST_F(SwapRules, X2_ExcessCreditsGoBackAndAFrozenHostGetsNoStores) {
  ConnectSwap(TMEM_POOL_PERSISTENT, 10);
  host_->header().host.credits_target = 4;
  EXPECT_TRUE(tmem_client_interrupt(client_.get()));
  tmem_client_work(client_.get());
  EXPECT_EQ(tmem_credit_available(&client_->credit), 4u);
  EXPECT_EQ(host_->executed(TMEM_OP_CREDIT_RETURN), 1u);
  host_->header().host.frozen = 1;
  EXPECT_FALSE(Store(1, 1));
}

TEST_F(SwapRules, C7_TheTagIsComparedAndAMismatchIsAnError) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  ASSERT_TRUE(Store(7, 7));
  Kick();
  for (auto& [name, stored] : host_->stored()) stored.tag ^= 1;
  EXPECT_EQ(Load(7, 7), Loaded::kError);
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_tag_mismatches), 1u);
  EXPECT_EQ(Load(7, 7), Loaded::kError) << "and stays one";
  Invalidate(7);
  ASSERT_TRUE(Store(7, 8));
  EXPECT_EQ(Load(7, 8), Loaded::kRight);
}

TEST_F(SwapRules, C7_AMissOfAHeldPageIsAnErrorUnlessTheDeviceHasIt) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  ASSERT_TRUE(Store(1, 1));
  ASSERT_TRUE(Store(2, 2));
  Written(2);
  Kick();
  host_->stored().clear();
  EXPECT_EQ(Load(1, 1), Loaded::kError);
  EXPECT_EQ(Load(2, 2), Loaded::kDevice);
}

TEST_F(SwapRules, C7_TheDeviceBitIsClearedByEachNewStore) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  ASSERT_TRUE(Store(1, 1));
  Written(1);
  ASSERT_TRUE(Store(1, 2));
  Kick();
  host_->stored().clear();
  EXPECT_EQ(Load(1, 2), Loaded::kError);
}

TEST_F(SwapRules, AReusedSlotNeverLosesItsNewPage) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  for (std::uint64_t round = 0; round < 50; ++round) {
    ASSERT_TRUE(Store(3, round));
    if (round % 3 == 0) Kick();
    EXPECT_EQ(Load(3, round), Loaded::kRight);
    Invalidate(3);
    if (round % 2 == 0) Kick();
  }
}

TEST_F(SwapRules, F1_InvalidatesNeedNoRoomAndANewStoreIsNotFlushedByAnOldOne) {
  ConnectSwap(TMEM_POOL_PERSISTENT, 1000, {.key_lanes = 1, .ring_entries = 32, .lane_slots = 24});
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(Store(i, i));
    Kick();
  }
  host_->Stop();
  for (std::uint64_t i = 0; i < 100; i += 2) Invalidate(i);  // not adjacent: cannot merge
  EXPECT_GT(Count(TMEM_COUNT_frontswap_invalidates_pending), 0u);
  host_->Start();
  host_->Process();
  ASSERT_TRUE(Store(98, 1098)) << "its flush is still pending";
  Settle();
  Settle();
  EXPECT_EQ(host_->pages(), 51u);
  EXPECT_EQ(Load(98, 1098), Loaded::kRight);
  for (std::uint64_t i = 1; i < 100; i += 2) EXPECT_EQ(Load(i, i), Loaded::kRight);
}

TEST_F(SwapRules, NeighboursFreedTogetherAreOneFlush) {
  ConnectSwap(TMEM_POOL_PERSISTENT, 1000, {.key_lanes = 2, .ring_entries = 256, .lane_slots = 120});
  for (std::uint64_t i = 0; i < 64; ++i) ASSERT_TRUE(Store(i, i));
  Kick();
  Invalidate(0, 64);
  Kick();
  EXPECT_EQ(host_->pages(), 0u);
  EXPECT_LE(host_->executed(TMEM_OP_FLUSH), 2u);
}

TEST_F(SwapRules, C6_SwapoffDropsTheAreaAndItCanBeUsedAgain) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  for (std::uint64_t i = 0; i < 40; ++i) ASSERT_TRUE(Store(i * 9, i));
  tmem_swap_off(client_.get(), kArea);
  Kick();
  EXPECT_EQ(host_->pages(), 0u);
  ASSERT_EQ(tmem_swap_on(client_.get(), kArea, 500), 0);
  EXPECT_EQ(Load(9, 1), Loaded::kDevice);
  ASSERT_TRUE(Store(9, 5));
  EXPECT_EQ(Load(9, 5), Loaded::kRight);
}

TEST_F(SwapRules, AStoreWaitsForRoomButNotForLong) {
  ConnectSwap(TMEM_POOL_PERSISTENT, 1000, {.key_lanes = 1, .ring_entries = 64, .lane_slots = 4});
  host_->Stop();
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(Store(i, i));
  EXPECT_FALSE(Store(4, 4));
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_refused_no_room), 1u);
  EXPECT_EQ(tmem_credit_available(&client_->credit), 996u) << "the credit was not used";
  const std::uint64_t before_ns = tmem_now_ns();
  EXPECT_FALSE(Store(5, 5));
  EXPECT_LT(tmem_now_ns() - before_ns, kTimeoutNs) << "one time-out, then at once";
  EXPECT_EQ(client_->breakers[TMEM_KIND_PERSISTENT].open, 0u) << "loads still wait for theirs";
  host_->Start();
  host_->Process();
  EXPECT_TRUE(Store(4, 4));
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(Load(i, i), Loaded::kRight);
}

TEST_F(SwapRules, ALoadThatTimesOutIsAnErrorAndTheNextOneAtOnce) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  ASSERT_TRUE(Store(1, 1));
  Kick();
  host_->Stop();
  EXPECT_EQ(Load(1, 1), Loaded::kError);
  const std::uint64_t before_ns = tmem_now_ns();
  EXPECT_EQ(Load(1, 1), Loaded::kError);
  EXPECT_FALSE(Store(2, 2)) << "puts of that kind are refused";
  EXPECT_LT(tmem_now_ns() - before_ns, kTimeoutNs);
  host_->Start();
  host_->Process();
  Settle();
  EXPECT_EQ(Load(1, 1), Loaded::kRight) << "late is not lost";
}

TEST_F(SwapRules, ABrokenPromiseIsAnErrorNeverOtherBytes) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  ASSERT_TRUE(Store(1, 1));
  Kick();
  host_->intercept = [&](const tmem_desc& desc) -> std::uint16_t {
    return desc.op == TMEM_OP_PUT ? TMEM_STATUS_NO_SPACE : 0;
  };
  ASSERT_TRUE(Store(1, 2));
  Kick();
  Kick();
  host_->intercept = nullptr;
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_puts_failed), 1u);
  EXPECT_EQ(Load(1, 2), Loaded::kError);
}

TEST_F(SwapRules, WritethroughUsesNoCreditAndFallsBackToTheDevice) {
  ConnectSwap(TMEM_POOL_EPHEMERAL, 0);
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(Store(i, i));
  for (std::uint64_t i = 0; i < 5; ++i) Written(i);
  Kick();
  EXPECT_EQ(Load(0, 0), Loaded::kRight);
  EXPECT_EQ(Load(0, 0), Loaded::kDevice) << "taken: it is on the device";
  host_->stored().clear();  // the host may drop it at will
  EXPECT_EQ(Load(1, 1), Loaded::kDevice);
  EXPECT_EQ(Load(5, 5), Loaded::kError) << "its write has not completed";
  host_->EndEpoch();
  Settle();
  EXPECT_EQ(Load(2, 2), Loaded::kDevice);
  ASSERT_TRUE(Store(2, 22));
  EXPECT_EQ(Load(2, 22), Loaded::kRight);
}

TEST_F(SwapRules, LoadsInABatchAreOneCall) {
  ConnectSwap(TMEM_POOL_PERSISTENT);
  for (std::uint64_t i = 0; i < 16; ++i) {
    if (i != 3) {
      ASSERT_TRUE(Store(i * 40, i));
    }
  }
  Kick();
  std::array<Page, 16> pages;
  void* pointers[16];
  u64 slots[16];
  tmem_swap_loaded results[16];
  for (std::size_t i = 0; i < 16; ++i) {
    pointers[i] = pages[i].data();
    slots[i] = i * 40;
  }
  const std::uint64_t rings = host_->rings();
  tmem_swap_load(client_.get(), kArea, 16, slots, pointers, results);
  EXPECT_EQ(host_->rings() - rings, 1u);
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(results[i], i == 3 ? TMEM_SWAP_DEVICE : TMEM_SWAP_HIT);
    if (i != 3) {
      EXPECT_EQ(pages[i], MakePage(i));
    }
  }
}

}  // namespace
}  // namespace tmem
