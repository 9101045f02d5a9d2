// SPDX-License-Identifier: GPL-2.0-only
// A memfd cut into chunks that come and go: all page bytes and records live in such files.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compress/page.h"
#include "host-store/base/mutex.h"
#include "host-store/base/result.h"
#include "host-store/store/budget.h"
#include "host-store/store/fault_plan.h"

namespace tmem {

// Number of a chunk in its file. Chunk 0 is the file's own head page and never handed out.
using ChunkNumber = uint32_t;
inline constexpr ChunkNumber kNoChunk = 0;

// What `bytes` of a memfd cost: the pages, and what the kernel keeps for each (8 bytes of page
// table, about 9 of the file's page index, twice that where ranges are sparse).
constexpr uint64_t ChargedBytes(uint64_t bytes) {
  return bytes + bytes / 128;
}

// Chunks start `stride_bytes` apart and may use less: address space is free, memory is not. The
// file is sparse and mapped whole, so addresses are stable. A chunk is charged to the budget before
// its memory exists and uncharged after the memory is gone; it starts as zeroes, resident.
//
// A file that keeps spares holds back a few freed chunks, resident and charged, for whoever asks
// for their size next: making a chunk and giving it up cost about 1 us a page each way. They start
// as they were left, so chunks of such a file need not be zero to begin with. Spares are never more
// than a part of what is in use: an empty file has none.
//
// Thread rule: any thread; no caller may hold a lock in Allocate and Free (system calls).
class MemoryFile {
 public:
  enum class Spares : uint8_t { kNone, kSome };
  struct Options {
    std::string name;  // seen in /proc/PID/fd
    size_t stride_bytes;
    uint32_t max_chunks;
    Account account;
    Claim chunk_claim;  // under which chunks are uncharged: kEphemeral, kPromised or kFixed
    Budget* budget;
    FaultPlan* faults;  // may be null
    Spares spares = Spares::kNone;
  };

  // The head page is charged as fixed, until the file dies; all chunks must be freed before that.
  // Errors: no memory, system.
  static Result<std::unique_ptr<MemoryFile>> Create(const Options& options);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // A chunk of `bytes` (whole pages, at most the stride), or kNoChunk. A promised claim is tried
  // again a few times when the kernel refuses.
  ChunkNumber Allocate(size_t bytes, Claim claim);
  // Nobody may use the chunk any more.
  void Free(ChunkNumber chunk, size_t bytes);
  // Gives a few spares back to the kernel; false if there were none.
  bool DropSpares();
  // Charged for spares.
  uint64_t spare_bytes() const { return spare_bytes_.load(std::memory_order_relaxed); }

  std::byte* At(uint64_t offset) const { return begin_ + offset; }
  std::byte* Chunk(ChunkNumber chunk) const {
    return begin_ + uint64_t{chunk} * options_.stride_bytes;
  }
  size_t stride_bytes() const { return options_.stride_bytes; }
  // What the file costs without any chunk.
  uint64_t fixed_bytes() const { return FixedBytes(options_.max_chunks); }
  static constexpr uint64_t FixedBytes(uint32_t max_chunks) {
    return ChargedBytes(kPageBytes) + max_chunks / 8;
  }
  int fd() const { return fd_; }
  const std::string& name() const { return options_.name; }

 private:
  MemoryFile(const Options& options, int fd, std::byte* begin);
  ChunkNumber TakeNumber();
  void ReturnNumber(ChunkNumber chunk);
  bool Populate(ChunkNumber chunk, size_t bytes);
  void Punch(ChunkNumber chunk, size_t bytes);
  // Spares, by size, are linked through their first bytes.
  ChunkNumber TakeSpareLocked(size_t pages) TMEM_REQUIRES(mutex_);
  void AddSpareLocked(ChunkNumber chunk, size_t pages) TMEM_REQUIRES(mutex_);
  bool HasTooManySparesLocked() const TMEM_REQUIRES(mutex_);
  void GiveBack(ChunkNumber chunk, size_t bytes);

  const Options options_;
  const int fd_;
  std::byte* const begin_;
  bool charged_ = false;  // set once, in Create
  Mutex mutex_;
  std::vector<uint64_t> taken_ TMEM_GUARDED_BY(mutex_);      // a bit a chunk
  size_t first_maybe_free_ TMEM_GUARDED_BY(mutex_) = 0;      // no free bit in words before
  std::vector<ChunkNumber> spares_ TMEM_GUARDED_BY(mutex_);  // first of each size, by pages - 1
  uint64_t live_bytes_ TMEM_GUARDED_BY(mutex_) = 0;  // of chunks handed out, where spares are kept
  std::atomic<uint64_t> spare_bytes_{0};             // written under mutex_
};

}  // namespace tmem
