// SPDX-License-Identifier: GPL-2.0-only
// Single pages of a file in random order, each read once, with the time of every read.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab.h"

static int CompareTimes(const void* left, const void* right) {
  const float a = *(const float*)left;
  const float b = *(const float*)right;
  return (a > b) - (a < b);
}

// The first `count` of a random order of all pages.
static uint32_t* Shuffled(uint64_t pages, uint64_t count, uint64_t seed) {
  uint32_t* order = malloc(pages * sizeof(*order));
  if (order == NULL) Die("the order of reads");
  for (uint64_t i = 0; i < pages; i++) order[i] = (uint32_t)i;
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t other = i + Mix(seed + i) % (pages - i);
    const uint32_t taken = order[other];
    order[other] = order[i];
    order[i] = taken;
  }
  return order;
}

static void ReadRandomly(struct Pass* pass, int file, const uint32_t* order, const uint64_t* sums) {
  static uint64_t page[kPageWords] __attribute__((aligned(4096)));
  float* times_us = malloc(pass->pages * sizeof(*times_us));
  if (times_us == NULL) Die("times of reads");
  for (uint64_t i = 0; i < pass->pages; i++) {
    const double start = Now();
    if (pread(file, page, kPageBytes, (off_t)(order[i] * kPageBytes)) != (ssize_t)kPageBytes) {
      Die("reading a page");
    }
    times_us[i] = (float)((Now() - start) * 1e6);
    if (PageSum(page) != sums[order[i]]) WrongPage(pass, order[i]);
  }
  qsort(times_us, pass->pages, sizeof(*times_us), CompareTimes);
  pass->median_us = times_us[pass->pages / 2];
  pass->p99_us = times_us[pass->pages * 99 / 100];
  free(times_us);
}

// Pass 1 reads the whole file, pass 2 drops its pages, slowly enough for a host to take them all,
// pass 3 reads single pages, none of them from the guest's memory.
int RandomCommand(void) {
  const char* path = Option("file", NULL);
  struct stat status;
  struct Pass pass;
  if (stat(path, &status) != 0) Die(path);
  const uint64_t pages = (uint64_t)status.st_size / kPageBytes;
  const uint64_t reads = OptionNumber("reads", 4096);
  if (reads == 0 || reads > pages) Die("reads");
  uint64_t* sums = ReadSums(Option("index", NULL), pages);
  uint32_t* order = Shuffled(pages, reads, OptionNumber("seed", 1));

  BeginPass(&pass, 1, "read");
  pass.pages = pages;
  ReadWholeFile(&pass, path, sums);
  EndPass(&pass);
  BeginPass(&pass, 2, "drop");
  DropFileSlowly(path, pages);
  EndPass(&pass);

  const int file = open(path, O_RDONLY);
  if (file < 0 || posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM) != 0) Die(path);
  BeginPass(&pass, 3, "random");
  pass.pages = reads;
  ReadRandomly(&pass, file, order, sums);
  EndPass(&pass);
  close(file);
  free(order);
  free(sums);
  return 0;
}
