// SPDX-License-Identifier: GPL-2.0-only
// Ephemeral pages: each rule by its name.
#include "tests/guest_core/client_fixture.h"

namespace tmem {
namespace {

class PageRules : public ClientFixture {};

TEST_F(PageRules, G3_AGetReturnsTheBytesOfTheLastPut) {
  ConnectWithPool();
  for (std::uint64_t i = 0; i < 10; ++i) Put(i, 100 + i);
  Kick();
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(Get(i, 100 + i), Got::kRight);
}

TEST_F(PageRules, G1_AGetTakesThePage) {
  ConnectWithPool();
  Put(5, 1);
  Kick();
  EXPECT_EQ(Get(5, 1), Got::kRight);
  EXPECT_EQ(host_->pages(), 0u);
  const std::uint64_t gets = host_->executed(TMEM_OP_GET);
  EXPECT_EQ(Get(5, 1), Got::kMiss);
  EXPECT_EQ(host_->executed(TMEM_OP_GET), gets) << "a miss that the table knows costs nothing";
}

TEST_F(PageRules, P1_APutReplaces) {
  ConnectWithPool();
  Put(1, 1);
  Kick();
  Put(1, 2);
  Kick();
  EXPECT_EQ(Get(1, 2), Got::kRight);
}

TEST_F(PageRules, C1_PutsAndFlushesNeverRing) {
  ConnectWithPool();
  ringing_allowed_ = false;
  for (std::uint64_t i = 0; i < 500; ++i) {
    Put(i, i);
    if (i % 3 == 0) FlushRange(i / 2, i / 2 + 4);
  }
  FlushObject();
  ringing_allowed_ = true;
  EXPECT_GT(soon_, 0) << "a full batch asks for a kick";
  EXPECT_GT(later_, 0);
}

TEST_F(PageRules, AStagedPutIsAnsweredInTheGuestAndCancelled) {
  ConnectWithPool();
  Put(1, 1);
  EXPECT_EQ(Get(1, 1), Got::kRight);
  EXPECT_EQ(host_->executed(TMEM_OP_GET), 0u);
  Kick();
  EXPECT_EQ(host_->executed(TMEM_OP_PUT), 0u);
  EXPECT_EQ(host_->executed(TMEM_OP_FLUSH), 1u) << "an older put may have been before it";
  EXPECT_EQ(Get(1, 1), Got::kMiss);
}

TEST_F(PageRules, SameFilledPagesTravelAsAWord) {
  ConnectWithPool();
  Page page;
  page.fill(0xab);
  const tmem_key key = Key(9);
  tmem_put_page(client_.get(), &key, page.data());
  Kick();
  EXPECT_EQ(Count(TMEM_COUNT_puts_filled), 1u);
  Page back{};
  void* pages[1] = {back.data()};
  u64 hits;
  ASSERT_EQ(tmem_get_pages(client_.get(), &key, 1, pages, &hits), 1u);
  EXPECT_EQ(back, page);
}

TEST_F(PageRules, F2_NoGetFindsWhatWasFlushedAndNoStagedPutLandsAfterIt) {
  ConnectWithPool();
  Put(1, 1);
  Kick();
  Put(2, 2);  // staged
  FlushRange(1, 2);
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  EXPECT_EQ(Get(2, 2), Got::kMiss);
  Kick();
  EXPECT_EQ(host_->pages(), 0u);
}

TEST_F(PageRules, F2_AFlushIsNotMergedIntoOneThatHasPutsBehindIt) {
  ConnectWithPool({.key_lanes = 1});
  Put(5, 1);
  Put(6, 1);
  Kick();
  FlushRange(5, 5);  // staged
  Put(7, 7);         // staged behind it
  Put(6, 6);
  FlushRange(6, 6);
  Put(6, 66);
  Kick();
  EXPECT_EQ(Get(6, 66), Got::kRight);
  EXPECT_EQ(Get(5, 1), Got::kMiss);
}

TEST_F(PageRules, FlushesOfNeverPutKeysCostNothing) {
  ConnectWithPool();
  Put(1, 1);
  Kick();
  for (std::uint64_t i = 100; i < 200; ++i) FlushRange(i, i);
  FlushRange(1000, ~0ULL, 2);
  FlushObject(2);
  Kick();
  EXPECT_EQ(Count(TMEM_COUNT_flushes_posted), 0u);
  EXPECT_EQ(Get(1, 1), Got::kRight);
}

TEST_F(PageRules, F1_RangesObjectsAndPoolsGoWhicheverLaneTheyAreIn) {
  ConnectWithPool({.key_lanes = 4, .ring_entries = 256, .lane_slots = 120});
  const auto fill = [&] {
    for (std::uint64_t i = 0; i < 300; ++i) {
      Put(i * 7, i);
      if (i % 32 == 0) Kick();
    }
    for (std::uint64_t i = 0; i < 20; ++i) Put(i * 64, i, 2);
    Kick();
  };
  fill();
  FlushRange(700, ~0ULL);
  Kick();
  for (std::uint64_t i = 0; i < 300; ++i) {
    ASSERT_EQ(Get(i * 7, i), i < 100 ? Got::kRight : Got::kMiss) << i;
  }
  EXPECT_EQ(host_->pages(), 20u);
  fill();
  FlushObject(1);
  Kick();
  EXPECT_EQ(host_->pages(), 20u);
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_EQ(Get(i * 7, i), Got::kMiss);
  fill();
  tmem_flush_pool(client_.get(), pool_);
  Kick();
  EXPECT_EQ(host_->pages(), 0u);
  Put(3, 3);
  Kick();
  EXPECT_EQ(Get(3, 3), Got::kRight) << "the pool stays usable";
}

TEST_F(PageRules, C13_AFullTableFlushesItsOldestAndPutsGoOn) {
  constexpr std::uint32_t kKeys = 256;
  ConnectWithPool({.key_lanes = 2, .ring_entries = 256, .lane_slots = 120}, kKeys);
  constexpr std::uint64_t kPages = std::uint64_t{20} * kKeys;
  for (std::uint64_t i = 0; i < kPages; ++i) {
    Put(i, i);
    if (i % 16 == 15) Kick();
    ASSERT_LE(host_->pages(), kKeys);
  }
  Kick();
  EXPECT_EQ(Count(TMEM_COUNT_puts_dropped_table), 0u);
  EXPECT_EQ(Count(TMEM_COUNT_puts), kPages);
  EXPECT_EQ(Count(TMEM_COUNT_table_evictions), kPages - host_->pages());
  EXPECT_EQ(Get(kPages - 1, kPages - 1), Got::kRight);
  EXPECT_EQ(Get(0, 0), Got::kMiss);
}

TEST_F(PageRules, C13_WhatCannotFlushTheOldestIsNotPut) {
  constexpr std::uint32_t kKeys = 32;
  ConnectWithPool({.key_lanes = 1, .ring_entries = 64, .lane_slots = 60}, kKeys);
  for (std::uint64_t i = 0; i < kKeys; ++i) Put(i, i);
  Kick();
  host_->Stop();
  std::uint64_t i = kKeys;
  for (; i < std::uint64_t{10} * kKeys; ++i) {
    Put(i, i);
    Kick();
  }
  EXPECT_GT(Count(TMEM_COUNT_puts_dropped_table) + Count(TMEM_COUNT_puts_dropped_no_ring), 0u);
  host_->Start();
  host_->Process();
  Settle();
  EXPECT_LE(host_->pages(), kKeys);
  for (std::uint64_t k = 0; k < i; ++k) EXPECT_NE(Get(k, k), Got::kWrong);
}

TEST_F(PageRules, C13_ManySmallObjectsDoNotRunOutOfRecords) {
  constexpr std::uint32_t kKeys = 256;
  ConnectWithPool({.key_lanes = 2, .ring_entries = 256, .lane_slots = 120}, kKeys);
  for (std::uint64_t i = 0; i < std::uint64_t{10} * kKeys; ++i) {
    Put(0, i, i);
    if (i % 16 == 15) Kick();
  }
  EXPECT_EQ(Count(TMEM_COUNT_puts_dropped_table), 0u);
  EXPECT_EQ(Get(0, 10 * kKeys - 1, 10 * kKeys - 1), Got::kRight);
}

TEST_F(PageRules, P2_APutThatFindsNoSlotLeavesNothingOld) {
  ConnectWithPool({.key_lanes = 1, .ring_entries = 64, .lane_slots = 4});
  Put(1, 1);
  Kick();
  host_->Stop();
  for (std::uint64_t i = 10; i < 14; ++i) Put(i, i);
  Put(1, 2);  // no slot left
  EXPECT_EQ(Count(TMEM_COUNT_puts_dropped_no_slot), 1u);
  host_->Start();
  Kick();
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  for (const auto& [name, stored] : host_->stored()) EXPECT_NE(std::get<4>(name), 1u);
}

TEST_F(PageRules, P2_APutTheHostRefusesIsForgotten) {
  ConnectWithPool();
  Put(1, 1);
  Kick();
  host_->intercept = [&](const tmem_desc& desc) -> std::uint16_t {
    if (desc.op != TMEM_OP_PUT) return 0;
    host_->stored().clear();  // the key is gone
    return TMEM_STATUS_NO_SPACE;
  };
  Put(1, 2);
  Kick();
  Kick();  // reaps
  host_->intercept = nullptr;
  const std::uint64_t gets = host_->executed(TMEM_OP_GET);
  EXPECT_EQ(Get(1, 2), Got::kMiss);
  EXPECT_EQ(host_->executed(TMEM_OP_GET), gets);
  EXPECT_EQ(Count(TMEM_COUNT_puts_refused_no_space), 1u);
}

TEST_F(PageRules, AnUnknownStatusOfAPutIsNotTrustedTheKeyIsFlushed) {
  ConnectWithPool();
  Put(1, 1);
  Kick();
  // Says something nobody knows and leaves the old page behind.
  host_->intercept = [](const tmem_desc& desc) -> std::uint16_t {
    return desc.op == TMEM_OP_PUT ? 999 : 0;
  };
  Put(1, 2);
  Kick();
  host_->intercept = nullptr;
  Settle();
  Settle();
  EXPECT_EQ(host_->pages(), 0u);
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  EXPECT_EQ(Count(TMEM_COUNT_unknown_statuses), 1u);
}

TEST_F(PageRules, AnUnknownStatusOfAGetIsAMiss) {
  ConnectWithPool();
  Put(1, 1);
  Kick();
  host_->intercept = [](const tmem_desc& desc) -> std::uint16_t {
    return desc.op == TMEM_OP_GET ? 999 : 0;
  };
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  host_->intercept = nullptr;
  Settle();
  EXPECT_EQ(host_->pages(), 0u) << "G2: it was a miss, so it is flushed";
}

TEST_F(PageRules, F1_AFlushNeedsNoRoomAndP2HoldsWhenTheHostIsBack) {
  ConnectWithPool({.key_lanes = 2, .ring_entries = 32, .lane_slots = 24});
  for (std::uint64_t i = 0; i < 200; ++i) {
    Put(i, i);
    if (i % 8 == 7) Kick();
  }
  Kick();
  const std::size_t stored = host_->pages();
  ASSERT_GT(stored, 150u);
  host_->Stop();
  for (std::uint64_t i = 0; i < 200; i += 2) FlushRange(i, i);  // far more than the ring holds
  EXPECT_GT(Count(TMEM_COUNT_flushes_owed), 0u);
  // Covered: a get misses in the guest, a put is dropped.
  for (std::uint64_t i = 0; i < 200; i += 2) {
    ASSERT_EQ(Get(i, i), Got::kMiss) << i;
    Put(i, 1000 + i);
  }
  host_->Start();
  host_->Process();
  Settle();
  Settle();
  for (std::uint64_t i = 0; i < 200; i += 2) ASSERT_NE(Get(i, i), Got::kRight) << i;
  for (std::uint64_t i = 1; i < 200; i += 2) ASSERT_NE(Get(i, i), Got::kWrong) << i;
  // The lanes work as before.
  Put(4, 44);
  Kick();
  EXPECT_EQ(Get(4, 44), Got::kRight);
}

TEST_F(PageRules, G2_ATimedOutGetIsAMissAndItsKeyIsFlushed) {
  ConnectWithPool();
  Put(1, 1);
  Kick();
  host_->Stop();
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  EXPECT_EQ(Count(TMEM_COUNT_timeouts), 1u);
  host_->Start();
  host_->Process();
  Settle();
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  EXPECT_EQ(host_->pages(), 0u);
}

TEST_F(PageRules, G5_ALateCompletionWritesNowhere) {
  ConnectWithPool({.key_lanes = 1, .ring_entries = 64, .lane_slots = 8});
  Put(1, 1);
  Kick();
  host_->Stop();
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  EXPECT_EQ(tmem_client_quarantined(client_.get()), 1u);
  // The host shows life, but does not get to that descriptor: the slot must not be reused.
  host_->Beat();
  for (std::uint64_t i = 10; i < 17; ++i) Put(i, i);
  Put(17, 17);
  EXPECT_EQ(Count(TMEM_COUNT_puts_dropped_no_slot), 1u) << "7 of 8 slots may be used";
  host_->Process();  // late: writes page 1 into the quarantined slot
  host_->Start();
  Settle();
  EXPECT_EQ(tmem_client_quarantined(client_.get()), 0u);
  EXPECT_EQ(Count(TMEM_COUNT_late_completions), 1u);
  for (std::uint64_t i = 10; i < 17; ++i) EXPECT_EQ(Get(i, i), Got::kRight);
}

TEST_F(PageRules, HalfTheSlotsInQuarantineMeanALostHost) {
  ConnectWithPool({.key_lanes = 1, .ring_entries = 64, .lane_slots = 8});
  for (std::uint64_t i = 0; i < 8; ++i) Put(i, i);
  Kick();
  host_->Stop();
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Get(i, i), Got::kMiss);
    host_->Beat();  // closes the breaker: only quarantine stops the guest
  }
  EXPECT_EQ(tmem_client_quarantined(client_.get()), 4u);
  const std::uint64_t timeouts = Count(TMEM_COUNT_timeouts);
  EXPECT_EQ(Get(5, 5), Got::kMiss);
  Put(6, 66);
  EXPECT_EQ(Count(TMEM_COUNT_timeouts), timeouts);
  EXPECT_EQ(Count(TMEM_COUNT_puts_dropped_lost), 1u);
  host_->Start();
  host_->Process();
  Settle();
  EXPECT_EQ(Get(6, 6), Got::kMiss) << "P2";
  Put(7, 77);
  Kick();
  EXPECT_EQ(Get(7, 77), Got::kRight);
}

