// SPDX-License-Identifier: GPL-2.0-only
// Rounds of torture: workers and hogs run beside each other, then everything is read back: as it
// is, after all caches were dropped, after unmounting and mounting, after swapoff and swapon.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

#define kMaxProcesses 32u

static const struct Op {
  const char* name;
  int (*run)(struct Worker* worker, struct File* file);
  uint32_t weight; /* unless weights= says otherwise */
} kOps[] = {
    {"read", ReadOp, 24},        {"mapread", MapReadOp, 5},
    {"dread", DirectReadOp, 5},  {"write", WriteOp, 10},
    {"mapwrite", MapWriteOp, 6}, {"dwrite", DirectWriteOp, 8},
    {"aio", AioOp, 8},           {"failwrite", FailedWriteOp, 0},
    {"punch", PunchOp, 6},       {"truncate", TruncateOp, 6},
    {"empty", EmptyOp, 1},       {"append", AppendOp, 4},
    {"rename", RenameOp, 2},     {"recreate", RecreateOp, 3},
    {"replace", ReplaceOp, 2},   {"evict", EvictOp, 6},
    {"drop", DropOp, 1},
};
#define kOpCount (sizeof(kOps) / sizeof(kOps[0]))

static uint32_t g_weights[kOpCount];
static uint32_t g_weight_sum;
static pid_t g_hogs[kMaxProcesses];

static void ReadWeights(void) {
  const char* text = Option("weights", "");
  for (size_t i = 0; i < kOpCount; i++) {
    const char* at = text;
    const size_t length = strlen(kOps[i].name);
    g_weights[i] = *text == '\0' ? kOps[i].weight : 0;
    while (at != NULL && *at != '\0') {
      if (strncmp(at, kOps[i].name, length) == 0 && at[length] == ':') {
        g_weights[i] = (uint32_t)strtoul(at + length + 1, NULL, 10);
      }
      at = strchr(at, ',');
      if (at != NULL) at++;
    }
    g_weight_sum += g_weights[i];
  }
  if (g_weight_sum == 0 && OptionNumber("workers", 3) != 0) Die("weights");
}

static size_t PickOp(struct Worker* worker) {
  uint64_t at = Random(worker, g_weight_sum);
  size_t op = 0;
  while (at >= g_weights[op]) at -= g_weights[op++];
  return op;
}

// Half of the time a big file (they come first), else any.
static struct File* PickFile(struct Worker* worker) {
  const uint32_t big = (uint32_t)OptionNumber("big", 6) * g_shared->mounts;
  for (;;) {
    const uint64_t below = big != 0 && Random(worker, 2) ? big : g_shared->files;
    struct File* file = &g_shared->file[Random(worker, below)];
    if (g_shared->active >> file->mount & 1) return file;
  }
}

static void Migrate(struct Worker* worker, uint32_t cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(Random(worker, cpus), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

static void WorkerRun(uint32_t number) {
  struct Worker worker;
  const uint32_t cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
  if (mlockall(MCL_CURRENT) != 0) Die("mlockall");
  WorkerInit(&worker, number);
  while (!atomic_load(&g_shared->stop)) {
    const size_t op = PickOp(&worker);
    if (cpus > 1 && Random(&worker, 4) == 0) Migrate(&worker, cpus);
    if (kOps[op].run(&worker, PickFile(&worker))) {
      atomic_fetch_add(&g_shared->ops[op], 1);
    } else {
      Pause(200);
    }
  }
  exit(0);
}

static pid_t Start(void (*run)(uint32_t), uint32_t number) {
  const pid_t child = fork();
  if (child < 0) Die("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(number);
    exit(1);
  }
  return child;
}

static void Await(pid_t child, const char* what) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) Die("waitpid");
  if (status == 0) return;
  Emit("{\"error\": \"a %s ended with status 0x%x\"}", what, status);
  exit(1);
}

