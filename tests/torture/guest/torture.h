/* SPDX-License-Identifier: GPL-2.0-only */
// What the files of the guest's `torture` program share: the shadow of what each sector of each
// file must hold, and the operations that change files and shadow together.
#ifndef TESTS_TORTURE_GUEST_TORTURE_H_
#define TESTS_TORTURE_GUEST_TORTURE_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define kSectorBytes 512u
#define kSectorWords (kSectorBytes / 8)
#define kPageSectors 8u
/* A range that one writer holds at a time; also 32 pages, the block that decides a key's lane. */
#define kChunkSectors 256u
#define kMaxChunks 64u
#define kMaxMounts 2u
#define kMaxIoSectors 512u
#define kMaxOps 32u

/* ---- content.c: what a sector holds ---- */

/*
 * A state names the bytes of one sector of one file: bit 31: zeros; bits 22..30: so many bytes
 * and then zeros (0: all 512); bits 0..21: a number that grows with each change of the sector. The
 * bytes themselves say which file, sector and number they are: a wrong one tells where it is from.
 */
typedef uint32_t State;
#define kZero 0x80000000u
#define kNumberMask 0x3fffffu
#define kCutShift 22
#define kCutMask 511u

struct File;

void ContentFill(const struct File* file, uint32_t sector, State state, uint64_t* out);
/* Says in words what `data` is. */
void ContentDescribe(const uint64_t* data, char* text, size_t bytes);

/* ---- shadow.c: what each sector must hold ---- */

/*
 * A cell is the state a sector has and, while a change of it is under way, the state it will have
 * then (0: none). Readers take no lock: what they find must be a state that the cell had between
 * the begin and the end of their read.
 */
typedef _Atomic uint64_t Cell;

struct File {
  uint32_t mount;
  uint32_t number; /* of all files; part of its content */
  uint32_t max_sectors;
  uint32_t name; /* changes with renames */
  /* Shared by operations that keep size and name, exclusive for the others. */
  atomic_int lock;
  atomic_uint incarnation;
  _Atomic uint64_t size_bytes;
  atomic_uchar chunk_locks[kMaxChunks];
  Cell* cells;
};

struct Mount {
  const char* device;
  const char* type;
  const char* options;
  char directory[32];
};

/* All of it is shared by all processes and locked into memory. */
struct Shared {
  atomic_int stop;        /* the round ends */
  atomic_int mismatches;  /* the run has failed */
  atomic_int hogs_shrink; /* hogs are to give most of their memory back and wait */
  atomic_int hogs_waiting;
  atomic_int hogs_stop;
  atomic_ulong ops[kMaxOps];
  atomic_ulong sectors_checked;
  atomic_ulong sectors_raced; /* checked while they were being changed */
  atomic_ulong sectors_skipped;
  atomic_ulong swap_checked;
  atomic_ulong sigbus;
  atomic_ulong failed_writes;
  atomic_int flaky_lock;
  atomic_uint next_name;
  uint32_t round;
  uint64_t seed;
  uint32_t mounts;
  uint32_t active; /* bits of mounts that are mounted */
  struct Mount mount[kMaxMounts];
  uint32_t files;
  struct File file[];
};

extern struct Shared* g_shared;

void ShadowCreate(void);
int TryLock(struct File* file);
int TryLockAll(struct File* file); /* exclusive */
void Unlock(struct File* file);
void UnlockAll(struct File* file);
/* Chunks of sectors from .. from + count - 1; all or none. */
int TryLockRange(struct File* file, uint32_t from, uint32_t count);
void UnlockRange(struct File* file, uint32_t from, uint32_t count);

enum Kind { kKindData, kKindZero };
/* Announces a change of these sectors; EndChange says that it is done, as announced. */
void BeginChange(struct File* file, uint32_t from, uint32_t count, enum Kind kind);
void EndChange(struct File* file, uint32_t from, uint32_t count);
/* As BeginChange, for a sector of which only the first bytes stay, and then for EndChange. */
void BeginCut(struct File* file, uint32_t sector, uint32_t bytes);
/* Only so many bytes of what is announced for the sector will be written. */
void CutPending(struct File* file, uint32_t sector, uint32_t bytes);
State CurrentState(const struct File* file, uint32_t sector);
State PendingState(const struct File* file, uint32_t sector);
void SetState(struct File* file, uint32_t sector, State state);
/* Fills `out` with what these sectors will hold after the change announced. */
void FillPending(const struct File* file, uint32_t from, uint32_t count, uint64_t* out);

