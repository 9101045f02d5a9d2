// SPDX-License-Identifier: GPL-2.0-only
// One shard of the index of one pool kind: from keys to how their pages are held, and back.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "host-store/base/mutex.h"
#include "host-store/base/result.h"
#include "host-store/store/chain_table.h"
#include "host-store/store/key_path.h"
#include "host-store/store/landing_buffer.h"
#include "host-store/store/page_set.h"
#include "host-store/store/store.h"

namespace tmem {

// What a flush covers in one shard, and how far it has come between two holds of the lock.
struct FlushScope {
  uint32_t guest;
  uint32_t pool_id;
  uint64_t pool;
  const ObjectId* object;                 // null: every object of the pool
  uint64_t first = 0, last = UINT64_MAX;  // indices, both included
  LaneFilter filter;

  // Where to go on; by value, since any record may have become another's meanwhile.
  std::optional<ObjectId> at_object = {};
  std::optional<uint64_t> at_base = {};
  size_t steps = 0;  // blocks and objects looked at in this piece
};

// Holders that were taken out of the index under its lock, to be released after it.
class Detached {
 public:
  // Bounds the time an eviction holds the lock.
  static constexpr size_t kCapacity = 64;
  bool full() const { return count_ == kCapacity; }
  void Add(const Holder& holder) { holders_[count_++] = holder; }
  const Holder* begin() const { return holders_.data(); }
  const Holder* end() const { return holders_.data() + count_; }
  size_t size() const { return count_; }
  void Clear() { count_ = 0; }

 private:
  std::array<Holder, kCapacity> holders_;
  size_t count_ = 0;
};

// Model:
//  1. Objects by (pool, id) and blocks of 32 keys by (object, index / 32), each in a hash table
//  whose
//     chains run through the records; a key is its place in its block.
//  2. Lists: objects of a pool, blocks of an object. Flushes follow them, so they see only what
//  they
//     remove, or probe block by block where the range is shorter than the list.
//  3. Two eviction queues a guest, after S3-FIFO: pages seen once, and pages that came back after a
//     get, told by a small table of fingerprints. Gets are exclusive, so recency is put order.
// A block lies wholly in one lane and one shard, so a flush through one lane looks at whole shards,
// and where lanes outnumber shards decides once a block.
//
// Thread rule: any thread; each public method takes the lock once, for constant time (flushes: a
// bounded piece of work). Records are zero when unused, and pages' bytes are never touched here.
class IndexShard {
 public:
  struct Options {
    MemoryFile* file;  // of this lifetime's index; shared by its shards
    Lifetime lifetime;
    uint32_t shard;
    uint32_t max_guests;
    uint64_t max_blocks;       // bound of the tables' directories
    uint64_t seed;             // of the tables: no guest can aim at one chain
    uint32_t came_back_slots;  // a power of two, or 0 for none
  };
  explicit IndexShard(const Options& options);

  // Prepares for a guest, which has no keys. About 300 bytes, which the caller charges. What its
  // records take is added to `record_bytes` until RemoveGuest.
  void AddGuest(uint32_t guest, std::atomic<int64_t>& record_bytes);
  void RemoveGuest(uint32_t guest);
  static constexpr uint64_t kBytesPerGuest = TMEM_MAX_POOLS * sizeof(RecordNumber) + 64;

  enum class InsertOutcome : uint8_t { kInserted, kReplaced, kNeedsRecords, kPoolGone };
  struct Inserted {
    InsertOutcome outcome;
    Holder replaced = {};
    bool wants_tables = false;  // GrowTables would make chains shorter
  };
  // Makes the key hold `holder`, if `live_handle` is still the pool's: flushes of a dying pool come
  // after its handle was taken away, so nothing is inserted behind them. kNeedsRecords: nothing was
  // changed; see Grow.
  Inserted Insert(const KeyPath& path, const std::atomic<uint64_t>& live_handle,
                  const Holder& holder, uint32_t tag);
  // Makes what the last Insert lacked; holds no lock while it asks for memory.
  bool Grow(Claim claim);
  // Makes tables' chains short again, if there is memory for it.
  void GrowTables(Claim claim);

  struct Found {
    Holder holder;  // kNone: no such key
    uint32_t tag = 0;
  };
  // Removes the key; its hold on the page is the caller's.
  enum class Reason : uint8_t { kGet, kFlush };
  Found Take(const KeyPath& path, Reason reason);
  // Leaves the key; the page is pinned for the caller.
  Found Pin(const KeyPath& path, PageSet& pages, LandingBuffer& landing);

  // For pages that were coded, or could not be: if the key still holds `from`, makes it hold `to`,
  // or removes it if that is kNone.
  bool Swap(const KeyPath& path, const Holder& from, const Holder& to);

  // Removes what the scope covers, up to what `detached` takes; true once all is done.
  bool FlushPiece(FlushScope& scope, Detached& detached);

  // Removes keys of the guest worth up to `pages` pages with bytes, in the order of eviction.
  void Evict(uint32_t guest, size_t pages, Detached& detached);

  // Gives up chunks kept though empty; true if there were any.
  bool Trim();

