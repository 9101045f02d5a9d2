// SPDX-License-Identifier: GPL-2.0-only
// A memfd cut into chunks that come and go: all page bytes and records live in such files.
#include "host-store/store/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "compress/page.h"

namespace tmem {
namespace {

constexpr int kPromisedTries = 50;
constexpr uint32_t kBitsPerWord = 64;

// Spares take up gets and puts that come in bursts of some hundred pages, in a set of some ten
// thousand; in larger sets bursts are no longer.
constexpr uint64_t kLivePartOfSpares = 32;
constexpr uint64_t kMaxSpareBytes = 8 << 20;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack it
#endif

}  // namespace

MemoryFile::MemoryFile(const Options& options, int fd, std::byte* begin)
    : options_(options),
      fd_(fd),
      begin_(begin),
      taken_((options.max_chunks + kBitsPerWord - 1) / kBitsPerWord),
      spares_(options.spares == Spares::kSome ? options.stride_bytes / kPageBytes : 0) {
  for (uint32_t past = options.max_chunks; past % kBitsPerWord != 0; ++past) {
    taken_.back() |= uint64_t{1} << (past % kBitsPerWord);
  }
  taken_[0] |= 1;
}

Result<std::unique_ptr<MemoryFile>> MemoryFile::Create(const Options& options) {
  if (options.max_chunks < 2 || options.stride_bytes % kPageBytes != 0) {
    return Error{ErrorCode::kInvalidArgument, "memory file " + options.name + ": bad size"};
  }
  const int fd = memfd_create(options.name.c_str(), MFD_CLOEXEC);
  if (fd < 0) return SystemError("memfd_create " + options.name);
  const uint64_t file_bytes = uint64_t{options.max_chunks} * options.stride_bytes;
  if (ftruncate(fd, static_cast<off_t>(file_bytes)) != 0) {
    Error error = SystemError("ftruncate " + options.name);
    close(fd);
    return error;
  }
  void* mapped = mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) {
    Error error = SystemError("mmap " + options.name);
    close(fd);
    return error;
  }
  std::unique_ptr<MemoryFile> file(new MemoryFile(options, fd, static_cast<std::byte*>(mapped)));
  if (!options.budget->Charge(options.account, file->fixed_bytes(), Claim::kFixed)) {
    return Error{ErrorCode::kExhausted, "memory file " + options.name + ": over the limit"};
  }
  file->charged_ = true;
  if (!file->Populate(0, kPageBytes)) {
    return Error{ErrorCode::kSystem, "memory file " + options.name + ": no memory"};
  }
  return file;
}

MemoryFile::~MemoryFile() {
  while (DropSpares()) {
  }
  munmap(begin_, uint64_t{options_.max_chunks} * options_.stride_bytes);
  close(fd_);
  if (charged_) options_.budget->Uncharge(options_.account, fixed_bytes(), Claim::kFixed);
}

ChunkNumber MemoryFile::TakeNumber() {
  MutexLock lock(mutex_);
  for (size_t word = first_maybe_free_; word < taken_.size(); ++word) {
    if (~taken_[word] == 0) continue;
    const auto bit = static_cast<uint32_t>(__builtin_ctzll(~taken_[word]));
    taken_[word] |= uint64_t{1} << bit;
    first_maybe_free_ = word;
    return static_cast<ChunkNumber>(word * kBitsPerWord + bit);
  }
  first_maybe_free_ = taken_.size();
  return kNoChunk;
}

void MemoryFile::ReturnNumber(ChunkNumber chunk) {
  MutexLock lock(mutex_);
  const size_t word = chunk / kBitsPerWord;
  taken_[word] &= ~(uint64_t{1} << (chunk % kBitsPerWord));
  if (word < first_maybe_free_) first_maybe_free_ = word;
}