struct Snapshot {
  uint32_t incarnation;
  uint64_t size_bytes;
  uint64_t cells[kMaxIoSectors];
};
void TakeSnapshot(const struct File* file, uint32_t from, uint32_t count, struct Snapshot* out);
/* Checks what a read that began after `before` returned: `bytes` bytes from sector `from` on. */
void Check(const char* op, const struct File* file, uint32_t from, const uint64_t* data,
           size_t bytes, const struct Snapshot* before);
/* A mismatch that is not one of a sector's bytes. */
void Fail(const char* op, const struct File* file, uint32_t sector, const char* what);

/* ---- io.c: one worker's means ---- */

struct Worker {
  uint64_t random_state;
  uint32_t number;
  unsigned long aio; /* context of asynchronous I/O */
  uint64_t* buffer;  /* kMaxIoSectors, aligned to pages */
  uint64_t* second;
  struct Snapshot* snapshot;
};

uint64_t Random(struct Worker* worker, uint64_t below);
void WorkerInit(struct Worker* worker, uint32_t number);
void FileName(const struct File* file, char* path, size_t bytes);
/* Opens by name; -1 if a direct open is refused. */
int OpenFile(const struct File* file, int flags);
/* Writes dirty pages of the range, then drops all clean pages of it as reclaim does. */
void Evict(int descriptor, uint32_t from, uint32_t count);
void AioSubmit(struct Worker* worker, int descriptor, int write, uint64_t* buffer, size_t bytes,
               off_t offset);
/* The result of the request submitted: bytes or a negative error. */
long AioWait(struct Worker* worker);
/* Reads sectors through `descriptor` and checks them; `exact`: nobody changes the file's size. */
void ReadAndCheck(struct Worker* worker, struct File* file, int descriptor, uint32_t from,
                  uint32_t count, const char* op, int exact);
void Pause(unsigned int microseconds);

/* ---- operations: each does nothing if its file is busy, and returns whether it did ---- */

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

int ReadOp(struct Worker* worker, struct File* file);
int MapReadOp(struct Worker* worker, struct File* file);
int DirectReadOp(struct Worker* worker, struct File* file);
int WriteOp(struct Worker* worker, struct File* file);
int MapWriteOp(struct Worker* worker, struct File* file);
int DirectWriteOp(struct Worker* worker, struct File* file);
/* Asynchronous writes, with reads meanwhile. */
int AioOp(struct Worker* worker, struct File* file);
int FailedWriteOp(struct Worker* worker, struct File* file);
int PunchOp(struct Worker* worker, struct File* file);
int TruncateOp(struct Worker* worker, struct File* file);
/* To nothing, then as long as before. */
int EmptyOp(struct Worker* worker, struct File* file);
int AppendOp(struct Worker* worker, struct File* file);
int RenameOp(struct Worker* worker, struct File* file);
int RecreateOp(struct Worker* worker, struct File* file);
int ReplaceOp(struct Worker* worker, struct File* file);
int EvictOp(struct Worker* worker, struct File* file);
int DropOp(struct Worker* worker, struct File* file);

/* A new file with new content, as long as `sectors`; the file is locked or nobody else is there. */
void CreateContent(struct Worker* worker, struct File* file, int descriptor, uint32_t sectors);
void CheckWholeFile(struct Worker* worker, struct File* file, const char* op);

/* ---- hog.c ---- */

/* A process that never returns: anonymous and shared memory, swapped out and in. */
void HogRun(uint32_t number) __attribute__((noreturn));

/* ---- flaky.c: a device of which one block can fail ---- */

/* Maps /dev/torture-N over a disk; returns its name. */
const char* FlakyCreate(uint32_t mount, const char* disk);
/* From now on 4 KiB at this byte of the device fail; 0: none. */
void FlakySet(uint32_t mount, uint64_t bad_byte);

#endif  // TESTS_TORTURE_GUEST_TORTURE_H_
