// SPDX-License-Identifier: GPL-2.0-only
// Operations that read, or change nothing.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

struct Range PickRange(struct Worker* worker, uint32_t limit, uint32_t align) {
  struct Range range = {0, 0};
  if (limit < align) return range;
  // Mostly a few pages; sometimes more than a read-ahead window.
  const uint32_t longest = Random(worker, 8) == 0 ? kMaxIoSectors : 16 * kPageSectors;
  range.from = (uint32_t)Random(worker, limit / align) * align;
  range.count = (1 + (uint32_t)Random(worker, longest / align)) * align;
  if (range.from + range.count > limit) range.count = (limit - range.from) / align * align;
  return range;
}

static uint32_t SectorsWithEnd(const struct File* file) {
  return (uint32_t)((atomic_load(&file->size_bytes) + kSectorBytes - 1) / kSectorBytes);
}

static int ReadThrough(struct Worker* worker, struct File* file, int flags, uint32_t align,
                       const char* op) {
  if (!TryLock(file)) return 0;
  const struct Range range = PickRange(worker, SectorsWithEnd(file), align);
  if (range.count == 0) {
    Unlock(file);
    return 0;
  }
  const int descriptor = OpenFile(file, flags);
  // Half of the reads hold nothing, so that also truncation and deletion come in between.
  const int locked = Random(worker, 2) == 0;
  struct Snapshot* snapshot = worker->snapshot;
  if (locked) {
    ReadAndCheck(worker, file, descriptor, range.from, range.count, op, 1);
    Unlock(file);
  } else {
    TakeSnapshot(file, range.from, range.count, snapshot);
    Unlock(file);
    const ssize_t got = pread(descriptor, worker->buffer, (size_t)range.count * kSectorBytes,
                              (off_t)range.from * kSectorBytes);
    if (got > 0) Check(op, file, range.from, worker->buffer, (size_t)got, snapshot);
  }
  close(descriptor);
  return 1;
}

int ReadOp(struct Worker* worker, struct File* file) {
  return ReadThrough(worker, file, O_RDONLY, 1, "read");
}

int DirectReadOp(struct Worker* worker, struct File* file) {
  if (Random(worker, 2) == 0) {
    return ReadThrough(worker, file, O_RDONLY | O_DIRECT, kPageSectors, "direct read");
  }
  if (!TryLock(file)) return 0;
  const struct Range range = PickRange(worker, SectorsWithEnd(file), kPageSectors);
  if (range.count != 0) {
    const int descriptor = OpenFile(file, O_RDONLY | O_DIRECT);
    TakeSnapshot(file, range.from, range.count, worker->snapshot);
    AioSubmit(worker, descriptor, 0, worker->buffer, (size_t)range.count * kSectorBytes,
              (off_t)range.from * kSectorBytes);
    const long got = AioWait(worker);
    if (got > 0) {
      Check("asynchronous read", file, range.from, worker->buffer, (size_t)got, worker->snapshot);
    }
    close(descriptor);
  }
  Unlock(file);
  return range.count != 0;
}

int MapReadOp(struct Worker* worker, struct File* file) {
  if (!TryLock(file)) return 0;
  const struct Range range =
      PickRange(worker, (uint32_t)(atomic_load(&file->size_bytes) / kSectorBytes), kPageSectors);
  if (range.count != 0) {
    const size_t bytes = (size_t)range.count * kSectorBytes;
    const int descriptor = OpenFile(file, O_RDONLY);
    TakeSnapshot(file, range.from, range.count, worker->snapshot);
    const void* map =
        mmap(NULL, bytes, PROT_READ, MAP_SHARED, descriptor, (off_t)range.from * kSectorBytes);
    if (map == MAP_FAILED) Die("mmap");
    memcpy(worker->buffer, map, bytes);
    munmap((void*)(uintptr_t)map, bytes);
    Check("mapped read", file, range.from, worker->buffer, bytes, worker->snapshot);
    close(descriptor);
  }
  Unlock(file);
  return range.count != 0;
}

int EvictOp(struct Worker* worker, struct File* file) {
  (void)worker;
  if (!TryLock(file)) return 0;
  const int descriptor = OpenFile(file, O_RDONLY);
  Evict(descriptor, 0, file->max_sectors);
  close(descriptor);
  Unlock(file);
  return 1;
}

int DropOp(struct Worker* worker, struct File* file) {
  static const char* const kWhat[] = {"1", "2", "3"};
  (void)file;
  WriteString("/proc/sys/vm/drop_caches", kWhat[Random(worker, 3)]);
  return 1;
}

void CheckWholeFile(struct Worker* worker, struct File* file, const char* op) {
  struct stat status;
  const int descriptor = OpenFile(file, O_RDONLY);
  const uint64_t size = atomic_load(&file->size_bytes);
  if (fstat(descriptor, &status) != 0) Die("fstat");
  if ((uint64_t)status.st_size != size) {
    char text[64];
    snprintf(text, sizeof(text), "a size of %lu rather than %lu", (uint64_t)status.st_size, size);
    Fail(op, file, 0, text);
  }
  for (uint32_t from = 0; from < SectorsWithEnd(file); from += kMaxIoSectors) {
    const uint32_t left = file->max_sectors - from;
    ReadAndCheck(worker, file, descriptor, from, left < kMaxIoSectors ? left : kMaxIoSectors, op,
                 1);
  }
  close(descriptor);
}
