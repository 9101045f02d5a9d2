// SPDX-License-Identifier: GPL-2.0-only
// One shard of the index: the queues of eviction, and the check of everything.
#include "host-store/store/index_shard.h"

namespace tmem {
namespace {

// The small queue gives way while it holds more than a tenth of a guest's pages, as in S3-FIFO.
constexpr uint64_t kSmallShare = 10;

// At least 32 bytes of records against some KiB; and what is detached at once is bounded.
constexpr size_t kFilledPerPage = 8;

// Where and as what a key is remembered after a get.
struct Fingerprint {
  uint64_t slot;
  uint16_t mark;
};

Fingerprint FingerprintOf(const KeyPath& path, uint64_t slots) {
  const uint64_t hash = tmem_mix(tmem_mix(path.LaneHash(), path.index), path.guest);
  // Mark 0 means empty.
  return {(hash >> 8) & (slots - 1), static_cast<uint16_t>(hash >> 48 | 1)};
}

}  // namespace

void IndexShard::PushLocked(RecordNumber number, uint32_t guest, uint8_t queue_number) {
  Queue& queue = guests_[guest]->queues[queue_number];
  KeyRecord& key = Key(number);
  key.queue = queue_number;
  key.previous = queue.tail;
  key.next = 0;
  if (queue.tail != 0) {
    Key(queue.tail).next = number;
  } else {
    queue.head = number;
  }
  queue.tail = number;
  ++queue.count;
}

void IndexShard::UnlinkLocked(RecordNumber number, uint32_t guest) {
  KeyRecord& key = Key(number);
  Queue& queue = guests_[guest]->queues[key.queue];
  if (key.previous != 0) {
    Key(key.previous).next = key.next;
  } else {
    queue.head = key.next;
  }
  if (key.next != 0) {
    Key(key.next).previous = key.previous;
  } else {
    queue.tail = key.previous;
  }
  --queue.count;
}

bool IndexShard::CameBackLocked(const KeyPath& path) {
  if (came_back_.empty()) return false;
  const Fingerprint fingerprint = FingerprintOf(path, came_back_.size());
  if (came_back_[fingerprint.slot] != fingerprint.mark) return false;
  came_back_[fingerprint.slot] = 0;
  return true;
}

void IndexShard::RememberGetLocked(const KeyPath& path) {
  if (came_back_.empty()) return;
  const Fingerprint fingerprint = FingerprintOf(path, came_back_.size());
  came_back_[fingerprint.slot] = fingerprint.mark;
}

void IndexShard::Evict(uint32_t guest, size_t pages, Detached& detached) {
  Garbage garbage;
  {
    MutexLock lock(mutex_);
    if (guests_[guest] == nullptr) return;
    const Queue& small = guests_[guest]->queues[kSmall];
    const Queue& main = guests_[guest]->queues[kMain];
    // Keys without bytes free records only, so that many of them are worth one page.
    for (size_t weight = 0; weight < pages * kFilledPerPage && !detached.full();) {
      const bool from_small =
          main.count == 0 || small.count * kSmallShare > small.count + main.count;
      const RecordNumber key = from_small ? small.head : main.head;
      if (key == 0) break;
      weight += Key(key).holder == HolderKind::kFilled ? 1 : kFilledPerPage;
      detached.Add({Key(key).holder, Key(key).value});
      RemoveKeyLocked(key, garbage);
    }
  }
  FreeGarbage(garbage);
}

Result<void> IndexShard::Check() {
  MutexLock lock(mutex_);
  const auto broken = [&](const char* what) {
    return Error{ErrorCode::kInternal, file_.name() + ": " + what};
  };
  uint64_t blocks = 0;
  uint64_t keys = 0;
  const char* fault = nullptr;
  std::vector<uint64_t> keys_of_guest(guests_.size());
  block_table_.ForEach([&](RecordNumber number) {
    mutex_.AssertHeld();  // the analysis does not see it in here
    const BlockRecord& block = Block(number);
    const ObjectRecord& object = Object(block.object);
    uint32_t live = 0;
    for (uint32_t i = 0; i < TMEM_LANE_BLOCK_PAGES; ++i) {
      if (block.keys[i] == 0) continue;
      ++live;
      const KeyRecord& key = Key(block.keys[i]);
      if (key.block != number || key.position != i) fault = "a key is not where its block has it";
      if (key.holder == HolderKind::kNone) fault = "a key holds nothing";
    }
    if (live == 0 || live != block.live) fault = "a block's keys do not add up";
    if (object.pool == 0 || object.blocks == 0) fault = "a block without an object";
    if (FindBlockLocked(block.object, block.base) != number) fault = "a block cannot be found";
    ++blocks;
    keys += live;
    keys_of_guest[object.guest] += live;
  });
  uint64_t listed_blocks = 0;
  uint64_t listed_objects = 0;
  for (size_t guest = 0; guest < guests_.size(); ++guest) {
    if (guests_[guest] == nullptr) {
      if (keys_of_guest[guest] != 0) fault = "keys of no guest";
      continue;
    }
    for (const RecordNumber first : guests_[guest]->first_object) {
      for (RecordNumber o = first; o != 0; o = Object(o).next) {
        ++listed_objects;
        for (RecordNumber b = Object(o).first_block; b != 0; b = Block(b).next) ++listed_blocks;
      }
    }
    if (options_.lifetime == Lifetime::kPersistent) continue;
    uint64_t queued = 0;
    for (const Queue& queue : guests_[guest]->queues) {
      uint64_t length = 0;
      for (RecordNumber k = queue.head; k != 0; k = Key(k).next) ++length;
      if (length != queue.count) fault = "a queue's length is wrong";
      queued += length;
    }
    if (queued != keys_of_guest[guest]) fault = "a key is in no queue";
  }
  if (blocks != blocks_.live_records() || blocks != listed_blocks) fault = "blocks do not add up";
  if (keys != keys_.live_records()) fault = "keys do not add up";
  if (listed_objects != objects_.live_records() || listed_objects != object_table_.records()) {
    fault = "objects do not add up";
  }
  if (fault != nullptr) return broken(fault);
  return Ok();
}

}  // namespace tmem
