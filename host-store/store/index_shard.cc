// SPDX-License-Identifier: GPL-2.0-only
// One shard of the index of one pool kind: finding, adding and removing keys.
#include "host-store/store/index_shard.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tmem {
namespace {

uint64_t HashObject(uint64_t seed, uint64_t pool, const std::array<uint64_t, 3>& id) {
  const std::array<uint64_t, 4> words = {pool, id[0], id[1], id[2]};
  return XXH3_64bits_withSeed(words.data(), sizeof(words), seed);
}

uint64_t HashBlock(uint64_t seed, RecordNumber object, uint64_t base) {
  const std::array<uint64_t, 2> words = {object, base};
  return XXH3_64bits_withSeed(words.data(), sizeof(words), seed);
}

}  // namespace

uint64_t IndexShard::ObjectTraits::Hash(RecordNumber number) const {
  const auto& object = RecordAt<ObjectRecord>(*file, number);
  return HashObject(seed, object.pool, object.id);
}

uint64_t IndexShard::BlockTraits::Hash(RecordNumber number) const {
  const auto& block = RecordAt<BlockRecord>(*file, number);
  return HashBlock(seed, block.object, block.base);
}

IndexShard::IndexShard(const Options& options)
    : options_(options),
      file_(*options.file),
      objects_(file_, RecordType::kObject, sizeof(ObjectRecord)),
      blocks_(file_, RecordType::kBlock, sizeof(BlockRecord)),
      keys_(file_, RecordType::kKey, sizeof(KeyRecord)),
      object_table_(file_, ObjectTraits{&file_, options.seed}, options.max_blocks),
      block_table_(file_, BlockTraits{&file_, options.seed}, options.max_blocks),
      guests_(options.max_guests),
      came_back_(options.came_back_slots) {}

void IndexShard::AddGuest(uint32_t guest, std::atomic<int64_t>& record_bytes) {
  auto part = std::make_unique<GuestPart>(record_bytes);
  MutexLock lock(mutex_);
  guests_[guest] = std::move(part);
}

void IndexShard::RemoveGuest(uint32_t guest) {
  std::unique_ptr<GuestPart> part;
  MutexLock lock(mutex_);
  part = std::move(guests_[guest]);
}

RecordNumber IndexShard::FindObjectLocked(const KeyPath& path) const {
  const uint64_t hash = HashObject(options_.seed, path.pool, path.object.words);
  return object_table_.Find(hash, [&](RecordNumber number) {
    const ObjectRecord& object = Object(number);
    return object.pool == path.pool && object.guest == path.guest && object.id == path.object.words;
  });
}

RecordNumber IndexShard::FindBlockLocked(RecordNumber object, uint64_t base) const {
  return block_table_.Find(HashBlock(options_.seed, object, base), [&](RecordNumber number) {
    return Block(number).object == object && Block(number).base == base;
  });
}

RecordNumber IndexShard::FindKeyLocked(const KeyPath& path) const {
  const RecordNumber object = FindObjectLocked(path);
  if (object == 0) return 0;
  const RecordNumber block = FindBlockLocked(object, path.base());
  return block == 0 ? 0 : Block(block).keys[path.position()];
}

IndexShard::Inserted IndexShard::Insert(const KeyPath& path,
                                        const std::atomic<uint64_t>& live_handle,
                                        const Holder& holder, uint32_t tag) {
  MutexLock lock(mutex_);
  if (live_handle.load() != path.pool) return {.outcome = InsertOutcome::kPoolGone};
  RecordNumber object = FindObjectLocked(path);
  RecordNumber block = object == 0 ? 0 : FindBlockLocked(object, path.base());
  RecordNumber key = block == 0 ? 0 : Block(block).keys[path.position()];

  if (key != 0) {
    KeyRecord& record = Key(key);
    const Holder replaced{record.holder, record.value};
    record.holder = holder.kind;
    record.value = holder.value;
    record.tag = tag;
    if (options_.lifetime == Lifetime::kEphemeral) {
      const uint8_t queue = record.queue;
      UnlinkLocked(key, path.guest);
      PushLocked(key, path.guest, queue);
    }
    return {.outcome = InsertOutcome::kReplaced, .replaced = replaced};
  }

  // All three kinds of record are made sure of before the first is taken: nothing to undo.
  if (keys_.free_records() == 0 || (block == 0 && blocks_.free_records() == 0) ||
      (object == 0 && objects_.free_records() == 0)) {
    return {.outcome = InsertOutcome::kNeedsRecords};
  }
  if (object == 0) object = AddObjectLocked(path);
  if (block == 0) block = AddBlockLocked(object, path.base());
  key = AddKeyLocked(block, path.position());
  KeyRecord& record = Key(key);
  record.holder = holder.kind;
  record.value = holder.value;
  record.tag = tag;
  if (options_.lifetime == Lifetime::kEphemeral) {
    PushLocked(key, path.guest, CameBackLocked(path) ? kMain : kSmall);
  }
  const bool wants_tables = object_table_.WantsSegment() || block_table_.WantsSegment();
  return {.outcome = InsertOutcome::kInserted, .wants_tables = wants_tables};
}

