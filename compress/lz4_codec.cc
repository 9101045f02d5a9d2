// SPDX-License-Identifier: GPL-2.0-only
// LZ4 with a state of our own, so that nothing is allocated per page.
#include "compress/lz4_codec.h"

#include <lz4.h>

#include <algorithm>

namespace tmem {
namespace {

// LZ4 counts in int; no page needs more than this, so larger destinations count as this.
constexpr int kWorstCaseBytes = LZ4_COMPRESSBOUND(static_cast<int>(kPageBytes));

std::size_t StateBytes() {
  return static_cast<std::size_t>(LZ4_sizeofState());
}

std::size_t StateWords() {
  return (StateBytes() + sizeof(long long) - 1) / sizeof(long long);
}

}  // namespace

Lz4Codec::Lz4Codec(int acceleration)
    : acceleration_(acceleration), state_(std::make_unique<long long[]>(StateWords())) {}

CompressOutcome Lz4Codec::Compress(PageView page, std::span<std::byte> dest) {
  const int capacity_bytes =
      static_cast<int>(std::min(dest.size(), static_cast<std::size_t>(kWorstCaseBytes)));
  if (capacity_bytes == 0) return CompressOutcome::DoesNotFit();
  const int bytes =
      LZ4_compress_fast_extState(state_.get(), reinterpret_cast<const char*>(page.data()),
                                 reinterpret_cast<char*>(dest.data()), static_cast<int>(kPageBytes),
                                 capacity_bytes, acceleration_);
  if (bytes <= 0) return CompressOutcome::DoesNotFit();
  return CompressOutcome::Fits(static_cast<std::size_t>(bytes));
}

DecompressOutcome Lz4Codec::Decompress(std::span<const std::byte> source, PageBuffer page) {
  if (source.empty() || source.size() > static_cast<std::size_t>(kWorstCaseBytes)) {
    return DecompressOutcome::kCorrupt;
  }
  const int bytes = LZ4_decompress_safe(
      reinterpret_cast<const char*>(source.data()), reinterpret_cast<char*>(page.data()),
      static_cast<int>(source.size()), static_cast<int>(kPageBytes));
  return bytes == static_cast<int>(kPageBytes) ? DecompressOutcome::kPage
                                               : DecompressOutcome::kCorrupt;
}

std::size_t Lz4Codec::memory_bytes() const {
  return StateWords() * sizeof(long long);
}

}  // namespace tmem
