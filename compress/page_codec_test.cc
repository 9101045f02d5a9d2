// SPDX-License-Identifier: GPL-2.0-only
// Tests of the codecs on whole, undamaged pages: every kind of page, every size of destination.
#include "compress/page_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "compress/guarded_bytes.h"
#include "compress/sample_pages.h"

namespace tmem {
namespace {

constexpr Codec kAllCodecs[] = {Codec::kSameFilled, Codec::kLz4, Codec::kZstd, Codec::kRaw};
// More than any codec makes of a page.
constexpr std::size_t kAmpleBytes = 2 * kPageBytes;

TEST(PageCodecTest, EveryKindComesBackThroughEveryCodec) {
  const std::uint64_t seed = TestSeed();
  PageCodec codec;
  const GuardedBytes guarded_source;
  const GuardedBytes guarded_page;
  std::vector<std::byte> dest(kAmpleBytes);
  for (std::uint64_t i = 0; i < 50; ++i) {
    for (const PageKind kind : kAllPageKinds) {
      const PageBytes page = MakeSamplePage(kind, seed + i);
      for (const Codec number : kAllCodecs) {
        SCOPED_TRACE(testing::Message()
                     << ToString(kind) << " " << ToString(number) << " seed " << seed + i);
        const CompressOutcome outcome = codec.Compress(number, page, dest);
        const bool same = kind == PageKind::kZero || kind == PageKind::kWord;
        ASSERT_EQ(outcome.fits(), number != Codec::kSameFilled || same);
        if (!outcome.fits()) continue;
        const std::span<std::byte> source = guarded_source.Tail(outcome.bytes());
        std::copy_n(dest.begin(), source.size(), source.begin());
        for (const PageBuffer back : {guarded_page.FirstPage(), guarded_page.LastPage()}) {
          std::fill(back.begin(), back.end(), std::byte{0xa5});
          ASSERT_EQ(codec.Decompress(number, source, back), DecompressOutcome::kPage);
          ASSERT_TRUE(std::equal(back.begin(), back.end(), page.begin()));
        }
      }
    }
  }
}

// The destination sizes worth trying for a page that takes `best_bytes` at best: all near the
// edges, a stride between them, for time.
bool WorthTrying(std::size_t bytes, std::size_t best_bytes) {
  const bool near_best = bytes + 16 > best_bytes && bytes < best_bytes + 32;
  return bytes < 64 || bytes + 64 > kPageBytes || near_best || bytes % 97 == 0;
}

// What must become of a page that takes `best_bytes` with ample room (0: never fits).
void ExpectRightOutcome(Codec codec, std::size_t best_bytes, std::size_t room,
                        CompressOutcome outcome) {
  // zstd wants a little more room than it uses in the end.
  const std::size_t slack = codec == Codec::kZstd ? 32 : 0;
  const bool exact = codec == Codec::kSameFilled || codec == Codec::kRaw;
  ASSERT_LE(outcome.bytes(), room);
  if (best_bytes != 0 && room >= best_bytes + slack) {
    ASSERT_TRUE(outcome.fits());
  } else if (exact) {
    // LZ4 and zstd may find a smaller coding when room is short; these two cannot.
    ASSERT_FALSE(outcome.fits());
  }
}

TEST(PageCodecTest, EverySizeOfDestinationIsKept) {
  PageCodec codec;
  const GuardedBytes guarded_page;
  const GuardedBytes guarded_dest;
  std::vector<std::byte> ample(kAmpleBytes);
  for (const PageKind kind : kAllPageKinds) {
    const PageBytes bytes_of_page = MakeSamplePage(kind, 7);
    const PageBuffer page = guarded_page.LastPage();
    std::copy(bytes_of_page.begin(), bytes_of_page.end(), page.begin());
    for (const Codec number : kAllCodecs) {
      const std::size_t best_bytes = codec.Compress(number, page, ample).bytes();
      for (std::size_t room = 0; room <= kPageBytes + 64; ++room) {
        if (!WorthTrying(room, best_bytes)) continue;
        SCOPED_TRACE(testing::Message()
                     << ToString(kind) << " " << ToString(number) << " into " << room);
        const std::span<std::byte> dest = guarded_dest.Tail(room);
        const CompressOutcome outcome = codec.Compress(number, page, dest);
        ASSERT_NO_FATAL_FAILURE(ExpectRightOutcome(number, best_bytes, room, outcome));
        if (!outcome.fits()) continue;
        PageBytes back;
        ASSERT_EQ(codec.Decompress(number, dest.first(outcome.bytes()), back),
                  DecompressOutcome::kPage);
        ASSERT_EQ(back, bytes_of_page);
      }
    }
  }
}

TEST(PageCodecTest, EqualPagesGiveEqualBytesWhateverCameBefore) {
  PageCodec used;
  std::vector<std::byte> first(kAmpleBytes);
  std::vector<std::byte> second(kAmpleBytes);
  for (std::uint64_t i = 0; i < 20; ++i) {
    for (const PageKind kind : kAllPageKinds) {
      const PageBytes page = MakeSamplePage(kind, i);
      for (const Codec number : {Codec::kLz4, Codec::kZstd}) {
        PageCodec fresh;
        const CompressOutcome outcome = used.Compress(number, page, first);
        ASSERT_EQ(fresh.Compress(number, page, second).bytes(), outcome.bytes());
        ASSERT_TRUE(std::equal(first.begin(),
                               first.begin() + static_cast<std::ptrdiff_t>(outcome.bytes()),
                               second.begin()));
      }
    }
  }
}

TEST(PageCodecTest, NothingIsAllocatedAfterItIsMade) {
  PageCodec codec;
  const std::size_t bytes_when_made = codec.memory_bytes();
  EXPECT_GT(bytes_when_made, kPageBytes);
  std::vector<std::byte> dest(kPageBytes);
  PageBytes back;
  for (std::uint64_t i = 0; i < 300; ++i) {
    for (const PageKind kind : kAllPageKinds) {
      const PageBytes page = MakeSamplePage(kind, i);
      const CompressOutcome outcome = codec.Compress(Codec::kZstd, page, dest);
      if (!outcome.fits()) continue;
      ASSERT_EQ(codec.Decompress(Codec::kZstd, std::span(dest).first(outcome.bytes()), back),
                DecompressOutcome::kPage);
    }
  }
  EXPECT_EQ(codec.memory_bytes(), bytes_when_made);
}

TEST(PageCodecTest, TheGiveUpBoundKeepsWhatPaysAndRefusesNoise) {
  PageCodec codec;
  std::vector<std::byte> dest(kMaxCompressedBytes);
  for (const Codec number : {Codec::kLz4, Codec::kZstd}) {
    EXPECT_TRUE(codec.Compress(number, MakeSamplePage(PageKind::kText, 1), dest).fits());
    EXPECT_TRUE(codec.Compress(number, MakeSamplePage(PageKind::kHeap, 1), dest).fits());
    EXPECT_TRUE(codec.Compress(number, MakeSamplePage(PageKind::kHalfRandom, 1), dest).fits());
    EXPECT_FALSE(codec.Compress(number, MakeSamplePage(PageKind::kRandom, 1), dest).fits());
  }
}

TEST(PageCodecTest, EveryLevelComesBack) {
  std::vector<std::byte> dest(kAmpleBytes);
  const PageBytes page = MakeSamplePage(PageKind::kHeap, 3);
  for (const int level : {-5, -1, 1, 3, 9}) {
    PageCodec codec({.lz4_acceleration = level > 0 ? level : 1, .zstd_level = level});
    for (const Codec number : {Codec::kLz4, Codec::kZstd}) {
      const CompressOutcome outcome = codec.Compress(number, page, dest);
      ASSERT_TRUE(outcome.fits());
      PageBytes back;
      ASSERT_EQ(codec.Decompress(number, std::span(dest).first(outcome.bytes()), back),
                DecompressOutcome::kPage);
      EXPECT_EQ(back, page);
    }
  }
}

TEST(PageCodecTest, OnlyKnownNumbersAreCodecs) {
  int known = 0;
  for (int number = 0; number < 256; ++number) {
    const auto codec = CodecFromNumber(static_cast<std::uint8_t>(number));
    if (codec) {
      ++known;
      EXPECT_EQ(static_cast<int>(*codec), number);
    }
  }
  EXPECT_EQ(known, 4);
  EXPECT_FALSE(CodecFromNumber(0).has_value());
}

}  // namespace
}  // namespace tmem
