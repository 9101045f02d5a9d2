// SPDX-License-Identifier: GPL-2.0-only
// The page that goes with a value: cheap to make, checked byte for byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "abi/tmem_abi.h"
#include "compress/page.h"
#include "compress/same_filled.h"

namespace tmem {

// Value -> page, the same in each thread. Of 100 values 15 are same-filled pages, 20 are one of 32
// shared pages, 45 compress and 20 do not.
class PageContents {
 public:
  explicit PageContents(uint64_t seed) : templates_(kTemplates) {
    for (size_t i = 0; i < kTemplates; ++i) {
      uint64_t word = tmem_mix(seed, i + 1);
      for (size_t offset = 0; offset < kPageBytes; offset += sizeof(word)) {
        // Those that compress have a new word in each 16 to 64 bytes.
        const size_t step = i < kShared + kUnique ? size_t{16} << (i % 3) : sizeof(word);
        if (offset % step == 0) word = tmem_mix(word, offset + 1);
        std::memcpy(templates_[i].data() + offset, &word, sizeof(word));
      }
    }
  }

  static bool IsFilled(uint32_t value) { return KindOf(value) < 15; }
  static uint64_t FillWord(uint32_t value) { return value % 4 == 0 ? 0 : tmem_mix(9, value); }

  void Make(uint32_t value, PageBuffer page) const {
    const uint32_t kind = KindOf(value);
    if (kind < 15) {
      FillPage(FillWord(value), page);
      return;
    }
    size_t first = 0;
    size_t count = kShared;
    if (kind >= 35) first = kind < 80 ? kShared : kShared + kUnique, count = kUnique;
    std::memcpy(page.data(), templates_[first + value % count].data(), kPageBytes);
    if (kind < 35) return;
    // Unique at both ends and in the middle, so that a mix of two pages is seen.
    for (const size_t offset : {size_t{0}, kPageBytes / 2, kPageBytes - sizeof(value)}) {
      std::memcpy(page.data() + offset, &value, sizeof(value));
    }
  }

 private:
  static constexpr size_t kShared = 32;
  static constexpr size_t kUnique = 16;
  static constexpr size_t kTemplates = kShared + 2 * kUnique;
  static uint32_t KindOf(uint32_t value) {
    return static_cast<uint32_t>(tmem_mix(5, value) >> 40) % 100;
  }

  std::vector<std::array<std::byte, kPageBytes>> templates_;
};

}  // namespace tmem
