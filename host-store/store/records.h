// SPDX-License-Identifier: GPL-2.0-only
// What lies in the store's memory files: the records from which alone every page can be found
// again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "abi/tmem_abi.h"
#include "compress/page_codec.h"

namespace tmem {

// Names a record by its offset in its file, in granules; 0 is none, as chunk 0 is a file's head.
using RecordNumber = uint32_t;
inline constexpr size_t kRecordGranuleBytes = 32;
inline constexpr size_t kRecordChunkBytes = 16384;

// A metadata file (of the index of one pool kind, or of the pages of one page set) is a sequence of
// chunks; each begins with a header that says what is in it. Records that are not in use are zero
// but for their last 4 bytes, which link the free ones of a chunk.
enum class RecordType : uint32_t { kObject = 1, kBlock, kKey, kPage, kSlab, kBuckets };

struct ChunkHeader {
  uint32_t type;  // RecordType
  uint32_t live;
  uint32_t free_head;       // RecordNumber
  uint32_t previous, next;  // chunk numbers: list of chunks with free records, or of chunks to free
  uint32_t zero[3];
};
static_assert(sizeof(ChunkHeader) == kRecordGranuleBytes);

// Page 0 of every file.
struct FileHead {
  uint64_t magic;  // kFileMagic
  uint32_t kind;   // FileKind
  uint32_t version;
  std::array<std::byte, 32> hash_key;  // of page sets
};
inline constexpr uint64_t kFileMagic = 0x31666d656d74ULL;  // "tmemf1"
enum class FileKind : uint32_t { kIndex = 1, kPages, kSlabs, kLanding };

// How a key's page is held.
enum class HolderKind : uint8_t {
  kNone = 0,
  kFilled,  // value: the word that fills the page
  kLanded,  // value: slot of the landing buffer
  kStored,  // value: RecordNumber of a PageRecord of the guest's domain
};

struct Holder {
  HolderKind kind = HolderKind::kNone;
  uint64_t value = 0;
  bool operator==(const Holder&) const = default;
};

// One object of one pool, in one shard of the index; in use if pool != 0.
struct ObjectRecord {
  std::array<uint64_t, 3> id;
  uint64_t pool;  // handle
  uint32_t guest;
  RecordNumber hash_next;
  RecordNumber first_block;
  uint32_t blocks;
  RecordNumber previous, next;  // objects of this pool in this shard
  uint32_t zero[2];
};
static_assert(sizeof(ObjectRecord) == 64);

// 32 keys with consecutive indices; in use if object != 0. 32 because that is what shares a lane.
struct BlockRecord {
  uint64_t base;  // index >> TMEM_LANE_BLOCK_SHIFT
  RecordNumber object;
  RecordNumber hash_next;
  RecordNumber previous, next;  // blocks of this object
  uint32_t live;
  uint32_t zero;
  std::array<RecordNumber, TMEM_LANE_BLOCK_PAGES> keys;
};
static_assert(sizeof(BlockRecord) == 160);

// One key; in use if its block names it.
struct KeyRecord {
  uint64_t value;  // of the Holder
  uint32_t tag;
  RecordNumber block;
  RecordNumber previous, next;  // eviction queue, ephemeral keys only
  HolderKind holder;
  uint8_t position;  // in the block
  uint8_t queue;     // which eviction queue
  uint8_t zero0;
  uint32_t zero1;
};
static_assert(sizeof(KeyRecord) == 32);

// One stored page, shared by `sharers` keys; in use if sharers + pins != 0.
struct PageRecord {
  uint64_t hash_low;
  uint32_t hash_high;  // 96 bits of the keyed hash: enough to verify; sharing compares all bytes
  uint32_t sharers;
  uint32_t pins;  // readers that keep the bytes where they are
  RecordNumber hash_next;
  RecordNumber slab;
  uint16_t slot;
  uint16_t length_and_codec;  // length << 3 | codec
};
static_assert(sizeof(PageRecord) == 32);

constexpr uint16_t PackLengthAndCodec(size_t length, Codec codec) {
  return static_cast<uint16_t>(length << 3 | static_cast<size_t>(codec));
}
constexpr size_t LengthOf(const PageRecord& page) {
  return page.length_and_codec >> 3;
}
constexpr Codec CodecOf(const PageRecord& page) {
  return static_cast<Codec>(page.length_and_codec & 7);
}

// One slab; slot i lies at i * class size in chunk `chunk` of the set's slab file.
struct SlabRecord {
  uint32_t chunk;
  uint16_t size_class;
  uint16_t live;
  uint16_t free_head;  // 1 + a free slot, whose first 2 bytes name the next one in the same way
  uint16_t touched;    // slots from here on were never used
  RecordNumber previous, next;
  uint8_t group;  // which list of its class
  uint8_t zero0[3];
  uint32_t zero1[2];
};
static_assert(sizeof(SlabRecord) == 32);

}  // namespace tmem
