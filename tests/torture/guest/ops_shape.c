// SPDX-License-Identifier: GPL-2.0-only
// Operations on the file as a whole: holes, truncation, growth, names, deletion.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <unistd.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

static uint32_t CeilSectors(uint64_t bytes) {
  return (uint32_t)((bytes + kSectorBytes - 1) / kSectorBytes);
}

int PunchOp(struct Worker* worker, struct File* file) {
  const struct Range range = TakeRange(worker, file, Random(worker, 3) ? kPageSectors : 1);
  if (range.count == 0) return 0;
  const int mode = Random(worker, 3) ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE;
  const int descriptor = OpenFile(file, O_WRONLY);
  SendToHost(worker, file, range);
  BeginChange(file, range.from, range.count, kKindZero);
  if (fallocate(descriptor, mode | FALLOC_FL_KEEP_SIZE, (off_t)range.from * kSectorBytes,
                (off_t)range.count * kSectorBytes) != 0) {
    Die("fallocate");
  }
  EndChange(file, range.from, range.count);
  LookAfter(worker, file, range, "read of a hole");
  // Sometimes blocks without bytes, as if to be written soon.
  if (Random(worker, 4) == 0 &&
      fallocate(descriptor, FALLOC_FL_KEEP_SIZE, (off_t)range.from * kSectorBytes,
                (off_t)range.count * kSectorBytes) != 0) {
    Die("fallocate");
  }
  close(descriptor);
  GiveRange(file, range);
  return 1;
}

// The file is locked. What lies beyond the end is always zeros in the shadow.
static void Resize(struct File* file, int descriptor, uint64_t size) {
  const uint64_t before = atomic_load(&file->size_bytes);
  const uint32_t first = CeilSectors(size);
  const uint32_t cut = (uint32_t)(size % kSectorBytes);
  const uint32_t count = CeilSectors(before) > first ? CeilSectors(before) - first : 0;
  const int cutting = size < before && cut != 0;
  if (cutting) BeginCut(file, first - 1, cut);
  BeginChange(file, first, count, kKindZero);
  if (ftruncate(descriptor, (off_t)size) != 0) Die("ftruncate");
  if (cutting) EndChange(file, first - 1, 1);
  EndChange(file, first, count);
  atomic_store(&file->size_bytes, size);
}

static struct Range AtEnd(const struct File* file) {
  const uint32_t end = CeilSectors(atomic_load(&file->size_bytes));
  const uint32_t count = end < 64 ? end : 64;
  return (struct Range){(end - count) / kPageSectors * kPageSectors, count};
}

int TruncateOp(struct Worker* worker, struct File* file) {
  if (!TryLockAll(file)) return 0;
  const int descriptor = OpenFile(file, O_RDWR);
  const uint64_t before = atomic_load(&file->size_bytes);
  const uint64_t most = (uint64_t)file->max_sectors * kSectorBytes;
  // Mostly near the old end, so that files keep their size; to any byte, or to a page.
  uint64_t size = before / 4 * 3 + Random(worker, most / 2);
  if (Random(worker, 3) == 0) size &= ~(kPageBytes - 1);
  if (size > most) size = most;
  const uint64_t kept = size < before ? size : before;
  const struct Range around = {(uint32_t)(kept / kPageBytes) * kPageSectors, kPageSectors};
  if (around.from + around.count <= file->max_sectors) SendToHost(worker, file, around);
  Resize(file, descriptor, size);
  const struct Range end = AtEnd(file);
  if (end.count != 0) LookAfter(worker, file, end, "read after truncate");
  close(descriptor);
  UnlockAll(file);
  return 1;
}

int EmptyOp(struct Worker* worker, struct File* file) {
  if (!TryLockAll(file)) return 0;
  const uint64_t size = atomic_load(&file->size_bytes);
  const int descriptor = OpenFile(file, O_RDWR);
  for (uint32_t from = 0; from < CeilSectors(size); from += kMaxIoSectors) {
    const uint32_t left = file->max_sectors - from;
    ReadAndCheck(worker, file, descriptor, from, left < kMaxIoSectors ? left : kMaxIoSectors,
                 "read before truncate", 1);
  }
  Evict(descriptor, 0, file->max_sectors);
  Resize(file, descriptor, 0);
  Resize(file, descriptor, size);
  CheckWholeFile(worker, file, "read after truncate to nothing");
  // Not left empty: there is more to be seen in a full file.
  CreateContent(worker, file, descriptor, CeilSectors(size));
  close(descriptor);
  UnlockAll(file);
  return 1;
}

