// SPDX-License-Identifier: GPL-2.0-only
// Takes memory, touches every page of it and gives it back, again and again: page faults and little
// else, in several processes at once.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lab.h"

static void TouchAll(uint64_t bytes, int advice) {
  volatile char* memory =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("mmap");
  if (madvise((void*)memory, bytes, advice) != 0) Die("madvise");
  for (uint64_t at = 0; at < bytes; at += kPageBytes) memory[at] = 1;
  munmap((void*)memory, bytes);
}

static void Run(uint64_t rounds, uint64_t bytes, int advice) {
  for (uint64_t round = 0; round < rounds; round++) TouchAll(bytes, advice);
}

// bytes= (of each process), rounds=, procs=, thp=0|1 (madvise). Says how long all of it took.
int FaultsCommand(void) {
  const uint64_t bytes = OptionNumber("bytes", 64 << 20);
  const uint64_t rounds = OptionNumber("rounds", 1);
  const uint64_t procs = OptionNumber("procs", 1);
  const int advice = OptionNumber("thp", 0) != 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
  const double start_s = Now();
  int failed = 0;
  for (uint64_t proc = 0; proc < procs; proc++) {
    const pid_t child = fork();
    if (child < 0) Die("fork");
    if (child == 0) {
      Run(rounds, bytes, advice);
      _exit(0);
    }
  }
  for (uint64_t proc = 0; proc < procs; proc++) {
    int status = 0;
    if (wait(&status) < 0) Die("wait");
    failed |= status;
  }
  Emit("{\"event\": \"faults\", \"pages\": %lu, \"failed\": %d, \"seconds\": %.4f}",
       procs * rounds * bytes / kPageBytes, failed != 0, Now() - start_s);
  return failed != 0;
}
