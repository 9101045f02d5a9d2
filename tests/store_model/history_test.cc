// SPDX-License-Identifier: GPL-2.0-only
// The checker of histories finds each fault it is there for, and accepts what is legal.
#include "tests/store_model/history.h"

#include <gtest/gtest.h>

namespace tmem {
namespace {

using Kind = Event::Kind;
constexpr KeyKind kEphemeral = KeyKind::kEphemeral;
constexpr KeyKind kPersistent = KeyKind::kPersistent;

bool Legal(KeyKind kind, std::vector<Event> events) {
  return !CheckKeyHistory(kind, events).has_value();
}
Event Put(uint64_t begin, uint64_t end, uint32_t value) {
  return {1, begin, end, value, Kind::kPut};
}
Event Hit(uint64_t begin, uint64_t end, uint32_t value) {
  return {1, begin, end, value, Kind::kHit};
}
Event Miss(uint64_t begin, uint64_t end) {
  return {1, begin, end, 0, Kind::kMiss};
}
Event Remove(uint64_t begin, uint64_t end) {
  return {1, begin, end, 0, Kind::kRemove};
}

TEST(History, AcceptsAHitOfTheLastPut) {
  for (const KeyKind kind : {kEphemeral, kPersistent}) {
    EXPECT_TRUE(Legal(kind, {Put(1, 2, 5), Put(3, 4, 6), Hit(5, 6, 6)}));
  }
}

TEST(History, RefusesAValueThatWasNeverPut) {
  for (const KeyKind kind : {kEphemeral, kPersistent}) {
    EXPECT_FALSE(Legal(kind, {Put(1, 2, 5), Hit(3, 4, 6)}));
    EXPECT_FALSE(Legal(kind, {Hit(1, 2, 5), Put(3, 4, 5)}));
  }
}

TEST(History, RefusesAValueThatWasReplaced) {
  for (const KeyKind kind : {kEphemeral, kPersistent}) {
    EXPECT_FALSE(Legal(kind, {Put(1, 2, 5), Put(3, 4, 6), Hit(5, 6, 5)}));
  }
}

TEST(History, RefusesAValueThatWasRemoved) {
  for (const KeyKind kind : {kEphemeral, kPersistent}) {
    EXPECT_FALSE(Legal(kind, {Put(1, 2, 5), Remove(3, 4), Hit(5, 6, 5)}));
  }
}

TEST(History, AcceptsEitherOrderOfWhatOverlaps) {
  for (const KeyKind kind : {kEphemeral, kPersistent}) {
    EXPECT_TRUE(Legal(kind, {Put(1, 4, 5), Put(2, 3, 6), Hit(5, 6, 5)}));
    EXPECT_TRUE(Legal(kind, {Put(1, 4, 5), Put(2, 3, 6), Hit(5, 6, 6)}));
    EXPECT_TRUE(Legal(kind, {Put(1, 4, 5), Remove(2, 3), Hit(5, 6, 5)}));
    EXPECT_TRUE(Legal(kind, {Put(1, 2, 5), Put(3, 6, 6), Hit(4, 5, 5)}));
    EXPECT_TRUE(Legal(kind, {Put(1, 4, 5), Hit(2, 3, 5)}));
  }
}

TEST(History, RefusesASecondHitOfAnEphemeralPage) {
  EXPECT_FALSE(Legal(kEphemeral, {Put(1, 2, 5), Hit(3, 4, 5), Hit(5, 6, 5)}));
  EXPECT_FALSE(Legal(kEphemeral, {Put(1, 2, 5), Hit(3, 6, 5), Hit(4, 5, 5)}));
  EXPECT_TRUE(Legal(kPersistent, {Put(1, 2, 5), Hit(3, 4, 5), Hit(5, 6, 5)}));
}

TEST(History, RefusesAHitAfterAMiss) {
  for (const KeyKind kind : {kEphemeral, kPersistent}) {
    EXPECT_FALSE(Legal(kind, {Put(1, 2, 5), Remove(3, 9), Miss(4, 5), Hit(6, 7, 5)}));
  }
}

TEST(History, RefusesToGoBackToAnOlderValue) {
  // The second put has not ended, but its value was seen.
  EXPECT_FALSE(Legal(kPersistent, {Put(1, 2, 5), Put(3, 9, 6), Hit(4, 5, 6), Hit(6, 7, 5)}));
  EXPECT_FALSE(Legal(kEphemeral, {Put(1, 2, 5), Put(3, 9, 6), Hit(4, 5, 6), Hit(6, 7, 5)}));
}

TEST(History, RefusesAMissOfAPersistentPage) {
  EXPECT_FALSE(Legal(kPersistent, {Put(1, 2, 5), Miss(3, 4)}));
  EXPECT_FALSE(Legal(kPersistent, {Remove(1, 2), Put(3, 4, 5), Put(5, 8, 6), Miss(6, 7)}));
  EXPECT_TRUE(Legal(kPersistent, {Put(1, 4, 5), Remove(2, 3), Miss(5, 6)}));
  EXPECT_TRUE(Legal(kPersistent, {Put(1, 2, 5), Remove(3, 6), Miss(4, 5)}));
  EXPECT_TRUE(Legal(kPersistent, {Put(1, 4, 5), Miss(2, 3)}));
  EXPECT_TRUE(Legal(kEphemeral, {Put(1, 2, 5), Miss(3, 4)}));
}

}  // namespace
}  // namespace tmem