static void MountOne(uint32_t at) {
  const struct Mount* mount_of = &g_shared->mount[at];
  if (mount(mount_of->device, mount_of->directory, mount_of->type, MS_NOATIME, mount_of->options) !=
      0) {
    Die("mount");
  }
  g_shared->active |= 1u << at;
}

static void UnmountOne(uint32_t at) {
  if (umount(g_shared->mount[at].directory) != 0) Die("umount");
  g_shared->active &= ~(1u << at);
}

static void Populate(struct Worker* worker, uint32_t at) {
  char path[64];
  for (uint32_t i = 0; i < 4; i++) {
    snprintf(path, sizeof(path), "%s/d%u", g_shared->mount[at].directory, i);
    if (mkdir(path, 0755) != 0 && errno != EEXIST) Die(path);
  }
  for (uint32_t i = 0; i < g_shared->files; i++) {
    struct File* file = &g_shared->file[i];
    if (file->mount != at) continue;
    const int descriptor = OpenFile(file, O_RDWR | O_CREAT);
    const uint32_t half = file->max_sectors / 2;
    CreateContent(worker, file, descriptor, half + (uint32_t)Random(worker, half + 1));
    close(descriptor);
  }
}

static void SetUp(struct Worker* worker) {
  const char* flaky = Option("flaky", "0");
  for (uint32_t at = 0; at < g_shared->mounts; at++) {
    static const char* const kDevices[] = {"/dev/vda", "/dev/vdb"};
    struct Mount* mount_of = &g_shared->mount[at];
    mount_of->device = *flaky == '1' ? FlakyCreate(at, kDevices[at]) : kDevices[at];
    mount_of->type = Option("type", "ext4");
    mount_of->options = Option("options", "");
    snprintf(mount_of->directory, sizeof(mount_of->directory), "/t%u", at);
    mkdir(mount_of->directory, 0755);
    MountOne(at);
    Populate(worker, at);
    if (OptionNumber("alternate", 0)) UnmountOne(at);
  }
}

static void CheckAll(struct Worker* worker, const char* op) {
  for (uint32_t i = 0; i < g_shared->files && !atomic_load(&g_shared->mismatches); i++) {
    struct File* file = &g_shared->file[i];
    if (g_shared->active >> file->mount & 1) CheckWholeFile(worker, file, op);
  }
}

static void Swap(const char* device) {
  if (*device == '\0') return;
  if (swapon(device, 0) != 0) Die("swapon");
}

static void CycleSwap(const char* device) {
  if (*device == '\0' || OptionNumber("swapcycle", 1) == 0) return;
  const uint32_t hogs = (uint32_t)OptionNumber("hogs", 1);
  const int shrink = (int)OptionNumber("shrink", 1);
  atomic_store(&g_shared->hogs_shrink, shrink);
  while (shrink && atomic_load(&g_shared->hogs_waiting) < (int)hogs &&
         !atomic_load(&g_shared->mismatches)) {
    usleep(1000);
  }
  if (swapoff(device) != 0) Die("swapoff");
  Swap(device);
  atomic_store(&g_shared->hogs_shrink, 0);
}

static void Work(double seconds) {
  const uint32_t workers = (uint32_t)OptionNumber("workers", 3);
  pid_t children[kMaxProcesses];
  const double end = Now() + seconds;
  atomic_store(&g_shared->stop, 0);
  for (uint32_t i = 0; i < workers && i < kMaxProcesses; i++) children[i] = Start(WorkerRun, i);
  while (Now() < end && !atomic_load(&g_shared->mismatches)) {
    usleep(20000);
    for (uint32_t i = 0; i < workers; i++) {
      siginfo_t info;
      info.si_pid = 0;
      waitid(P_PID, (id_t)children[i], &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid != 0 && !atomic_load(&g_shared->mismatches)) Await(children[i], "worker");
    }
  }
  atomic_store(&g_shared->stop, 1);
  for (uint32_t i = 0; i < workers; i++) Await(children[i], "worker");
}

