// SPDX-License-Identifier: GPL-2.0-only
// Codes each page once, and counts slots and records as the store makes them.
#include "host-store/estimate/pool_estimate.h"

#include <span>

#include "compress/same_filled.h"
#include "host-store/store/memory_file.h"
#include "host-store/store/record_arena.h"
#include "host-store/store/records.h"

namespace tmem {
namespace {

constexpr uint64_t kAnyKey = 0x746d656d;

// Of `count` records, their part of chunks' headers and of the kernel's tables included.
uint64_t RecordBytes(uint64_t count, size_t record_bytes) {
  return count * ChargedBytes(kRecordChunkBytes) / RecordArena::RecordsPerChunk(record_bytes);
}

// Heads of chains: one for two records.
uint64_t TableBytes(uint64_t records) {
  return records / 2 * sizeof(RecordNumber);
}

}  // namespace

PoolEstimate::PoolEstimate() : hasher_(std::as_bytes(std::span(&kAnyKey, 1))) {}

void PoolEstimate::Tally::Add(size_t bytes) {
  ++pages[ClassFor(bytes)];
  stored_bytes += bytes;
  if (bytes == kPageBytes) ++raw_pages;
}

PoolEstimate::Sizes PoolEstimate::SizesOf(PageView page) {
  std::array<std::byte, kMaxCompressedBytes> coded;
  const auto size_with = [&](Codec codec) {
    const CompressOutcome outcome = codec_.Compress(codec, page, coded);
    return static_cast<uint16_t>(outcome.fits() ? outcome.bytes() : kPageBytes);
  };
  return {.lz4 = size_with(Codec::kLz4), .zstd = size_with(Codec::kZstd)};
}

void PoolEstimate::Add(PageView page) {
  ++pages_;
  if (const auto word = SameFilledWord(page)) {
    ++same_filled_pages_;
    if (*word == 0) ++zero_pages_;
    return;
  }
  const auto [seen, is_new] = seen_.try_emplace(hasher_.Hash(page));
  if (is_new) {
    seen->second = SizesOf(page);
    lz4_unique_.Add(seen->second.lz4);
    zstd_unique_.Add(seen->second.zstd);
  } else {
    ++duplicate_pages_;
  }
  lz4_all_.Add(seen->second.lz4);
  zstd_all_.Add(seen->second.zstd);
}

PoolEstimateOf PoolEstimate::Of(Codec codec, Sharing sharing) const {
  const bool shares = sharing == Sharing::kDedup;
  const Tally& lz4 = shares ? lz4_unique_ : lz4_all_;
  const Tally& zstd = shares ? zstd_unique_ : zstd_all_;
  const Tally& tally = codec == Codec::kZstd ? zstd : lz4;
  uint64_t slot_bytes = 0, slabs = 0, stored_pages = 0;
  for (size_t i = 0; i < kSizeClasses; ++i) {
    const SizeClass& size = kSizeClassTable[i];
    const uint64_t slabs_here = (tally.pages[i] + size.slots - 1) / size.slots;
    slabs += slabs_here;
    stored_pages += tally.pages[i];
    slot_bytes += slabs_here * ChargedBytes(size.slab_bytes);
  }
  const uint64_t blocks = (pages_ + TMEM_LANE_BLOCK_PAGES - 1) / TMEM_LANE_BLOCK_PAGES;
  PoolEstimateOf result;
  result.metadata_bytes = RecordBytes(pages_, sizeof(KeyRecord)) +
                          RecordBytes(blocks, sizeof(BlockRecord)) + TableBytes(blocks) +
                          RecordBytes(stored_pages, sizeof(PageRecord)) + TableBytes(stored_pages) +
                          RecordBytes(slabs, sizeof(SlabRecord));
  result.stored_bytes = tally.stored_bytes;
  result.raw_pages = tally.raw_pages;
  result.held_bytes = slot_bytes + result.metadata_bytes;
  return result;
}

}  // namespace tmem
