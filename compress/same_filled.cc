// SPDX-License-Identifier: GPL-2.0-only
// Same-filled test, with AVX2 where the CPU has it.
#include "compress/same_filled.h"

#include <immintrin.h>

#include <cstring>

namespace tmem {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

// Looked at before the rest: pages that differ mostly differ here. The second and the last word
// catch nearly all; the middle catches pages with a header and a trailer around content.
constexpr std::size_t kProbeOffsets[] = {kWordBytes, kPageBytes - kWordBytes, kPageBytes / 2};

std::uint64_t WordAt(PageView page, std::size_t offset) {
  std::uint64_t word = 0;
  std::memcpy(&word, page.data() + offset, kWordBytes);
  return word;
}

bool DiffersAtOnce(PageView page, std::uint64_t word) {
  for (const std::size_t offset : kProbeOffsets) {
    if (WordAt(page, offset) != word) return true;
  }
  return false;
}

}  // namespace

namespace internal {

bool CpuHasAvx2() {
  return __builtin_cpu_supports("avx2") != 0;
}

std::optional<std::uint64_t> SameFilledWordPortable(PageView page) {
  // A block at a time, so that the inner loop has no branch and a page that differs ends early.
  constexpr std::size_t kBlockBytes = 256;
  const std::uint64_t word = WordAt(page, 0);
  if (DiffersAtOnce(page, word)) return std::nullopt;
  for (std::size_t block = 0; block < kPageBytes; block += kBlockBytes) {
    std::uint64_t difference = 0;
    for (std::size_t offset = 0; offset < kBlockBytes; offset += kWordBytes) {
      difference |= WordAt(page, block + offset) ^ word;
    }
    if (difference != 0) return std::nullopt;
  }
  return word;
}

__attribute__((target("avx2"))) std::optional<std::uint64_t> SameFilledWordAvx2(PageView page) {
  constexpr std::size_t kVectorBytes = sizeof(__m256i);
  constexpr std::size_t kBlockBytes = 4 * kVectorBytes;
  const std::uint64_t word = WordAt(page, 0);
  if (DiffersAtOnce(page, word)) return std::nullopt;
  const __m256i wanted = _mm256_set1_epi64x(static_cast<long long>(word));
  for (std::size_t block = 0; block < kPageBytes; block += kBlockBytes) {
    __m256i difference = _mm256_setzero_si256();
    for (std::size_t offset = 0; offset < kBlockBytes; offset += kVectorBytes) {
      const __m256i bytes =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(page.data() + block + offset));
      difference = _mm256_or_si256(difference, _mm256_xor_si256(bytes, wanted));
    }
    if (_mm256_testz_si256(difference, difference) == 0) return std::nullopt;
  }
  return word;
}

}  // namespace internal

std::optional<std::uint64_t> SameFilledWord(PageView page) {
  static const bool kHasAvx2 = internal::CpuHasAvx2();
  return kHasAvx2 ? internal::SameFilledWordAvx2(page) : internal::SameFilledWordPortable(page);
}

void FillPage(std::uint64_t word, PageBuffer page) {
  for (std::size_t offset = 0; offset < kPageBytes; offset += kWordBytes) {
    std::memcpy(page.data() + offset, &word, kWordBytes);
  }
}

}  // namespace tmem
