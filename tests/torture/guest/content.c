// SPDX-License-Identifier: GPL-2.0-only
// The bytes that a state of a sector stands for, and what bytes that are wrong are in truth.
#include <stdio.h>
#include <string.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

#define kDataTag 0x746dull   /* a sector with a head, all words different */
#define kFilledTag 0x7466ull /* one word repeated: whole pages of it are sent as one word */

static uint64_t Head(uint64_t tag, uint32_t file, State state) {
  return tag << 48 | (uint64_t)file << 32 | (state & kNumberMask);
}

static int IsFilled(State state) {
  return (state & kNumberMask) % 8 == 3;
}

void ContentFill(const struct File* file, uint32_t sector, State state, uint64_t* out) {
  const uint32_t cut = state >> kCutShift & kCutMask;
  if (state & kZero) {
    memset(out, 0, kSectorBytes);
    return;
  }
  if (IsFilled(state)) {
    const uint64_t word = Head(kFilledTag, file->number, state);
    for (size_t i = 0; i < kSectorWords; i++) out[i] = word;
  } else {
    out[0] = Head(kDataTag, file->number, state);
    out[1] = (uint64_t)sector << 32 | (uint32_t)g_shared->seed;
    const uint64_t base = Mix(out[0] ^ Mix(out[1]));
    for (size_t i = 2; i < kSectorWords; i++) out[i] = base + i;
  }
  if (cut != 0) memset((char*)out + cut, 0, kSectorBytes - cut);
}

void ContentDescribe(const uint64_t* data, char* text, size_t bytes) {
  const uint64_t tag = data[0] >> 48;
  const uint32_t file = data[0] >> 32 & 0xffff;
  const uint32_t number = (uint32_t)data[0];
  size_t zeros = 0;
  while (zeros < kSectorWords && data[zeros] == 0) zeros++;
  if (zeros == kSectorWords) {
    snprintf(text, bytes, "zeros");
  } else if (tag == kDataTag && file < g_shared->files) {
    snprintf(text, bytes, "file %u of mount %u, sector %u, version %u%s", file,
             g_shared->file[file].mount, (uint32_t)(data[1] >> 32), number,
             (uint32_t)data[1] == (uint32_t)g_shared->seed ? "" : ", of another seed");
  } else if (tag == kFilledTag && file < g_shared->files) {
    snprintf(text, bytes, "file %u of mount %u, some sector, version %u", file,
             g_shared->file[file].mount, number);
  } else {
    snprintf(text, bytes, "bytes of no file: %016lx %016lx, %zu zero words before", data[0],
             data[1], zeros);
  }
}
