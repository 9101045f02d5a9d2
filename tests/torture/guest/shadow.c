// SPDX-License-Identifier: GPL-2.0-only
// The shadow: what each sector must hold, locks of files and ranges, and the comparison.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

#define kExclusive (-1)

struct Shared* g_shared;

static void* SharedMemory(size_t bytes) {
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mlock(memory, bytes) != 0) Die("shadow");
  return memory;
}

void ShadowCreate(void) {
  const uint32_t mounts = (uint32_t)OptionNumber("mounts", 1);
  const uint32_t big = (uint32_t)OptionNumber("big", 6);
  const uint32_t small = (uint32_t)OptionNumber("small", 200);
  const uint32_t big_sectors = (uint32_t)OptionNumber("big_kib", 8192) * 2;
  const uint32_t small_sectors = (uint32_t)OptionNumber("small_kib", 64) * 2;
  const uint32_t files = mounts * (big + small);
  if (big_sectors > kMaxChunks * kChunkSectors || mounts > kMaxMounts) Die("sizes");
  g_shared = SharedMemory(sizeof(*g_shared) + files * sizeof(g_shared->file[0]));
  g_shared->mounts = mounts;
  g_shared->files = files;
  for (uint32_t i = 0; i < files; i++) {
    struct File* file = &g_shared->file[i];
    file->number = i;
    file->name = i / mounts;
    file->mount = i % mounts;
    file->max_sectors = i < mounts * big ? big_sectors : small_sectors;
    file->cells = SharedMemory(file->max_sectors * sizeof(Cell));
    for (uint32_t at = 0; at < file->max_sectors; at++) atomic_init(&file->cells[at], kZero);
  }
}

int TryLock(struct File* file) {
  int holders = atomic_load(&file->lock);
  while (holders != kExclusive) {
    if (atomic_compare_exchange_weak(&file->lock, &holders, holders + 1)) return 1;
  }
  return 0;
}

int TryLockAll(struct File* file) {
  int none = 0;
  return atomic_compare_exchange_strong(&file->lock, &none, kExclusive);
}

void Unlock(struct File* file) {
  atomic_fetch_sub(&file->lock, 1);
}

void UnlockAll(struct File* file) {
  atomic_store(&file->lock, 0);
}

static void UnlockChunks(struct File* file, uint32_t first, uint32_t end) {
  for (uint32_t at = first; at < end; at++) atomic_store(&file->chunk_locks[at], 0);
}

int TryLockRange(struct File* file, uint32_t from, uint32_t count) {
  const uint32_t first = from / kChunkSectors;
  const uint32_t end = (from + count - 1) / kChunkSectors + 1;
  for (uint32_t at = first; at < end; at++) {
    unsigned char free = 0;
    if (atomic_compare_exchange_strong(&file->chunk_locks[at], &free, 1)) continue;
    UnlockChunks(file, first, at);
    return 0;
  }
  return 1;
}

void UnlockRange(struct File* file, uint32_t from, uint32_t count) {
  UnlockChunks(file, from / kChunkSectors, (from + count - 1) / kChunkSectors + 1);
}

State CurrentState(const struct File* file, uint32_t sector) {
  return (State)atomic_load(&file->cells[sector]);
}

State PendingState(const struct File* file, uint32_t sector) {
  return (State)(atomic_load(&file->cells[sector]) >> 32);
}

void SetState(struct File* file, uint32_t sector, State state) {
  atomic_store(&file->cells[sector], state);
}

void BeginChange(struct File* file, uint32_t from, uint32_t count, enum Kind kind) {
  for (uint32_t at = from; at < from + count; at++) {
    const State now = CurrentState(file, at);
    State next = ((now & kNumberMask) + 1) & kNumberMask;
    if (kind == kKindZero) next |= kZero;
    atomic_store(&file->cells[at], (uint64_t)next << 32 | now);
  }
}

void EndChange(struct File* file, uint32_t from, uint32_t count) {
  for (uint32_t at = from; at < from + count; at++) SetState(file, at, PendingState(file, at));
}

void BeginCut(struct File* file, uint32_t sector, uint32_t bytes) {
  const State now = CurrentState(file, sector);
  const uint32_t before = now >> kCutShift & kCutMask;
  State next = now;
  if (!(now & kZero) && (before == 0 || before > bytes)) {
    next = (now & kNumberMask) | bytes << kCutShift;
  }
  atomic_store(&file->cells[sector], (uint64_t)next << 32 | now);
}

void CutPending(struct File* file, uint32_t sector, uint32_t bytes) {
  const State now = CurrentState(file, sector);
  const State next = (PendingState(file, sector) & kNumberMask) | bytes << kCutShift;
  atomic_store(&file->cells[sector], (uint64_t)next << 32 | now);
}

void FillPending(const struct File* file, uint32_t from, uint32_t count, uint64_t* out) {
  for (uint32_t at = 0; at < count; at++) {
    ContentFill(file, from + at, PendingState(file, from + at), out + at * kSectorWords);
  }
}