TEST_F(PageRules, BreakerOpensAfterOneTimeoutAndAHeartbeatClosesIt) {
  ConnectWithPool();
  for (std::uint64_t i = 0; i < 8; ++i) Put(i, i);
  Kick();
  host_->Stop();
  EXPECT_EQ(Get(0, 0), Got::kMiss);
  EXPECT_EQ(Count(TMEM_COUNT_breaker_trips), 1u);
  const std::uint64_t before_ns = tmem_now_ns();
  for (std::uint64_t i = 1; i < 4; ++i) EXPECT_EQ(Get(i, i), Got::kMiss);
  EXPECT_LT(tmem_now_ns() - before_ns, kTimeoutNs) << "nobody waits any more";
  const std::uint64_t rings = host_->rings();
  EXPECT_EQ(tmem_client_work(client_.get()), TMEM_PROBE_NS);
  EXPECT_GT(host_->rings(), rings) << "a probe";
  host_->Start();
  tmem_client_work(client_.get());
  Settle();
  EXPECT_EQ(Get(7, 7), Got::kRight);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(Get(i, i), Got::kMiss) << "G2";
}

TEST_F(PageRules, X3_AnInsaneDoneResetsTheChannel) {
  ConnectWithPool({.key_lanes = 1});
  for (std::uint64_t i = 0; i < 4; ++i) Put(i, i);
  Kick();
  host_->Stop();
  host_->head(0).done += 100;
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  EXPECT_EQ(Count(TMEM_COUNT_insane_windows), 1u);
  EXPECT_EQ(Count(TMEM_COUNT_timeouts), 0u) << "a loss that is known does not wait";
  host_->Start();
  Settle();
  EXPECT_EQ(Count(TMEM_COUNT_resets), 1u);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(Get(i, i), Got::kMiss);
  Put(1, 5);
  Kick();
  EXPECT_EQ(Get(1, 5), Got::kRight);
}

