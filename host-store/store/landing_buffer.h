// SPDX-License-Identifier: GPL-2.0-only
// Pages as they came, until somebody has time to code them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "compress/page.h"
#include "host-store/base/mutex.h"
#include "host-store/base/result.h"
#include "host-store/store/key_path.h"
#include "host-store/store/memory_file.h"
#include "host-store/store/page_set.h"
#include "host-store/store/records.h"

namespace tmem {

// The key a landed page belongs to, so that the page can be swapped for its coded form.
struct LandedOwner {
  KeyPath path;
  Lifetime lifetime = Lifetime::kEphemeral;
};

// Model: a fixed number of page slots, all charged up front, each with a count of who needs it: its
// key, the queue of pages to settle (or whoever took it from there), readers. A slot is written by
// the one who acquired it and never again until it is free, so its bytes are read without a lock.
// A slot that carries a promise of the budget keeps it until it is free: until then the page may
// still have to be coded.
// Thread rule: any thread; callers hold no lock but for Hold. The lock is held for list operations.
class LandingBuffer {
 public:
  struct Options {
    uint32_t slots;
    Budget* budget;
    FaultPlan* faults;  // may be null
  };
  static constexpr uint64_t kSlotBytes = kPageBytes + 96;  // with its part of the lists
  static Result<std::unique_ptr<LandingBuffer>> Create(const Options& options);

  // An unused slot, held once by the caller; nothing when all are in use.
  std::optional<uint32_t> Acquire();
  PageBuffer Page(uint32_t slot) {
    return PageBuffer(begin_ + size_t{slot} * kPageBytes, kPageBytes);
  }
  void CarryPromise(uint32_t slot) { slots_[slot].promise = true; }

  // One more who needs the slot; the caller knows of one who does.
  void Hold(uint32_t slot) { slots_[slot].holders.fetch_add(1); }
  void Release(uint32_t slot);
  bool HeldOnce(uint32_t slot) const { return slots_[slot].holders.load() == 1; }

  // The caller's hold goes to the queue, and from there to who takes it, oldest first.
  void Enqueue(uint32_t slot, const LandedOwner& owner);
  std::optional<uint32_t> Dequeue();
  const LandedOwner& owner(uint32_t slot) const { return slots_[slot].owner; }

  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  // For checks, while nobody works on the buffer.
  uint32_t free_slots() const;
  uint32_t queued_slots() const;
  uint32_t promises_carried() const;
  const MemoryFile& file() const { return *file_; }

 private:
  struct Slot {
    std::atomic<uint32_t> holders{0};
    uint32_t next = 0;  // in the free list or the queue: slot + 1
    LandedOwner owner;
    bool promise = false;
  };

  LandingBuffer(const Options& options, std::unique_ptr<MemoryFile> file, ChunkNumber chunk);

  Budget& budget_;
  const std::unique_ptr<MemoryFile> file_;
  std::byte* const begin_;
  std::vector<Slot> slots_;
  mutable Mutex mutex_;
  uint32_t free_head_ TMEM_GUARDED_BY(mutex_) = 0;
  uint32_t free_count_ TMEM_GUARDED_BY(mutex_) = 0;
  uint32_t queue_head_ TMEM_GUARDED_BY(mutex_) = 0;
  uint32_t queue_tail_ TMEM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tmem
