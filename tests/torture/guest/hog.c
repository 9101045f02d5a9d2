// SPDX-License-Identifier: GPL-2.0-only
// The swap hog: anonymous and shared memory, each page of it as its version says, that is swapped
// out, read in, changed, freed and inherited, while its slots are used again and again.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

#define kHugePages 512u
#define kHogTag 0x7368ull
#define kChildWrong 3

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

struct Hog {
  uint32_t number;
  uint32_t pages;  /* of both areas; the second one is shared memory (tmpfs) */
  uint32_t shared; /* number of the first shared page */
  uint64_t* area[2];
  uint32_t* versions; /* 0: zeros */
  uint32_t next_version;
  uint64_t random_state;
  int sigbus_allowed;
  int with_child; /* parent and child both have the shared memory */
};

static sigjmp_buf g_after_fault;
static volatile sig_atomic_t g_guarded;

static void OnBusError(int signal_number) {
  if (!g_guarded) {
    signal(signal_number, SIG_DFL);
    return;
  }
  siglongjmp(g_after_fault, 1);
}

static uint32_t HogRandom(struct Hog* hog, uint32_t below) {
  return (uint32_t)(Mix(hog->random_state++) % below);
}

static uint64_t* PageAt(const struct Hog* hog, uint32_t page) {
  return page < hog->shared ? hog->area[0] + page * kPageWords
                            : hog->area[1] + (page - hog->shared) * kPageWords;
}

static uint64_t HogWord(const struct Hog* hog, uint32_t page, uint32_t version, size_t at) {
  const uint64_t head = kHogTag << 48 | (uint64_t)hog->number << 32 | version;
  if (version == 0) return 0;
  if (version % 16 == 5) return head; /* one word repeated */
  if (at < 2) return at == 0 ? head : page;
  // Half of the pages compress well.
  return version % 2 ? (head ^ page) + at : Mix(head ^ ((uint64_t)page << 20)) * at;
}

static void PageDescribe(const uint64_t* page, char* text, size_t bytes) {
  if (page[0] >> 48 == kHogTag) {
    snprintf(text, bytes, "page %lu of hog %u, version %u", page[1],
             (uint32_t)(page[0] >> 32) & 0xffff, (uint32_t)page[0]);
  } else {
    uint64_t sector[kSectorWords];
    memcpy(sector, page, sizeof(sector));
    ContentDescribe(sector, text, bytes);
  }
}

static void HogMismatch(const struct Hog* hog, uint32_t page, size_t at, const char* op) {
  char found[128];
  const uint64_t* data = PageAt(hog, page);
  PageDescribe(data, found, sizeof(found));
  if (atomic_fetch_add(&g_shared->mismatches, 1) < 4) {
    Emit(
        "{\"event\": \"mismatch\", \"op\": \"%s\", \"name\": \"hog %u%s\", \"page\": %u, "
        "\"expected\": \"version %u\", \"found\": \"%s, word %zu is %016lx\", \"round\": %u}",
        op, hog->number, page < hog->shared ? "" : " (shared)", page, hog->versions[page], found,
        at, data[at], g_shared->round);
  }
  atomic_store(&g_shared->stop, 1);
}

// The only copy is lost: counted, and the page begins anew.
static void LosePage(struct Hog* hog, uint32_t page) {
  const uint32_t version = hog->versions[page];
  atomic_fetch_add(&g_shared->sigbus, 1);
  if (page < hog->shared) {
    madvise(PageAt(hog, page), kPageBytes, MADV_DONTNEED);
  } else if (!hog->with_child) {
    madvise(PageAt(hog, page), kPageBytes, MADV_REMOVE);
  } /* else the other one has to find it lost too, and it stays so until it is met again */
  hog->versions[page] = 0;
  if (hog->sigbus_allowed) return;
  if (atomic_fetch_add(&g_shared->mismatches, 1) < 4) {
    Emit(
        "{\"event\": \"mismatch\", \"op\": \"swap in\", \"name\": \"hog %u\", \"page\": %u, "
        "\"expected\": \"version %u\", \"found\": \"SIGBUS\", \"round\": %u}",
        hog->number, page, version, g_shared->round);
  }
  atomic_store(&g_shared->stop, 1);
}