TEST_F(PageRules, ANewEpochForgetsAllKeysAndRenewsThePools) {
  ConnectWithPool();
  for (std::uint64_t i = 0; i < 8; ++i) Put(i, i);
  Kick();
  const u64 handle = client_->pools[pool_].handle;
  host_->EndEpoch();
  Settle();
  EXPECT_NE(client_->pools[pool_].handle, handle);
  EXPECT_EQ(Count(TMEM_COUNT_epochs), 1u);
  const std::uint64_t gets = host_->executed(TMEM_OP_GET);
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(Get(i, i), Got::kMiss);
  EXPECT_EQ(host_->executed(TMEM_OP_GET), gets);
  Put(1, 9);
  Kick();
  EXPECT_EQ(Get(1, 9), Got::kRight);
}

TEST_F(PageRules, AResetIsFollowedByANewRegistration) {
  ConnectWithPool();
  for (std::uint64_t i = 0; i < 8; ++i) Put(i, i);
  Kick();
  Put(20, 20);  // staged when it happens
  host_->Reset();
  Settle();
  EXPECT_EQ(Count(TMEM_COUNT_resets), 1u);
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(Get(i, i), Got::kMiss);
  EXPECT_EQ(Get(20, 20), Got::kMiss);
  for (std::uint64_t i = 0; i < 60; ++i) {
    Put(i, i);
    Kick();
  }
  EXPECT_EQ(Count(TMEM_COUNT_puts_dropped_no_slot), 0u) << "all slots came back";
  EXPECT_EQ(Get(3, 3), Got::kRight);
}

