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
// Pages wait in a queue of their guest's, so that each guest's can be settled in its own time, and
// a guest that lands faster than its pages are settled does not fill the buffer for the others. A
// slot that carries a promise of the budget keeps it until it is free: until then the page may
// still have to be coded.
// Thread rule: any thread; callers hold no lock but for Hold. The lock is held for list operations.
class LandingBuffer {
 public:
  struct Options {
    uint32_t slots;
    uint32_t max_guests;
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

  // The caller's hold goes to the owner's queue, and from there to who takes it, oldest first.
  void Enqueue(uint32_t slot, const LandedOwner& owner);
  std::optional<uint32_t> Dequeue(uint32_t guest);
  // Of any guest.
  std::optional<uint32_t> DequeueAny();
  // Whether a guest's queue takes so much of what is free that the guest should have one settled
  // before it lands another: one guest alone may fill two thirds, and however many do, each that
  // has nothing queued finds room. Cheap.
  bool TakesTooMuch(uint32_t guest) const {
    return queues_[guest].count.load(std::memory_order_relaxed) >
           kShareOfFree * free_count_.load(std::memory_order_relaxed);
  }
  uint32_t queued_of(uint32_t guest) const {
    return queues_[guest].count.load(std::memory_order_relaxed);
  }
  uint32_t queued() const { return queued_count_.load(std::memory_order_relaxed); }
  const LandedOwner& owner(uint32_t slot) const { return slots_[slot].owner; }

  uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
  // For checks, while nobody works on the buffer.
  uint32_t free_slots() const { return free_count_.load(); }
  // Counts along the queues.
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

  struct Queue {
    uint32_t head = 0, tail = 0;  // slot + 1; guarded by mutex_
    std::atomic<uint32_t> count{0};
  };

  static constexpr uint32_t kShareOfFree = 2;

  LandingBuffer(const Options& options, std::unique_ptr<MemoryFile> file, ChunkNumber chunk);
  std::optional<uint32_t> DequeueLocked(Queue& queue) TMEM_REQUIRES(mutex_);

  Budget& budget_;
  const std::unique_ptr<MemoryFile> file_;
  std::byte* const begin_;
  std::vector<Slot> slots_;
  mutable Mutex mutex_;
  uint32_t free_head_ TMEM_GUARDED_BY(mutex_) = 0;
  uint32_t any_cursor_ TMEM_GUARDED_BY(mutex_) = 0;
  // Written under mutex_, read as hints without it.
  std::atomic<uint32_t> free_count_{0};
  std::atomic<uint32_t> queued_count_{0};
  std::vector<Queue> queues_;  // by guest
};

}  // namespace tmem