static size_t FirstWrongWord(const struct Hog* hog, uint32_t page) {
  const uint64_t* data = PageAt(hog, page);
  size_t at = 0;
  while (at < kPageWords && data[at] == HogWord(hog, page, hog->versions[page], at)) at++;
  return at;
}

static void FillPage(const struct Hog* hog, uint32_t page, uint32_t version) {
  uint64_t* data = PageAt(hog, page);
  for (size_t at = 0; at < kPageWords; at++) data[at] = HogWord(hog, page, version, at);
}

// Returns 0 if the page is wrong. Pages that are lost begin anew.
static int CheckPage(struct Hog* hog, uint32_t page, const char* op) {
  if (sigsetjmp(g_after_fault, 0) != 0) {
    g_guarded = 0;
    LosePage(hog, page);
    return 1;
  }
  g_guarded = 1;
  const size_t wrong = FirstWrongWord(hog, page);
  g_guarded = 0;
  if (wrong != kPageWords) {
    HogMismatch(hog, page, wrong, op);
    return 0;
  }
  atomic_fetch_add(&g_shared->swap_checked, 1);
  return 1;
}

static void WritePage(struct Hog* hog, uint32_t page) {
  if (sigsetjmp(g_after_fault, 0) != 0) {
    g_guarded = 0;
    LosePage(hog, page);
    return;
  }
  g_guarded = 1;
  FillPage(hog, page, hog->next_version);
  g_guarded = 0;
  hog->versions[page] = hog->next_version++;
}

// Pages of one area; whole huge pages now and then.
static void PickRun(struct Hog* hog, uint32_t longest, uint32_t* from, uint32_t* count) {
  const uint32_t half = hog->shared < hog->pages ? HogRandom(hog, 2) : 0;
  const uint32_t first = half ? hog->shared : 0;
  const uint32_t pages = half ? hog->pages - hog->shared : hog->shared;
  *from = HogRandom(hog, pages);
  *count = 1 + HogRandom(hog, longest);
  if (longest > 1 && HogRandom(hog, 3) == 0 && pages >= kHugePages) {
    *from = *from / kHugePages * kHugePages;
    *count = kHugePages;
  }
  if (*from + *count > pages) *count = pages - *from;
  *from += first;
}

static void FreeRun(struct Hog* hog, uint32_t from, uint32_t count) {
  const int how = from < hog->shared ? MADV_DONTNEED : MADV_REMOVE;
  if (madvise(PageAt(hog, from), (size_t)count * kPageBytes, how) != 0) Die("madvise");
  memset(hog->versions + from, 0, count * sizeof(hog->versions[0]));
}

// A child sees what the parent had, whatever either writes then.
static void Inherit(struct Hog* hog) {
  uint32_t from;
  uint32_t count;
  int status = 0;
  PickRun(hog, 64, &from, &count);
  hog->with_child = 1;
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    for (uint32_t page = from; page < from + count; page++) {
      if (!CheckPage(hog, page, "swap in after fork")) _exit(kChildWrong);
      if (page < hog->shared && page % 2) WritePage(hog, page);
    }
    madvise(PageAt(hog, from), (size_t)count * kPageBytes, MADV_PAGEOUT);
    for (uint32_t page = from; page < from + count; page++) {
      if (!CheckPage(hog, page, "swap in of a child")) _exit(kChildWrong);
    }
    _exit(0);
  }
  madvise(PageAt(hog, from), (size_t)count * kPageBytes, MADV_PAGEOUT);
  for (uint32_t page = from; page < from + count; page++) {
    CheckPage(hog, page, "swap in beside a child");
  }
  if (waitpid(child, &status, 0) != child) Die("waitpid");
  hog->with_child = 0;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS) {
    atomic_fetch_add(&g_shared->sigbus, 1);
  } else if (status != 0 && WEXITSTATUS(status) != kChildWrong) {
    Die("a child of the hog");
  }
}

