// SPDX-License-Identifier: GPL-2.0-only
// One sample of pages, in a file.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <unordered_set>

#include "compress/page.h"
#include "compress/page_hash.h"
#include "host-store/base/result.h"

namespace tmem {

// Writes pages to a raw memory image until it has as many as it wants. kDistinct takes no page
// that is same-filled or equals one before it: such pages have samples of their own, and would hide
// what the others cost. Thread rule: one thread.
class SampleWriter {
 public:
  enum class Take : uint8_t { kAll, kDistinct };
  SampleWriter(std::string path, uint64_t pages_wanted, Take take);

  // False once it has all.
  bool Add(PageView page);
  uint64_t pages() const { return pages_; }
  uint64_t pages_left_out() const { return pages_left_out_; }
  // Errors: could not be written; not one page came.
  Result<void> Finish();

 private:
  struct HashOfHash {
    size_t operator()(const PageHash& hash) const { return hash.low; }
  };

  const std::string path_;
  const uint64_t pages_wanted_;
  const Take take_;
  const PageHasher hasher_;
  std::ofstream file_;
  std::unordered_set<PageHash, HashOfHash> seen_;
  uint64_t pages_ = 0, pages_left_out_ = 0;
};

}  // namespace tmem
