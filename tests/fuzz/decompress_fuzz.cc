// SPDX-License-Identifier: GPL-2.0-only
// Fuzz target: any bytes given to any codec stay in bounds, and any page comes back.
//
// Input: one byte of codec number, then either compressed bytes (number below 128) or, with the
// high bit set, a page to compress (short ones are filled with zeroes).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>

#include "compress/page_codec.h"

namespace {

using tmem::CompressOutcome;
using tmem::DecompressOutcome;
using tmem::kPageBytes;

constexpr std::uint8_t kRoundTripBit = 0x80;

void RoundTrip(tmem::PageCodec& codec, tmem::Codec number, std::span<const std::byte> bytes) {
  std::array<std::byte, kPageBytes> page{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), page.size()), page.begin());
  static std::array<std::byte, 2 * kPageBytes> dest;
  const CompressOutcome outcome = codec.Compress(number, page, dest);
  if (!outcome.fits()) return;
  std::array<std::byte, kPageBytes> back;
  const auto source = std::span(dest).first(outcome.bytes());
  if (codec.Decompress(number, source, back) != DecompressOutcome::kPage) std::abort();
  if (back != page) std::abort();
}

void Decode(tmem::PageCodec& codec, tmem::Codec number, std::span<const std::byte> bytes) {
  // Heap blocks of exact sizes, so that the address sanitizer sees a byte too many.
  const auto source = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), source.get());
  const auto page = std::make_unique<std::byte[]>(kPageBytes);
  (void)codec.Decompress(number, {source.get(), bytes.size()},
                         tmem::PageBuffer(page.get(), kPageBytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static tmem::PageCodec codec;
  if (size == 0) return 0;
  const std::optional<tmem::Codec> number =
      tmem::CodecFromNumber(static_cast<std::uint8_t>(data[0] & ~kRoundTripBit));
  if (!number) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  if ((data[0] & kRoundTripBit) != 0) {
    RoundTrip(codec, *number, bytes);
  } else {
    Decode(codec, *number, bytes);
  }
  return 0;
}
