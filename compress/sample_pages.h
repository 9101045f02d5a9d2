// SPDX-License-Identifier: GPL-2.0-only
// Pages of every kind, made from a seed, for tests and benchmarks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "compress/page.h"

namespace tmem {

enum class PageKind {
  kZero,
  kWord,        // one random word over and over
  kAlmostSame,  // one word over and over, but for a single byte
  kText,        // words of a small vocabulary
  kHeap,        // small objects: pointers of one arena, counts, zeroes
  kHalfRandom,  // a half that compresses and a half that does not
  kRandom,
};

inline constexpr PageKind kAllPageKinds[] = {
    PageKind::kZero, PageKind::kWord,       PageKind::kAlmostSame, PageKind::kText,
    PageKind::kHeap, PageKind::kHalfRandom, PageKind::kRandom,
};

const char* ToString(PageKind kind);

using PageBytes = std::array<std::byte, kPageBytes>;

// The same kind and seed give the same page, everywhere.
PageBytes MakeSamplePage(PageKind kind, std::uint64_t seed);

// The seed of a random test: that of the environment variable TMEM_SEED, else of the clock.
// Prints it, so that a failure can be run again.
std::uint64_t TestSeed();

}  // namespace tmem
