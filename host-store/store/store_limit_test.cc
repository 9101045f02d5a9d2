// SPDX-License-Identifier: GPL-2.0-only
// The hard limit: what is evicted, what never is, and what credits are worth.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "host-store/store/store_test_util.h"

namespace tmem {
namespace {

class StoreLimit : public StoreTest {
 protected:
  void ExpectWithinLimit() {
    const StoreStatus status = store_->Status();
    ASSERT_LE(status.used_bytes, status.limit_bytes);
  }
  uint64_t EphemeralPages(GuestId guest) { return store_->StatusOf(guest).ephemeral_pages; }
};

TEST_F(StoreLimit, EphemeralPutsEvictTheOldest) {
  for (uint64_t i = 0; i < 10'000; ++i) {
    ASSERT_EQ(Put(ephemeral_, i, MakePage(i, Fill::kRandom)), Outcome::kOk);
    if (i % 16 == 0) store_->Settle(16);
    if (i % 500 == 0) ExpectWithinLimit();
  }
  EXPECT_GT(EphemeralPages(guest_), 2500u) << "of 4096 that the limit could hold raw";
  EXPECT_GT(store_->StatusOf(guest_).pages_evicted, 5000u);
  uint64_t newest = 0;
  PageBytes out;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const bool hit = Get(ephemeral_, i, out).outcome == Outcome::kOk;
    if (i < 5'000) {
      EXPECT_FALSE(hit) << i;
    } else if (i >= 8'000) {
      newest += hit;
    }
  }
  EXPECT_EQ(newest, 2000u);
}

TEST_F(StoreLimit, PagesThatCameBackOutliveThoseSeenOnce) {
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(Put(ephemeral_, i, MakePage(i, Fill::kRandom)), Outcome::kOk);
    ExpectHit(ephemeral_, i, MakePage(i, Fill::kRandom));
    ASSERT_EQ(Put(ephemeral_, i, MakePage(i, Fill::kRandom)), Outcome::kOk);
    SettleAll();
  }
  // A stream of twice the limit.
  for (uint64_t i = 1000; i < 9000; ++i) {
    ASSERT_EQ(Put(ephemeral_, i, MakePage(i, Fill::kRandom)), Outcome::kOk);
  }
  uint64_t kept = 0;
  PageBytes out;
  for (uint64_t i = 0; i < 500; ++i) kept += Get(ephemeral_, i, out).outcome == Outcome::kOk;
  EXPECT_GT(kept, 250u);
}

