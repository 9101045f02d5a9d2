// SPDX-License-Identifier: GPL-2.0-only
// A device mapped over a disk, of which 4 KiB can be made to fail: requests that cross them fail
// half-way.
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

#define kBadSectors 8ull
#define kTargetBytes 256u

struct Request {
  struct dm_ioctl head;
  char targets[3 * kTargetBytes];
};

static struct {
  const char* disk;
  uint64_t sectors;
  char node[32];
} g_flaky[kMaxMounts];

static void Prepare(struct Request* request, uint32_t mount) {
  memset(request, 0, sizeof(*request));
  request->head.version[0] = DM_VERSION_MAJOR;
  request->head.data_size = sizeof(*request);
  request->head.data_start = sizeof(request->head);
  snprintf(request->head.name, sizeof(request->head.name), "torture-%u", mount);
}

static void Call(unsigned long command, struct Request* request, const char* what) {
  const int control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
  if (control < 0 || ioctl(control, command, request) != 0) Die(what);
  close(control);
}

static void AddTarget(struct Request* request, uint32_t mount, int good, uint64_t start,
                      uint64_t sectors) {
  if (sectors == 0) return;
  char* at = request->targets + request->head.target_count++ * kTargetBytes;
  struct dm_target_spec* target = (struct dm_target_spec*)(void*)at;
  target->sector_start = start;
  target->length = sectors;
  target->next = kTargetBytes;
  strcpy(target->target_type, good ? "linear" : "error");
  if (good) {
    snprintf(at + sizeof(*target), kTargetBytes - sizeof(*target), "%s %lu", g_flaky[mount].disk,
             start);
  }
}

void FlakySet(uint32_t mount, uint64_t bad_byte) {
  struct Request request;
  const uint64_t bad = bad_byte / kSectorBytes;
  const uint64_t end = g_flaky[mount].sectors;
  Prepare(&request, mount);
  if (bad == 0) {
    AddTarget(&request, mount, 1, 0, end);
  } else {
    AddTarget(&request, mount, 1, 0, bad);
    AddTarget(&request, mount, 0, bad, kBadSectors);
    AddTarget(&request, mount, 1, bad + kBadSectors, end - bad - kBadSectors);
  }
  Call(DM_TABLE_LOAD, &request, "DM_TABLE_LOAD");
  // The file system is not frozen: it does not learn of this.
  Prepare(&request, mount);
  request.head.flags = DM_SUSPEND_FLAG | DM_SKIP_LOCKFS_FLAG | DM_NOFLUSH_FLAG;
  Call(DM_DEV_SUSPEND, &request, "suspending");
  Prepare(&request, mount);
  Call(DM_DEV_SUSPEND, &request, "resuming"); /* without the suspend flag it resumes */
}

const char* FlakyCreate(uint32_t mount, const char* disk) {
  struct Request request;
  g_flaky[mount].disk = disk;
  const int device = open(disk, O_RDONLY | O_CLOEXEC);
  uint64_t bytes = 0;
  if (device < 0 || ioctl(device, BLKGETSIZE64, &bytes) != 0) Die(disk);
  close(device);
  g_flaky[mount].sectors = bytes / kSectorBytes;
  Prepare(&request, mount);
  Call(DM_DEV_CREATE, &request, "DM_DEV_CREATE");
  const uint64_t number = request.head.dev;
  Prepare(&request, mount);
  AddTarget(&request, mount, 1, 0, g_flaky[mount].sectors);
  Call(DM_TABLE_LOAD, &request, "DM_TABLE_LOAD");
  Prepare(&request, mount);
  Call(DM_DEV_SUSPEND, &request, "resuming");
  const unsigned int major = (unsigned int)((number & 0xfff00) >> 8);
  const unsigned int minor = (unsigned int)((number & 0xff) | ((number >> 12) & 0xfff00));
  snprintf(g_flaky[mount].node, sizeof(g_flaky[mount].node), "/dev/torture-%u", mount);
  mknod(g_flaky[mount].node, S_IFBLK | 0600, makedev(major, minor));
  return g_flaky[mount].node;
}