RecordNumber IndexShard::AddObjectLocked(const KeyPath& path) {
  const RecordNumber number = objects_.Allocate();
  ObjectRecord& object = Object(number);
  object.id = path.object.words;
  object.pool = path.pool;
  object.guest = path.guest;
  RecordNumber& first = guests_[path.guest]->first_object[path.pool_id];
  object.next = first;
  if (first != 0) Object(first).previous = number;
  first = number;
  object_table_.Insert(HashObject(options_.seed, path.pool, path.object.words), number);
  AddRecordBytesLocked(path.guest, sizeof(ObjectRecord));
  return number;
}

RecordNumber IndexShard::AddBlockLocked(RecordNumber object_number, uint64_t base) {
  const RecordNumber number = blocks_.Allocate();
  BlockRecord& block = Block(number);
  block.base = base;
  block.object = object_number;
  ObjectRecord& object = Object(object_number);
  block.next = object.first_block;
  if (block.next != 0) Block(block.next).previous = number;
  object.first_block = number;
  ++object.blocks;
  block_table_.Insert(HashBlock(options_.seed, object_number, base), number);
  AddRecordBytesLocked(object.guest, sizeof(BlockRecord));
  return number;
}

RecordNumber IndexShard::AddKeyLocked(RecordNumber block_number, uint32_t position) {
  const RecordNumber number = keys_.Allocate();
  BlockRecord& block = Block(block_number);
  block.keys[position] = number;
  ++block.live;
  KeyRecord& key = Key(number);
  key.block = block_number;
  key.position = static_cast<uint8_t>(position);
  AddRecordBytesLocked(Object(block.object).guest, sizeof(KeyRecord));
  return number;
}

void IndexShard::RemoveKeyLocked(RecordNumber number, Garbage& garbage) {
  KeyRecord& key = Key(number);
  const RecordNumber block_number = key.block;
  BlockRecord& block = Block(block_number);
  const uint32_t guest = Object(block.object).guest;
  if (options_.lifetime == Lifetime::kEphemeral) UnlinkLocked(number, guest);
  block.keys[key.position] = 0;
  keys_.Free(number, garbage.records);
  AddRecordBytesLocked(guest, -int64_t{sizeof(KeyRecord)});
  if (--block.live == 0) RemoveBlockLocked(block_number, garbage);
}

void IndexShard::RemoveBlockLocked(RecordNumber number, Garbage& garbage) {
  BlockRecord& block = Block(number);
  const RecordNumber object_number = block.object;
  ObjectRecord& object = Object(object_number);
  if (block.next != 0) Block(block.next).previous = block.previous;
  if (block.previous != 0) {
    Block(block.previous).next = block.next;
  } else {
    object.first_block = block.next;
  }
  block_table_.Erase(HashBlock(options_.seed, object_number, block.base), number, garbage.segments);
  blocks_.Free(number, garbage.records);
  AddRecordBytesLocked(object.guest, -int64_t{sizeof(BlockRecord)});
  if (--object.blocks == 0) RemoveObjectLocked(object_number, garbage);
}

void IndexShard::RemoveObjectLocked(RecordNumber number, Garbage& garbage) {
  ObjectRecord& object = Object(number);
  if (object.next != 0) Object(object.next).previous = object.previous;
  if (object.previous != 0) {
    Object(object.previous).next = object.next;
  } else {
    const auto pool_id = static_cast<uint32_t>(object.pool);
    guests_[object.guest]->first_object[pool_id] = object.next;
  }
  object_table_.Erase(HashObject(options_.seed, object.pool, object.id), number, garbage.segments);
  AddRecordBytesLocked(object.guest, -int64_t{sizeof(ObjectRecord)});
  objects_.Free(number, garbage.records);
}

