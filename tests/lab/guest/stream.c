// SPDX-License-Identifier: GPL-2.0-only
// Reads a file from end to end, several times, and compares every page with what it must hold.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab.h"

// As `cat` reads.
#define kReadBytes (128ul << 10)

// Either the sums of a corpus (index=DEVICE) or pages that follow from seed=.
struct Expected {
  const uint64_t* sums;
  struct PageSource source;
  uint64_t version;
};

static int IsRight(const struct Expected* expected, uint64_t index, const uint64_t* page) {
  if (expected->sums != NULL) return PageSum(page) == expected->sums[index];
  return PageIsRight(&expected->source, index, expected->version, page);
}

uint64_t* ReadSums(const char* path, uint64_t pages) {
  uint64_t* sums = malloc(pages * 8);
  const int file = open(path, O_RDONLY);
  if (sums == NULL || file < 0) Die(path);
  for (uint64_t done = 0; done < pages * 8;) {
    const ssize_t got = read(file, (char*)sums + done, pages * 8 - done);
    if (got <= 0) Die(path);
    done += (uint64_t)got;
  }
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
  return sums;
}

// until=FILE: reading ends as soon as it exists.
static int IsToEnd(void) {
  const char* path = Option("until", "");
  return *path != '\0' && access(path, F_OK) == 0;
}

static void ReadOnce(struct Pass* pass, const char* path, const struct Expected* expected) {
  static uint64_t buffer[kReadBytes / 8] __attribute__((aligned(4096)));
  const int file = open(path, O_RDONLY);
  if (file < 0) Die(path);
  for (uint64_t index = 0; index < pass->pages;) {
    if (IsToEnd()) {
      pass->pages = index;
      break;
    }
    const ssize_t got = read(file, buffer, kReadBytes);
    if (got <= 0 || (size_t)got % kPageBytes != 0) Die("reading the file");
    for (size_t i = 0; i < (size_t)got / kPageBytes; i++, index++) {
      if (!IsRight(expected, index, buffer + i * kPageWords)) WrongPage(pass, index);
    }
  }
  close(file);
}

void ReadWholeFile(struct Pass* pass, const char* path, const uint64_t* sums) {
  const struct Expected expected = {sums, {0, NULL}, 0};
  ReadOnce(pass, path, &expected);
}

void DropFileSlowly(const char* path, uint64_t pages) {
  const int file = open(path, O_RDONLY);
  if (file < 0) Die(path);
  for (uint64_t at = 0; at < pages * kPageBytes; at += 512ul << 10) {
    posix_fadvise(file, (off_t)at, 512 << 10, POSIX_FADV_DONTNEED);
    usleep(5000);
  }
  close(file);
}

// drop=1: all clean pages at once, faster than a busy host takes them. drop=2: this file's, slowly.
static void Drop(const char* path, uint64_t pages) {
  const uint64_t how = OptionNumber("drop", 0);
  if (how == 1) DropCaches();
  if (how == 2) DropFileSlowly(path, pages);
}

int StreamCommand(void) {
  const char* path = Option("file", NULL);
  const uint64_t passes = OptionNumber("passes", 2);
  struct stat status;
  if (stat(path, &status) != 0) Die(path);
  const uint64_t pages = (uint64_t)status.st_size / kPageBytes;
  struct Expected expected = {NULL, {0, NULL}, OptionNumber("version", 0)};
  if (*Option("index", "") != '\0') {
    expected.sums = ReadSums(Option("index", NULL), pages);
  } else {
    PageSourceInit(&expected.source, OptionNumber("seed", 1));
  }
  for (uint64_t number = 1; number <= passes; number++) {
    struct Pass pass;
    Drop(path, pages);
    BeginPass(&pass, number, "read");
    pass.pages = pages;
    ReadOnce(&pass, path, &expected);
    EndPass(&pass);
    if (IsToEnd()) break;
  }
  return 0;
}

int MakeFileCommand(void) {
  static uint64_t buffer[kReadBytes / 8] __attribute__((aligned(4096)));
  const char* path = Option("file", NULL);
  const uint64_t pages = OptionNumber("bytes", 1 << 20) / kPageBytes;
  const uint64_t version = OptionNumber("version", 0);
  struct PageSource source;
  PageSourceInit(&source, OptionNumber("seed", 1));
  const int truncate_flag = OptionNumber("truncate", 1) ? O_TRUNC : 0;
  const int file = open(path, O_WRONLY | O_CREAT | truncate_flag, 0644);
  if (file < 0) Die(path);
  for (uint64_t index = 0; index < pages;) {
    size_t filled = 0;
    for (; filled < kReadBytes / kPageBytes && index < pages; filled++, index++) {
      PageFill(&source, index, version, buffer + filled * kPageWords);
    }
    if (write(file, buffer, filled * kPageBytes) != (ssize_t)(filled * kPageBytes)) Die(path);
  }
  if (fsync(file) != 0) Die("fsync");
  close(file);
  Emit("{\"event\": \"made\", \"pages\": %lu}", pages);
  return 0;
}

// Runs on the host: writes the sums of a corpus, which the guest's `stream index=` compares with.
int SumsCommand(void) {
  static uint64_t page[kPageWords];
  FILE* in = fopen(Option("file", NULL), "r");
  FILE* out = fopen(Option("out", NULL), "w");
  if (in == NULL || out == NULL) Die("sums");
  while (fread(page, kPageBytes, 1, in) == 1) {
    const uint64_t sum = PageSum(page);
    if (fwrite(&sum, sizeof(sum), 1, out) != 1) Die("sums");
  }
  if (fclose(out) != 0) Die("sums");
  fclose(in);
  Emit("{\"event\": \"end\"}");
  return 0;
}
