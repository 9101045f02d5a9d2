// SPDX-License-Identifier: GPL-2.0-only
// Fills more anonymous memory than the guest has with heap-like stamped pages and verifies it in
// several passes; counts wrong pages and pages whose load failed (SIGBUS).
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lab.h"

static sigjmp_buf g_after_fault;

static void OnBusError(int signal_number) {
  (void)signal_number;
  siglongjmp(g_after_fault, 1);
}

// `volatile` because a siglongjmp comes back into this frame.
static void RunPass(struct Pass* pass, uint64_t* memory, const struct PageSource* source,
                    uint64_t version) {
  volatile uint64_t index = 0;
  volatile uint64_t sigbus = 0;
  const int fills = pass->kind[0] == 'f';
  if (sigsetjmp(g_after_fault, 0) != 0) {
    sigbus++;
    index++;
  }
  for (; index < pass->pages; index++) {
    uint64_t* page = memory + index * kPageWords;
    if (fills) {
      PageFill(source, index, version, page);
    } else if (!PageIsRight(source, index, version, page)) {
      WrongPage(pass, index);
    }
  }
  pass->sigbus = sigbus;
}

// Lets a script hold the hog between its passes while something else runs: pass N begins once the
// file gate=<prefix> followed by N exists.
static void WaitAtGate(uint64_t pass) {
  const char* prefix = Option("gate", "");
  char path[256];
  if (*prefix == '\0' || pass == 1) return;
  snprintf(path, sizeof(path), "%s%lu", prefix, pass);
  while (access(path, F_OK) != 0) usleep(50000);
}

// plan= is a string of passes: f fills with the next version, v verifies.
int HogCommand(void) {
  const uint64_t pages = OptionNumber("bytes", 64 << 20) / kPageBytes;
  const char* plan = Option("plan", "fvv");
  struct PageSource source;
  uint64_t version = 0;
  PageSourceInit(&source, OptionNumber("seed", 1));
  // The hog itself stays in memory, so that it can report pages that are lost.
  if (mlockall(MCL_CURRENT) != 0) Die("mlockall");
  uint64_t* memory = mmap(NULL, pages * kPageBytes + (2ul << 20), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) Die("mmap");
  // From a 2 MiB boundary on, so that every huge page the hog could have, it can have.
  memory = (uint64_t*)(((uintptr_t)memory + (2ul << 20) - 1) & ~((2ul << 20) - 1));
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_handler = OnBusError;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGBUS, &action, NULL);

  for (uint64_t number = 1; plan[number - 1] != '\0'; number++) {
    struct Pass pass;
    const char kind = plan[number - 1];
    if (kind == 'f') version++;
    WaitAtGate(number);
    BeginPass(&pass, number, kind == 'f' ? "fill" : "verify");
    pass.pages = pages;
    RunPass(&pass, memory, &source, version);
    EndPass(&pass);
  }
  return 0;
}
