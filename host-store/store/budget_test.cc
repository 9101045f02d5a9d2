// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/store/budget.h"

#include <gtest/gtest.h>

namespace tmem {
namespace {

constexpr uint64_t kWorst = 100;

Budget::Options Small() {
  return {.limit_bytes = 10'000, .pool_min_bytes = 5'000, .worst_case_bytes = kWorst};
}

TEST(Budget, CountsEachAccountAndRefusesWhatIsOverTheLimit) {
  Budget budget(Small());
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 6'000, Claim::kEphemeral));
  EXPECT_TRUE(budget.Charge(Account::kMetadata, 4'000, Claim::kEphemeral));
  EXPECT_FALSE(budget.Charge(Account::kMetadata, 1, Claim::kEphemeral));
  EXPECT_EQ(budget.used_bytes(), 10'000u);
  EXPECT_EQ(budget.account_bytes(Account::kSlabs), 6'000u);
  budget.Uncharge(Account::kSlabs, 6'000, Claim::kEphemeral);
  EXPECT_TRUE(budget.Charge(Account::kMetadata, 1, Claim::kEphemeral));
}

TEST(Budget, PromisesAreMadeOnlyAsFarAsPoolMinReaches) {
  Budget budget(Small());
  EXPECT_TRUE(budget.AddSlack(1'000));
  EXPECT_EQ(budget.MakePromises(10), 10u);
  EXPECT_EQ(budget.MakePromises(1'000), 30u);
  EXPECT_EQ(budget.MakePromises(1), 0u);
  budget.ReleasePromises(5);
  EXPECT_EQ(budget.MakePromises(1'000), 5u);
}

TEST(Budget, FixedBytesMustLeaveRoomForPromises) {
  Budget budget(Small());
  EXPECT_EQ(budget.MakePromises(50), 50u);
  EXPECT_FALSE(budget.Charge(Account::kReserved, 5'001, Claim::kFixed));
  EXPECT_TRUE(budget.Charge(Account::kReserved, 5'000, Claim::kFixed));
  EXPECT_EQ(budget.MakePromises(1), 0u);
}

// Slack that has become pages counts beyond pool-min: windows and guests came to be refused then,
// however much room the limit had.
TEST(Budget, FixedBytesFitWhilePoolMinIsUsedUp) {
  Budget budget(Small());
  EXPECT_TRUE(budget.AddSlack(1'000));
  EXPECT_EQ(budget.MakePromises(40), 40u);
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 4'500, Claim::kPromised));
  budget.ReleasePromises(40);
  EXPECT_EQ(budget.min_limit_bytes(), 5'500u);
  EXPECT_FALSE(budget.Charge(Account::kReserved, 4'501, Claim::kFixed));
  EXPECT_TRUE(budget.Charge(Account::kReserved, 4'500, Claim::kFixed));
  EXPECT_EQ(budget.min_limit_bytes(), 10'000u);
}

TEST(Budget, OptionalBytesMustLeaveRoomForPromises) {
  Budget budget(Small());
  EXPECT_EQ(budget.MakePromises(40), 40u);
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 1'000, Claim::kOptional));
  EXPECT_FALSE(budget.Charge(Account::kSlabs, 1, Claim::kOptional));
  budget.ReleasePromises(1);
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 100, Claim::kOptional));
  EXPECT_EQ(budget.persistent_bytes(), 1'100u);
}

// A promise and the memory it becomes are both counted for a moment: that is no room beyond the
// limit.
TEST(Budget, APromiseThatBecomesMemoryDoesNotRaiseTheLimit) {
  Budget budget(Small());
  budget.SetReclaimer([&] {
    budget.Uncharge(Account::kSlabs, 100, Claim::kEphemeral);
    return true;
  });
  EXPECT_TRUE(budget.Charge(Account::kReserved, 5'000, Claim::kFixed));
  EXPECT_EQ(budget.MakePromises(50), 50u);
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 5'000, Claim::kEphemeral));
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 200, Claim::kPromised));
  EXPECT_EQ(budget.limit_bytes(), 10'000u);
  EXPECT_LE(budget.used_bytes(), 10'000u);
}

TEST(Budget, ALowerLimitComesInStepsAndStopsAtWhatWasPromised) {
  Budget budget(Small());
  EXPECT_TRUE(budget.Charge(Account::kReserved, 1'000, Claim::kFixed));
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 6'000, Claim::kEphemeral));
  EXPECT_EQ(budget.MakePromises(20), 20u);
  budget.SetLimit(2'000);
  EXPECT_EQ(budget.limit_bytes(), 10'000u) << "pages are in the way";
  EXPECT_EQ(budget.MakePromises(1), 0u) << "but nothing more is promised";
  EXPECT_FALSE(budget.Charge(Account::kReserved, 1, Claim::kFixed));
  EXPECT_TRUE(budget.LowerLimit(4'000));
  EXPECT_EQ(budget.limit_bytes(), 6'000u);
  EXPECT_TRUE(budget.IsOver());
  EXPECT_FALSE(budget.Charge(Account::kSlabs, 1, Claim::kEphemeral));
  budget.Uncharge(Account::kSlabs, 6'000, Claim::kEphemeral);
  EXPECT_TRUE(budget.LowerLimit(9'000));
  EXPECT_FALSE(budget.LowerLimit(9'000));
  EXPECT_EQ(budget.limit_bytes(), 3'000u) << "1000 fixed and 20 promises";
  budget.ReleasePromises(20);
  EXPECT_EQ(budget.limit_bytes(), 2'000u);
  budget.SetLimit(50'000);
  EXPECT_EQ(budget.limit_bytes(), 10'000u) << "what it was made with";
}

TEST(Budget, APromisedClaimEvictsUntilItFits) {
  Budget budget(Small());
  int rounds = 0;
  budget.SetReclaimer([&] {
    ++rounds;
    budget.Uncharge(Account::kSlabs, 100, Claim::kEphemeral);
    return true;
  });
  ASSERT_TRUE(budget.Charge(Account::kSlabs, 10'000, Claim::kEphemeral));
  EXPECT_FALSE(budget.Charge(Account::kSlabs, 1, Claim::kEphemeral));
  EXPECT_EQ(rounds, 0);
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 250, Claim::kPromised));
  EXPECT_EQ(rounds, 3);
  EXPECT_EQ(budget.overruns(), 0u);
}

TEST(Budget, NobodyTakesWhatIsBeingFreedForAPromise) {
  Budget budget(Small());
  ASSERT_TRUE(budget.Charge(Account::kSlabs, 10'000, Claim::kEphemeral));
  bool stolen = false;
  budget.SetReclaimer([&] {
    budget.Uncharge(Account::kSlabs, 100, Claim::kEphemeral);
    stolen |= budget.Charge(Account::kSlabs, 100, Claim::kEphemeral);
    return true;
  });
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 1'000, Claim::kPromised));
  EXPECT_FALSE(stolen);
}

TEST(Budget, AFixedClaimGivesUpWhenNothingCanBeEvicted) {
  Budget budget(Small());
  ASSERT_TRUE(budget.Charge(Account::kSlabs, 10'000, Claim::kEphemeral));
  budget.SetReclaimer([] { return false; });
  EXPECT_FALSE(budget.Charge(Account::kReserved, 100, Claim::kFixed));
  EXPECT_EQ(budget.used_bytes(), 10'000u);
  budget.Uncharge(Account::kSlabs, 100, Claim::kEphemeral);
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 100, Claim::kEphemeral)) << "nothing stays pending";
}

}  // namespace
}  // namespace tmem