static void HogOp(struct Hog* hog) {
  const uint32_t choice = HogRandom(hog, 100);
  uint32_t from;
  uint32_t count;
  PickRun(hog, choice < 35 ? 8 : 64, &from, &count);
  if (choice < 65) {
    for (uint32_t page = from; page < from + count; page++) {
      if (CheckPage(hog, page, "swap in") && HogRandom(hog, 2)) WritePage(hog, page);
    }
    // Out again at once: pages that were read and then written still have their slots.
    if (choice % 2) madvise(PageAt(hog, from), (size_t)count * kPageBytes, MADV_PAGEOUT);
  } else if (choice < 75) {
    FreeRun(hog, from, count);
    for (uint32_t page = from; page < from + count; page++) WritePage(hog, page);
  } else if (choice < 98) {
    madvise(PageAt(hog, from), (size_t)count * kPageBytes, MADV_PAGEOUT);
  } else {
    Inherit(hog);
  }
}

static void WaitShrunk(struct Hog* hog) {
  const uint32_t keep = hog->shared / 4;
  FreeRun(hog, keep, hog->shared - keep);
  if (hog->shared < hog->pages) FreeRun(hog, hog->shared, hog->pages - hog->shared);
  atomic_fetch_add(&g_shared->hogs_waiting, 1);
  while (atomic_load(&g_shared->hogs_shrink)) {
    for (uint32_t page = 0; page < keep; page += 7) CheckPage(hog, page, "swap in at swapoff");
    usleep(1000);
  }
  atomic_fetch_sub(&g_shared->hogs_waiting, 1);
}

static uint64_t* Area(uint32_t pages, int flags) {
  const size_t huge = kHugePages * kPageBytes;
  char* memory = mmap(NULL, pages * kPageBytes + huge, PROT_READ | PROT_WRITE,
                      flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) Die("mmap");
  return (uint64_t*)(((uintptr_t)memory + huge - 1) & ~(huge - 1));
}

void HogRun(uint32_t number) {
  static struct Hog hog;
  hog.number = number;
  hog.pages = (uint32_t)(OptionNumber("hog_mib", 32) << 20 >> 12);
  hog.shared = OptionNumber("shared", 1) ? hog.pages / 2 : hog.pages;
  hog.next_version = 1;
  hog.random_state = Mix(g_shared->seed ^ (0x686f67ull + number));
  hog.sigbus_allowed = (int)OptionNumber("allow_sigbus", 0);
  hog.versions = mmap(NULL, hog.pages * sizeof(hog.versions[0]), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  // What the hog itself needs stays in memory, so that it can report pages that are lost.
  if (hog.versions == MAP_FAILED || mlockall(MCL_CURRENT) != 0) Die("mlockall");
  hog.area[0] = Area(hog.shared, MAP_PRIVATE);
  if (hog.shared < hog.pages) hog.area[1] = Area(hog.pages - hog.shared, MAP_SHARED);
  if (OptionNumber("thp", 0)) madvise(hog.area[0], hog.shared * kPageBytes, MADV_HUGEPAGE);
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_handler = OnBusError;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGBUS, &action, NULL);
  while (!atomic_load(&g_shared->hogs_stop) && !atomic_load(&g_shared->mismatches)) {
    if (atomic_load(&g_shared->hogs_shrink)) WaitShrunk(&hog);
    HogOp(&hog);
  }
  for (uint32_t page = 0; page < hog.pages && !atomic_load(&g_shared->mismatches); page++) {
    CheckPage(&hog, page, "swap in at the end");
  }
  exit(0);
}
