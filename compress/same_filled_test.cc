// SPDX-License-Identifier: GPL-2.0-only
// Tests of the same-filled test: both ways of it, every byte of a page.
#include "compress/same_filled.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "compress/sample_pages.h"

namespace tmem {
namespace {

using Way = std::optional<std::uint64_t> (*)(PageView);

class SameFilledTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (GetParam() == &internal::SameFilledWordAvx2 && !internal::CpuHasAvx2()) {
      GTEST_SKIP() << "this CPU has no AVX2";
    }
  }
};

TEST_P(SameFilledTest, FindsTheWord) {
  PageBytes page;
  for (const std::uint64_t word :
       {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0x0123456789abcdef}}) {
    FillPage(word, page);
    EXPECT_EQ(GetParam()(page), word);
  }
}

TEST_P(SameFilledTest, OneBitAnywhereMakesADifference) {
  PageBytes page;
  FillPage(0x1122334455667788, page);
  for (std::size_t offset = 0; offset < kPageBytes; ++offset) {
    page[offset] ^= std::byte{0x10};
    ASSERT_EQ(GetParam()(page), std::nullopt) << "byte " << offset;
    page[offset] ^= std::byte{0x10};
  }
}

TEST_P(SameFilledTest, APeriodThatIsNotAWordIsNone) {
  PageBytes page;
  for (std::size_t offset = 0; offset < kPageBytes; ++offset) {
    page[offset] = static_cast<std::byte>(offset % 16);
  }
  EXPECT_EQ(GetParam()(page), std::nullopt);
  // A period that divides a word is one.
  for (std::size_t offset = 0; offset < kPageBytes; ++offset) {
    page[offset] = static_cast<std::byte>(offset % 4);
  }
  EXPECT_EQ(GetParam()(page), 0x0302010003020100U);
}

TEST_P(SameFilledTest, ReadsAPageAtAnyAddressAndNothingBeyond) {
  for (std::size_t shift = 0; shift < 32; ++shift) {
    // The page ends where the allocation ends, so that a sanitizer sees a byte too many.
    const auto bytes = std::make_unique<std::byte[]>(shift + kPageBytes);
    const PageView page(bytes.get() + shift, kPageBytes);
    EXPECT_EQ(GetParam()(page), 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, SameFilledTest,
                         testing::Values(&internal::SameFilledWordPortable,
                                         &internal::SameFilledWordAvx2, &SameFilledWord));

TEST(SameFilledAgreementTest, AllWaysAgreeOnRandomPages) {
  const std::uint64_t seed = TestSeed();
  for (std::uint64_t i = 0; i < 200; ++i) {
    for (const PageKind kind : kAllPageKinds) {
      const PageBytes page = MakeSamplePage(kind, seed + i);
      const auto expected = internal::SameFilledWordPortable(page);
      const bool same = kind == PageKind::kZero || kind == PageKind::kWord;
      ASSERT_EQ(expected.has_value(), same) << ToString(kind) << " seed " << seed + i;
      ASSERT_EQ(SameFilledWord(page), expected) << ToString(kind) << " seed " << seed + i;
    }
  }
}

}  // namespace
}  // namespace tmem
