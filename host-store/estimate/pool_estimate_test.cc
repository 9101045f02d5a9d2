// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/estimate/pool_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "compress/sample_pages.h"
#include "host-store/doorbell/test_directory.h"
#include "host-store/estimate/estimate_text.h"
#include "host-store/store/store.h"

namespace tmem {
namespace {

using Sharing = PoolEstimate::Sharing;

TEST(PoolEstimate, TellsKindsOfPagesApart) {
  PoolEstimate estimate;
  const PageBytes text = MakeSamplePage(PageKind::kText, 1);
  estimate.Add(MakeSamplePage(PageKind::kZero, 0));
  estimate.Add(MakeSamplePage(PageKind::kWord, 3));
  for (int i = 0; i < 3; ++i) estimate.Add(text);
  estimate.Add(MakeSamplePage(PageKind::kRandom, 1));
  EXPECT_EQ(estimate.pages(), 6u);
  EXPECT_EQ(estimate.zero_pages(), 1u);
  EXPECT_EQ(estimate.same_filled_pages(), 2u);
  EXPECT_EQ(estimate.duplicate_pages(), 2u);

  PageCodec codec;
  for (const Codec number : {Codec::kLz4, Codec::kZstd}) {
    std::array<std::byte, kMaxCompressedBytes> coded;
    const CompressOutcome outcome = codec.Compress(number, text, coded);
    ASSERT_TRUE(outcome.fits());
    const auto dedup = estimate.Of(number, Sharing::kDedup);
    const auto none = estimate.Of(number, Sharing::kNone);
    EXPECT_EQ(dedup.stored_bytes, outcome.bytes() + kPageBytes) << ToString(number);
    EXPECT_EQ(none.stored_bytes, 3 * outcome.bytes() + kPageBytes) << ToString(number);
    EXPECT_EQ(dedup.raw_pages, 1u);
    EXPECT_GT(dedup.held_bytes, dedup.stored_bytes + dedup.metadata_bytes);
  }
}

// The estimate is worth something only while it counts as the store does.
TEST(PoolEstimate, IsWhatTheStoreHoldsOfTheSamePages) {
  const uint64_t seed = TestSeed();
  constexpr PageKind kKinds[] = {PageKind::kText, PageKind::kHeap, PageKind::kHalfRandom,
                                 PageKind::kRandom, PageKind::kZero};
  PoolEstimate estimate;
  auto store = Store::Create({.limit_bytes = 128 << 20,
                              .pool_min_bytes = 0,
                              .landing_bytes = 1 << 20,
                              .overhead_bytes = 0,
                              .seed = 1})
                   .value();
  const GuestId guest = store->AddGuest({.name = "guest", .domain = ""}).value();
  const PoolHandle pool = store->CreatePool(guest, PoolKind::kEphemeral).pool;
  const auto held = [&] {
    while (store->Settle(64) != 0) {
    }
    const StoreStatus status = store->Status();
    return status.slab_bytes + status.metadata_bytes;
  };
  const uint64_t empty_bytes = held();
  for (uint64_t i = 0; i < 12'000; ++i) {
    // Every third page is a copy of one before it.
    const uint64_t number = i % 3 == 2 ? i - 2 : i;
    const PageBytes page = MakeSamplePage(kKinds[number % std::size(kKinds)], seed + number);
    estimate.Add(page);
    ASSERT_EQ(store->Put(guest, {pool, {{1, 0, 0}}, i}, PageView(page), 0), Outcome::kOk);
  }
  const auto held_bytes = static_cast<double>(held() - empty_bytes);
  const auto expected = static_cast<double>(estimate.Of(Codec::kLz4, Sharing::kDedup).held_bytes);
  EXPECT_EQ(store->Status().duplicates, estimate.duplicate_pages());
  // The store holds more by the chunks that each shard of its index has begun: 3 % of so few pages.
  EXPECT_LT(expected / held_bytes, 1.01) << expected << " and " << held_bytes;
  EXPECT_GT(expected / held_bytes, 0.95) << expected << " and " << held_bytes;
}

TEST(EstimateText, NamesWhatItCounts) {
  TestDirectory directory;
  const std::string path = directory.path() + "/image";
  PoolEstimate estimate;
  std::ofstream file(path, std::ios::binary);
  for (uint64_t i = 0; i < 40; ++i) {
    const PageBytes page =
        MakeSamplePage(i < 10 ? PageKind::kZero : PageKind::kText, i < 35 ? i : 20);
    file.write(reinterpret_cast<const char*>(page.data()), kPageBytes);
  }
  file.close();
  const auto image = MemoryImage::Open(path);
  ASSERT_TRUE(image.ok());
  ASSERT_TRUE((*image)->ForEachPage([&](PageView page) { estimate.Add(page); }).ok());
  const std::string text = EstimateText(**image, estimate);
  EXPECT_THAT(text, testing::HasSubstr("pages        40 (160.0 KiB)"));
  EXPECT_THAT(text, testing::HasSubstr("same-filled  10 (25.0 %), of them zero 10 (25.0 %)"));
  EXPECT_THAT(text, testing::HasSubstr("duplicates   5 (12.5 %)"));
  const nlohmann::json json = EstimateJson(**image, estimate);
  EXPECT_EQ(json["pages"], 40);
  EXPECT_EQ(json["format"], "raw");
  EXPECT_EQ(json["codecs"]["zstd"]["dedup"]["stored_bytes"],
            estimate.Of(Codec::kZstd, Sharing::kDedup).stored_bytes);
  EXPECT_GT(json["codecs"]["lz4"]["no_dedup"]["held_bytes"],
            json["codecs"]["lz4"]["dedup"]["held_bytes"]);
}

}  // namespace
}  // namespace tmem
