// SPDX-License-Identifier: GPL-2.0-only
// Makes the sample pages.
#include "compress/sample_pages.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#include "compress/same_filled.h"

namespace tmem {
namespace {

using Random = std::mt19937_64;

void StoreWord(PageBytes& page, std::size_t offset, std::uint64_t word) {
  std::memcpy(page.data() + offset, &word, sizeof(word));
}

void FillRandom(PageBytes& page, std::size_t begin, std::size_t end, Random& random) {
  for (std::size_t offset = begin; offset < end; offset += sizeof(std::uint64_t)) {
    StoreWord(page, offset, random());
  }
}

void FillText(PageBytes& page, std::size_t begin, std::size_t end, Random& random) {
  static constexpr std::string_view kVocabulary[] = {
      "the",   "page",  "of",    "a",     "guest",  "is",     "kept", "and",
      "comes", "back",  "when",  "it",    "wanted", "memory", "host", "which",
      "lane",  "store", "under", "limit", "often",  "seldom", "disk", "slower",
  };
  std::size_t offset = begin;
  while (offset < end) {
    const std::string_view word = kVocabulary[random() % std::size(kVocabulary)];
    for (const char letter : word) {
      if (offset < end) page[offset++] = static_cast<std::byte>(letter);
    }
    if (offset < end) page[offset++] = static_cast<std::byte>(random() % 12 == 0 ? '\n' : ' ');
  }
}

void FillHeap(PageBytes& page, Random& random) {
  constexpr std::size_t kObjectBytes = 48;
  constexpr std::uint64_t kArena = 0x00007f3a'5c000000;
  for (std::size_t object = 0; object + kObjectBytes <= kPageBytes; object += kObjectBytes) {
    StoreWord(page, object, kArena + (random() % 0x10000) * 16);
    StoreWord(page, object + 8, kArena + 0x200000 + (random() % 8) * 64);
    StoreWord(page, object + 16, random() % 100);
    StoreWord(page, object + 24, random() % 3 == 0 ? random() : 0);
  }
}

}  // namespace

const char* ToString(PageKind kind) {
  switch (kind) {
    case PageKind::kZero: return "zero";
    case PageKind::kWord: return "word";
    case PageKind::kAlmostSame: return "almost-same";
    case PageKind::kText: return "text";
    case PageKind::kHeap: return "heap";
    case PageKind::kHalfRandom: return "half-random";
    case PageKind::kRandom: return "random";
  }
  return "unknown";
}

PageBytes MakeSamplePage(PageKind kind, std::uint64_t seed) {
  Random random(seed);
  PageBytes page{};
  switch (kind) {
    case PageKind::kZero: break;
    case PageKind::kWord: FillPage(random(), page); break;
    case PageKind::kAlmostSame:
      FillPage(random(), page);
      page[random() % kPageBytes] ^= static_cast<std::byte>(1 + random() % 255);
      break;
    case PageKind::kText: FillText(page, 0, kPageBytes, random); break;
    case PageKind::kHeap: FillHeap(page, random); break;
    case PageKind::kHalfRandom:
      FillText(page, 0, kPageBytes / 2, random);
      FillRandom(page, kPageBytes / 2, kPageBytes, random);
      break;
    case PageKind::kRandom: FillRandom(page, 0, kPageBytes, random); break;
  }
  return page;
}

std::uint64_t TestSeed() {
  const char* wanted = std::getenv("TMEM_SEED");
  std::uint64_t seed = 0;
  if (wanted != nullptr) {
    seed = std::strtoull(wanted, nullptr, 0);
  } else {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    seed = static_cast<std::uint64_t>(now.count());
  }
  std::printf("seed: TMEM_SEED=%llu\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

}  // namespace tmem