TEST_F(StoreLimit, P4_TheGuestMostOverItsShareGivesWay) {
  const GuestId other = AddGuest("other");
  const PoolHandle others = CreatePool(other, PoolKind::kEphemeral);
  for (uint64_t i = 0; i < 800; ++i) {
    const PageBytes page = MakePage(i, Fill::kRandom);
    ASSERT_EQ(store_->Put(other, Key(others, i), PageView(page), 0), Outcome::kOk);
  }
  for (uint64_t i = 0; i < 10'000; ++i) {
    ASSERT_EQ(Put(ephemeral_, i, MakePage(i + 5'000, Fill::kRandom)), Outcome::kOk);
  }
  EXPECT_EQ(EphemeralPages(other), 800u) << "below its half: untouched";
  // And who comes late gets its share.
  for (uint64_t i = 0; i < 10'000; ++i) {
    const PageBytes page = MakePage(i, Fill::kRandom);
    store_->Put(other, Key(others, i), PageView(page), 0);
  }
  EXPECT_GT(EphemeralPages(other), 1000u);
  EXPECT_GT(EphemeralPages(guest_), 1000u);
}

TEST_F(StoreLimit, P4_SharesFollowTheWeights) {
  const GuestId other = store_->AddGuest({.name = "other", .domain = "", .weight = 3}).value();
  const PoolHandle others = CreatePool(other, PoolKind::kEphemeral);
  for (uint64_t i = 0; i < 12'000; ++i) {
    const PageBytes page = MakePage(i, Fill::kRandom);
    store_->Put(other, Key(others, i), PageView(page), 0);
    Put(ephemeral_, i, MakePage(i + 50'000, Fill::kRandom));
    if (i % 16 == 0) SettleAll();
  }
  const auto held = static_cast<double>(EphemeralPages(guest_));
  EXPECT_GT(held, 300.0);
  EXPECT_NEAR(static_cast<double>(EphemeralPages(other)) / held, 3.0, 0.5);
}

// A hostile guest's favourite: keys without bytes, each in an object of its own, cost the index 256
// bytes each. They count as its own, so it is its own pages that go, not those of a lighter guest.
TEST_F(StoreLimit, P4_SparseKeysWithoutBytesPushOutNobodyElsesPages) {
  const GuestId other = AddGuest("other");
  const PoolHandle others = CreatePool(other, PoolKind::kEphemeral);
  for (uint64_t i = 0; i < 1000; ++i) {
    const PageBytes page = MakePage(i, Fill::kRandom);
    ASSERT_EQ(store_->Put(other, Key(others, i), PageView(page), 0), Outcome::kOk);
  }
  SettleAll();
  for (uint64_t i = 0; i < 200'000; ++i) {
    store_->PutFilled(guest_, Key(ephemeral_, i << TMEM_LANE_BLOCK_SHIFT, i), i, 0);
  }
  EXPECT_GT(store_->StatusOf(guest_).pages_evicted, 100'000u);
  EXPECT_EQ(EphemeralPages(other), 1000u);
  for (uint64_t i = 1000; i < 1100; ++i) {
    const PageBytes page = MakePage(i, Fill::kRandom);
    ASSERT_EQ(store_->Put(other, Key(others, i), PageView(page), 0), Outcome::kOk);
    SettleAll();
  }
  // A put may find no room at once (P3): a slab takes many of the other's records.
  EXPECT_GE(EphemeralPages(other), 1095u);
}

TEST_F(StoreLimit, SlabsKeptForLaterGoBeforePages) {
  constexpr uint64_t kPages = 2000;
  for (uint64_t i = 0; i < kPages; ++i) Put(ephemeral_, i, MakePage(i, Fill::kRandom));
  SettleAll();
  const uint64_t full_bytes = store_->used_bytes();
  PageBytes out;
  for (uint64_t i = 0; i < 40; ++i) Get(ephemeral_, i, out);
  const uint64_t spared_bytes = store_->used_bytes();
  EXPECT_GT(spared_bytes, full_bytes - 40 * kPageBytes) << "some slabs were kept";
  // Just more than is free: a page would have to go, if there were no slabs kept.
  const uint64_t free_bytes = store_->limit_bytes() - spared_bytes;
  ASSERT_TRUE(store_->Reserve(free_bytes + 1).ok());
  EXPECT_EQ(store_->StatusOf(guest_).pages_evicted, 0u);
  store_->Unreserve(free_bytes + 1);
}

TEST_F(StoreLimit, ReservedBytesComeOutOfEphemeralPages) {
  for (uint64_t i = 0; i < 4'000; ++i) Put(ephemeral_, i, MakePage(i, Fill::kRandom));
  SettleAll();
  ASSERT_TRUE(store_->Reserve(6 * kMiB).ok());
  ExpectWithinLimit();
  EXPECT_EQ(store_->Status().reserved_bytes, 6 * kMiB);
  EXPECT_FALSE(store_->Reserve(16 * kMiB).ok());
  EXPECT_EQ(store_->Status().reserved_bytes, 6 * kMiB);
  store_->Unreserve(6 * kMiB);
  EXPECT_EQ(store_->Status().reserved_bytes, 0u);
}

TEST_F(StoreLimit, P3_EveryCreditIsAPageEvenInTheWorstCase) {
  // Ephemeral pages of all sizes fill all there is.
  for (uint64_t i = 0; i < 12'000; ++i) {
    Put(ephemeral_, i * 37, MakePage(i, i % 2 == 0 ? Fill::kRandom : Fill::kCompressible));
  }
  store_->TopUpCredits(guest_, UINT64_MAX);
  const uint64_t credits = store_->StatusOf(guest_).credits;
  EXPECT_GT(credits, 1'500u) << "8 MiB of pool-min are 2048 raw pages";
  for (uint64_t i = 0; i < credits; ++i) {
    // Incompressible, each in an object of its own.
    const PageBytes page = MakePage(i + 50'000, Fill::kRandom);
    ASSERT_EQ(store_->Put(guest_, Key(persistent_, i << 30, i), PageView(page), 0), Outcome::kOk)
        << "credit " << i << " of " << credits;
    if (i % 256 == 0) ExpectWithinLimit();
  }
  EXPECT_EQ(store_->PutFilled(guest_, Key(persistent_, 1), 1, 1), Outcome::kNoCredit);
  SettleAll();
  ExpectWithinLimit();
  PageBytes out;
  for (uint64_t i = 0; i < credits; ++i) {
    ASSERT_EQ(Get(guest_, Key(persistent_, i << 30, i), out).outcome, Outcome::kOk);
    ASSERT_EQ(out, MakePage(i + 50'000, Fill::kRandom));
  }
}

TEST_F(StoreLimit, P3_PersistentPagesAreNeverEvicted) {
  store_->TopUpCredits(guest_, UINT64_MAX);
  const uint64_t pages = std::min<uint64_t>(store_->StatusOf(guest_).credits, 1'000);
  for (uint64_t i = 0; i < pages; ++i) ASSERT_EQ(Put(persistent_, i, MakePage(i)), Outcome::kOk);
  for (uint64_t i = 0; i < 10'000; ++i) Put(ephemeral_, i, MakePage(i + 5'000, Fill::kRandom));
  for (uint64_t i = 0; i < pages; ++i) ExpectHit(persistent_, i, MakePage(i));
}

// Fragmentation: one small page left in each slab, again and again, and credits still hold.
TEST_F(StoreLimit, P3_CreditsHoldAfterFragmentation) {
  for (uint64_t round = 0; round < 6; ++round) {
    store_->TopUpCredits(guest_, UINT64_MAX);
    const uint64_t credits = store_->StatusOf(guest_).credits;
    for (uint64_t i = 0; i < credits; ++i) {
      PageBytes page{};
      const PageBytes random = MakePage(round << 32 | i, Fill::kRandom);
      std::memcpy(page.data(), random.data(), 16 + (i * 97 + round * 700) % (kPageBytes - 16));
      ASSERT_EQ(Put(persistent_, round << 32 | i, page), Outcome::kOk);
    }
    SettleAll();
    ExpectWithinLimit();
    for (uint64_t i = 0; i < credits; ++i) {
      if (i % 23 == 0) continue;
      store_->Flush(guest_, persistent_, {{7, 0, 1}}, {round << 32 | i, 1}, kAllLanes);
    }
    const Result<void> checked = store_->CheckInvariants();
    ASSERT_TRUE(checked.ok()) << checked.error().Describe();
  }
}

TEST_F(StoreLimit, CreditsAreCountedGrantedAndReturned) {
  EXPECT_EQ(store_->TopUpCredits(guest_, 100), 100u);
  EXPECT_EQ(store_->TopUpCredits(guest_, 100), 100u) << "nothing was used";
  ASSERT_EQ(Put(persistent_, 1, MakePage(1)), Outcome::kOk);
  EXPECT_EQ(store_->StatusOf(guest_).credits, 99u);
  EXPECT_EQ(store_->TopUpCredits(guest_, 100), 101u);
  EXPECT_EQ(store_->ReturnCredits(guest_, 30), 30u);
  EXPECT_EQ(store_->StatusOf(guest_).credits, 70u);
  EXPECT_EQ(store_->ReturnCredits(guest_, UINT64_MAX), 70u);
  EXPECT_EQ(store_->ReturnCredits(guest_, 1), 0u);
}

TEST_F(StoreLimit, CreditsOfAllGuestsTogetherFitInPoolMin) {
  store_->TopUpCredits(guest_, UINT64_MAX);
  const uint64_t all = store_->StatusOf(guest_).credits;
  EXPECT_GT(all, 1'500u);
  store_->ReturnCredits(guest_, UINT64_MAX);
  const GuestId other = AddGuest("other");
  CreatePool(other, PoolKind::kPersistent);
  store_->TopUpCredits(guest_, UINT64_MAX);
  store_->TopUpCredits(other, UINT64_MAX);
  const uint64_t mine = store_->StatusOf(guest_).credits;
  const uint64_t others = store_->StatusOf(other).credits;
  EXPECT_LE(mine + others, all);
  EXPECT_GT(mine + others, all - 200) << "the other domain has slabs of its own";
  EXPECT_GT(others, all / 3);
  store_->ReturnCredits(guest_, 100);
  store_->TopUpCredits(other, UINT64_MAX);
  EXPECT_LE(store_->StatusOf(other).credits, all / 2 + 100);
  store_->ResetGuest(guest_);
  store_->TopUpCredits(other, UINT64_MAX);
  EXPECT_GT(store_->StatusOf(other).credits, all - 200);
}

// Shrinks as the daemon does, and says how far down it came.
uint64_t ShrinkTo(Store& store, uint64_t limit_bytes) {
  store.SetLimit(limit_bytes);
  while (store.Shrink()) {
  }
  return store.limit_bytes();
}

TEST_F(StoreLimit, ALowerLimitRemovesEphemeralPagesAndStays) {
  for (uint64_t i = 0; i < 4'000; ++i) Put(ephemeral_, i, MakePage(i, Fill::kRandom));
  SettleAll();
  const uint64_t full = EphemeralPages(guest_);
  ASSERT_GT(store_->used_bytes(), 12 * kMiB);
  EXPECT_EQ(ShrinkTo(*store_, 8 * kMiB), 8 * kMiB);
  EXPECT_LE(store_->used_bytes(), 8 * kMiB);
  EXPECT_EQ(store_->Status().limit_bytes, 8 * kMiB);
  const uint64_t fewer = EphemeralPages(guest_);
  EXPECT_LT(fewer, full);
  EXPECT_GT(fewer, 500u) << "no more than needed goes";
  for (uint64_t i = 0; i < 4'000; ++i) {
    Put(ephemeral_, 10'000 + i, MakePage(i, Fill::kRandom));
    ASSERT_LE(store_->used_bytes(), 8 * kMiB) << i;
  }
  SettleAll();
  const Result<void> checked = store_->CheckInvariants();
  ASSERT_TRUE(checked.ok()) << checked.error().Describe();
  // And back: more than it was made with is not given.
  EXPECT_EQ(ShrinkTo(*store_, 1'000 * kMiB), 16 * kMiB);
  for (uint64_t i = 0; i < 4'000; ++i) Put(ephemeral_, i, MakePage(i, Fill::kRandom));
  SettleAll();
  EXPECT_GT(EphemeralPages(guest_), fewer + 500);
}

// What was promised is kept, whatever the limit; no more is promised; as pages go the limit
// follows.
TEST_F(StoreLimit, P3_ALowerLimitKeepsWhatWasPromised) {
  for (uint64_t i = 0; i < 4'000; ++i) Put(ephemeral_, i, MakePage(i, Fill::kRandom));
  store_->TopUpCredits(guest_, 1'000);
  const uint64_t credits = store_->StatusOf(guest_).credits;
  ASSERT_EQ(credits, 1'000u);
  for (uint64_t i = 0; i < 500; ++i) {
    ASSERT_EQ(Put(persistent_, i, MakePage(i, Fill::kRandom)), Outcome::kOk);
  }
  SettleAll();
  const uint64_t kept = ShrinkTo(*store_, 3 * kMiB);
  EXPECT_GT(kept, 4 * kMiB);
  EXPECT_LT(kept, 10 * kMiB);
  EXPECT_LE(store_->used_bytes(), kept);
  EXPECT_EQ(store_->TopUpCredits(guest_, 1'000), 1'000u) << "none is granted beyond the limit";
  for (uint64_t i = 500; i < 1'000; ++i) {
    ASSERT_EQ(Put(persistent_, i, MakePage(i, Fill::kRandom)), Outcome::kOk) << i;
    ASSERT_LE(store_->used_bytes(), store_->limit_bytes());
  }
  for (uint64_t i = 0; i < 100; ++i) Put(ephemeral_, i, MakePage(i, Fill::kRandom));
  SettleAll();
  EXPECT_LE(store_->used_bytes(), store_->limit_bytes());
  EXPECT_EQ(EphemeralPages(guest_), 0u) << "what promises keep free is theirs";
  for (uint64_t i = 0; i < 1'000; ++i) ExpectHit(persistent_, i, MakePage(i, Fill::kRandom));
  store_->FlushPool(guest_, persistent_, kAllLanes);
  while (store_->Shrink()) {
  }
  EXPECT_LT(store_->limit_bytes(), kept - 2 * kMiB);
  EXPECT_LE(store_->used_bytes(), store_->limit_bytes());
  const Result<void> checked = store_->CheckInvariants();
  ASSERT_TRUE(checked.ok()) << checked.error().Describe();
}

TEST_F(StoreLimit, P4_TheLowestLimitKeepsPoolMinAndRoomForGuestsToCome) {
  StoreOptions options = SmallStore();
  options.max_guests = 8;
  Open(options);
  for (uint64_t i = 0; i < 4'000; ++i) Put(ephemeral_, i, MakePage(i, Fill::kRandom));
  uint64_t lowest = store_->MinLimitBytes();
  EXPECT_LT(lowest, options.pool_min_bytes + 2 * kMiB);
  EXPECT_EQ(ShrinkTo(*store_, lowest), lowest);
  // All of pool-min, in pages that can be dropped by nobody.
  uint64_t pages = 0;
  for (; store_->TopUpCredits(guest_, 16) > pages; ++pages) {
    ASSERT_EQ(Put(persistent_, pages, MakePage(pages, Fill::kRandom)), Outcome::kOk);
  }
  EXPECT_GT(pages * kPageBytes, options.pool_min_bytes / 10 * 9);
  lowest = store_->MinLimitBytes();
  EXPECT_EQ(ShrinkTo(*store_, lowest), lowest) << "what was slack is pages now";
  for (int i = 1; i < 8; ++i) AddGuest("guest" + std::to_string(i), "domain" + std::to_string(i));
  EXPECT_EQ(store_->Status().guests.size(), 8u);
  EXPECT_LE(store_->used_bytes(), store_->limit_bytes());
}

// Guests push at full speed while the limit goes up and down.
TEST_F(StoreLimit, ALimitThatMovesUnderLoadIsObeyed) {
  std::atomic<bool> stop{false};
  std::thread pusher([&] {
    for (uint64_t i = 0; !stop.load(); ++i) {
      Put(ephemeral_, i % 20'000, MakePage(i, Fill::kRandom));
      store_->TopUpCredits(guest_, 64);
      if (i % 8 == 0) Put(persistent_, i / 8 % 200, MakePage(i, Fill::kRandom));
      if (i % 16 == 0) store_->Settle(16);
    }
  });
  for (int round = 0; round < 30; ++round) {
    const uint64_t limit = round % 2 == 0 ? 9 * kMiB : 14 * kMiB;
    EXPECT_EQ(ShrinkTo(*store_, limit), limit);
    for (int i = 0; i < 20; ++i) {
      ASSERT_LE(store_->used_bytes(), limit);
      std::this_thread::yield();
    }
  }
  stop = true;
  pusher.join();
  SettleAll();
  const Result<void> checked = store_->CheckInvariants();
  ASSERT_TRUE(checked.ok()) << checked.error().Describe();
}

// One guest cannot take all that others may swap to: not by asking, not by holding pages.
TEST_F(StoreLimit, P4_AGuestThatSwapsIsGrantedItsShare) {
  const GuestId other = store_->AddGuest({.name = "other", .domain = "", .weight = 3}).value();
  const GuestId idle = store_->AddGuest({.name = "idle", .domain = "", .weight = 100}).value();
  CreatePool(idle, PoolKind::kEphemeral);
  const PoolHandle others = CreatePool(other, PoolKind::kPersistent);
  uint64_t pages = 0;
  for (;;) {
    store_->TopUpCredits(guest_, 64);
    if (store_->StatusOf(guest_).credits == 0) break;
    ASSERT_EQ(Put(persistent_, pages, MakePage(pages, Fill::kRandom)), Outcome::kOk);
    ++pages;
    if (pages % 16 == 0) SettleAll();
  }
  EXPECT_GT(pages, 350u) << "a quarter of 8 MiB, raw";
  EXPECT_LE(pages, 512u);
  store_->TopUpCredits(other, UINT64_MAX);
  EXPECT_GT(store_->StatusOf(other).credits, 2.5 * static_cast<double>(pages));
  const PageBytes page = MakePage(1, Fill::kRandom);
  EXPECT_EQ(store_->Put(other, Key(others, 1), PageView(page), 0), Outcome::kOk);
  // What it gives back it gets again; and all, once the other one swaps no more.
  store_->Flush(guest_, persistent_, {{7, 0, 1}}, {0, 50}, kAllLanes);
  store_->TopUpCredits(guest_, UINT64_MAX);
  EXPECT_GT(store_->StatusOf(guest_).credits, 30u);
  store_->RemoveGuest(other);
  store_->TopUpCredits(guest_, UINT64_MAX);
  EXPECT_GT(store_->StatusOf(guest_).credits, 1'000u);
}

TEST_F(StoreLimit, WithoutPoolMinThereAreNoPersistentPools) {
  StoreOptions options = SmallStore();
  options.pool_min_bytes = 0;
  auto store = Store::Create(options);
  ASSERT_TRUE(store.ok());
  const auto guest = (*store)->AddGuest({"guest", ""});
  ASSERT_TRUE(guest.ok());
  EXPECT_EQ((*store)->CreatePool(*guest, PoolKind::kPersistent).outcome, Outcome::kNoSpace);
  EXPECT_EQ((*store)->CreatePool(*guest, PoolKind::kEphemeral).outcome, Outcome::kOk);
  EXPECT_EQ((*store)->TopUpCredits(*guest, 100), 0u);
}

TEST_F(StoreLimit, OptionsOutOfRangeAreRefused) {
  StoreOptions options = SmallStore();
  options.pool_min_bytes = options.limit_bytes + 1;
  EXPECT_FALSE(Store::Create(options).ok());
  options = SmallStore();
  options.overhead_bytes = options.limit_bytes + 1;
  EXPECT_FALSE(Store::Create(options).ok());
  options = SmallStore();
  options.limit_bytes = 0;
  options.pool_min_bytes = 0;
  EXPECT_FALSE(Store::Create(options).ok());
}

// Two guests push at once, ephemeral and persistent: the limit holds at each sample, and every
// persistent page comes back.
TEST_F(StoreLimit, TwoGuestsPushingAtOnceStayWithinTheLimit) {
  const GuestId other = AddGuest("other");
  const PoolHandle others[2] = {CreatePool(other, PoolKind::kEphemeral),
                                CreatePool(other, PoolKind::kPersistent)};
  const PoolHandle mine[2] = {ephemeral_, persistent_};
  std::atomic<uint64_t> persistent_pages[2] = {0, 0};
  const auto push = [&](GuestId guest, const PoolHandle(&pools)[2], size_t number) {
    for (uint64_t i = 0; i < 8'000; ++i) {
      const PageBytes page =
          MakePage(number << 40 | i, i % 3 == 0 ? Fill::kCompressible : Fill::kRandom);
      store_->Put(guest, Key(pools[0], i), PageView(page), 0);
      store_->TopUpCredits(guest, 8);
      // So many that both find room, whichever of the two the scheduler lets go first.
      if (i % 4 != 0 || persistent_pages[number].load() == 600) continue;
      if (store_->Put(guest, Key(pools[1], persistent_pages[number]), PageView(page),
                      static_cast<uint32_t>(i)) == Outcome::kOk) {
        persistent_pages[number].fetch_add(1);
      }
    }
  };
  std::thread first(push, guest_, std::cref(mine), 0);
  std::thread second(push, other, std::cref(others), 1);
  for (int i = 0; i < 200; ++i) {
    ExpectWithinLimit();
    store_->Settle(20);
  }
  first.join();
  second.join();
  EXPECT_GT(EphemeralPages(guest_), 0u);
  EXPECT_GT(EphemeralPages(other), 0u);
  PageBytes out;
  for (size_t number = 0; number < 2; ++number) {
    const GuestId guest = number == 0 ? guest_ : other;
    const PoolHandle pool = number == 0 ? persistent_ : others[1];
    EXPECT_GT(persistent_pages[number].load(), 500u);
    for (uint64_t i = 0; i < persistent_pages[number].load(); ++i) {
      const GetResult got = Get(guest, Key(pool, i), out);
      ASSERT_EQ(got.outcome, Outcome::kOk);
      ASSERT_EQ(out, MakePage(number << 40 | got.tag,
                              got.tag % 3 == 0 ? Fill::kCompressible : Fill::kRandom));
    }
  }
}

}  // namespace
}  // namespace tmem