bool MemoryFile::Populate(ChunkNumber chunk, size_t bytes) {
  if (options_.faults != nullptr && options_.faults->Fails(FaultPlan::Point::kMemory)) return false;
  // Memory is asked for here, where a refusal is an answer; touching the page would be a SIGBUS.
  if (madvise(Chunk(chunk), bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
  const auto offset = static_cast<off_t>(uint64_t{chunk} * options_.stride_bytes);
  return fallocate(fd_, 0, offset, static_cast<off_t>(bytes)) == 0;
}

void MemoryFile::Punch(ChunkNumber chunk, size_t bytes) {
  const auto offset = static_cast<off_t>(uint64_t{chunk} * options_.stride_bytes);
  if (fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                static_cast<off_t>(bytes)) != 0) {
    // The chunk would keep one domain's bytes and be handed out again: shared state is broken.
    std::perror("tmem: punching a chunk");
    std::abort();
  }
}

ChunkNumber MemoryFile::TakeSpareLocked(size_t pages) {
  const ChunkNumber chunk = spares_[pages - 1];
  if (chunk == kNoChunk) return kNoChunk;
  std::memcpy(&spares_[pages - 1], Chunk(chunk), sizeof(chunk));
  spare_bytes_.fetch_sub(ChargedBytes(pages * kPageBytes));
  return chunk;
}

void MemoryFile::AddSpareLocked(ChunkNumber chunk, size_t pages) {
  std::memcpy(Chunk(chunk), &spares_[pages - 1], sizeof(chunk));
  spares_[pages - 1] = chunk;
  spare_bytes_.fetch_add(ChargedBytes(pages * kPageBytes));
}

bool MemoryFile::HasTooManySparesLocked() const {
  return spare_bytes_.load() > std::min(live_bytes_ / kLivePartOfSpares, kMaxSpareBytes);
}

void MemoryFile::GiveBack(ChunkNumber chunk, size_t bytes) {
  Punch(chunk, bytes);
  ReturnNumber(chunk);
  options_.budget->Uncharge(options_.account, ChargedBytes(bytes), options_.chunk_claim);
}

bool MemoryFile::DropSpares() {
  bool dropped = false;
  const size_t sizes = options_.stride_bytes / kPageBytes;
  for (size_t pages = sizes; pages != 0 && spare_bytes() != 0; --pages) {
    ChunkNumber chunk = kNoChunk;
    {
      MutexLock lock(mutex_);
      chunk = TakeSpareLocked(pages);
    }
    if (chunk == kNoChunk) continue;
    GiveBack(chunk, pages * kPageBytes);
    dropped = true;
  }
  return dropped;
}

ChunkNumber MemoryFile::Allocate(size_t bytes, Claim claim) {
  if (options_.spares == Spares::kSome) {
    MutexLock lock(mutex_);
    const ChunkNumber spare = TakeSpareLocked(bytes / kPageBytes);
    if (spare != kNoChunk) {
      live_bytes_ += bytes;
      return spare;
    }
  }
  if (!options_.budget->Charge(options_.account, ChargedBytes(bytes), claim)) return kNoChunk;
  const ChunkNumber chunk = TakeNumber();
  if (chunk != kNoChunk) {
    const int tries = claim == Claim::kPromised ? kPromisedTries : 1;
    for (int i = 0; i < tries; ++i) {
      if (Populate(chunk, bytes)) {
        if (options_.spares == Spares::kSome) {
          MutexLock lock(mutex_);
          live_bytes_ += bytes;
        }
        return chunk;
      }
      options_.budget->Reclaim();
      std::this_thread::yield();
    }
    Punch(chunk, bytes);  // part of it may exist
    ReturnNumber(chunk);
  }
  options_.budget->Uncharge(options_.account, ChargedBytes(bytes), claim);
  return kNoChunk;
}

void MemoryFile::Free(ChunkNumber chunk, size_t bytes) {
  if (options_.spares == Spares::kNone) {
    GiveBack(chunk, bytes);
    return;
  }
  bool too_many = false;
  {
    MutexLock lock(mutex_);
    live_bytes_ -= bytes;
    AddSpareLocked(chunk, bytes / kPageBytes);
    too_many = HasTooManySparesLocked();
  }
  while (too_many && DropSpares()) {
    MutexLock lock(mutex_);
    too_many = HasTooManySparesLocked();
  }
}

}  // namespace tmem
