// SPDX-License-Identifier: GPL-2.0-only
// Operations that change bytes within a file: buffered, mapped, direct, asynchronous, failing.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

struct Range TakeRange(struct Worker* worker, struct File* file, uint32_t align) {
  struct Range range = {0, 0};
  if (!TryLock(file)) return range;
  range = PickRange(worker, (uint32_t)(atomic_load(&file->size_bytes) / kSectorBytes), align);
  if (range.count != 0 && TryLockRange(file, range.from, range.count)) return range;
  Unlock(file);
  range.count = 0;
  return range;
}

void GiveRange(struct File* file, struct Range range) {
  UnlockRange(file, range.from, range.count);
  Unlock(file);
}

void SendToHost(struct Worker* worker, struct File* file, struct Range range) {
  if (Random(worker, 4) == 0) return;
  const int descriptor = OpenFile(file, O_RDONLY);
  ReadAndCheck(worker, file, descriptor, range.from, range.count, "read before a change", 0);
  if (Random(worker, 2) == 0) {
    Evict(descriptor, range.from, range.count);
  } else {
    Evict(descriptor, 0, file->max_sectors); /* leaves the mapping empty */
  }
  close(descriptor);
}

void LookAfter(struct Worker* worker, struct File* file, struct Range range, const char* op) {
  const uint64_t choice = Random(worker, 4);
  if (choice == 0) return;
  const int descriptor = OpenFile(file, O_RDONLY);
  if (choice == 1) Evict(descriptor, range.from, range.count);
  ReadAndCheck(worker, file, descriptor, range.from, range.count, op, 0);
  if (choice == 2) Evict(descriptor, range.from, range.count);
  close(descriptor);
}

// Takes a range, of whole pages but for one time in `odds`, puts what it must hold next into
// `buffer`, and begins the change to that. The range is empty if none was free.
static struct Range BeginWrite(struct Worker* worker, struct File* file, uint64_t odds,
                               uint64_t* buffer) {
  const struct Range range = TakeRange(worker, file, Random(worker, odds) ? kPageSectors : 1);
  if (range.count == 0) return range;
  SendToHost(worker, file, range);
  BeginChange(file, range.from, range.count, kKindData);
  FillPending(file, range.from, range.count, buffer);
  return range;
}

int WriteOp(struct Worker* worker, struct File* file) {
  const struct Range range = BeginWrite(worker, file, 3, worker->buffer);
  if (range.count == 0) return 0;
  const size_t bytes = (size_t)range.count * kSectorBytes;
  const int descriptor = OpenFile(file, O_WRONLY);
  if (pwrite(descriptor, worker->buffer, bytes, (off_t)range.from * kSectorBytes) !=
      (ssize_t)bytes) {
    Die("pwrite");
  }
  EndChange(file, range.from, range.count);
  close(descriptor);
  LookAfter(worker, file, range, "read after write");
  GiveRange(file, range);
  return 1;
}

int MapWriteOp(struct Worker* worker, struct File* file) {
  const struct Range range = BeginWrite(worker, file, 3, worker->buffer);
  if (range.count == 0) return 0;
  const uint32_t skip = range.from % kPageSectors;
  const size_t bytes = (size_t)(range.count + skip) * kSectorBytes;
  const int descriptor = OpenFile(file, O_RDWR);
  char* map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                   (off_t)(range.from - skip) * kSectorBytes);
  if (map == MAP_FAILED) Die("mmap");
  memcpy(map + skip * kSectorBytes, worker->buffer, (size_t)range.count * kSectorBytes);
  if (Random(worker, 2) == 0) msync(map, bytes, MS_SYNC);
  munmap(map, bytes);
  EndChange(file, range.from, range.count);
  close(descriptor);
  LookAfter(worker, file, range, "read after mapped write");
  GiveRange(file, range);
  return 1;
}

// After a write that failed half-way the device alone says which sectors are new.
static void LearnFromDevice(struct Worker* worker, struct File* file, struct Range range) {
  uint64_t sector[kSectorWords];
  const size_t bytes = (size_t)range.count * kSectorBytes;
  const int direct = OpenFile(file, O_RDONLY | O_DIRECT);
  if (pread(direct, worker->buffer, bytes, (off_t)range.from * kSectorBytes) != (ssize_t)bytes) {
    Die("direct read");
  }
  close(direct);
  for (uint32_t at = range.from; at < range.from + range.count; at++) {
    const uint64_t* data = worker->buffer + (at - range.from) * kSectorWords;
    const State states[] = {CurrentState(file, at), PendingState(file, at)};
    int i = 0;
    for (; i < 2; i++) {
      ContentFill(file, at, states[i], sector);
      if (memcmp(sector, data, kSectorBytes) == 0) break;
    }
    if (i == 2) {
      Fail("direct read after failed write", file, at, "neither the old nor the new bytes");
      i = 0;
    }
    SetState(file, at, states[i]);
  }
}