void TakeSnapshot(const struct File* file, uint32_t from, uint32_t count, struct Snapshot* out) {
  out->incarnation = atomic_load(&file->incarnation);
  out->size_bytes = atomic_load(&file->size_bytes);
  for (uint32_t at = 0; at < count && from + at < file->max_sectors; at++) {
    out->cells[at] = atomic_load(&file->cells[from + at]);
  }
}

// States that a cell may have had: at most three, 0 where there is none.
struct Choice {
  State states[3];
  int raced;
};

// Returns 0 if the cell changed more than once: then nothing can be said.
static int StatesBetween(uint64_t before, uint64_t after, struct Choice* choice) {
  const State old = (State)before;
  const State old_next = (State)(before >> 32);
  const State now = (State)after;
  const State next = (State)(after >> 32);
  choice->states[0] = old;
  choice->states[1] = next;
  choice->states[2] = 0;
  choice->raced = before != after || next != 0;
  if (old == now) return 1;
  choice->states[2] = now;
  if (old_next != 0) return now == old_next;
  return (now & kNumberMask) - (old & kNumberMask) <= 1; /* 0: it was cut */
}

static void Report(const char* op, const struct File* file, uint32_t sector, const char* expected,
                   const char* found, int raced) {
  if (atomic_fetch_add(&g_shared->mismatches, 1) < 4) {
    char name[64];
    FileName(file, name, sizeof(name));
    Emit(
        "{\"event\": \"mismatch\", \"op\": \"%s\", \"name\": \"%s\", \"file\": %u, "
        "\"mount\": %u, \"sector\": %u, \"page\": %u, \"expected\": \"%s\", \"found\": \"%s\", "
        "\"raced\": %d, \"round\": %u}",
        op, name, file->number, file->mount, sector, sector / kPageSectors, expected, found, raced,
        g_shared->round);
  }
  atomic_store(&g_shared->stop, 1);
}

void Fail(const char* op, const struct File* file, uint32_t sector, const char* what) {
  Report(op, file, sector, "success", what, 0);
}

static void DescribeState(State state, char* text, size_t bytes) {
  const uint32_t cut = state >> kCutShift & kCutMask;
  if (state & kZero) {
    snprintf(text, bytes, "zeros (version %u)", state & kNumberMask);
  } else if (cut != 0) {
    snprintf(text, bytes, "version %u cut to %u bytes", state & kNumberMask, cut);
  } else {
    snprintf(text, bytes, "version %u", state & kNumberMask);
  }
}

static int SectorIsRight(const struct File* file, uint32_t sector, const struct Choice* choice,
                         const uint64_t* data, size_t bytes) {
  uint64_t wanted[3][kSectorWords];
  uint32_t count = 0;
  for (uint32_t i = 0; i < 3; i++) {
    if (choice->states[i] == 0) continue;
    ContentFill(file, sector, choice->states[i], wanted[count]);
    if (memcmp(wanted[count], data, bytes) == 0) return 1;
    count++;
  }
  if (!choice->raced) return 0;
  // Reads and writes of one page are not atomic to each other: each byte may be old or new.
  for (size_t at = 0; at < bytes; at++) {
    uint32_t i = 0;
    while (i < count && ((const char*)wanted[i])[at] != ((const char*)data)[at]) i++;
    if (i == count) return 0;
  }
  return 1;
}

void Check(const char* op, const struct File* file, uint32_t from, const uint64_t* data,
           size_t bytes, const struct Snapshot* before) {
  uint64_t checked = 0;
  uint64_t raced = 0;
  uint64_t skipped = 0;
  if (atomic_load(&file->incarnation) != before->incarnation) return;
  for (uint32_t at = 0; (size_t)at * kSectorBytes < bytes; at++) {
    const uint64_t* sector = data + at * kSectorWords;
    const size_t left = bytes - (size_t)at * kSectorBytes;
    const size_t length = left < kSectorBytes ? left : kSectorBytes;
    struct Choice choice;
    if (!StatesBetween(before->cells[at], atomic_load(&file->cells[from + at]), &choice)) {
      skipped++;
      continue;
    }
    checked++;
    raced += (uint64_t)choice.raced;
    if (SectorIsRight(file, from + at, &choice, sector, length)) continue;
    // The file may have been made anew between the look at it and the look at the cell.
    if (atomic_load(&file->incarnation) != before->incarnation) return;
    char expected[64];
    char found[128];
    DescribeState(choice.states[0], expected, sizeof(expected));
    ContentDescribe(sector, found, sizeof(found));
    Report(op, file, from + at, expected, found, choice.raced);
    break;
  }
  atomic_fetch_add(&g_shared->sectors_checked, checked);
  atomic_fetch_add(&g_shared->sectors_raced, raced);
  atomic_fetch_add(&g_shared->sectors_skipped, skipped);
}
