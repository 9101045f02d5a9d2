// SPDX-License-Identifier: GPL-2.0-only
// Records of one type and size, allocated from chunks of a memory file.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host-store/store/memory_file.h"
#include "host-store/store/records.h"

namespace tmem {

// Chunks that no longer hold anything, collected under a lock, to be freed after it. Linked through
// their headers, so collecting needs no room.
class ChunkList {
 public:
  void Push(MemoryFile& file, ChunkNumber chunk);
  // Holds no lock. Gives all chunks, of `bytes` each, back to the kernel.
  void FreeAll(MemoryFile& file, size_t bytes);
  bool empty() const { return head_ == kNoChunk; }

 private:
  ChunkNumber head_ = kNoChunk;
};

// Model: each chunk is a header and an array of records; chunks with free records form a list, the
// one used last in front. A chunk whose last record goes is given up, but one is kept so that a
// put and a flush in turn do not call the kernel each time.
// Thread rule: guarded by the lock of its owner. Cost: constant.
class RecordArena {
 public:
  RecordArena(MemoryFile& file, RecordType type, size_t record_bytes);

  // The records of a chunk of a given size.
  static constexpr size_t RecordsPerChunk(size_t record_bytes) {
    return (kRecordChunkBytes - sizeof(ChunkHeader)) / record_bytes;
  }

  // A zeroed record, or 0 when there is none: then the owner lets go of its lock, allocates a
  // chunk, and adds it.
  RecordNumber Allocate();
  void Free(RecordNumber record, ChunkList& emptied);
  // Only while there is no free record, so that at most one chunk is empty.
  void AddChunk(ChunkNumber chunk);
  // Gives up the chunk that is empty, if there is one.
  void Trim(ChunkList& emptied);

  uint64_t free_records() const { return free_records_; }
  uint64_t live_records() const { return live_records_; }
  uint64_t chunks() const { return chunks_; }
  MemoryFile& file() const { return file_; }

 private:
  ChunkHeader& Header(ChunkNumber chunk) const {
    return *reinterpret_cast<ChunkHeader*>(file_.Chunk(chunk));
  }
  uint32_t& FreeLink(RecordNumber record) const;
  void Link(ChunkNumber chunk);
  void Unlink(ChunkNumber chunk);
  void GiveUp(ChunkNumber chunk, ChunkList& emptied);

  MemoryFile& file_;
  const RecordType type_;
  const size_t record_bytes_;
  ChunkNumber partial_ = kNoChunk;
  ChunkNumber spare_ = kNoChunk;  // the empty one
  uint64_t free_records_ = 0;
  uint64_t live_records_ = 0;
  uint64_t chunks_ = 0;
};

// The record of a number, in a file whose stride is kRecordChunkBytes.
template <typename Record>
Record& RecordAt(const MemoryFile& file, RecordNumber number) {
  return *reinterpret_cast<Record*>(file.At(uint64_t{number} * kRecordGranuleBytes));
}

}  // namespace tmem
