// SPDX-License-Identifier: GPL-2.0-only
// The ends of a workload's passes: events, and the kernel's figures there.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab.h"

#define kStatsDirectory "/sys/kernel/tmem/stats"

// Reads a small file as text without the heap, which a hog may have swapped out.
static void ReadText(const char* path, char* text, size_t room) {
  const int file = open(path, O_RDONLY);
  const ssize_t got = file < 0 ? 0 : read(file, text, room - 1);
  text[got < 0 ? 0 : got] = '\0';
  if (file >= 0) close(file);
}

// The first number of a file; 0 if there is none.
static uint64_t NumberIn(const char* path) {
  char text[64];
  ReadText(path, text, sizeof(text));
  return strtoull(text, NULL, 0);
}

// Ticks that the guest's CPUs spent in the kernel and its interrupts, and those in any work.
static void CpuTicks(uint64_t* in_system, uint64_t* busy) {
  char text[256];
  unsigned long user = 0;
  unsigned long nice = 0;
  unsigned long kernel = 0;
  unsigned long irq = 0;
  unsigned long softirq = 0;
  ReadText("/proc/stat", text, sizeof(text));
  if (sscanf(text, "cpu %lu %lu %lu %*u %*u %lu %lu", &user, &nice, &kernel, &irq, &softirq) != 5) {
    Die("/proc/stat");
  }
  *in_system = kernel + irq + softirq;
  *busy = *in_system + user + nice;
}

// Every counter of the module, and how many inodes the kernel holds, as one event.
static void EmitCounters(uint64_t pass, const char* at) {
  char path[512];
  printf(
      "{\"event\": \"counters\", \"pass\": %lu, \"at\": \"%s\", \"inodes\": %lu, \"counters\": {",
      pass, at, NumberIn("/proc/sys/fs/inode-nr"));
  DIR* directory = opendir(kStatsDirectory);
  const char* separator = "";
  for (struct dirent* entry = NULL; directory != NULL && (entry = readdir(directory)) != NULL;) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof(path), "%s/%s", kStatsDirectory, entry->d_name);
    printf("%s\"%s\": %lu", separator, entry->d_name, NumberIn(path));
    separator = ", ";
  }
  if (directory != NULL) closedir(directory);
  printf("}}\n");
  fflush(stdout);
}

void BeginPass(struct Pass* pass, uint64_t number, const char* kind) {
  memset(pass, 0, sizeof(*pass));
  pass->number = number;
  pass->kind = kind;
  if (OptionNumber("sync", 0) != 0) EmitCounters(number, "begin");
  Emit("{\"event\": \"begin\", \"pass\": %lu, \"kind\": \"%s\"}", number, kind);
  WaitForGo();
  CpuTicks(&pass->system_ticks, &pass->busy_ticks);
  pass->start_s = Now();
}

void EndPass(const struct Pass* pass) {
  const double seconds = Now() - pass->start_s;
  uint64_t system_ticks = 0;
  uint64_t busy_ticks = 0;
  CpuTicks(&system_ticks, &busy_ticks);
  printf(
      "{\"event\": \"end\", \"pass\": %lu, \"kind\": \"%s\", \"pages\": %lu, \"wrong\": %lu, "
      "\"sigbus\": %lu, \"seconds\": %.3f, \"system_ticks\": %lu, \"busy_ticks\": %lu",
      pass->number, pass->kind, pass->pages, pass->wrong, pass->sigbus, seconds,
      system_ticks - pass->system_ticks, busy_ticks - pass->busy_ticks);
  if (pass->median_us > 0) {
    printf(", \"median_us\": %.2f, \"p99_us\": %.2f", pass->median_us, pass->p99_us);
  }
  Emit("}");
  WaitForGo();
  if (OptionNumber("sync", 0) != 0) EmitCounters(pass->number, "end");
}

void WrongPage(struct Pass* pass, uint64_t page) {
  if (pass->wrong++ < 8) Emit("{\"event\": \"wrong\", \"page\": %lu}", page);
}