TEST_F(PageRules, C4_NoPutLandsInADestroyedPool) {
  ConnectWithPool();
  Put(1, 1);
  Kick();
  Put(2, 2);  // staged
  const u32 old_pool = pool_;
  tmem_pool_destroy(client_.get(), pool_);
  Put(3, 3);
  Kick();
  EXPECT_EQ(host_->pages(), 0u);
  const int pool = tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL);
  EXPECT_EQ(static_cast<u32>(pool), old_pool) << "the number is used again";
  for (std::uint64_t i = 1; i < 4; ++i) EXPECT_EQ(Get(i, i), Got::kMiss);
}

TEST_F(PageRules, ABatchOfGetsIsOneCallAndOneRing) {
  ConnectWithPool({.key_lanes = 2, .ring_entries = 256, .lane_slots = 120});
  // Half of it in one block of the lane hash, half in the next.
  constexpr std::uint64_t kFirst = TMEM_LANE_BLOCK_PAGES / 2;
  for (std::uint64_t i = 0; i < TMEM_GET_MAX; ++i) {
    if (i % 5 != 0) Put(kFirst + i, i);
  }
  Kick();
  std::vector<Page> pages(TMEM_GET_MAX);
  std::vector<void*> pointers;
  for (Page& page : pages) pointers.push_back(page.data());
  const std::uint64_t rings = host_->rings();
  const tmem_key key = Key(kFirst);
  u64 hits = 0;
  EXPECT_EQ(tmem_get_pages(client_.get(), &key, TMEM_GET_MAX, pointers.data(), &hits), 25u);
  EXPECT_EQ(host_->rings() - rings, 1u);
  for (std::uint64_t i = 0; i < TMEM_GET_MAX; ++i) {
    EXPECT_EQ(hits >> i & 1, i % 5 != 0 ? 1u : 0u);
    if (i % 5 != 0) {
      EXPECT_EQ(pages[i], MakePage(i));
    }
  }
}

