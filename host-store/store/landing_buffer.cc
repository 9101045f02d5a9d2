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
  const uint64_t list_bytes = uint64_t{options.slots} * (kSlotBytes - kPageBytes);
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
      slots_(options.slots) {
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
  --free_count_;
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
  ++free_count_;
}

void LandingBuffer::Enqueue(uint32_t number, const LandedOwner& owner) {
  Slot& slot = slots_[number];
  slot.owner = owner;
  slot.next = 0;
  MutexLock lock(mutex_);
  if (queue_tail_ != 0) {
    slots_[queue_tail_ - 1].next = number + 1;
  } else {
    queue_head_ = number + 1;
  }
  queue_tail_ = number + 1;
}

std::optional<uint32_t> LandingBuffer::Dequeue() {
  MutexLock lock(mutex_);
  if (queue_head_ == 0) return std::nullopt;
  const uint32_t slot = queue_head_ - 1;
  queue_head_ = slots_[slot].next;
  if (queue_head_ == 0) queue_tail_ = 0;
  return slot;
}

uint32_t LandingBuffer::free_slots() const {
  MutexLock lock(mutex_);
  return free_count_;
}

uint32_t LandingBuffer::queued_slots() const {
  MutexLock lock(mutex_);
  uint32_t queued = 0;
  for (uint32_t slot = queue_head_; slot != 0; slot = slots_[slot - 1].next) ++queued;
  return queued;
}

uint32_t LandingBuffer::promises_carried() const {
  return static_cast<uint32_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.promise; }));
}

}  // namespace tmem