static void OneRound(struct Worker* worker, const char* swap_device) {
  const int alternate = (int)OptionNumber("alternate", 0);
  const uint32_t only = g_shared->round % g_shared->mounts;
  const uint64_t thorough = OptionNumber("thorough", 1);
  if (alternate) {
    MountOne(only);
    CheckAll(worker, "read after another mount");
  }
  Work((double)OptionNumber("round_ms", 10000) / 1000);
  if (thorough) {
    // In turn: as it is, and all of it from the host or the disk.
    if (g_shared->round % 2) WriteString("/proc/sys/vm/drop_caches", "3");
    CheckAll(worker, g_shared->round % 2 ? "read after drop_caches" : "read after the round");
  }
  CycleSwap(swap_device);
  for (uint32_t at = 0; at < g_shared->mounts && !atomic_load(&g_shared->mismatches); at++) {
    if (!(g_shared->active >> at & 1) || OptionNumber("remount", 1) == 0) continue;
    UnmountOne(at);
    if (!alternate) MountOne(at);
  }
  if (thorough && !alternate) CheckAll(worker, "read after mount");
}

static uint64_t Ops(void) {
  uint64_t ops = 0;
  for (size_t i = 0; i < kOpCount; i++) ops += atomic_load(&g_shared->ops[i]);
  return ops;
}

static void EmitEvent(const char* event, double start) {
  char each[512];
  size_t length = 0;
  for (size_t i = 0; i < kOpCount; i++) {
    length += (size_t)snprintf(each + length, sizeof(each) - length, "%s\"%s\": %lu", i ? ", " : "",
                               kOps[i].name, atomic_load(&g_shared->ops[i]));
  }
  Emit(
      "{\"event\": \"%s\", \"seconds\": %.1f, \"rounds\": %u, \"ops\": %lu, \"checked\": %lu, "
      "\"raced\": %lu, \"skipped\": %lu, \"swap_checked\": %lu, \"sigbus\": %lu, "
      "\"failed_writes\": %lu, \"mismatches\": %d, \"each\": {%s}}",
      event, Now() - start, g_shared->round, Ops(), atomic_load(&g_shared->sectors_checked),
      atomic_load(&g_shared->sectors_raced), atomic_load(&g_shared->sectors_skipped),
      atomic_load(&g_shared->swap_checked), atomic_load(&g_shared->sigbus),
      atomic_load(&g_shared->failed_writes), atomic_load(&g_shared->mismatches), each);
}

int main(int argc, char** argv) {
  (void)argc;
  SetOptions(argv + 1);
  ReadWeights();
  const double start = Now();
  const double duration = (double)OptionNumber("duration_ms", 20000) / 1000;
  const uint32_t hogs = (uint32_t)OptionNumber("hogs", 1);
  const char* swap_device = Option("swap", "");
  struct Worker worker;
  ShadowCreate();
  g_shared->seed = OptionNumber("seed", 1);
  atomic_store(&g_shared->next_name, 1u << 20);
  if (mlockall(MCL_CURRENT) != 0) Die("mlockall");
  WorkerInit(&worker, kMaxProcesses);
  SetUp(&worker);
  Swap(swap_device);
  EmitEvent("ready", start);
  for (uint32_t i = 0; i < hogs; i++) g_hogs[i] = Start(HogRun, i);
  const double begin = Now();
  do {
    OneRound(&worker, swap_device);
    g_shared->round++;
    EmitEvent("round", begin);
  } while (Now() - begin < duration && !atomic_load(&g_shared->mismatches));
  atomic_store(&g_shared->hogs_stop, 1);
  for (uint32_t i = 0; i < hogs; i++) Await(g_hogs[i], "hog");
  EmitEvent("end", begin);
  return atomic_load(&g_shared->mismatches) != 0;
}
