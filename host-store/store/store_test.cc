// SPDX-License-Identifier: GPL-2.0-only
// The store as its callers see it: each rule of operation by name.
#include "host-store/store/store.h"

#include <gtest/gtest.h>

#include <vector>

#include "host-store/store/store_test_util.h"

namespace tmem {
namespace {

using StoreRules = StoreTest;

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

}  // namespace
}  // namespace tmem