  // Calls visit(object, block, key, key record) for each key. For checks; holds the lock.
  template <typename Visit>
  void ForEachKey(Visit visit);
  // Errors: records, lists and counts that do not agree.
  Result<void> Check();
  uint64_t charged_bytes() const;

 private:
  struct Queue {
    RecordNumber head = 0, tail = 0;
    uint64_t count = 0;
  };
  static constexpr uint8_t kSmall = 0, kMain = 1;
  struct GuestPart {
    explicit GuestPart(std::atomic<int64_t>& bytes) : record_bytes(bytes) {}
    std::atomic<int64_t>& record_bytes;
    std::array<Queue, 2> queues;
    std::array<RecordNumber, TMEM_MAX_POOLS> first_object{};
  };
  struct ObjectTraits {
    MemoryFile* file;
    uint64_t seed;
    RecordNumber& Next(RecordNumber number) const {
      return RecordAt<ObjectRecord>(*file, number).hash_next;
    }
    uint64_t Hash(RecordNumber number) const;
  };
  struct BlockTraits {
    MemoryFile* file;
    uint64_t seed;
    RecordNumber& Next(RecordNumber number) const {
      return RecordAt<BlockRecord>(*file, number).hash_next;
    }
    uint64_t Hash(RecordNumber number) const;
  };
  struct Garbage {
    ChunkList records;
    ChunkList segments;
  };

  ObjectRecord& Object(RecordNumber n) const { return RecordAt<ObjectRecord>(file_, n); }
  BlockRecord& Block(RecordNumber n) const { return RecordAt<BlockRecord>(file_, n); }
  KeyRecord& Key(RecordNumber n) const { return RecordAt<KeyRecord>(file_, n); }

  RecordNumber FindObjectLocked(const KeyPath& path) const TMEM_REQUIRES(mutex_);
  RecordNumber FindBlockLocked(RecordNumber object, uint64_t base) const TMEM_REQUIRES(mutex_);
  RecordNumber FindKeyLocked(const KeyPath& path) const TMEM_REQUIRES(mutex_);
  RecordNumber AddObjectLocked(const KeyPath& path) TMEM_REQUIRES(mutex_);
  RecordNumber AddBlockLocked(RecordNumber object, uint64_t base) TMEM_REQUIRES(mutex_);
  RecordNumber AddKeyLocked(RecordNumber block, uint32_t position) TMEM_REQUIRES(mutex_);
  void RemoveKeyLocked(RecordNumber key, Garbage& garbage) TMEM_REQUIRES(mutex_);
  void RemoveBlockLocked(RecordNumber block, Garbage& garbage) TMEM_REQUIRES(mutex_);
  void RemoveObjectLocked(RecordNumber object, Garbage& garbage) TMEM_REQUIRES(mutex_);

  bool ProbeRangeLocked(FlushScope& scope, RecordNumber object, Detached& detached,
                        Garbage& garbage) TMEM_REQUIRES(mutex_);
  bool WalkObjectLocked(FlushScope& scope, RecordNumber object, Detached& detached,
                        Garbage& garbage) TMEM_REQUIRES(mutex_);
  bool WalkPoolLocked(FlushScope& scope, Detached& detached, Garbage& garbage)
      TMEM_REQUIRES(mutex_);
  bool FlushBlockLocked(const FlushScope& scope, RecordNumber block, Detached& detached,
                        Garbage& garbage) TMEM_REQUIRES(mutex_);

  void PushLocked(RecordNumber key, uint32_t guest, uint8_t queue) TMEM_REQUIRES(mutex_);
  void UnlinkLocked(RecordNumber key, uint32_t guest) TMEM_REQUIRES(mutex_);
  bool CameBackLocked(const KeyPath& path) TMEM_REQUIRES(mutex_);
  void RememberGetLocked(const KeyPath& path) TMEM_REQUIRES(mutex_);
  void FreeGarbage(Garbage& garbage);
  void AddRecordBytesLocked(uint32_t guest, int64_t bytes) TMEM_REQUIRES(mutex_) {
    guests_[guest]->record_bytes.fetch_add(bytes, std::memory_order_relaxed);
  }

  const Options options_;
  MemoryFile& file_;
  mutable Mutex mutex_;
  RecordArena objects_ TMEM_GUARDED_BY(mutex_);
  RecordArena blocks_ TMEM_GUARDED_BY(mutex_);
  RecordArena keys_ TMEM_GUARDED_BY(mutex_);
  ChainTable<ObjectTraits> object_table_ TMEM_GUARDED_BY(mutex_);
  ChainTable<BlockTraits> block_table_ TMEM_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<GuestPart>> guests_ TMEM_GUARDED_BY(mutex_);
  std::vector<uint16_t> came_back_ TMEM_GUARDED_BY(mutex_);
};

template <typename Visit>
void IndexShard::ForEachKey(Visit visit) {
  MutexLock lock(mutex_);
  block_table_.ForEach([&](RecordNumber number) {
    const BlockRecord& block = Block(number);
    for (const RecordNumber key : block.keys) {
      if (key != 0) visit(Object(block.object), block, key, Key(key));
    }
  });
}

}  // namespace tmem