IndexShard::Found IndexShard::Take(const KeyPath& path, Reason reason) {
  Garbage garbage;
  Found found;
  {
    MutexLock lock(mutex_);
    const RecordNumber key = FindKeyLocked(path);
    if (key == 0) return {};
    found = {{Key(key).holder, Key(key).value}, Key(key).tag};
    RemoveKeyLocked(key, garbage);
    if (reason == Reason::kGet) RememberGetLocked(path);
  }
  FreeGarbage(garbage);
  return found;
}

IndexShard::Found IndexShard::Pin(const KeyPath& path, PageSet& pages, LandingBuffer& landing) {
  MutexLock lock(mutex_);
  const RecordNumber key = FindKeyLocked(path);
  if (key == 0) return {};
  const Found found{{Key(key).holder, Key(key).value}, Key(key).tag};
  if (found.holder.kind == HolderKind::kStored) {
    pages.Pin(static_cast<RecordNumber>(found.holder.value));
  }
  if (found.holder.kind == HolderKind::kLanded) {
    landing.Hold(static_cast<uint32_t>(found.holder.value));
  }
  return found;
}

bool IndexShard::Swap(const KeyPath& path, const Holder& from, const Holder& to) {
  Garbage garbage;
  {
    MutexLock lock(mutex_);
    const RecordNumber number = FindKeyLocked(path);
    if (number == 0) return false;
    KeyRecord& key = Key(number);
    if (Holder{key.holder, key.value} != from) return false;
    if (to.kind == HolderKind::kNone) {
      RemoveKeyLocked(number, garbage);
    } else {
      key.holder = to.kind;
      key.value = to.value;
    }
  }
  FreeGarbage(garbage);
  return true;
}

bool IndexShard::Grow(Claim claim) {
  for (RecordArena* arena : {&objects_, &blocks_, &keys_}) {
    {
      MutexLock lock(mutex_);
      if (arena->free_records() != 0) continue;
    }
    const ChunkNumber chunk = file_.Allocate(kRecordChunkBytes, claim);
    if (chunk == kNoChunk) return false;
    bool needed = false;
    {
      MutexLock lock(mutex_);
      needed = arena->free_records() == 0;
      if (needed) arena->AddChunk(chunk);
    }
    // Another thread was faster, or freed a record: no chunk may stay without ever being used.
    if (!needed) file_.Free(chunk, kRecordChunkBytes);
  }
  return true;
}

void IndexShard::GrowTables(Claim claim) {
  bool objects = false;
  bool blocks = false;
  {
    MutexLock lock(mutex_);
    objects = object_table_.WantsSegment();
    blocks = block_table_.WantsSegment();
  }
  if (!objects && !blocks) return;
  const ChunkNumber chunk = file_.Allocate(kPageBytes, claim);
  if (chunk == kNoChunk) return;
  {
    MutexLock lock(mutex_);
    if (object_table_.WantsSegment()) {
      object_table_.AddSegment(chunk);
      return;
    }
    if (block_table_.WantsSegment()) {
      block_table_.AddSegment(chunk);
      return;
    }
  }
  file_.Free(chunk, kPageBytes);
}

bool IndexShard::Trim() {
  Garbage garbage;
  {
    MutexLock lock(mutex_);
    objects_.Trim(garbage.records);
    blocks_.Trim(garbage.records);
    keys_.Trim(garbage.records);
  }
  const bool trimmed = !garbage.records.empty();
  FreeGarbage(garbage);
  return trimmed;
}

void IndexShard::FreeGarbage(Garbage& garbage) {
  garbage.records.FreeAll(file_, kRecordChunkBytes);
  garbage.segments.FreeAll(file_, kPageBytes);
}

uint64_t IndexShard::charged_bytes() const {
  MutexLock lock(mutex_);
  return (objects_.chunks() + blocks_.chunks() + keys_.chunks()) * ChargedBytes(kRecordChunkBytes) +
         (object_table_.segments() + block_table_.segments()) * ChargedBytes(kPageBytes);
}

}  // namespace tmem
