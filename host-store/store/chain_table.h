// SPDX-License-Identifier: GPL-2.0-only
// A hash table of records that grows one bucket at a time, so no operation ever pays for a rehash.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/page.h"
#include "host-store/store/record_arena.h"

namespace tmem {

// Linear hashing. Buckets are heads of chains that run through the records themselves. The first 64
// heads are here, the others in segments of one page of a memory file. Without memory for a segment
// chains only get longer: inserting cannot fail, and there is no transient of old and new table.
//
// Traits gives `RecordNumber& Next(RecordNumber)` and `uint64_t Hash(RecordNumber)`.
// Thread rule: guarded by the lock of its owner. Cost: a chain of about two records; an insert or
// erase moves at most two buckets.
template <typename Traits>
class ChainTable {
 public:
  static constexpr size_t kInlineBuckets = 64;
  static constexpr size_t kSegmentBytes = kPageBytes;
  static constexpr size_t kSegmentBuckets =
      (kSegmentBytes - sizeof(ChunkHeader)) / sizeof(RecordNumber);
  static constexpr size_t kRecordsPerBucket = 2;

  // `max_records` bounds the directory of segments, which is reserved here.
  ChainTable(MemoryFile& file, Traits traits, uint64_t max_records) : file_(file), traits_(traits) {
    segments_.reserve(max_records / kRecordsPerBucket / kSegmentBuckets + 1);
  }

  template <typename Matches>
  RecordNumber Find(uint64_t hash, Matches matches) const {
    RecordNumber record = Bucket(IndexOf(hash));
    while (record != 0 && !matches(record)) record = traits_.Next(record);
    return record;
  }

  void Insert(uint64_t hash, RecordNumber record) {
    Push(Bucket(IndexOf(hash)), record);
    ++records_;
    for (int i = 0; i < 2 && records_ > buckets_ * kRecordsPerBucket && buckets_ < Capacity();
         ++i) {
      Split();
    }
  }

  void Erase(uint64_t hash, RecordNumber record, ChunkList& emptied) {
    RecordNumber* link = &Bucket(IndexOf(hash));
    while (*link != record) link = &traits_.Next(*link);
    *link = traits_.Next(record);
    traits_.Next(record) = 0;
    --records_;
    for (int i = 0; i < 2 && buckets_ > kInlineBuckets && records_ < buckets_ / 2; ++i) Merge();
    // Half a segment of hysteresis, but nothing is kept for an empty table.
    while (!segments_.empty() && (buckets_ == kInlineBuckets ||
                                  buckets_ + kSegmentBuckets / 2 <= Capacity() - kSegmentBuckets)) {
      emptied.Push(file_, segments_.back());
      segments_.pop_back();
    }
  }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t i = 0; i < buckets_; ++i) {
      for (RecordNumber record = Bucket(i); record != 0; record = traits_.Next(record)) {
        visit(record);
      }
    }
  }

  // True when chains are longer than they should be for want of a segment.
  bool WantsSegment() const {
    return records_ > buckets_ * kRecordsPerBucket && buckets_ == Capacity() &&
           segments_.size() < segments_.capacity();
  }
  void AddSegment(ChunkNumber chunk) {
    reinterpret_cast<ChunkHeader*>(file_.Chunk(chunk))->type =
        static_cast<uint32_t>(RecordType::kBuckets);
    segments_.push_back(chunk);
  }

  uint64_t records() const { return records_; }
  size_t segments() const { return segments_.size(); }
  MemoryFile& file() const { return file_; }

 private:
  size_t Capacity() const { return kInlineBuckets + segments_.size() * kSegmentBuckets; }

  // With n buckets, 2^k <= n < 2^(k+1): the low k+1 bits of the hash, or k where that is >= n.
  size_t IndexOf(uint64_t hash) const {
    const size_t low = size_t{1} << (63 - __builtin_clzll(buckets_));
    const size_t index = hash & (2 * low - 1);
    return index < buckets_ ? index : index & (low - 1);
  }
  RecordNumber& Bucket(size_t index) const {
    if (index < kInlineBuckets) return inline_[index];
    const size_t rest = index - kInlineBuckets;
    std::byte* segment = file_.Chunk(segments_[rest / kSegmentBuckets]) + sizeof(ChunkHeader);
    return reinterpret_cast<RecordNumber*>(segment)[rest % kSegmentBuckets];
  }
  void Push(RecordNumber& head, RecordNumber record) const {
    traits_.Next(record) = head;
    head = record;
  }
  size_t ParentOf(size_t index) const {
    return index & ((size_t{1} << (63 - __builtin_clzll(index))) - 1);
  }

  void Split() {
    const size_t added = buckets_;
    RecordNumber chain = Bucket(ParentOf(added));
    Bucket(ParentOf(added)) = 0;
    Bucket(added) = 0;
    ++buckets_;
    while (chain != 0) {
      const RecordNumber record = chain;
      chain = traits_.Next(record);
      Push(Bucket(IndexOf(traits_.Hash(record))), record);
    }
  }
  void Merge() {
    const size_t removed = buckets_ - 1;
    RecordNumber chain = Bucket(removed);
    Bucket(removed) = 0;
    --buckets_;
    while (chain != 0) {
      const RecordNumber record = chain;
      chain = traits_.Next(record);
      Push(Bucket(ParentOf(removed)), record);
    }
  }

  MemoryFile& file_;
  const Traits traits_;
  mutable std::array<RecordNumber, kInlineBuckets> inline_{};
  std::vector<ChunkNumber> segments_;
  size_t buckets_ = kInlineBuckets;
  uint64_t records_ = 0;
};

}  // namespace tmem
