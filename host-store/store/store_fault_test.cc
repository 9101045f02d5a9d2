// SPDX-License-Identifier: GPL-2.0-only
// Every allocation and every codec call fails once, each in a run of its own: the rules still hold.
#include <gtest/gtest.h>

#include <map>

#include "host-store/store/store_test_util.h"

namespace tmem {
namespace {

using Point = FaultPlan::Point;

class StoreFaults : public StoreTest {
 protected:
  void SetUp() override {}

  // Puts, replaces, gets and flushes some of everything; what a key must give is kept in a model.
  // The fault comes somewhere in between.
  void RunWorkload() {
    std::map<uint64_t, uint64_t> ephemeral;  // index -> page
    std::map<uint64_t, uint64_t> persistent;
    uint64_t number = 0;
    for (uint64_t round = 0; round < 3; ++round) {
      for (uint64_t i = 0; i < 40; ++i) {
        ++number;
        const uint64_t index = i * 29 % 64 * 16;
        const Fill fill = FillOf(number);
        // P1, P2: whatever the outcome, the older page is not readable any more.
        ephemeral.erase(index);
        if (Put(ephemeral_, index, MakePage(number, fill)) == Outcome::kOk) {
          ephemeral[index] = number;
        }
        persistent.erase(index);
        const Outcome outcome = Put(persistent_, index, MakePage(number, fill));
        EXPECT_EQ(outcome, Outcome::kOk) << "a put with a credit (P3)";
        persistent[index] = number;
        if (i % 7 == 0) store_->Settle(3);
      }
      SettleAll();
      CheckPages(ephemeral, persistent);
      ephemeral.clear();  // gets took them
      store_->Flush(guest_, persistent_, {{7, 0, 1}}, {0, 300}, kAllLanes);
      persistent.erase(persistent.begin(), persistent.lower_bound(300));
    }
    const Result<void> checked = store_->CheckInvariants();
    EXPECT_TRUE(checked.ok()) << checked.error().Describe();
  }

  static Fill FillOf(uint64_t number) {
    return number % 2 == 0 ? Fill::kRandom : Fill::kCompressible;
  }

  void CheckPages(const std::map<uint64_t, uint64_t>& ephemeral,
                  const std::map<uint64_t, uint64_t>& persistent) {
    PageBytes out;
    for (uint64_t index = 0; index < uint64_t{64} * 16; index += 16) {
      const auto expected = ephemeral.find(index);
      const Outcome outcome = Get(ephemeral_, index, out).outcome;
      if (expected == ephemeral.end()) {
        EXPECT_EQ(outcome, Outcome::kMiss);
      } else if (outcome == Outcome::kOk) {
        EXPECT_EQ(out, MakePage(expected->second, FillOf(expected->second)));
      }
      const auto kept = persistent.find(index);
      if (kept == persistent.end()) {
        ExpectMiss(persistent_, index);
        continue;
      }
      Outcome got = Get(persistent_, index, out).outcome;
      // A page that came out altered once is an error then, and there afterwards.
      if (got == Outcome::kCorrupt) {
        EXPECT_TRUE(faults_.fired(Point::kDecompress));
        got = Get(persistent_, index, out).outcome;
      }
      ASSERT_EQ(got, Outcome::kOk) << index;
      EXPECT_EQ(out, MakePage(kept->second, FillOf(kept->second)));
    }
  }

  // Fails the first call, then the second, and so on, until a run has fewer.
  void FailEachCallOf(Point point) {
    uint64_t nth = 0;
    do {
      ++nth;
      SCOPED_TRACE(testing::Message() << "call " << nth << " fails");
      StoreOptions options = SmallStore();
      options.landing_bytes = 8 * kPageBytes;  // so that some puts settle and some are direct
      options.faults = &faults_;
      store_.reset();
      faults_.FailNth(point, 0);
      Open(options);
      store_->TopUpCredits(guest_, 500);
      const uint64_t used = store_->Status().used_bytes;
      faults_.FailNth(point, nth);
      RunWorkload();
      store_->ResetGuest(guest_);
      SettleAll();
      EXPECT_EQ(store_->Status().pages, 0u);
      EXPECT_LE(store_->Status().used_bytes, used + uint64_t{4 * 3 * 2 + 4} * 17 * 1024)
          << "leaked";
    } while (faults_.fired(point) && !HasFailure());
    EXPECT_GT(nth, 5u) << "the fault never came";
  }
};

TEST_F(StoreFaults, MemoryRefusedByTheKernel) {
  FailEachCallOf(Point::kMemory);
}
TEST_F(StoreFaults, PagesRefusedByTheCodec) {
  FailEachCallOf(Point::kCompress);
}
TEST_F(StoreFaults, PagesThatComeOutAltered) {
  FailEachCallOf(Point::kDecompress);
}

// Making a store may fail at each of its allocations, and then there is none.
TEST_F(StoreFaults, MemoryRefusedWhileStarting) {
  for (uint64_t nth = 1; nth <= 30; ++nth) {
    StoreOptions options = SmallStore();
    options.faults = &faults_;
    faults_.FailNth(Point::kMemory, nth);
    auto store = Store::Create(options);
    if (!store.ok()) continue;
    const auto guest = (*store)->AddGuest({"guest", ""});
    if (!faults_.fired(Point::kMemory)) return;
    EXPECT_FALSE(guest.ok());
    EXPECT_TRUE((*store)->AddGuest({"guest", ""}).ok()) << "the second time it works";
    EXPECT_TRUE((*store)->CheckInvariants().ok());
  }
  FAIL() << "more allocations than there should be";
}

// What the operator's limit leaves no room for: every put fails, and nothing older stays.
TEST_F(StoreFaults, P2_WithoutRoomAPutFailsAndTheKeyIsGone) {
  Open(SmallStore());
  ASSERT_EQ(Put(ephemeral_, 1, MakePage(1)), Outcome::kOk);
  SettleAll();
  // All that is not pool-min, then persistent pages for the rest.
  store_->TopUpCredits(guest_, UINT64_MAX);
  while (store_->Reserve(uint64_t{64} * 1024).ok()) {
  }
  const uint64_t credits = store_->StatusOf(guest_).credits;
  for (uint64_t i = 0; i < credits; ++i) {
    ASSERT_EQ(Put(persistent_, i, MakePage(i, Fill::kRandom)), Outcome::kOk);
  }
  SettleAll();
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 2000; ++i) {
    const Outcome outcome = Put(ephemeral_, i << 10, MakePage(i, Fill::kRandom));
    if (outcome == Outcome::kOk) continue;
    EXPECT_EQ(outcome, Outcome::kNoSpace);
    ExpectMiss(ephemeral_, i << 10);
    ++refused;
  }
  EXPECT_EQ(refused, store_->StatusOf(guest_).puts_no_space);
  EXPECT_LE(store_->Status().used_bytes, store_->Status().limit_bytes);
}

}  // namespace
}  // namespace tmem
