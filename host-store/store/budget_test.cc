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

TEST(Budget, OptionalBytesMustLeaveRoomForPromises) {
  Budget budget(Small());
  EXPECT_EQ(budget.MakePromises(40), 40u);
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 1'000, Claim::kOptional));
  EXPECT_FALSE(budget.Charge(Account::kSlabs, 1, Claim::kOptional));
  budget.ReleasePromises(1);
  EXPECT_TRUE(budget.Charge(Account::kSlabs, 100, Claim::kOptional));
  EXPECT_EQ(budget.persistent_bytes(), 1'100u);
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
