// SPDX-License-Identifier: GPL-2.0-only
// Pages whose contents follow from a seed: heap-like templates, stamps, and the sum of a page.
#include <stdlib.h>
#include <string.h>

#include "lab.h"

// splitmix64's finisher: every bit of the input reaches every bit of the output.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

static const char* const kWords[] = {"request",  "session", "name",   "value",  "index",   "buffer",
                                     "thread",   "config",  "error",  "status", "user",    "path",
                                     "/usr/lib", "http://", "length", "parent", "content", "time"};

static uint64_t Next(uint64_t* state) {
  *state += 1;
  return Mix(*state);
}

// What a heap holds: objects with a type pointer and a few pointers into the same heap, small
// integers, strings, free chunks whose body is zero, and a little that does not compress.
static void FillTemplate(uint64_t seed, uint64_t* page) {
  uint64_t state = Mix(seed);
  const uint64_t heap = 0x0000555500000000ull + (Next(&state) & 0xfff) * 0x10000;
  const uint64_t types = 0x00007f3a10000000ull;
  size_t at = 0;
  memset(page, 0, kPageBytes);
  while (at + 32 < kPageWords) {
    const uint64_t choice = Next(&state) % 100;
    if (choice < 45) {  // an object
      const size_t fields = 2 + Next(&state) % 7;
      page[at++] = 1 + (Next(&state) & 3);
      page[at++] = types + (Next(&state) % 24) * 0x1a0;
      for (size_t i = 0; i < fields; i++) {
        const uint64_t kind = Next(&state) % 8;
        page[at++] = kind < 4   ? 0
                     : kind < 6 ? Next(&state) & 0xff
                                : heap + (Next(&state) & 0x3ff) * 16;
      }
    } else if (choice < 65) {  // a string with its length
      char* text = (char*)&page[at + 1];
      size_t used = 0;
      const size_t room = 40 + Next(&state) % 48;
      while (used + 10 < room) {
        const char* word = kWords[Next(&state) % (sizeof(kWords) / sizeof(kWords[0]))];
        const size_t length = strlen(word);
        memcpy(text + used, word, length);
        used += length;
        text[used++] = (char)('0' + Next(&state) % 43);
      }
      page[at] = used;
      at += 1 + (used + 7) / 8;
    } else if (choice < 88) {  // a free chunk
      page[at] = 0x21 + (Next(&state) % 12) * 16;
      page[at + 1] = heap + (Next(&state) & 0xfff) * 16;
      at += 6 + Next(&state) % 24;
    } else if (choice < 97) {  // an array of small numbers
      const size_t length = 4 + Next(&state) % 10;
      for (size_t i = 0; i < length; i++) page[at++] = Next(&state) & 0x3ff;
    } else {  // a digest or a random key
      for (size_t i = 0; i < 4; i++) page[at++] = Next(&state);
    }
  }
}

void PageSourceInit(struct PageSource* source, uint64_t seed) {
  source->seed = seed;
  source->templates = aligned_alloc(kPageBytes, kTemplates * kPageBytes);
  if (source->templates == NULL) Die("templates");
  for (uint64_t i = 0; i < kTemplates; i++) {
    FillTemplate(Mix(seed) + i, source->templates + i * kPageWords);
  }
}

enum PageKind { kZeroPage, kDuplicatePage, kStampedPage };

static enum PageKind KindOf(uint64_t hash) {
  const uint64_t percent = (hash >> 32) % 100;
  return percent < 10 ? kZeroPage : percent < 15 ? kDuplicatePage : kStampedPage;
}

// One stamp in each quarter of the page, so that a page torn at 1 KiB is seen.
static size_t StampAt(size_t stamp) {
  return stamp * (kPageWords / kStamps) + 37 * stamp % 64;
}

static uint64_t Stamp(uint64_t seed, uint64_t index, uint64_t version, size_t stamp) {
  return Mix(seed ^ Mix(index ^ (version << 40)) ^ (stamp << 56));
}

void PageFill(const struct PageSource* source, uint64_t index, uint64_t version, uint64_t* page) {
  const uint64_t hash = Mix(source->seed ^ index);
  const enum PageKind kind = KindOf(hash);
  if (kind == kZeroPage) {
    memset(page, 0, kPageBytes);
    return;
  }
  memcpy(page, source->templates + hash % kTemplates * kPageWords, kPageBytes);
  if (kind == kDuplicatePage) return;
  for (size_t i = 0; i < kStamps; i++) page[StampAt(i)] = Stamp(source->seed, index, version, i);
}

int PageIsRight(const struct PageSource* source, uint64_t index, uint64_t version,
                const uint64_t* page) {
  static const uint64_t zero_page[kPageWords];
  const uint64_t hash = Mix(source->seed ^ index);
  const enum PageKind kind = KindOf(hash);
  const uint64_t* wanted =
      kind == kZeroPage ? zero_page : source->templates + hash % kTemplates * kPageWords;
  if (kind != kStampedPage) return memcmp(page, wanted, kPageBytes) == 0;
  size_t from = 0;
  for (size_t i = 0; i < kStamps; i++) {
    const size_t at = StampAt(i);
    if (page[at] != Stamp(source->seed, index, version, i)) return 0;
    if (memcmp(page + from, wanted + from, (at - from) * 8) != 0) return 0;
    from = at + 1;
  }
  return memcmp(page + from, wanted + from, (kPageWords - from) * 8) == 0;
}

uint64_t PageSum(const uint64_t* page) {
  uint64_t sum = 0;
  uint64_t sum_of_sums = 0;
  for (size_t i = 0; i < kPageWords; i++) {
    sum += page[i];
    sum_of_sums += sum;
  }
  return sum ^ Mix(sum_of_sums);
}