// Ends the change that a direct write of the range was to make; `got` is what it returned.
static void EndDirectWrite(struct Worker* worker, struct File* file, struct Range range, long got) {
  if (got == (long)range.count * kSectorBytes) {
    EndChange(file, range.from, range.count);
    return;
  }
  // Short: what came before the failure has been written.
  if (got < 0 && (got != -EIO || OptionNumber("allow_eio", 0) == 0)) {
    errno = (int)-got;
    Die("direct write");
  }
  atomic_fetch_add(&g_shared->failed_writes, 1);
  LearnFromDevice(worker, file, range);
}

int DirectWriteOp(struct Worker* worker, struct File* file) {
  const struct Range range = BeginWrite(worker, file, 4, worker->second);
  if (range.count == 0) return 0;
  const size_t bytes = (size_t)range.count * kSectorBytes;
  const int descriptor = OpenFile(file, O_WRONLY | O_DIRECT);
  const long written = pwrite(descriptor, worker->second, bytes, (off_t)range.from * kSectorBytes);
  const long got = written < 0 ? -errno : written;
  close(descriptor);
  if (got == -EINVAL) {
    // Not aligned to this file system's blocks: nothing was written, so it is done with a buffer.
    const int buffered = OpenFile(file, O_WRONLY);
    if (pwrite(buffered, worker->second, bytes, (off_t)range.from * kSectorBytes) !=
        (ssize_t)bytes) {
      Die("pwrite");
    }
    close(buffered);
    EndChange(file, range.from, range.count);
  } else {
    EndDirectWrite(worker, file, range, got);
  }
  LookAfter(worker, file, range, "read after direct write");
  GiveRange(file, range);
  return 1;
}

int AioOp(struct Worker* worker, struct File* file) {
  const struct Range range = TakeRange(worker, file, kPageSectors);
  if (range.count == 0) return 0;
  const size_t bytes = (size_t)range.count * kSectorBytes;
  const int direct = OpenFile(file, O_WRONLY | O_DIRECT);
  const int buffered = OpenFile(file, O_RDONLY);
  SendToHost(worker, file, range);
  BeginChange(file, range.from, range.count, kKindData);
  FillPending(file, range.from, range.count, worker->second);
  AioSubmit(worker, direct, 1, worker->second, bytes, (off_t)range.from * kSectorBytes);
  // What is read and dropped before the write has reached the device must not be found after it.
  for (uint64_t turn = Random(worker, 4); turn > 0; turn--) {
    ReadAndCheck(worker, file, buffered, range.from, range.count, "read beside direct write", 0);
    Evict(buffered, 0, file->max_sectors);
  }
  EndDirectWrite(worker, file, range, AioWait(worker));
  ReadAndCheck(worker, file, buffered, range.from, range.count, "read after asynchronous write", 0);
  if (Random(worker, 2) == 0) Evict(buffered, range.from, range.count);
  close(buffered);
  close(direct);
  GiveRange(file, range);
  return 1;
}

// Where a page of a file lies on its device; 0: it cannot be said.
static uint64_t PhysicalByte(int descriptor, uint32_t sector) {
  struct {
    struct fiemap map;
    struct fiemap_extent extent;
  } request;
  memset(&request, 0, sizeof(request));
  request.map.fm_start = (uint64_t)sector * kSectorBytes;
  request.map.fm_length = kPageBytes;
  request.map.fm_flags = FIEMAP_FLAG_SYNC;
  request.map.fm_extent_count = 1;
  if (ioctl(descriptor, FS_IOC_FIEMAP, &request) != 0) Die("FIEMAP");
  const struct fiemap_extent* extent = &request.extent;
  if (request.map.fm_mapped_extents != 1 || extent->fe_logical > request.map.fm_start ||
      extent->fe_flags & ~(uint32_t)(FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_MERGED)) {
    return 0;
  }
  return extent->fe_physical + request.map.fm_start - extent->fe_logical;
}

int FailedWriteOp(struct Worker* worker, struct File* file) {
  int free = 0;
  int done = 0;
  // Nobody else may read or write the file through a lock, but reads without one go on.
  if (!TryLockAll(file)) return 0;
  const struct Range range =
      PickRange(worker, (uint32_t)(atomic_load(&file->size_bytes) / kSectorBytes), kPageSectors);
  if (range.count != 0 && atomic_compare_exchange_strong(&g_shared->flaky_lock, &free, 1)) {
    const int direct = OpenFile(file, O_WRONLY | O_DIRECT);
    if (fdatasync(direct) != 0) Die("fdatasync");
    SendToHost(worker, file, range);
    const uint32_t bad = range.from + range.count / kPageSectors / 2 * kPageSectors;
    const uint64_t bad_byte = PhysicalByte(direct, bad);
    if (bad_byte != 0) {
      BeginChange(file, range.from, range.count, kKindData);
      FillPending(file, range.from, range.count, worker->second);
      FlakySet(file->mount, bad_byte);
      const long written = pwrite(direct, worker->second, (size_t)range.count * kSectorBytes,
                                  (off_t)range.from * kSectorBytes);
      const long got = written < 0 ? -errno : written;
      FlakySet(file->mount, 0);
      EndDirectWrite(worker, file, range, got);
      LookAfter(worker, file, range, "read after failed direct write");
      done = 1;
    }
    close(direct);
    atomic_store(&g_shared->flaky_lock, 0);
  }
  UnlockAll(file);
  return done;
}