TEST_F(PageRules, ABatchThatNeedsMoreSlotsThanThereAreGoesInTurns) {
  ConnectWithPool({.key_lanes = 1, .ring_entries = 64, .lane_slots = 8});
  for (std::uint64_t i = 0; i < TMEM_GET_MAX; ++i) {
    Put(i, i);
    Kick();
  }
  std::vector<Page> pages(TMEM_GET_MAX);
  std::vector<void*> pointers;
  for (Page& page : pages) pointers.push_back(page.data());
  const tmem_key key = Key(0);
  u64 hits = 0;
  EXPECT_EQ(tmem_get_pages(client_.get(), &key, TMEM_GET_MAX, pointers.data(), &hits),
            TMEM_GET_MAX);
  for (std::uint64_t i = 0; i < TMEM_GET_MAX; ++i) EXPECT_EQ(pages[i], MakePage(i));
}

TEST_F(PageRules, NobodyRingsAgainWhileTheHostHasNotWoken) {
  ConnectWithPool();
  host_->Stop();
  Put(1, 1);
  Kick();
  const std::uint64_t rings = host_->rings();
  Put(2, 2);
  Kick();
  EXPECT_EQ(host_->rings(), rings);
  host_->header().host.awake = 1;
  host_->Beat();
  Put(3, 3);
  Kick();
  EXPECT_EQ(host_->rings(), rings) << "it polls the lanes";
  host_->header().host.awake = 0;
  Put(4, 4);
  Kick();
  EXPECT_EQ(host_->rings(), rings + 1);
}

