/* SPDX-License-Identifier: GPL-2.0-only */
// What the operations of one worker share.
#ifndef TESTS_TORTURE_GUEST_OPS_H_
#define TESTS_TORTURE_GUEST_OPS_H_

#include "torture.h"

struct Range {
  uint32_t from;
  uint32_t count; /* 0: nothing was free or there */
};

/* Sectors below `limit`, aligned, at most kMaxIoSectors; mostly a few pages. */
struct Range PickRange(struct Worker* worker, uint32_t limit, uint32_t align);

/* Locks the file (shared) and a range of it below its end; count 0: nothing is locked. */
struct Range TakeRange(struct Worker* worker, struct File* file, uint32_t align);
void GiveRange(struct File* file, struct Range range);

/* Often: lets reclaim drop the range, after it was read, so that the host has it as it is now. */
void SendToHost(struct Worker* worker, struct File* file, struct Range range);

/* Often: reads the range after a change of it, from where the kernel then has it from. */
void LookAfter(struct Worker* worker, struct File* file, struct Range range, const char* op);

#endif  // TESTS_TORTURE_GUEST_OPS_H_
