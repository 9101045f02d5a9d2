// SPDX-License-Identifier: GPL-2.0-only
// Takes memory, stamps it, verifies it and frees it again, all the time: what is free is reported
// meanwhile, and what is taken again must be zero first and then hold what was written.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lab.h"

#define kBlocks 64u

struct Block {
  uint64_t* memory;
  uint64_t pages;
  uint64_t version;
};

static uint64_t g_random;

static uint64_t Random(uint64_t below) {
  g_random = Mix(g_random + 1);
  return g_random % below;
}

// Memory the kernel hands out reads as zero, whatever the host has made of it.
static void Take(struct Pass* pass, const struct PageSource* source, struct Block* block,
                 uint64_t most_pages, uint64_t version) {
  block->pages = 1 + Random(most_pages);
  block->version = version;
  block->memory = mmap(NULL, block->pages * kPageBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block->memory == MAP_FAILED) Die("mmap");
  for (uint64_t at = 0; at < block->pages; at++) {
    uint64_t* page = block->memory + at * kPageWords;
    // Written first: a read alone would show the kernel's one page of zeroes.
    page[kPageWords - 1] = 0;
    for (uint64_t word = 0; word < kPageWords; word++) {
      if (page[word] == 0) continue;
      WrongPage(pass, at);
      break;
    }
    PageFill(source, at, version, page);
  }
}

static void CheckAndFree(struct Pass* pass, const struct PageSource* source, struct Block* block) {
  for (uint64_t at = 0; at < block->pages; at++) {
    if (!PageIsRight(source, at, block->version, block->memory + at * kPageWords)) {
      WrongPage(pass, at);
    }
  }
  pass->pages += block->pages;
  munmap(block->memory, block->pages * kPageBytes);
  block->memory = NULL;
}

// seconds=, bytes= (at most held at once), seed=. Every few rounds all is freed and left alone for
// as long as it takes to be reported.
int ChurnCommand(void) {
  static struct Block blocks[kBlocks];
  const double end_s = Now() + (double)OptionNumber("seconds", 20);
  const uint64_t most_pages = OptionNumber("bytes", 64 << 20) / kPageBytes / kBlocks * 2;
  struct PageSource source;
  struct Pass pass;
  g_random = OptionNumber("seed", 1);
  PageSourceInit(&source, g_random);
  BeginPass(&pass, 1, "churn");
  pass.pages = 0;
  for (uint64_t version = 1; Now() < end_s; version++) {
    struct Block* block = &blocks[Random(kBlocks)];
    if (block->memory != NULL) {
      CheckAndFree(&pass, &source, block);
    } else {
      Take(&pass, &source, block, most_pages, version);
    }
    if (version % 512 != 0) continue;
    for (block = blocks; block < blocks + kBlocks; block++) {
      if (block->memory != NULL) CheckAndFree(&pass, &source, block);
    }
    usleep((useconds_t)Random(2500000));
  }
  for (struct Block* block = blocks; block < blocks + kBlocks; block++) {
    if (block->memory != NULL) CheckAndFree(&pass, &source, block);
  }
  EndPass(&pass);
  return 0;
}
