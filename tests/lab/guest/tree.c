// SPDX-License-Identifier: GPL-2.0-only
// A tree of many small files whose sizes and bytes follow from a seed: made, then read twice.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab.h"

#define kFilesPerDirectory 200ul
#define kLeastFileBytes (4ul << 10)
#define kMostFileBytes (64ul << 10)

static uint64_t g_buffer[kMostFileBytes / 8] __attribute__((aligned(4096)));

struct Tree {
  const char* root;
  uint64_t files;
  uint64_t seed;
  struct PageSource source;
};

static struct Tree TreeOfOptions(void) {
  struct Tree tree = {
      Option("dir", NULL), OptionNumber("files", 1000), OptionNumber("seed", 1), {0, NULL}};
  PageSourceInit(&tree.source, tree.seed);
  return tree;
}

static size_t FileBytes(const struct Tree* tree, uint64_t file) {
  return kLeastFileBytes + Mix(tree->seed ^ Mix(file)) % (kMostFileBytes - kLeastFileBytes + 1);
}

static uint64_t PagesOf(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes;
}

// Pages are numbered through the whole tree, so that no file can pass for another.
static uint64_t FirstPage(uint64_t file) {
  return file * (kMostFileBytes / kPageBytes);
}

static void FilePath(const struct Tree* tree, uint64_t file, char* path, size_t room) {
  snprintf(path, room, "%s/d%lu/f%lu", tree->root, file / kFilesPerDirectory, file);
}

static void WriteFile(const struct Tree* tree, uint64_t file) {
  char path[256];
  const size_t bytes = FileBytes(tree, file);
  FilePath(tree, file, path, sizeof(path));
  for (uint64_t i = 0; i < PagesOf(bytes); i++) {
    PageFill(&tree->source, FirstPage(file) + i, 1, g_buffer + i * kPageWords);
  }
  const int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (out < 0 || write(out, g_buffer, bytes) != (ssize_t)bytes) Die(path);
  close(out);
}

int MakeTreeCommand(void) {
  char path[256];
  const struct Tree tree = TreeOfOptions();
  for (uint64_t file = 0; file < tree.files; file++) {
    if (file % kFilesPerDirectory == 0) {
      snprintf(path, sizeof(path), "%s/d%lu", tree.root, file / kFilesPerDirectory);
      if (mkdir(path, 0755) != 0 && errno != EEXIST) Die(path);
    }
    WriteFile(&tree, file);
  }
  sync();
  Emit("{\"event\": \"made\", \"files\": %lu}", tree.files);
  return 0;
}

static void CheckFile(const struct Tree* tree, uint64_t file, struct Pass* pass) {
  static uint64_t wanted[kPageWords];
  char path[256];
  const size_t bytes = FileBytes(tree, file);
  FilePath(tree, file, path, sizeof(path));
  const int in = open(path, O_RDONLY | O_NOATIME);
  if (in < 0) Die(path);
  const ssize_t got = read(in, g_buffer, sizeof(g_buffer));
  close(in);
  for (uint64_t i = 0; i < PagesOf(bytes); i++, pass->pages++) {
    const uint64_t number = FirstPage(file) + i;
    const uint64_t* page = g_buffer + i * kPageWords;
    const size_t rest = bytes - i * kPageBytes;
    int right = (size_t)got == bytes;
    if (right && rest >= kPageBytes) {
      right = PageIsRight(&tree->source, number, 1, page);
    } else if (right) {
      PageFill(&tree->source, number, 1, wanted);
      right = memcmp(page, wanted, rest) == 0;
    }
    if (!right) WrongPage(pass, number);
  }
}

static uint64_t AvailableBytes(void) {
  char line[128];
  unsigned long kib = 0;
  FILE* file = fopen("/proc/meminfo", "r");
  if (file == NULL) Die("/proc/meminfo");
  while (fgets(line, sizeof(line), file) != NULL && sscanf(line, "MemAvailable: %lu", &kib) != 1) {
  }
  fclose(file);
  return kib << 10;
}

// Programs that need `percent` of the available memory for a moment, without any swap: the kernel
// reclaims pages of files, and inodes, a part of them at each turn. Then what is left of the files'
// pages is dropped, and no inode by it.
static void Squeeze(uint64_t percent, uint64_t turns) {
  for (uint64_t turn = 0; turn < turns; turn++) {
    const size_t bytes = AvailableBytes() / 100 * percent;
    char* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Die("mmap");
    for (size_t at = 0; at < bytes; at += kPageBytes) memory[at] = 1;
    munmap(memory, bytes);
  }
  DropCaches();
}

int TreeCommand(void) {
  const struct Tree tree = TreeOfOptions();
  struct Pass pass;
  for (uint64_t number = 1; number <= 3; number++) {
    BeginPass(&pass, number, number == 2 ? "squeeze" : "read");
    if (number == 2) Squeeze(OptionNumber("squeeze", 90), OptionNumber("turns", 4));
    for (uint64_t file = 0; number != 2 && file < tree.files; file++) {
      CheckFile(&tree, file, &pass);
    }
    EndPass(&pass);
  }
  return 0;
}
