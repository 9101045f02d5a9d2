// SPDX-License-Identifier: GPL-2.0-only
// Changes a block of a file behind the file system's back while it is not mounted: what the host
// kept of the file before must not come back after the next mount.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "lab.h"

#define kChangedPage 64ul

// Where page kChangedPage lies on the device.
static uint64_t PhysicalOffset(int file) {
  struct {
    struct fiemap map;
    struct fiemap_extent extent;
  } request;
  memset(&request, 0, sizeof(request));
  request.map.fm_start = kChangedPage * kPageBytes;
  request.map.fm_length = kPageBytes;
  request.map.fm_flags = FIEMAP_FLAG_SYNC;
  request.map.fm_extent_count = 1;
  if (ioctl(file, FS_IOC_FIEMAP, &request) != 0) Die("FIEMAP");
  if (request.map.fm_mapped_extents != 1) Die("no extent");
  return request.extent.fe_physical + kChangedPage * kPageBytes - request.extent.fe_logical;
}

static uint64_t CountWrong(const char* path, uint64_t pages, const struct PageSource* source,
                           int changed) {
  static uint64_t page[kPageWords] __attribute__((aligned(4096)));
  uint64_t wrong = 0;
  const int file = open(path, O_RDONLY);
  if (file < 0) Die(path);
  for (uint64_t index = 0; index < pages; index++) {
    if (read(file, page, kPageBytes) != (ssize_t)kPageBytes) Die("read");
    if (changed && index == kChangedPage) {
      for (size_t i = 0; i < kPageWords; i++) wrong += page[i] != 0x5a5a5a5a00000000ull + i;
    } else if (!PageIsRight(source, index, 0, page)) {
      wrong++;
    }
  }
  close(file);
  return wrong;
}

int RemountCommand(void) {
  static uint64_t page[kPageWords] __attribute__((aligned(4096)));
  const char* path = Option("file", NULL);
  const char* mount_point = Option("mount", NULL);
  const char* device = Option("device", NULL);
  const char* type = Option("type", NULL);
  const int raw = (int)OptionNumber("raw", 1);
  const uint64_t pages = OptionNumber("bytes", 1 << 20) / kPageBytes;
  struct PageSource source;
  PageSourceInit(&source, OptionNumber("seed", 1));

  const int file = open(path, O_RDONLY);
  if (file < 0) Die(path);
  const uint64_t offset = raw ? PhysicalOffset(file) : 0;
  close(file);
  uint64_t wrong_before = CountWrong(path, pages, &source, 0);
  DropCaches();
  wrong_before += CountWrong(path, pages, &source, 0);
  DropCaches();

  if (umount(mount_point) != 0) Die("umount");
  if (raw) {
    const int disk = open(device, O_RDWR | O_DIRECT);
    if (disk < 0) Die(device);
    for (size_t i = 0; i < kPageWords; i++) page[i] = 0x5a5a5a5a00000000ull + i;
    if (pwrite(disk, page, kPageBytes, (off_t)offset) != (ssize_t)kPageBytes) Die("raw write");
    close(disk);
  }
  if (mount(device, mount_point, type, MS_NOATIME, "") != 0) Die("mount");
  const uint64_t wrong_after = CountWrong(path, pages, &source, raw);
  Emit("{\"event\": \"end\", \"wrong\": %lu, \"stale\": %lu}", wrong_before, wrong_after);
  return 0;
}
