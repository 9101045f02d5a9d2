// SPDX-License-Identifier: GPL-2.0-only
// The store as its callers see it: each rule of operation by name.
#include "host-store/store/store.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "host-store/store/store_test_util.h"

namespace tmem {
namespace {

using StoreRules = StoreTest;

TEST_F(StoreRules, K1_AllBitsOfAKeyCount) {
  const ObjectId object{{1, 2, 3}};
  const PageKey key{ephemeral_, object, 5};
  const PageBytes page = MakePage(1);
  ASSERT_EQ(store_->Put(guest_, key, PageView(page), 0), Outcome::kOk);
  std::vector<PageKey> others;
  for (const uint64_t bit :
       {uint64_t{1}, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 63}) {
    others.push_back({ephemeral_, object, 5 ^ bit});
    for (size_t word = 0; word < 3; ++word) {
      others.push_back(key);
      others.back().object.words[word] ^= bit;
    }
  }
  PageBytes out;
  for (const PageKey& other : others) EXPECT_EQ(Get(guest_, other, out).outcome, Outcome::kMiss);
  EXPECT_EQ(Get(guest_, key, out).outcome, Outcome::kOk);
}

TEST_F(StoreRules, K1_TheLastIndexIsAnIndex) {
  ASSERT_EQ(Put(ephemeral_, UINT64_MAX, MakePage(1)), Outcome::kOk);
  ExpectHit(ephemeral_, UINT64_MAX, MakePage(1));
  ASSERT_EQ(Put(ephemeral_, UINT64_MAX, MakePage(1)), Outcome::kOk);
  EXPECT_EQ(store_->FlushObject(guest_, ephemeral_, {{7, 0, 1}}, kAllLanes).pages, 1u);
}

TEST_F(StoreRules, K3_AnOldHandleFailsAlone) {
  ASSERT_EQ(Put(ephemeral_, 1, MakePage(1)), Outcome::kOk);
  EXPECT_EQ(store_->DestroyPool(guest_, ephemeral_).pages, 1u);
  const PoolHandle next = CreatePool(guest_, PoolKind::kEphemeral);
  EXPECT_NE(next, ephemeral_);
  EXPECT_EQ(static_cast<uint32_t>(next), static_cast<uint32_t>(ephemeral_))
      << "the place is reused";
  EXPECT_EQ(Put(ephemeral_, 1, MakePage(2)), Outcome::kStalePool);
  PageBytes out;
  EXPECT_EQ(Get(ephemeral_, 1, out).outcome, Outcome::kStalePool);
  EXPECT_EQ(store_->FlushPool(guest_, ephemeral_, kAllLanes).outcome, Outcome::kStalePool);
  EXPECT_EQ(store_->DestroyPool(guest_, ephemeral_).outcome, Outcome::kStalePool);
  ExpectMiss(next, 1);
  EXPECT_EQ(Put(next, 1, MakePage(3)), Outcome::kOk);
  EXPECT_EQ(store_->StatusOf(guest_).puts_bad_pool, 1u);
  EXPECT_EQ(store_->StatusOf(guest_).gets_bad_pool, 1u);
}

TEST_F(StoreRules, K3_HandlesThatNeverWereAndHandlesOfOthersAreRefused) {
  const GuestId other = AddGuest("other");
  const PageBytes page = MakePage(1);
  for (const uint64_t handle :
       {uint64_t{0}, uint64_t{2}, uint64_t{63}, uint64_t{64}, uint64_t{0xffffffff}, UINT64_MAX}) {
    EXPECT_EQ(store_->Put(guest_, Key(PoolHandle{handle}, 1), PageView(page), 0), Outcome::kBadPool)
        << handle;
  }
  // The other guest has no pools, then pools in the same places.
  EXPECT_EQ(store_->Put(other, Key(ephemeral_, 1), PageView(page), 0), Outcome::kBadPool);
  CreatePool(other, PoolKind::kEphemeral);
  EXPECT_EQ(store_->Put(other, Key(ephemeral_, 1), PageView(page), 0), Outcome::kStalePool);
  EXPECT_EQ(store_->FlushPool(other, ephemeral_, kAllLanes).outcome, Outcome::kStalePool);
}

TEST_F(StoreRules, K4_PoolsAreBounded) {
  for (uint32_t i = 2; i < TMEM_MAX_POOLS; ++i) CreatePool(guest_, PoolKind::kEphemeral);
  EXPECT_EQ(store_->CreatePool(guest_, PoolKind::kEphemeral).outcome, Outcome::kTooMany);
  EXPECT_EQ(store_->DestroyPool(guest_, ephemeral_).outcome, Outcome::kOk);
  CreatePool(guest_, PoolKind::kEphemeral);
}

TEST_F(StoreRules, K5_AResetEndsPoolsPagesAndCredits) {
  store_->TopUpCredits(guest_, 50);
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(Put(ephemeral_, i, MakePage(i)), Outcome::kOk);
    ASSERT_EQ(Put(persistent_, i, MakePage(i)), Outcome::kOk);
    if (i == 20) SettleAll();
  }
  store_->ResetGuest(guest_);
  EXPECT_EQ(Put(ephemeral_, 1, MakePage(1)), Outcome::kStalePool);
  const GuestStatus status = store_->StatusOf(guest_);
  EXPECT_EQ(status.ephemeral_pages + status.persistent_pages, 0u);
  EXPECT_EQ(status.stored_bytes, 0u);
  EXPECT_EQ(status.credits, 0u);
  EXPECT_EQ(store_->TopUpCredits(guest_, 0), 0u) << "counted anew since the reset";
  const PoolHandle pool = CreatePool(guest_, PoolKind::kEphemeral);
  ExpectMiss(pool, 1);
}

TEST_F(StoreRules, K5_ARemovedGuestLeavesNothing) {
  const uint64_t used = store_->Status().used_bytes;
  const GuestId other = AddGuest("other");
  const PoolHandle pool = CreatePool(other, PoolKind::kEphemeral);
  for (uint64_t i = 0; i < 300; ++i) {
    const PageBytes page = MakePage(i, Fill::kRandom);
    ASSERT_EQ(store_->Put(other, Key(pool, i * 40), PageView(page), 0), Outcome::kOk);
  }
  SettleAll();
  store_->RemoveGuest(other);
  // A chunk of each kind of record may be kept in each shard's arenas.
  EXPECT_LE(store_->Status().used_bytes, used + uint64_t{16} * 3 * 17 * 1024);
  EXPECT_EQ(store_->Status().guests.size(), 1u);
  EXPECT_EQ(store_->Status().pages, 0u);
}

TEST_F(StoreRules, P1_ASecondPutReplaces) {
  store_->TopUpCredits(guest_, 100);
  for (const PoolHandle pool : {ephemeral_, persistent_}) {
    for (const bool settle : {false, true}) {
      ASSERT_EQ(Put(pool, 1, MakePage(1)), Outcome::kOk);
      if (settle) SettleAll();
      ASSERT_EQ(Put(pool, 1, MakePage(2), 2), Outcome::kOk);
      if (settle) SettleAll();
      ExpectHit(pool, 1, MakePage(2));
    }
  }
  EXPECT_EQ(store_->StatusOf(guest_).pages_replaced, 5u) << "2 ephemeral, 3 persistent";
}

TEST_F(StoreRules, P1_APutWithoutCreditLeavesNoOlderPage) {
  store_->TopUpCredits(guest_, 1);
  ASSERT_EQ(Put(persistent_, 1, MakePage(1)), Outcome::kOk);
  EXPECT_EQ(Put(persistent_, 1, MakePage(2)), Outcome::kNoCredit);
  ExpectMiss(persistent_, 1);
  EXPECT_EQ(store_->PutFilled(guest_, Key(persistent_, 1), 0, 0), Outcome::kNoCredit);
  EXPECT_EQ(store_->StatusOf(guest_).puts_no_credit, 2u);
}

TEST_F(StoreRules, P2_AFrozenPutLeavesNoOlderPage) {
  store_->TopUpCredits(guest_, 10);
  for (const PoolHandle pool : {ephemeral_, persistent_}) {
    ASSERT_EQ(Put(pool, 1, MakePage(1)), Outcome::kOk);
    ASSERT_EQ(Put(pool, 2, MakePage(2)), Outcome::kOk);
    store_->SetAdmission(guest_, Store::Admission::kFrozen);
    EXPECT_EQ(Put(pool, 1, MakePage(3)), Outcome::kFrozen);
    ExpectMiss(pool, 1);
    ExpectHit(pool, 2, MakePage(2));
    store_->SetAdmission(guest_, Store::Admission::kOpen);
    EXPECT_EQ(Put(pool, 1, MakePage(3)), Outcome::kOk);
  }
  EXPECT_EQ(store_->StatusOf(guest_).puts_frozen, 2u);
}

TEST_F(StoreRules, G1_GetRemovesAnEphemeralPageAndKeepsAPersistentOne) {
  store_->TopUpCredits(guest_, 10);
  ASSERT_EQ(Put(ephemeral_, 1, MakePage(1)), Outcome::kOk);
  ASSERT_EQ(Put(persistent_, 1, MakePage(2)), Outcome::kOk);
  ExpectHit(ephemeral_, 1, MakePage(1));
  ExpectMiss(ephemeral_, 1);
  ExpectHit(persistent_, 1, MakePage(2));
  SettleAll();
  ExpectHit(persistent_, 1, MakePage(2));
  ExpectHit(persistent_, 1, MakePage(2));
}

TEST_F(StoreRules, G2_AfterAMissOnlyAPutMakesAHit) {
  ExpectMiss(ephemeral_, 1);
  ExpectMiss(ephemeral_, 1);
  ASSERT_EQ(Put(ephemeral_, 1, MakePage(1)), Outcome::kOk);
  ExpectHit(ephemeral_, 1, MakePage(1));
  EXPECT_EQ(store_->StatusOf(guest_).gets_miss, 2u);
  EXPECT_EQ(store_->StatusOf(guest_).gets_hit, 1u);
}

TEST_F(StoreRules, G3_AHitReturnsTheBytesOfTheLastPut) {
  store_->TopUpCredits(guest_, 100);
  for (const PoolHandle pool : {ephemeral_, persistent_}) {
    for (const bool settle : {false, true}) {
      ASSERT_EQ(Put(pool, 1, MakePage(1)), Outcome::kOk);
      ASSERT_EQ(Put(pool, 2, MakePage(2, Fill::kRandom), 22), Outcome::kOk);
      ASSERT_EQ(Put(pool, 3, PageBytes{}), Outcome::kOk);
      ASSERT_EQ(store_->PutFilled(guest_, Key(pool, 4), 0x1234, 44), Outcome::kOk);
      if (settle) SettleAll();
      ExpectHit(pool, 1, MakePage(1));
      PageBytes out;
      EXPECT_EQ(Get(pool, 2, out).tag, 22u);
      EXPECT_EQ(out, MakePage(2, Fill::kRandom));
      ExpectHit(pool, 3, PageBytes{});
      const GetResult filled = Get(pool, 4, out);
      EXPECT_TRUE(filled.filled);
      EXPECT_EQ(filled.fill_word, 0x1234u);
      EXPECT_EQ(filled.tag, 44u);
    }
  }
}

TEST_F(StoreRules, G3_APageThatDoesNotVerifyIsNeverHandedOut) {
  StoreOptions options = SmallStore();
  options.faults = &faults_;
  Open(options);
  store_->TopUpCredits(guest_, 10);
  ASSERT_EQ(Put(ephemeral_, 1, MakePage(1)), Outcome::kOk);
  ASSERT_EQ(Put(persistent_, 1, MakePage(2)), Outcome::kOk);
  SettleAll();
  PageBytes out;
  PageBytes untouched;
  untouched.fill(std::byte{0xee});
  faults_.FailNth(FaultPlan::Point::kDecompress, 1);
  EXPECT_EQ(Get(ephemeral_, 1, out).outcome, Outcome::kMiss);
  EXPECT_EQ(out, untouched);
  faults_.FailNth(FaultPlan::Point::kDecompress, 1);
  EXPECT_EQ(Get(persistent_, 1, out).outcome, Outcome::kCorrupt);
  EXPECT_EQ(out, untouched);
  EXPECT_EQ(store_->StatusOf(guest_).gets_corrupt, 2u);
  ExpectMiss(ephemeral_, 1);
  ExpectHit(persistent_, 1, MakePage(2));
}

class FlushRules : public StoreTest {
 protected:
  static constexpr uint64_t kPages = 200;
  void Fill(PoolHandle pool) {
    store_->TopUpCredits(guest_, 2 * kPages);
    for (uint64_t i = 0; i < kPages; ++i) {
      ASSERT_EQ(store_->PutFilled(guest_, Key(pool, i), i, 0), Outcome::kOk);
      ASSERT_EQ(store_->PutFilled(guest_, Key(pool, i, 8), i, 0), Outcome::kOk);
    }
  }
  uint64_t Count(PoolHandle pool, uint64_t object) {
    uint64_t pages = 0;
    PageBytes out;
    for (uint64_t i = 0; i < kPages; ++i) {
      pages += Get(guest_, Key(pool, i, object), out).outcome == Outcome::kOk;
    }
    return pages;
  }
};

TEST_F(FlushRules, F1_ARangeTakesJustItsPagesAndCountsThem) {
  for (const PoolHandle pool : {ephemeral_, persistent_}) {
    for (const PageRange range :
         {PageRange{0, 1}, PageRange{31, 2}, PageRange{5, 100}, PageRange{64, 32},
          PageRange{190, 1000}, PageRange{100, UINT64_MAX}, PageRange{500, 10}}) {
      Fill(pool);
      uint64_t expected = 0;
      for (uint64_t i = 0; i < kPages; ++i) {
        expected += i >= range.first && i - range.first < range.count;
      }
      const auto flushed = store_->Flush(guest_, pool, {{7, 0, 1}}, range, kAllLanes);
      EXPECT_EQ(flushed.outcome, Outcome::kOk);
      EXPECT_EQ(flushed.pages, expected) << range.first << " + " << range.count;
      EXPECT_EQ(Count(pool, 7), kPages - expected);
      EXPECT_EQ(Count(pool, 8), kPages);
    }
  }
}

TEST_F(FlushRules, F1_AnObjectOrAPoolGoesWhole) {
  for (const PoolHandle pool : {ephemeral_, persistent_}) {
    Fill(pool);
    EXPECT_EQ(store_->FlushObject(guest_, pool, {{7, 0, 1}}, kAllLanes).pages, kPages);
    EXPECT_EQ(store_->FlushObject(guest_, pool, {{7, 0, 1}}, kAllLanes).pages, 0u);
    EXPECT_EQ(store_->FlushPool(guest_, pool, kAllLanes).pages, kPages);
    EXPECT_EQ(Count(pool, 7) + Count(pool, 8), 0u);
  }
}

TEST_F(FlushRules, F1_AFrozenGuestCanFlush) {
  Fill(persistent_);
  store_->SetAdmission(guest_, Store::Admission::kFrozen);
  EXPECT_EQ(store_->FlushPool(guest_, persistent_, kAllLanes).pages, 2 * kPages);
}

TEST_F(FlushRules, F3_ThroughALaneOnlyThatLanesPagesGo) {
  for (const uint32_t key_lanes : {1u, 2u, 4u, 32u}) {
    Fill(persistent_);
    for (uint32_t lane = 0; lane < key_lanes; ++lane) {
      const LaneFilter filter{lane, key_lanes};
      uint64_t expected[2] = {0, 0};
      for (uint64_t object = 7; object <= 8; ++object) {
        for (uint64_t i = 0; i < kPages; ++i) {
          const PageKey key = Key(persistent_, i, object);
          expected[object - 7] += tmem_lane_of(static_cast<uint64_t>(persistent_),
                                               key.object.words.data(), i, key_lanes) == lane;
        }
      }
      // A part of the object as a range, the rest as an object, the other object as a pool.
      const uint64_t by_range =
          store_->Flush(guest_, persistent_, {{7, 0, 1}}, {0, 40}, filter).pages;
      EXPECT_EQ(by_range + store_->FlushObject(guest_, persistent_, {{7, 0, 1}}, filter).pages,
                expected[0]);
      EXPECT_EQ(store_->FlushPool(guest_, persistent_, filter).pages, expected[1]);
    }
    EXPECT_EQ(Count(persistent_, 7) + Count(persistent_, 8), 0u);
  }
}

// A huge range costs what is there, not what it names; a huge object slows nothing down.
TEST_F(FlushRules, F1_HugeRangesAndObjectsAreCheap) {
  for (uint64_t i = 0; i < 3000; ++i) {
    ASSERT_EQ(store_->PutFilled(guest_, Key(ephemeral_, i << 40), i, 0), Outcome::kOk);
  }
  const uint64_t begin_ns = clock_.NowNs();
  uint64_t pages = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    pages += store_->Flush(guest_, ephemeral_, {{7, 0, 1}}, {i << 40, 1}, kAllLanes).pages;
    pages += store_->Flush(guest_, ephemeral_, {{9, 0, 1}}, {0, UINT64_MAX}, kAllLanes).pages;
    ASSERT_EQ(store_->PutFilled(guest_, Key(ephemeral_, i << 40), i, 0), Outcome::kOk);
  }
  pages += store_->Flush(guest_, ephemeral_, {{7, 0, 1}}, {0, UINT64_MAX}, kAllLanes).pages;
  EXPECT_EQ(pages, 6000u);
  // Quadratic work would be 9 million steps, far more than a second under a sanitizer.
  EXPECT_LT(clock_.NowNs() - begin_ns, uint64_t{20'000'000'000});
}

TEST_F(StoreRules, EndOfEpochEndsEphemeralPoolsOnly) {
  store_->TopUpCredits(guest_, 10);
  const uint64_t epoch = store_->epoch();
  ASSERT_EQ(Put(ephemeral_, 1, MakePage(1)), Outcome::kOk);
  ASSERT_EQ(Put(persistent_, 1, MakePage(1)), Outcome::kOk);
  store_->EndEpoch();
  EXPECT_NE(store_->epoch(), epoch);
  PageBytes out;
  EXPECT_EQ(Get(ephemeral_, 1, out).outcome, Outcome::kStalePool);
  ExpectHit(persistent_, 1, MakePage(1));
}

TEST_F(StoreRules, SharingIsInsideATrustDomainOnly) {
  const GuestId a = AddGuest("a", "tenant");
  const GuestId b = AddGuest("b", "tenant");
  const GuestId named_like_a_guest = AddGuest("c", "guest");
  const PageBytes page = MakePage(1);
  for (const GuestId guest : {guest_, a, b, named_like_a_guest}) {
    const PoolHandle pool = CreatePool(guest, PoolKind::kEphemeral);
    ASSERT_EQ(store_->Put(guest, Key(pool, 1), PageView(page), 0), Outcome::kOk);
  }
  SettleAll();
  const StoreStatus status = store_->Status();
  EXPECT_EQ(status.pages, 4u);
  EXPECT_EQ(status.duplicates, 1u) << "a's and b's";
  EXPECT_EQ(status.compressed, 3u);
  EXPECT_EQ(store_->StatusOf(a).stored_bytes, status.saved_by_dedup_bytes) << "charged in full";
  EXPECT_EQ(store_->StatusOf(b).stored_bytes, status.saved_by_dedup_bytes);
  // The domain goes with its last guest, not its first.
  store_->RemoveGuest(a);
  EXPECT_EQ(store_->StatusOf(b).ephemeral_pages, 1u);
  store_->RemoveGuest(b);
  const GuestId again = AddGuest("a", "tenant");
  EXPECT_EQ(store_->StatusOf(again).ephemeral_pages, 0u);
}

TEST_F(StoreRules, StatusTellsHowPagesAreHeld) {
  ASSERT_EQ(Put(ephemeral_, 1, MakePage(1)), Outcome::kOk);
  EXPECT_EQ(store_->Status().landed, 1u);
  ASSERT_EQ(Put(ephemeral_, 2, MakePage(1)), Outcome::kOk);
  ASSERT_EQ(Put(ephemeral_, 3, MakePage(3, Fill::kRandom)), Outcome::kOk);
  ASSERT_EQ(Put(ephemeral_, 4, PageBytes{}), Outcome::kOk);
  SettleAll();
  const StoreStatus status = store_->Status();
  EXPECT_EQ(status.pages, 4u);
  EXPECT_EQ(status.landed, 0u);
  EXPECT_EQ(status.same_filled, 1u);
  EXPECT_EQ(status.duplicates, 1u);
  EXPECT_EQ(status.compressed, 1u);
  EXPECT_EQ(status.raw, 1u);
  EXPECT_EQ(status.used_bytes, status.slab_bytes + status.landing_bytes + status.metadata_bytes +
                                   status.reserved_bytes + status.overhead_bytes);
}

// They take no landing slot and wait for nobody: what they are is known at the put.
TEST_F(StoreRules, SameFilledPagesAreKnownAtThePut) {
  PageBytes word, almost;
  FillPage(0x1122334455667788, PageBuffer(word));
  almost = word;
  almost[100] = std::byte{1};
  for (const PoolHandle pool : {ephemeral_, persistent_}) {
    store_->TopUpCredits(guest_, 2);
    EXPECT_EQ(Put(pool, 1, word, pool == persistent_ ? 7 : 0), Outcome::kOk);
    EXPECT_EQ(Put(pool, 2, almost), Outcome::kOk);
  }
  EXPECT_EQ(store_->Status().same_filled, 2u);
  EXPECT_EQ(store_->Status().landed, 2u);
  for (const PoolHandle pool : {ephemeral_, persistent_}) {
    ExpectHit(pool, 1, word);
    ExpectHit(pool, 2, almost);
  }
}

TEST_F(StoreRules, GuestsAreBoundedAndNamedOnce) {
  EXPECT_FALSE(store_->AddGuest({"guest", ""}).ok());
  StoreOptions options = SmallStore();
  options.max_guests = 1;
  Open(options);
  EXPECT_FALSE(store_->AddGuest({"other", ""}).ok());
  store_->RemoveGuest(guest_);
  guest_ = AddGuest("other");
}

}  // namespace
}  // namespace tmem