int AppendOp(struct Worker* worker, struct File* file) {
  if (!TryLockAll(file)) return 0;
  const uint64_t before = atomic_load(&file->size_bytes);
  const uint32_t from = (uint32_t)(before / kSectorBytes);
  const uint32_t room = file->max_sectors - from;
  uint32_t count = 1 + (uint32_t)Random(worker, 12 * kPageSectors);
  if (count > room) count = room;
  if (count == 0) {
    UnlockAll(file);
    return 0;
  }
  const uint32_t cut = (uint32_t)Random(worker, kSectorBytes);
  const uint64_t bytes = (uint64_t)count * kSectorBytes - (cut ? kSectorBytes - cut : 0);
  const uint64_t end = (uint64_t)from * kSectorBytes + bytes;
  if (end < before) { /* would leave old bytes behind the new ones */
    UnlockAll(file);
    return 0;
  }
  const struct Range range = {from, count};
  SendToHost(worker, file, range);
  BeginChange(file, from, count, kKindData);
  if (cut) CutPending(file, from + count - 1, cut);
  FillPending(file, from, count, worker->second);
  const int direct = !cut && from % kPageSectors == 0 && count % kPageSectors == 0 &&
                     OptionNumber("allow_eio", 0) == 0;
  const int descriptor = OpenFile(file, direct ? O_WRONLY | O_DIRECT : O_WRONLY);
  if (pwrite(descriptor, worker->second, bytes, (off_t)from * kSectorBytes) != (ssize_t)bytes) {
    Die("append");
  }
  EndChange(file, from, count);
  atomic_store(&file->size_bytes, end);
  LookAfter(worker, file, range, "read after append");
  close(descriptor);
  UnlockAll(file);
  return 1;
}

void CreateContent(struct Worker* worker, struct File* file, int descriptor, uint32_t sectors) {
  for (uint32_t from = 0; from < sectors; from += kMaxIoSectors) {
    const uint32_t left = sectors - from;
    const uint32_t count = left < kMaxIoSectors ? left : kMaxIoSectors;
    const size_t bytes = (size_t)count * kSectorBytes;
    BeginChange(file, from, count, kKindData);
    FillPending(file, from, count, worker->second);
    if (pwrite(descriptor, worker->second, bytes, (off_t)from * kSectorBytes) != (ssize_t)bytes) {
      Die("create");
    }
    EndChange(file, from, count);
  }
  BeginChange(file, sectors, file->max_sectors - sectors, kKindZero);
  EndChange(file, sectors, file->max_sectors - sectors);
  atomic_store(&file->size_bytes, (uint64_t)sectors * kSectorBytes);
}

static uint32_t NewLength(struct Worker* worker, const struct File* file) {
  return file->max_sectors / 2 + (uint32_t)Random(worker, file->max_sectors / 2 + 1);
}

int RenameOp(struct Worker* worker, struct File* file) {
  char from[64];
  char to[64];
  (void)worker;
  if (!TryLockAll(file)) return 0;
  FileName(file, from, sizeof(from));
  file->name = atomic_fetch_add(&g_shared->next_name, 1);
  FileName(file, to, sizeof(to));
  if (rename(from, to) != 0) Die("rename");
  UnlockAll(file);
  return 1;
}

int RecreateOp(struct Worker* worker, struct File* file) {
  char path[64];
  if (!TryLockAll(file)) return 0;
  FileName(file, path, sizeof(path));
  atomic_fetch_add(&file->incarnation, 1);
  // Sometimes what is cached goes with the inode, sometimes it was on the host before.
  if (Random(worker, 2)) {
    const int old = OpenFile(file, O_RDONLY);
    Evict(old, 0, file->max_sectors);
    close(old);
  }
  if (unlink(path) != 0) Die("unlink");
  const int descriptor = OpenFile(file, O_RDWR | O_CREAT | O_EXCL);
  CreateContent(worker, file, descriptor, NewLength(worker, file));
  close(descriptor);
  if (Random(worker, 2)) CheckWholeFile(worker, file, "read of a new file");
  UnlockAll(file);
  return 1;
}

int ReplaceOp(struct Worker* worker, struct File* file) {
  char path[64];
  char temporary[80];
  if (!TryLockAll(file)) return 0;
  FileName(file, path, sizeof(path));
  snprintf(temporary, sizeof(temporary), "%s.new", path);
  const int descriptor = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) Die(temporary);
  atomic_fetch_add(&file->incarnation, 1);
  CreateContent(worker, file, descriptor, NewLength(worker, file));
  if (Random(worker, 2)) Evict(descriptor, 0, file->max_sectors);
  if (rename(temporary, path) != 0) Die("rename");
  close(descriptor);
  CheckWholeFile(worker, file, "read of a replaced file");
  UnlockAll(file);
  return 1;
}
