// SPDX-License-Identifier: GPL-2.0-only
// Chooses the codec by its number.
#include "compress/page_codec.h"

#include <cstring>

#include "compress/same_filled.h"

namespace tmem {
namespace {

CompressOutcome CompressSameFilled(PageView page, std::span<std::byte> dest) {
  if (dest.size() < kSameFilledBytes) return CompressOutcome::DoesNotFit();
  const std::optional<std::uint64_t> word = SameFilledWord(page);
  if (!word) return CompressOutcome::DoesNotFit();
  std::memcpy(dest.data(), &*word, kSameFilledBytes);
  return CompressOutcome::Fits(kSameFilledBytes);
}

DecompressOutcome DecompressSameFilled(std::span<const std::byte> source, PageBuffer page) {
  if (source.size() != kSameFilledBytes) return DecompressOutcome::kCorrupt;
  std::uint64_t word = 0;
  std::memcpy(&word, source.data(), kSameFilledBytes);
  FillPage(word, page);
  return DecompressOutcome::kPage;
}

CompressOutcome CopyRaw(PageView page, std::span<std::byte> dest) {
  if (dest.size() < kPageBytes) return CompressOutcome::DoesNotFit();
  std::memcpy(dest.data(), page.data(), kPageBytes);
  return CompressOutcome::Fits(kPageBytes);
}

DecompressOutcome CopyBack(std::span<const std::byte> source, PageBuffer page) {
  if (source.size() != kPageBytes) return DecompressOutcome::kCorrupt;
  std::memcpy(page.data(), source.data(), kPageBytes);
  return DecompressOutcome::kPage;
}

}  // namespace

std::optional<Codec> CodecFromNumber(std::uint8_t number) {
  switch (static_cast<Codec>(number)) {
    case Codec::kSameFilled:
    case Codec::kLz4:
    case Codec::kZstd:
    case Codec::kRaw: return static_cast<Codec>(number);
  }
  return std::nullopt;
}

const char* ToString(Codec codec) {
  switch (codec) {
    case Codec::kSameFilled: return "same-filled";
    case Codec::kLz4: return "lz4";
    case Codec::kZstd: return "zstd";
    case Codec::kRaw: return "raw";
  }
  return "unknown";
}

CompressOutcome PageCodec::Compress(Codec codec, PageView page, std::span<std::byte> dest) {
  switch (codec) {
    case Codec::kSameFilled: return CompressSameFilled(page, dest);
    case Codec::kLz4: return lz4_.Compress(page, dest);
    case Codec::kZstd: return zstd_.Compress(page, dest);
    case Codec::kRaw: return CopyRaw(page, dest);
  }
  return CompressOutcome::DoesNotFit();
}

DecompressOutcome PageCodec::Decompress(Codec codec, std::span<const std::byte> source,
                                        PageBuffer page) {
  switch (codec) {
    case Codec::kSameFilled: return DecompressSameFilled(source, page);
    case Codec::kLz4: return Lz4Codec::Decompress(source, page);
    case Codec::kZstd: return zstd_.Decompress(source, page);
    case Codec::kRaw: return CopyBack(source, page);
  }
  return DecompressOutcome::kCorrupt;
}

}  // namespace tmem
