// SPDX-License-Identifier: GPL-2.0-only
// Tests of the page hash: keyed, the same on every CPU, sensitive to every byte.
#include "compress/page_hash.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>

#include "compress/same_filled.h"
#include "compress/sample_pages.h"

namespace tmem {
namespace {

PageHasher HasherOf(std::uint64_t key) {
  return PageHasher(std::as_bytes(std::span(&key, 1)));
}

TEST(PageHashTest, EqualPagesAndKeysGiveEqualHashes) {
  const PageBytes page = MakeSamplePage(PageKind::kText, 1);
  const PageBytes copy = page;
  EXPECT_EQ(HasherOf(1).Hash(page), HasherOf(1).Hash(copy));
}

TEST(PageHashTest, AnotherKeyGivesAnotherHash) {
  for (const PageKind kind : kAllPageKinds) {
    const PageBytes page = MakeSamplePage(kind, 1);
    EXPECT_NE(HasherOf(1).Hash(page), HasherOf(2).Hash(page)) << ToString(kind);
  }
}

TEST(PageHashTest, EveryByteCounts) {
  const PageHasher hasher = HasherOf(3);
  PageBytes page = MakeSamplePage(PageKind::kHeap, 1);
  const PageHash hash = hasher.Hash(page);
  for (std::size_t offset = 0; offset < kPageBytes; ++offset) {
    page[offset] ^= std::byte{0x01};
    const PageHash changed = hasher.Hash(page);
    ASSERT_NE(changed.low, hash.low) << "byte " << offset;
    ASSERT_NE(changed.high, hash.high) << "byte " << offset;
    page[offset] ^= std::byte{0x01};
  }
}

TEST(PageHashTest, BothInstructionSetsGiveTheSameHash) {
  if (!internal::CpuHasAvx2()) GTEST_SKIP() << "this CPU has no AVX2";
  const std::uint64_t seed = TestSeed();
  for (std::uint64_t i = 0; i < 100; ++i) {
    const PageBytes page = MakeSamplePage(PageKind::kHalfRandom, seed + i);
    const PageBytes secret_page = MakeSamplePage(PageKind::kRandom, seed + i + 1);
    const internal::PageSecret secret(secret_page.data(), PageHasher::kSecretBytes);
    PageHash wide;
    internal::HashPageAvx2(page.data(), secret.data(), &wide.low, &wide.high);
    ASSERT_EQ(internal::HashPagePortable(page, secret), wide) << "seed " << seed + i;
  }
}

}  // namespace
}  // namespace tmem
