// SPDX-License-Identifier: GPL-2.0-only
// The exact table against sets and lists of the standard library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <list>
#include <random>
#include <tuple>

#include "tests/guest_core/core.h"

namespace {

struct Table {
  explicit Table(u32 keys) { EXPECT_EQ(tmem_table_init(&table, keys), 0); }
  ~Table() { tmem_table_destroy(&table); }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  tmem_table table;
};

tmem_key Key(u32 pool, std::uint64_t object, std::uint64_t index) {
  return {pool, {object, object + 1, 0}, index};
}

std::uint64_t Seed() {
  const char* given = std::getenv("TMEM_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  std::cout << "TMEM_SEED=" << seed << '\n';
  return seed;
}

TEST(Table, RefusesSizesOutOfBounds) {
  tmem_table table;
  EXPECT_EQ(tmem_table_init(&table, TMEM_TABLE_MIN_KEYS - 1), -EINVAL);
  EXPECT_EQ(tmem_table_init(&table, TMEM_TABLE_MAX_KEYS + 1), -EINVAL);
}

TEST(Table, FindsWhatWasInsertedUntilRemoved) {
  Table t(64);
  const tmem_key key = Key(3, 7, 1ULL << 40);
  EXPECT_EQ(tmem_table_find(&t.table, &key), TMEM_TABLE_NONE);
  const u32 at = tmem_table_insert(&t.table, &key, 5);
  EXPECT_EQ(tmem_table_find(&t.table, &key), at);
  EXPECT_EQ(tmem_table_of_entry(&t.table, at, 5), at);
  EXPECT_EQ(tmem_table_of_entry(&t.table, at, 6), TMEM_TABLE_NONE);
  u64 highest = 0;
  EXPECT_EQ(tmem_table_object_keys(&t.table, 3, key.object, &highest), 1u);
  EXPECT_EQ(highest, key.index);
  tmem_table_remove(&t.table, at);
  EXPECT_EQ(tmem_table_find(&t.table, &key), TMEM_TABLE_NONE);
  EXPECT_EQ(tmem_table_object_keys(&t.table, 3, key.object, &highest), 0u);
  EXPECT_EQ(tmem_table_of_entry(&t.table, at, 5), TMEM_TABLE_NONE);
}

TEST(Table, OldestIsTheFirstPutAndATouchMakesNew) {
  Table t(64);
  u32 at[3];
  for (u32 i = 0; i < 3; ++i) {
    const tmem_key key = Key(0, 1, i);
    at[i] = tmem_table_insert(&t.table, &key, i);
  }
  EXPECT_EQ(tmem_table_oldest(&t.table), at[0]);
  tmem_table_touch(&t.table, at[0], 9);
  EXPECT_EQ(tmem_table_oldest(&t.table), at[1]);
}

TEST(Table, ForgottenObjectIsGoneAtOnceAndItsRoomComesBack) {
  Table t(64);
  for (u32 i = 0; i < 64; ++i) {
    const tmem_key key = Key(0, 1, i);
    ASSERT_NE(tmem_table_insert(&t.table, &key, i), TMEM_TABLE_NONE);
  }
  const tmem_key other = Key(0, 2, 0);
  EXPECT_EQ(tmem_table_insert(&t.table, &other, 64), TMEM_TABLE_NONE);
  tmem_table_forget_object(&t.table, 0, Key(0, 1, 0).object);
  for (u32 i = 0; i < 64; ++i) {
    const tmem_key key = Key(0, 1, i);
    EXPECT_EQ(tmem_table_find(&t.table, &key), TMEM_TABLE_NONE);
  }
  u64 highest = 0;
  EXPECT_EQ(tmem_table_object_keys(&t.table, 0, Key(0, 1, 0).object, &highest), 0u);
  EXPECT_NE(tmem_table_insert(&t.table, &other, 65), TMEM_TABLE_NONE);
  while (tmem_table_reclaim(&t.table, 8)) {
  }
  EXPECT_EQ(t.table.used, 1u);
}

TEST(Table, ForgottenPoolIsGoneAndItsNumberCanBeUsedAgain) {
  Table t(64);
  for (u32 i = 0; i < 32; ++i) {
    const tmem_key key = Key(i % 2, i, 0);
    if (tmem_table_insert(&t.table, &key, i) == TMEM_TABLE_NONE) break;
  }
  tmem_table_forget_pool(&t.table, 0);
  const tmem_key old = Key(0, 0, 0);
  const tmem_key kept = Key(1, 1, 0);
  EXPECT_EQ(tmem_table_find(&t.table, &old), TMEM_TABLE_NONE);
  EXPECT_NE(tmem_table_find(&t.table, &kept), TMEM_TABLE_NONE);
  while (tmem_table_reclaim(&t.table, 4)) {
  }
  const u32 at = tmem_table_insert(&t.table, &old, 99);
  EXPECT_NE(at, TMEM_TABLE_NONE);
  EXPECT_EQ(tmem_table_find(&t.table, &old), at);
}

TEST(Table, ForgetRangeSparesWhatCameAfterTheFlush) {
  Table t(64);
  for (u32 i = 0; i < 20; ++i) {
    const tmem_key key = Key(0, 1, i);
    ASSERT_NE(tmem_table_insert(&t.table, &key, i), TMEM_TABLE_NONE);
  }
  const tmem_key sample = Key(0, 1, 0);
  // Entries 0..14 came before the flush at 15.
  EXPECT_EQ(tmem_table_forget_range(&t.table, 0, sample.object, 5, ~0ULL, 15, 20), 10u);
  for (u32 i = 0; i < 20; ++i) {
    const tmem_key key = Key(0, 1, i);
    EXPECT_EQ(tmem_table_find(&t.table, &key) != TMEM_TABLE_NONE, i < 5 || i >= 15) << i;
  }
}

// The model: keys in order of their last put.
using Name = std::tuple<u32, std::uint64_t, std::uint64_t>;

class Model {
 public:
  std::list<Name> keys;
  bool Has(const Name& name) const {
    return std::find(keys.begin(), keys.end(), name) != keys.end();
  }
};

TEST(Table, RandomOperationsAgreeWithAModel) {
  std::mt19937_64 random(Seed());
  constexpr u32 kKeys = 48;
  Table t(kKeys);
  Model model;
  for (u32 step = 0; step < 200'000; ++step) {
    const Name name{static_cast<u32>(random() % 2), random() % 6, random() % 24};
    const u32 pool = std::get<0>(name);
    const std::uint64_t object = std::get<1>(name);
    const std::uint64_t index = std::get<2>(name);
    const tmem_key key = Key(pool, object, index);
    const u32 at = tmem_table_find(&t.table, &key);
    ASSERT_EQ(at != TMEM_TABLE_NONE, model.Has(name)) << "step " << step;
    switch (random() % 16) {
      case 0:
        tmem_table_forget_object(&t.table, pool, key.object);
        model.keys.remove_if(
            [&](const Name& n) { return std::get<0>(n) == pool && std::get<1>(n) == object; });
        break;
      case 1:
        if (random() % 8 != 0) break;
        tmem_table_forget_pool(&t.table, pool);
        model.keys.remove_if([&](const Name& n) { return std::get<0>(n) == pool; });
        break;
      case 2: {
        const std::uint64_t last = index + random() % 8;
        tmem_table_forget_range(&t.table, pool, key.object, index, last, step, kKeys);
        model.keys.remove_if([&](const Name& n) {
          return std::get<0>(n) == pool && std::get<1>(n) == object && std::get<2>(n) >= index &&
                 std::get<2>(n) <= last;
        });
        break;
      }
      case 3: tmem_table_reclaim(&t.table, static_cast<u32>(random() % 8)); break;
      case 4:
      case 5:
      case 6:
        if (at == TMEM_TABLE_NONE) break;
        tmem_table_remove(&t.table, at);
        model.keys.remove(name);
        break;
      default:
        if (at != TMEM_TABLE_NONE) {
          tmem_table_touch(&t.table, at, step);
          model.keys.remove(name);
          model.keys.push_back(name);
          break;
        }
        u32 put = tmem_table_insert(&t.table, &key, step);
        while (put == TMEM_TABLE_NONE) {
          const u32 oldest = tmem_table_oldest(&t.table);
          if (oldest == TMEM_TABLE_NONE) continue;  // dropped forgotten ones, bounded
          tmem_key old;
          tmem_table_key_at(&t.table, oldest, &old);
          ASSERT_EQ((Name{old.pool, old.object[0], old.index}), model.keys.front());
          tmem_table_remove(&t.table, oldest);
          model.keys.pop_front();
          put = tmem_table_insert(&t.table, &key, step);
        }
        model.keys.push_back(name);
        break;
    }
  }
}

}  // namespace
