// SPDX-License-Identifier: GPL-2.0-only
// Maps an encrypted device over a disk, as cryptsetup would, and prints the node to use.
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lab.h"

struct Request {
  struct dm_ioctl head;
  struct dm_target_spec target;
  char parameters[512];
};

static void Call(int control, unsigned long command, struct Request* request, const char* what) {
  request->head.version[0] = DM_VERSION_MAJOR;
  request->head.data_size = sizeof(*request);
  request->head.data_start = sizeof(request->head);
  strcpy(request->head.name, "lab");
  if (ioctl(control, command, request) != 0) Die(what);
}

int DmCryptCommand(void) {
  struct Request request;
  const char* device = Option("device", NULL);
  const uint64_t sectors = OptionNumber("sectors", 0);
  const int control = open("/dev/mapper/control", O_RDWR);
  if (control < 0) Die("/dev/mapper/control");
  memset(&request, 0, sizeof(request));
  Call(control, DM_DEV_CREATE, &request, "DM_DEV_CREATE");
  const uint64_t number = request.head.dev;

  memset(&request, 0, sizeof(request));
  request.head.target_count = 1;
  request.target.length = sectors;
  strcpy(request.target.target_type, "crypt");
  // A key of 256 bits that protects nothing.
  snprintf(request.parameters, sizeof(request.parameters), "aes-cbc-essiv:sha256 %064d 0 %s 0", 7,
           device);
  Call(control, DM_TABLE_LOAD, &request, "DM_TABLE_LOAD");
  memset(&request, 0, sizeof(request));
  Call(control, DM_DEV_SUSPEND, &request, "resuming");  // Without the suspend flag it resumes.

  const unsigned int major = (unsigned int)((number & 0xfff00) >> 8);
  const unsigned int minor = (unsigned int)((number & 0xff) | ((number >> 12) & 0xfff00));
  mknod("/dev/lab-crypt", S_IFBLK | 0600, makedev(major, minor));
  Emit("{\"event\": \"end\", \"device\": \"/dev/lab-crypt\"}");
  return 0;
}
