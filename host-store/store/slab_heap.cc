// SPDX-License-Identifier: GPL-2.0-only
// Which slots of which slabs are free.
#include "host-store/store/slab_heap.h"

#include <cstring>

namespace tmem {

SlabHeap::SlabHeap(MemoryFile& records, MemoryFile& slabs)
    : records_(records, RecordType::kSlab, sizeof(SlabRecord)), slabs_(slabs) {}

uint8_t SlabHeap::GroupOf(const SlabRecord& slab) {
  const uint32_t slots = kSizeClassTable[slab.size_class].slots;
  if (slab.live == slots) return kFullGroup;
  if (slab.live == 0) return 0;
  return static_cast<uint8_t>(1 + slab.live * (kGroups - 1) / slots);
}

void SlabHeap::Link(RecordNumber number) {
  SlabRecord& slab = Record(number);
  slab.group = GroupOf(slab);
  slab.previous = slab.next = 0;
  if (slab.group == kFullGroup) return;
  RecordNumber& head = partial_[slab.size_class][slab.group];
  slab.next = head;
  if (head != 0) Record(head).previous = number;
  head = number;
}

void SlabHeap::Unlink(RecordNumber number) {
  SlabRecord& slab = Record(number);
  if (slab.group == kFullGroup) return;
  if (slab.next != 0) Record(slab.next).previous = slab.previous;
  if (slab.previous != 0) {
    Record(slab.previous).next = slab.next;
  } else {
    partial_[slab.size_class][slab.group] = slab.next;
  }
}

void SlabHeap::Regroup(RecordNumber number) {
  if (GroupOf(Record(number)) == Record(number).group) return;
  Unlink(number);
  Link(number);
}

bool SlabHeap::AddSlab(size_t size_class, ChunkNumber chunk) {
  const RecordNumber number = records_.Allocate();
  if (number == 0) return false;
  SlabRecord& slab = Record(number);
  slab.chunk = chunk;
  slab.size_class = static_cast<uint16_t>(size_class);
  free_slots_[size_class] += kSizeClassTable[size_class].slots;
  slab_bytes_ += kSizeClassTable[size_class].slab_bytes;
  charged_bytes_ += ChargedBytes(kSizeClassTable[size_class].slab_bytes);
  Link(number);
  return true;
}

std::optional<SlabSlot> SlabHeap::Allocate(size_t size_class) {
  RecordNumber number = 0;
  for (size_t group = kGroups; group > 0 && number == 0; --group) {
    number = partial_[size_class][group - 1];
  }
  if (number == 0) return std::nullopt;
  SlabRecord& slab = Record(number);
  SlabSlot slot{number, 0};
  if (slab.free_head != 0) {
    slot.slot = static_cast<uint16_t>(slab.free_head - 1);
    std::memcpy(&slab.free_head, SlotBegin(records_.file(), slabs_, slot), sizeof(slab.free_head));
  } else {
    slot.slot = slab.touched++;
  }
  ++slab.live;
  --free_slots_[size_class];
  Regroup(number);
  return slot;
}

EmptySlab SlabHeap::Free(SlabSlot slot, ChunkList& emptied_records) {
  SlabRecord& slab = Record(slot.slab);
  --slab.live;
  ++free_slots_[slab.size_class];
  if (slab.live == 0) return Remove(slot.slab, emptied_records);
  std::memcpy(SlotBegin(records_.file(), slabs_, slot), &slab.free_head, sizeof(slab.free_head));
  slab.free_head = static_cast<uint16_t>(slot.slot + 1);
  Regroup(slot.slab);
  return {};
}

EmptySlab SlabHeap::TakeUnused(ChunkList& emptied_records) {
  for (const auto& groups : partial_) {
    if (groups[0] != 0) return Remove(groups[0], emptied_records);
  }
  return {};
}

EmptySlab SlabHeap::Remove(RecordNumber number, ChunkList& emptied_records) {
  Unlink(number);
  const SlabRecord& slab = Slab(number);
  const SizeClass& size = kSizeClassTable[slab.size_class];
  free_slots_[slab.size_class] -= size.slots;
  slab_bytes_ -= size.slab_bytes;
  charged_bytes_ -= ChargedBytes(size.slab_bytes);
  const EmptySlab empty{slab.chunk, size.slab_bytes};
  records_.Free(number, emptied_records);
  return empty;
}

}  // namespace tmem
