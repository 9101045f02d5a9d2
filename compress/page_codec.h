// SPDX-License-Identifier: GPL-2.0-only
// The one way from a page to stored bytes and back, by a codec named by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "compress/lz4_codec.h"
#include "compress/outcome.h"
#include "compress/page.h"
#include "compress/zstd_codec.h"

namespace tmem {

// The numbers stand in stored slots, so they never change. 0 is none: zeroed memory is no slot.
enum class Codec : std::uint8_t {
  kSameFilled = 1,  // 8 bytes: the word that fills the page
  kLz4 = 2,
  kZstd = 3,
  kRaw = 4,  // the page itself
};

// The codec of a number read from stored bytes, or nothing if there is none of that number.
std::optional<Codec> CodecFromNumber(std::uint8_t number);
const char* ToString(Codec codec);

// A page is kept compressed up to this size and raw above. Above it compression saves less than
// a slot's own record costs, and each get would still pay for decompressing. It is not lower
// because slabs have sizes this fine: refusing pages over 3072 bytes would keep a fifth of the
// pages of binaries raw.
inline constexpr std::size_t kMaxCompressedBytes = 3904;

inline constexpr std::size_t kSameFilledBytes = sizeof(std::uint64_t);

// Coordinates the codecs. Pure per page: equal pages give equal bytes, no page depends on one
// before it. Owns the codecs' scratch, so each thread has a PageCodec of its own. Nothing is
// allocated after it is made.
class PageCodec {
 public:
  struct Options {
    int lz4_acceleration = Lz4Codec::kDefaultAcceleration;
    int zstd_level = ZstdCodec::kDefaultLevel;
  };

  explicit PageCodec(const Options& options)
      : lz4_(options.lz4_acceleration), zstd_(options.zstd_level) {}
  PageCodec() : PageCodec(Options{}) {}

  // Compresses `page` into at most dest.size() bytes of `dest`; what does not fit leaves anything
  // there. kSameFilled of a page that is none, and kRaw with less than a page, do not fit. Callers
  // give LZ4 and zstd kMaxCompressedBytes and then take kRaw.
  CompressOutcome Compress(Codec codec, PageView page, std::span<std::byte> dest);

  // The other direction; `source` is exactly the bytes that Compress wrote. Never reads or writes
  // out of bounds, whatever the source holds.
  DecompressOutcome Decompress(Codec codec, std::span<const std::byte> source, PageBuffer page);

  // What the codecs have allocated; counts in the daemon's limit.
  std::size_t memory_bytes() const { return lz4_.memory_bytes() + zstd_.memory_bytes(); }

 private:
  Lz4Codec lz4_;
  ZstdCodec zstd_;
};

}  // namespace tmem
