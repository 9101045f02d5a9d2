// SPDX-License-Identifier: GPL-2.0-only
// Tests of decompressing what was cut, altered or never compressed: in bounds, and the page hash
// notices wrong bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "compress/guarded_bytes.h"
#include "compress/page_codec.h"
#include "compress/page_hash.h"
#include "compress/sample_pages.h"

namespace tmem {
namespace {

constexpr Codec kAllCodecs[] = {Codec::kSameFilled, Codec::kLz4, Codec::kZstd, Codec::kRaw};

std::vector<std::byte> Compressed(PageCodec& codec, Codec number, PageView page) {
  std::vector<std::byte> dest(2 * kPageBytes);
  dest.resize(codec.Compress(number, page, dest).bytes());
  dest.shrink_to_fit();
  return dest;
}

// Decompresses `bytes` between guards: any access beyond source or page stops the test.
class Attempt {
 public:
  Attempt(PageCodec& codec, Codec number, std::span<const std::byte> bytes) {
    const std::span<std::byte> source = Source().Tail(bytes.size());
    std::copy(bytes.begin(), bytes.end(), source.begin());
    // Alternate, so that both ends of the page are tried at its very guard.
    static bool last = false;
    last = !last;
    page_ = last ? Page().LastPage().data() : Page().FirstPage().data();
    outcome_ = codec.Decompress(number, source, PageBuffer(page_, kPageBytes));
  }
  DecompressOutcome outcome() const { return outcome_; }
  // Valid until the next attempt.
  PageView page() const { return PageView(page_, kPageBytes); }

 private:
  static const GuardedBytes& Source() {
    static const GuardedBytes bytes;
    return bytes;
  }
  static const GuardedBytes& Page() {
    static const GuardedBytes bytes;
    return bytes;
  }

  std::byte* page_;
  DecompressOutcome outcome_;
};

bool SamePage(PageView left, PageView right) {
  return std::memcmp(left.data(), right.data(), kPageBytes) == 0;
}

PageHasher TestHasher() {
  const std::uint64_t key = 0x5eed;
  return PageHasher(std::as_bytes(std::span(&key, 1)));
}

TEST(PageCodecDamageTest, EveryTruncationIsCorrupt) {
  PageCodec codec;
  for (const PageKind kind : kAllPageKinds) {
    const PageBytes page = MakeSamplePage(kind, 11);
    for (const Codec number : kAllCodecs) {
      const std::vector<std::byte> whole = Compressed(codec, number, page);
      for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
        const Attempt attempt(codec, number, std::span(whole).first(bytes));
        ASSERT_EQ(attempt.outcome(), DecompressOutcome::kCorrupt)
            << ToString(kind) << " " << ToString(number) << " cut to " << bytes;
      }
    }
  }
}

TEST(PageCodecDamageTest, TrailingBytesAreCorruptOrHarmless) {
  PageCodec codec;
  for (const PageKind kind : kAllPageKinds) {
    const PageBytes page = MakeSamplePage(kind, 12);
    for (const Codec number : kAllCodecs) {
      std::vector<std::byte> whole = Compressed(codec, number, page);
      if (whole.empty()) continue;
      whole.resize(whole.size() + 9, std::byte{0x41});
      const Attempt attempt(codec, number, whole);
      if (attempt.outcome() == DecompressOutcome::kPage) {
        EXPECT_TRUE(SamePage(attempt.page(), page));
      }
    }
  }
}

TEST(PageCodecDamageTest, AlteredBytesAreCorruptOrNoticedByTheHash) {
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  PageCodec codec;
  const PageHasher hasher = TestHasher();
  int wrong_pages = 0;
  for (const PageKind kind : kAllPageKinds) {
    const PageBytes page = MakeSamplePage(kind, seed);
    const PageHash hash = hasher.Hash(page);
    for (const Codec number : kAllCodecs) {
      const std::vector<std::byte> whole = Compressed(codec, number, page);
      if (whole.empty()) continue;
      for (int round = 0; round < 1500; ++round) {
        std::vector<std::byte> altered = whole;
        for (std::uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
          altered[random() % altered.size()] ^= static_cast<std::byte>(1U << (random() % 8));
        }
        const Attempt attempt(codec, number, altered);
        if (attempt.outcome() != DecompressOutcome::kPage || SamePage(attempt.page(), page))
          continue;
        ++wrong_pages;
        ASSERT_NE(hasher.Hash(attempt.page()), hash)
            << ToString(kind) << " " << ToString(number) << " seed " << seed;
      }
    }
  }
  EXPECT_GT(wrong_pages, 0) << "the test never made a wrong page, so it tested nothing";
}

TEST(PageCodecDamageTest, NoiseAndForeignBytesStayInBounds) {
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  PageCodec codec;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> noise(random() % (kPageBytes + 64));
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    for (const Codec number : kAllCodecs) {
      const Attempt attempt(codec, number, noise);
      const bool whole = (number == Codec::kSameFilled && noise.size() == kSameFilledBytes) ||
                         (number == Codec::kRaw && noise.size() == kPageBytes);
      if (whole) {
        ASSERT_EQ(attempt.outcome(), DecompressOutcome::kPage);
      }
    }
  }
  // What one codec made, given to another.
  for (const PageKind kind : kAllPageKinds) {
    const PageBytes page = MakeSamplePage(kind, seed);
    for (const Codec made : kAllCodecs) {
      const std::vector<std::byte> bytes = Compressed(codec, made, page);
      for (const Codec read : kAllCodecs) {
        const Attempt attempt(codec, read, bytes);
        if (made == read && !bytes.empty()) {
          ASSERT_EQ(attempt.outcome(), DecompressOutcome::kPage);
        }
      }
    }
  }
}

TEST(PageCodecDamageTest, ADamagedPageDoesNotHarmTheNext) {
  PageCodec codec;
  const PageBytes page = MakeSamplePage(PageKind::kText, 13);
  for (const Codec number : {Codec::kLz4, Codec::kZstd}) {
    const std::vector<std::byte> whole = Compressed(codec, number, page);
    for (std::size_t cut = 0; cut < whole.size(); cut += 7) {
      (void)Attempt(codec, number, std::span(whole).first(cut));
      const Attempt attempt(codec, number, whole);
      ASSERT_EQ(attempt.outcome(), DecompressOutcome::kPage);
      ASSERT_TRUE(SamePage(attempt.page(), page));
    }
  }
}

}  // namespace
}  // namespace tmem