TEST_F(PageRules, PutsArePublishedInSmallPiecesAndRungForInLargeOnes) {
  ConnectWithPool({.key_lanes = 1, .ring_entries = 256, .lane_slots = 120});
  ringing_allowed_ = false;
  const tmem_u64& posted = host_->head(0).posted;
  for (std::uint64_t i = 0; i + 1 < TMEM_STAGED_MAX; ++i) Put(i, i);
  EXPECT_EQ(posted, TMEM_STAGED_MAX - TMEM_PUBLISHED_MIN);
  EXPECT_EQ(soon_, 0);
  Put(TMEM_STAGED_MAX, 0);
  EXPECT_EQ(posted, TMEM_STAGED_MAX);
  EXPECT_EQ(soon_, 1);
}

TEST_F(PageRules, AHostThatIsAwakeNeedsNoKickForABatchOfPuts) {
  ConnectWithPool({.key_lanes = 1, .ring_entries = 256, .lane_slots = 120});
  host_->header().host.awake = 1;
  for (std::uint64_t i = 0; i < TMEM_STAGED_MAX; ++i) Put(i, i);
  EXPECT_EQ(host_->head(0).posted, TMEM_STAGED_MAX);
  EXPECT_EQ(soon_, 0);
  EXPECT_EQ(Count(TMEM_COUNT_doorbells_suppressed), 1u);
}

TEST_F(PageRules, C13_OnlyPagesThatCannotBeHeldAreNotAskedFor) {
  ConnectWithPool();
  const auto may_hold = [&](std::uint64_t first, u32 number) {
    const tmem_key key = Key(first);
    return tmem_may_hold(client_.get(), &key, number);
  };
  EXPECT_FALSE(may_hold(0, 64));
  EXPECT_EQ(Count(TMEM_COUNT_gets), 64u);
  EXPECT_EQ(Count(TMEM_COUNT_get_misses_local), 64u);
  Put(40, 1);
  for (std::uint64_t first = 0; first <= 40; ++first) {
    EXPECT_TRUE(may_hold(first, static_cast<u32>(41 - first)));
  }
  EXPECT_FALSE(may_hold(41, 64)) << "beyond the highest index put";
  FlushRange(40, 40);
  EXPECT_FALSE(may_hold(0, 64));
}

}  // namespace
}  // namespace tmem
