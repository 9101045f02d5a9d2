// SPDX-License-Identifier: GPL-2.0-only
// Pages as they came, until somebody has time to code them.
#include "host-store/store/landing_buffer.h"

#include <algorithm>
#include <cstring>

namespace tmem {

Result<std::unique_ptr<LandingBuffer>> LandingBuffer::Create(const Options& options) {
  const size_t bytes = size_t{options.slots} * kPageBytes;
  auto file = MemoryFile::Create({.name = "tmem-landing",
                                  .stride_bytes = bytes,
                                  .max_chunks = 2,
                                  .account = Account::kLanding,
                                  .chunk_claim = Claim::kFixed,
                                  .budget = options.budget,
                                  .faults = options.faults});
  if (!file) return file.error();
  const FileHead head{.magic = kFileMagic,
                      .kind = static_cast<uint32_t>(FileKind::kLanding),
                      .version = 1,
                      .hash_key = {}};
  std::memcpy((*file)->At(0), &head, sizeof(head));
  const uint64_t list_bytes =
      uint64_t{options.slots} * (kSlotBytes - kPageBytes) + options.max_guests * sizeof(Queue);
  if (!options.budget->Charge(Account::kLanding, list_bytes, Claim::kFixed)) {
    return Error{ErrorCode::kExhausted, "landing buffer: over the limit"};
  }
  const ChunkNumber chunk = (*file)->Allocate(bytes, Claim::kFixed);
  if (chunk == kNoChunk) return Error{ErrorCode::kExhausted, "landing buffer: no memory"};
  return std::unique_ptr<LandingBuffer>(new LandingBuffer(options, std::move(file).value(), chunk));
}

LandingBuffer::LandingBuffer(const Options& options, std::unique_ptr<MemoryFile> file,
                             ChunkNumber chunk)
    : budget_(*options.budget),
      file_(std::move(file)),
      begin_(file_->Chunk(chunk)),
      slots_(options.slots),
      queues_(options.max_guests) {
  static_assert(sizeof(Slot) <= kSlotBytes - kPageBytes);
  MutexLock lock(mutex_);
  for (uint32_t slot = options.slots; slot > 0; --slot) {
    slots_[slot - 1].next = free_head_;
    free_head_ = slot;
  }
  free_count_ = options.slots;
}

std::optional<uint32_t> LandingBuffer::Acquire() {
  MutexLock lock(mutex_);
  if (free_head_ == 0) return std::nullopt;
  const uint32_t slot = free_head_ - 1;
  free_head_ = slots_[slot].next;
  free_count_.fetch_sub(1);
  slots_[slot].holders.store(1);
  return slot;
}

void LandingBuffer::Release(uint32_t number) {
  Slot& slot = slots_[number];
  if (slot.holders.fetch_sub(1) != 1) return;
  if (slot.promise) {
    slot.promise = false;
    budget_.ReleasePromises(1);
  }
  MutexLock lock(mutex_);
  slot.next = free_head_;
  free_head_ = number + 1;
  free_count_.fetch_add(1);
}

void LandingBuffer::Enqueue(uint32_t number, const LandedOwner& owner) {
  Slot& slot = slots_[number];
  slot.owner = owner;
  slot.next = 0;
  Queue& queue = queues_[owner.path.guest];
  MutexLock lock(mutex_);
  if (queue.tail != 0) {
    slots_[queue.tail - 1].next = number + 1;
  } else {
    queue.head = number + 1;
  }
  queue.tail = number + 1;
  queue.count.fetch_add(1);
  queued_count_.fetch_add(1);
}

std::optional<uint32_t> LandingBuffer::DequeueLocked(Queue& queue) {
  if (queue.head == 0) return std::nullopt;
  const uint32_t slot = queue.head - 1;
  queue.head = slots_[slot].next;
  if (queue.head == 0) queue.tail = 0;
  queue.count.fetch_sub(1);
  queued_count_.fetch_sub(1);
  return slot;
}

std::optional<uint32_t> LandingBuffer::Dequeue(uint32_t guest) {
  if (queued_of(guest) == 0) return std::nullopt;
  MutexLock lock(mutex_);
  return DequeueLocked(queues_[guest]);
}

std::optional<uint32_t> LandingBuffer::DequeueAny() {
  if (queued() == 0) return std::nullopt;
  MutexLock lock(mutex_);
  for (size_t i = 0; i < queues_.size(); ++i) {
    any_cursor_ = (any_cursor_ + 1) % static_cast<uint32_t>(queues_.size());
    if (const auto slot = DequeueLocked(queues_[any_cursor_])) return slot;
  }
  return std::nullopt;
}

uint32_t LandingBuffer::queued_slots() const {
  MutexLock lock(mutex_);
  uint32_t queued = 0;
  for (const Queue& queue : queues_) {
    for (uint32_t slot = queue.head; slot != 0; slot = slots_[slot - 1].next) ++queued;
  }
  return queued;
}

uint32_t LandingBuffer::promises_carried() const {
  return static_cast<uint32_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.promise; }));
}

}  // namespace tmem
