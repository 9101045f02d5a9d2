// SPDX-License-Identifier: GPL-2.0-only
// Records of one type and size, allocated from chunks of a memory file.
#include "host-store/store/record_arena.h"

#include <cstring>

namespace tmem {
namespace {

constexpr uint32_t kGranulesPerChunk = kRecordChunkBytes / kRecordGranuleBytes;

ChunkNumber ChunkOf(RecordNumber record) {
  return record / kGranulesPerChunk;
}

}  // namespace

void ChunkList::Push(MemoryFile& file, ChunkNumber chunk) {
  reinterpret_cast<ChunkHeader*>(file.Chunk(chunk))->next = head_;
  head_ = chunk;
}

void ChunkList::FreeAll(MemoryFile& file, size_t bytes) {
  while (head_ != kNoChunk) {
    const ChunkNumber chunk = head_;
    head_ = reinterpret_cast<ChunkHeader*>(file.Chunk(chunk))->next;
    file.Free(chunk, bytes);
  }
}

RecordArena::RecordArena(MemoryFile& file, RecordType type, size_t record_bytes)
    : file_(file), type_(type), record_bytes_(record_bytes) {}

uint32_t& RecordArena::FreeLink(RecordNumber record) const {
  std::byte* begin = file_.At(uint64_t{record} * kRecordGranuleBytes);
  return *reinterpret_cast<uint32_t*>(begin + record_bytes_ - sizeof(uint32_t));
}

void RecordArena::Link(ChunkNumber chunk) {
  ChunkHeader& header = Header(chunk);
  header.previous = kNoChunk;
  header.next = partial_;
  if (partial_ != kNoChunk) Header(partial_).previous = chunk;
  partial_ = chunk;
}

void RecordArena::Unlink(ChunkNumber chunk) {
  ChunkHeader& header = Header(chunk);
  if (header.next != kNoChunk) Header(header.next).previous = header.previous;
  if (header.previous != kNoChunk) {
    Header(header.previous).next = header.next;
  } else {
    partial_ = header.next;
  }
  header.previous = header.next = kNoChunk;
}

void RecordArena::AddChunk(ChunkNumber chunk) {
  ChunkHeader& header = Header(chunk);
  header = {};
  header.type = static_cast<uint32_t>(type_);
  const auto first = static_cast<RecordNumber>(uint64_t{chunk} * kGranulesPerChunk + 1);
  const auto step = static_cast<uint32_t>(record_bytes_ / kRecordGranuleBytes);
  for (size_t i = RecordsPerChunk(record_bytes_); i > 0; --i) {
    const auto record = static_cast<RecordNumber>(first + (i - 1) * step);
    FreeLink(record) = header.free_head;
    header.free_head = record;
  }
  free_records_ += RecordsPerChunk(record_bytes_);
  ++chunks_;
  Link(chunk);
  spare_ = chunk;
}

RecordNumber RecordArena::Allocate() {
  if (partial_ == kNoChunk) return 0;
  const ChunkNumber chunk = partial_;
  ChunkHeader& header = Header(chunk);
  const RecordNumber record = header.free_head;
  header.free_head = FreeLink(record);
  FreeLink(record) = 0;
  ++header.live;
  if (chunk == spare_) spare_ = kNoChunk;
  if (header.free_head == 0) Unlink(chunk);
  --free_records_;
  ++live_records_;
  return record;
}

void RecordArena::Free(RecordNumber record, ChunkList& emptied) {
  const ChunkNumber chunk = ChunkOf(record);
  ChunkHeader& header = Header(chunk);
  std::memset(file_.At(uint64_t{record} * kRecordGranuleBytes), 0, record_bytes_);
  FreeLink(record) = header.free_head;
  if (header.free_head == 0) Link(chunk);
  header.free_head = record;
  --header.live;
  ++free_records_;
  --live_records_;
  if (header.live != 0) return;
  if (spare_ == kNoChunk) {
    spare_ = chunk;
  } else {
    GiveUp(chunk, emptied);
  }
}

void RecordArena::GiveUp(ChunkNumber chunk, ChunkList& emptied) {
  Unlink(chunk);
  free_records_ -= RecordsPerChunk(record_bytes_);
  --chunks_;
  emptied.Push(file_, chunk);
}

void RecordArena::Trim(ChunkList& emptied) {
  if (spare_ == kNoChunk) return;
  GiveUp(spare_, emptied);
  spare_ = kNoChunk;
}

}  // namespace tmem
