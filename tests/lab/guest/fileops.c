// SPDX-License-Identifier: GPL-2.0-only
// Random operations on one file against a model of it: every way in which the bytes of a file
// change or leave the page cache, with reads compared to the model in between.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lab.h"

#define kSectorBytes 512ul
#define kSectorWords (kSectorBytes / 8)
#define kMaxSectors 16384ul /* 8 MiB */
#define kMaxIoSectors 2048ul

struct File {
  const char* path;
  int buffered;
  int direct; /* -1: the file system has no direct writes */
  uint64_t seed;
  uint64_t random_state;
  uint32_t next_version;
  uint64_t sectors;              /* size of the file */
  uint32_t version[kMaxSectors]; /* what each sector holds; 0: zeros */
  uint64_t wrong;
  uint64_t op;
};

static struct File g_file;
static uint64_t g_buffer[kMaxIoSectors * kSectorWords] __attribute__((aligned(4096)));

static uint64_t Random(struct File* file, uint64_t below) {
  return Mix(file->random_state++) % below;
}

static void FillSector(const struct File* file, uint64_t sector, uint32_t version, uint64_t* out) {
  const uint64_t base = Mix(file->seed ^ (sector << 32) ^ version);
  for (size_t i = 0; i < kSectorWords; i++) out[i] = version == 0 ? 0 : base + i;
}

static void CheckSectors(struct File* file, uint64_t from, uint64_t count, const uint64_t* data) {
  uint64_t wanted[kSectorWords];
  for (uint64_t i = 0; i < count; i++) {
    FillSector(file, from + i, file->version[from + i], wanted);
    if (memcmp(wanted, data + i * kSectorWords, kSectorBytes) == 0) continue;
    if (file->wrong++ < 8) {
      Emit("{\"event\": \"wrong\", \"op\": %lu, \"sector\": %lu, \"version\": %u}", file->op,
           from + i, file->version[from + i]);
    }
  }
}

// A range of at most kMaxIoSectors.
struct Range {
  uint64_t from;
  uint64_t count;
};

static struct Range RandomRange(struct File* file, uint64_t limit, uint64_t align) {
  struct Range range = {0, 0};
  if (limit < align) return range;
  // Mostly a few pages; sometimes several read-ahead windows.
  const uint64_t longest = Random(file, 4) == 0 ? kMaxIoSectors : 64;
  range.from = Random(file, limit / align) * align;
  range.count = (1 + Random(file, longest)) * align;
  if (range.count > kMaxIoSectors) range.count = kMaxIoSectors / align * align;
  if (range.from + range.count > limit) range.count = (limit - range.from) / align * align;
  return range;
}

static void StageWrite(struct File* file, struct Range range) {
  for (uint64_t i = 0; i < range.count; i++) {
    file->version[range.from + i] = file->next_version;
    FillSector(file, range.from + i, file->next_version, g_buffer + i * kSectorWords);
  }
  file->next_version++;
  if (range.from + range.count > file->sectors) file->sectors = range.from + range.count;
}

static void WriteRange(struct File* file, int descriptor, uint64_t align) {
  const struct Range range = RandomRange(file, kMaxSectors, align);
  if (range.count == 0) return;
  StageWrite(file, range);
  const ssize_t bytes = (ssize_t)(range.count * kSectorBytes);
  if (pwrite(descriptor, g_buffer, (size_t)bytes, (off_t)(range.from * kSectorBytes)) != bytes) {
    Die("pwrite");
  }
}

static void MapWrite(struct File* file) {
  const struct Range range = RandomRange(file, file->sectors, 1);
  if (range.count == 0) return;
  StageWrite(file, range);
  char* map = mmap(NULL, file->sectors * kSectorBytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                   file->buffered, 0);
  if (map == MAP_FAILED) Die("mmap");
  memcpy(map + range.from * kSectorBytes, g_buffer, range.count * kSectorBytes);
  munmap(map, file->sectors * kSectorBytes);
}

static void Punch(struct File* file) {
  const struct Range range = RandomRange(file, file->sectors, 1);
  if (range.count == 0) return;
  if (fallocate(file->buffered, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                (off_t)(range.from * kSectorBytes), (off_t)(range.count * kSectorBytes)) != 0) {
    Die("fallocate");
  }
  memset(file->version + range.from, 0, range.count * sizeof(file->version[0]));
}

static void Truncate(struct File* file) {
  const uint64_t sectors = Random(file, kMaxSectors);
  if (ftruncate(file->buffered, (off_t)(sectors * kSectorBytes)) != 0) Die("ftruncate");
  if (sectors < file->sectors) {
    memset(file->version + sectors, 0, (file->sectors - sectors) * sizeof(file->version[0]));
  }
  file->sectors = sectors;
}

static void Read(struct File* file, int descriptor, uint64_t align) {
  const struct Range range = RandomRange(file, file->sectors, align);
  if (range.count == 0) return;
  const ssize_t bytes = (ssize_t)(range.count * kSectorBytes);
  if (pread(descriptor, g_buffer, (size_t)bytes, (off_t)(range.from * kSectorBytes)) != bytes) {
    Die("pread");
  }
  CheckSectors(file, range.from, range.count, g_buffer);
}

// Clean pages leave the page cache as under memory pressure, and may go to the host.
static void Evict(struct File* file) {
  if (fdatasync(file->buffered) != 0) Die("fdatasync");
  if (Random(file, 4) == 0) {
    DropCaches();
  } else {
    posix_fadvise(file->buffered, 0, 0, POSIX_FADV_DONTNEED);
  }
}

static void CheckAll(struct File* file) {
  for (uint64_t from = 0; from < file->sectors; from += kMaxIoSectors) {
    const uint64_t left = file->sectors - from;
    const uint64_t count = left < kMaxIoSectors ? left : kMaxIoSectors;
    const ssize_t bytes = (ssize_t)(count * kSectorBytes);
    if (pread(file->buffered, g_buffer, (size_t)bytes, (off_t)(from * kSectorBytes)) != bytes) {
      Die("pread");
    }
    CheckSectors(file, from, count, g_buffer);
  }
}

static void OneOp(struct File* file) {
  const uint64_t choice = Random(file, 100);
  if (choice < 22) {
    WriteRange(file, file->buffered, Random(file, 2) ? 1 : 8);
  } else if (choice < 36 && file->direct >= 0) {
    WriteRange(file, file->direct, 8);
  } else if (choice < 42) {
    MapWrite(file);
  } else if (choice < 49) {
    Punch(file);
  } else if (choice < 53) {
    Truncate(file);
  } else if (choice < 70) {
    Evict(file);
  } else if (choice < 75 && file->direct >= 0) {
    Read(file, file->direct, 8);
  } else {
    Read(file, file->buffered, 1);
  }
}

int FileOpsCommand(void) {
  struct File* file = &g_file;
  const uint64_t ops = OptionNumber("ops", 500);
  file->path = Option("file", NULL);
  file->seed = OptionNumber("seed", 1);
  file->random_state = Mix(file->seed);
  file->next_version = 1;
  file->buffered = open(file->path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (file->buffered < 0) Die(file->path);
  file->direct = open(file->path, O_RDWR | O_DIRECT);
  for (file->op = 0; file->op < ops; file->op++) OneOp(file);
  for (int round = 0; round < 2; round++) {
    fdatasync(file->buffered);
    DropCaches();
    CheckAll(file);
  }
  Emit("{\"event\": \"end\", \"ops\": %lu, \"direct\": %d, \"wrong\": %lu}", ops, file->direct >= 0,
       file->wrong);
  return 0;
}
