// SPDX-License-Identifier: GPL-2.0-only
// One shard of the index: flushes, in bounded pieces.
#include <algorithm>

#include "host-store/store/index_shard.h"

namespace tmem {
namespace {

// Blocks and objects looked at under one hold of the lock, including those that another lane owns.
constexpr size_t kMaxSteps = Store::kFlushPieceSteps;

}  // namespace

// Takes the keys of one block that the scope covers; false when `detached` is full before the end.
bool IndexShard::FlushBlockLocked(const FlushScope& scope, RecordNumber number, Detached& detached,
                                  Garbage& garbage) {
  BlockRecord& block = Block(number);
  const ObjectRecord& object = Object(block.object);
  const uint64_t first_index = block.base << TMEM_LANE_BLOCK_SHIFT;
  if (scope.filter.key_lanes > 1 && tmem_lane_of(object.pool, object.id.data(), first_index,
                                                 scope.filter.key_lanes) != scope.filter.lane) {
    return true;
  }
  uint32_t live = block.live;  // the block's record goes with its last key
  for (uint32_t i = 0; i < TMEM_LANE_BLOCK_PAGES && live != 0; ++i) {
    const RecordNumber key = block.keys[i];
    if (key == 0) continue;
    --live;
    if (first_index + i < scope.first || first_index + i > scope.last) continue;
    if (detached.size() == Store::kFlushPiecePages) return false;
    detached.Add({Key(key).holder, Key(key).value});
    const bool last_of_block = block.live == 1;
    RemoveKeyLocked(key, garbage);
    if (last_of_block) break;
  }
  return true;
}

// Block by block, by hash: for ranges shorter than the object's list.
bool IndexShard::ProbeRangeLocked(FlushScope& scope, RecordNumber object, Detached& detached,
                                  Garbage& garbage) {
  for (;; ++scope.steps) {
    if (scope.steps >= kMaxSteps) return false;
    const uint64_t base = scope.first >> TMEM_LANE_BLOCK_SHIFT;
    const RecordNumber block = FindBlockLocked(object, base);
    if (block != 0) {
      const bool last_of_object = Object(object).blocks == 1;
      if (!FlushBlockLocked(scope, block, detached, garbage)) return false;
      if (last_of_object) return true;
    }
    if (base == scope.last >> TMEM_LANE_BLOCK_SHIFT) return true;
    scope.first = (base + 1) << TMEM_LANE_BLOCK_SHIFT;
  }
}

// Along the object's list. The object may be gone afterwards, if this answers true.
bool IndexShard::WalkObjectLocked(FlushScope& scope, RecordNumber object, Detached& detached,
                                  Garbage& garbage) {
  // Between two pieces the block to go on at may have gone, then the list is begun again. New
  // blocks come in front, so that ends.
  RecordNumber block = scope.at_base ? FindBlockLocked(object, *scope.at_base) : 0;
  if (block == 0) block = Object(object).first_block;
  scope.at_base.reset();
  for (; block != 0; ++scope.steps) {
    const RecordNumber next = Block(block).next;
    const uint64_t base = Block(block).base;
    if (scope.steps >= kMaxSteps || !FlushBlockLocked(scope, block, detached, garbage)) {
      scope.at_base = base;
      return false;
    }
    block = next;
  }
  return true;
}

bool IndexShard::WalkPoolLocked(FlushScope& scope, Detached& detached, Garbage& garbage) {
  RecordNumber object = 0;
  if (scope.at_object) {
    object = FindObjectLocked({scope.guest, scope.pool_id, scope.pool, *scope.at_object, 0});
    if (object == 0) scope.at_base.reset();
  }
  if (object == 0) object = guests_[scope.guest]->first_object[scope.pool_id];
  scope.at_object.reset();
  // The pool may have ended since its handle was looked up, and its place be another pool's.
  if (object != 0 && Object(object).pool != scope.pool) return true;
  for (; object != 0; ++scope.steps) {
    const RecordNumber next = Object(object).next;
    const ObjectId id{Object(object).id};
    if (scope.steps >= kMaxSteps || !WalkObjectLocked(scope, object, detached, garbage)) {
      scope.at_object = id;
      return false;
    }
    object = next;
  }
  return true;
}

bool IndexShard::FlushPiece(FlushScope& scope, Detached& detached) {
  Garbage garbage;
  bool done = true;
  {
    MutexLock lock(mutex_);
    if (guests_[scope.guest] == nullptr) return true;
    if (scope.object == nullptr) {
      done = WalkPoolLocked(scope, detached, garbage);
    } else {
      const KeyPath path{scope.guest, scope.pool_id, scope.pool, *scope.object, scope.first};
      const RecordNumber object = FindObjectLocked(path);
      if (object != 0) {
        const uint64_t blocks_in_range =
            (scope.last >> TMEM_LANE_BLOCK_SHIFT) - (scope.first >> TMEM_LANE_BLOCK_SHIFT) + 1;
        done = blocks_in_range < Object(object).blocks
                   ? ProbeRangeLocked(scope, object, detached, garbage)
                   : WalkObjectLocked(scope, object, detached, garbage);
      }
    }
  }
  FreeGarbage(garbage);
  return done;
}

}  // namespace tmem
