// SPDX-License-Identifier: GPL-2.0-only
// What the pool would hold of pages that it is shown, by codec, with and without sharing.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "compress/page.h"
#include "compress/page_codec.h"
#include "compress/page_hash.h"
#include "host-store/store/size_class.h"

namespace tmem {

// What pages take in the pool.
struct PoolEstimateOf {
  uint64_t stored_bytes = 0;    // of coded pages themselves
  uint64_t held_bytes = 0;      // with slots' rounding, slabs' ends, and all records
  uint64_t metadata_bytes = 0;  // the records in held_bytes
  uint64_t raw_pages = 0;       // of those stored: no codec takes them
};

// Model: what PageSet::Store decides for each page, without storing it. Pages are shared if their
// 128-bit hashes are equal; nothing is compared. Records and slots are counted as the store makes
// them for pages put in order and never replaced, so fragmentation is not in it.
//
// Thread rule: one thread. Cost: both codecs for each page that differs, and about 50 bytes of
// memory for each: 64 GiB of memory without duplicates take 5 minutes and 800 MiB.
class PoolEstimate {
 public:
  // Whose keyed hash is used does not matter here.
  PoolEstimate();
  void Add(PageView page);

  uint64_t pages() const { return pages_; }
  uint64_t zero_pages() const { return zero_pages_; }
  uint64_t same_filled_pages() const { return same_filled_pages_; }  // zero pages too
  // Pages that another page before them equals, same-filled ones apart.
  uint64_t duplicate_pages() const { return duplicate_pages_; }

  enum class Sharing : uint8_t { kNone, kDedup };
  // kLz4 or kZstd.
  PoolEstimateOf Of(Codec codec, Sharing sharing) const;

 private:
  // Pages by the class of slot they need.
  struct Tally {
    std::array<uint64_t, kSizeClasses> pages{};
    uint64_t stored_bytes = 0;
    uint64_t raw_pages = 0;
    void Add(size_t stored_bytes);
  };
  struct HashOfHash {
    size_t operator()(const PageHash& hash) const { return hash.low; }
  };
  struct Sizes {
    uint16_t lz4, zstd;
  };
  Sizes SizesOf(PageView page);

  PageCodec codec_;
  const PageHasher hasher_;
  uint64_t pages_ = 0, zero_pages_ = 0, same_filled_pages_ = 0, duplicate_pages_ = 0;
  std::unordered_map<PageHash, Sizes, HashOfHash> seen_;
  Tally lz4_all_, lz4_unique_, zstd_all_, zstd_unique_;
};

}  // namespace tmem
