// SPDX-License-Identifier: GPL-2.0-only
// Which slots of which slabs are free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "host-store/store/record_arena.h"
#include "host-store/store/size_class.h"

namespace tmem {

struct SlabSlot {
  RecordNumber slab;
  uint16_t slot;
};

// A slab without live slots, to be freed without a lock.
struct EmptySlab {
  ChunkNumber chunk = kNoChunk;
  uint32_t bytes = 0;
};

// Model: a slab serves one size class. Slabs with free slots are listed by how full they are, and
// the fullest serve first, so that the emptiest become empty and go back to the kernel. A slab that
// was added but is not used yet, because a slot became free elsewhere, waits in a list of its own.
// Free slots are linked through their own first bytes; a slab's record is in the set's metadata
// file. Thread rule: guarded by the lock of its owner. Cost: constant.
class SlabHeap {
 public:
  SlabHeap(MemoryFile& records, MemoryFile& slabs);

  bool HasFreeSlot(size_t size_class) const { return free_slots_[size_class] != 0; }
  // Nothing when no slab of this class has a free slot.
  std::optional<SlabSlot> Allocate(size_t size_class);
  [[nodiscard]] EmptySlab Free(SlabSlot slot, ChunkList& emptied_records);
  // Removes a slab that is not used yet, if there is one.
  [[nodiscard]] EmptySlab TakeUnused(ChunkList& emptied_records);

  RecordArena& records() { return records_; }
  const RecordArena& records() const { return records_; }
  // Adds a fresh chunk of the slab file; false if there is no record for it.
  bool AddSlab(size_t size_class, ChunkNumber chunk);

  // Needs no lock while the slot is allocated.
  static std::byte* SlotBegin(const MemoryFile& records, const MemoryFile& slabs, SlabSlot slot) {
    const auto& slab = RecordAt<SlabRecord>(records, slot.slab);
    return slabs.Chunk(slab.chunk) +
           size_t{slot.slot} * kSizeClassTable[slab.size_class].slot_bytes;
  }
  const SlabRecord& Slab(RecordNumber slab) const {
    return RecordAt<SlabRecord>(records_.file(), slab);
  }

  // Bytes of all slabs, without the kernel's part.
  uint64_t slab_bytes() const { return slab_bytes_; }
  uint64_t charged_bytes() const { return charged_bytes_; }

 private:
  static constexpr size_t kGroups = 4;  // full quarters: 0 = nearly empty .. 3 = nearly full
  static constexpr uint8_t kFullGroup = kGroups;  // in no list

  SlabRecord& Record(RecordNumber slab) { return RecordAt<SlabRecord>(records_.file(), slab); }
  static uint8_t GroupOf(const SlabRecord& slab);
  void Link(RecordNumber slab);
  void Unlink(RecordNumber slab);
  void Regroup(RecordNumber slab);
  EmptySlab Remove(RecordNumber slab, ChunkList& emptied_records);

  RecordArena records_;
  MemoryFile& slabs_;
  std::array<std::array<RecordNumber, kGroups>, kSizeClasses> partial_{};
  std::array<uint64_t, kSizeClasses> free_slots_{};
  uint64_t slab_bytes_ = 0;
  uint64_t charged_bytes_ = 0;
};

}  // namespace tmem
