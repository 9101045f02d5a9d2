// SPDX-License-Identifier: GPL-2.0-only
// Tests of Result and Error.
#include "host-store/base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

namespace tmem {
namespace {

Result<int> Half(int number) {
  if (number % 2 != 0) return Error{ErrorCode::kInvalidArgument, "odd number"};
  return number / 2;
}

TEST(ResultTest, HoldsAValue) {
  const Result<int> half = Half(8);
  ASSERT_TRUE(half.ok());
  EXPECT_TRUE(static_cast<bool>(half));
  EXPECT_EQ(half.value(), 4);
  EXPECT_EQ(*half, 4);
}

TEST(ResultTest, HoldsAnError) {
  const Result<int> half = Half(7);
  ASSERT_FALSE(half.ok());
  EXPECT_EQ(half.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(half.error().Describe(), "invalid argument: odd number");
}

TEST(ResultTest, MovesAValueThatCannotBeCopied) {
  Result<std::unique_ptr<std::string>> result(std::make_unique<std::string>("page"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value()->size(), 4U);
  const std::unique_ptr<std::string> taken = std::move(result).value();
  EXPECT_EQ(*taken, "page");
}

TEST(ResultTest, VoidIsSuccessOrError) {
  const Result<void> good = Ok();
  EXPECT_TRUE(good.ok());
  good.value();
  const Result<void> bad = Error{ErrorCode::kExhausted, "no credit"};
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::kExhausted);
}

TEST(ResultTest, SystemErrorNamesCallAndReason) {
  const Error error = SystemError("open /nowhere", ENOENT);
  EXPECT_EQ(error.code, ErrorCode::kSystem);
  EXPECT_EQ(error.message, "open /nowhere: No such file or directory");
}

TEST(ResultDeathTest, TakingTheValueOfAnErrorStopsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH({ Half(7).value(); }, "odd number");
}

}  // namespace
}  // namespace tmem
