// SPDX-License-Identifier: GPL-2.0-only
// One worker's means: random numbers, files by name, eviction, asynchronous I/O, checked reads.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../../lab/guest/lab.h"
#include "torture.h"

uint64_t Random(struct Worker* worker, uint64_t below) {
  return Mix(worker->random_state++) % below;
}

static uint64_t* Buffer(void) {
  void* memory = mmap(NULL, kMaxIoSectors * kSectorBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) Die("buffer");
  return memory;
}

void WorkerInit(struct Worker* worker, uint32_t number) {
  memset(worker, 0, sizeof(*worker));
  worker->number = number;
  worker->random_state = Mix(g_shared->seed ^ Mix((uint64_t)number << 32 | g_shared->round));
  worker->buffer = Buffer();
  worker->second = Buffer();
  worker->snapshot = malloc(sizeof(*worker->snapshot));
  if (worker->snapshot == NULL) Die("snapshot");
  if (syscall(SYS_io_setup, 4, &worker->aio) != 0) Die("io_setup");
}

void FileName(const struct File* file, char* path, size_t bytes) {
  snprintf(path, bytes, "%s/d%u/f%u", g_shared->mount[file->mount].directory, file->name % 4,
           file->name);
}

int OpenFile(const struct File* file, int flags) {
  char path[64];
  FileName(file, path, sizeof(path));
  const int descriptor = open(path, flags | O_CLOEXEC, 0644);
  if (descriptor < 0) Die(path);
  return descriptor;
}

void Evict(int descriptor, uint32_t from, uint32_t count) {
  const off_t first = (off_t)from * kSectorBytes;
  const off_t bytes = (off_t)count * kSectorBytes;
  sync_file_range(descriptor, first, bytes,
                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  posix_fadvise(descriptor, first, bytes, POSIX_FADV_DONTNEED);
}

void AioSubmit(struct Worker* worker, int descriptor, int write, uint64_t* buffer, size_t bytes,
               off_t offset) {
  struct iocb request;
  struct iocb* list = &request;
  memset(&request, 0, sizeof(request));
  request.aio_fildes = (uint32_t)descriptor;
  request.aio_lio_opcode = write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
  request.aio_buf = (uintptr_t)buffer;
  request.aio_nbytes = bytes;
  request.aio_offset = offset;
  if (syscall(SYS_io_submit, worker->aio, 1, &list) != 1) Die("io_submit");
}

long AioWait(struct Worker* worker) {
  struct io_event event;
  long got;
  do {
    got = syscall(SYS_io_getevents, worker->aio, 1, 1, &event, NULL);
  } while (got < 0 && errno == EINTR);
  if (got != 1) Die("io_getevents");
  return (long)event.res;
}

void Pause(unsigned int microseconds) {
  usleep(microseconds);
}

void ReadAndCheck(struct Worker* worker, struct File* file, int descriptor, uint32_t from,
                  uint32_t count, const char* op, int exact) {
  TakeSnapshot(file, from, count, worker->snapshot);
  const ssize_t got =
      pread(descriptor, worker->buffer, (size_t)count * kSectorBytes, (off_t)from * kSectorBytes);
  if (got < 0) {
    if (errno != EIO || atomic_load(&g_shared->flaky_lock) == 0) Die(op);
    return; /* a read beside a write that is made to fail */
  }
  const uint64_t end = (uint64_t)(from + count) * kSectorBytes;
  const uint64_t size = worker->snapshot->size_bytes;
  const uint64_t wanted = (end < size ? end : size) - (uint64_t)from * kSectorBytes;
  if (exact && (uint64_t)got != wanted) {
    char text[64];
    snprintf(text, sizeof(text), "%zd bytes read of %lu", got, wanted);
    Fail(op, file, from, text);
  }
  Check(op, file, from, worker->buffer, (size_t)got, worker->snapshot);
}
