// SPDX-License-Identifier: GPL-2.0-only
// The stored pages of one trust domain and one kind: coded, shared, counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "compress/lz4_codec.h"
#include "compress/page.h"
#include "compress/page_hash.h"
#include "host-store/base/mutex.h"
#include "host-store/base/result.h"
#include "host-store/store/chain_table.h"
#include "host-store/store/slab_heap.h"

namespace tmem {

// Whether pages may be evicted. The two kinds never share memory: when all that is ephemeral has
// been evicted, every byte of it is free for promises, whatever lay where.
enum class Lifetime : uint8_t { kEphemeral, kPersistent };

// What one thread needs while it works on a page. Nothing is allocated after it was made.
struct PageScratch {
  alignas(64) std::array<std::byte, kPageBytes> landing;
  alignas(64) std::array<std::byte, kPageBytes> decoded;
  alignas(64) std::array<std::byte, kPageBytes> coded;
  Lz4Codec lz4;
};

// Model:
//  1. Store: same-filled -> no record at all; else the keyed hash is looked up, a page with that
//     hash is compared in full and shared; else LZ4, or raw if that does not fit.
//  2. A PageRecord counts its sharers (keys, or callers who are about to be) and its pins
//  (readers).
//     The bytes stay where they are while either is not 0.
//  3. Slots come from a SlabHeap; records, slabs' records and the hash table's segments from one
//     metadata file, bytes from another.
// Sharing is inside one domain, so that no guest learns by timing what another domain holds, and
// inside one lifetime, so that no persistent page lies in memory that eviction must be able to
// free.
//
// Thread rule: any thread; callers hold no lock, except for Pin. The lock is held for a few list
// operations; coding, comparing, copying and freeing happen outside it.
class PageSet {
 public:
  struct Options {
    std::string name;  // of the memory files
    Lifetime lifetime;
    std::array<std::byte, 32> hash_key;  // the domain's own
    Budget* budget;
    FaultPlan* faults;  // may be null
  };
  static Result<std::unique_ptr<PageSet>> Create(const Options& options);

  // Memory that promises can begin and not fill in each set; to be added to the budget's slack.
  static constexpr uint64_t kSlackBytes =
      ChargedBytes(kSizeClassTable[kRawClass].slab_bytes) + 2 * ChargedBytes(kRecordChunkBytes);
  // What one page takes at most in here, its part of slabs and chunks included.
  static constexpr uint64_t kWorstPageBytes =
      ChargedBytes(kPageBytes) +
      2 * (ChargedBytes(kRecordChunkBytes) / RecordArena::RecordsPerChunk(sizeof(PageRecord)) + 1);

  // What an empty set takes, under a budget made with that limit.
  static uint64_t FixedBytes(uint64_t max_limit_bytes);

  // Stores `page`, which must not change meanwhile. Answers kFilled, or kStored with one share for
  // the caller, or kNone without memory: for persistent pages only if the kernel itself has none.
  Holder Store(PageView page, PageScratch& scratch);

  // Keeps the page's bytes in place. The caller knows of a share that cannot go meanwhile.
  void Pin(RecordNumber page);
  void Unpin(RecordNumber page);
  // Gives one share back.
  void Drop(RecordNumber page);

  // The page's bytes, verified; in place or in scratch.decoded. Nothing if they are altered.
  // The caller has a share or a pin.
  std::optional<PageView> Fetch(RecordNumber page, PageScratch& scratch) const;
  // Length of the coded bytes. The caller has a share or a pin.
  size_t StoredBytes(RecordNumber page) const;

  struct Figures {
    uint64_t compressed = 0, raw = 0;  // pages stored
    uint64_t shares = 0;               // keys of them
    uint64_t saved_bytes = 0;          // by sharing
    uint64_t slab_bytes = 0;           // charged
    uint64_t record_bytes = 0;         // charged
    bool operator==(const Figures&) const = default;
  };
  Figures figures() const;

  // Gives up slabs kept to be used again; true if there were any.
  bool DropSpares() { return slabs_file_->DropSpares(); }
  // Gives up chunks and slabs kept though empty; true if there were any.
  bool Trim();

  const MemoryFile& records_file() const { return *records_file_; }
  const MemoryFile& slabs_file() const { return *slabs_file_; }
  // Recounts sharers, slots and bytes; pins must be 0. Errors: what does not add up.
  Result<void> Check() const;

 private:
  // How the table walks chains and finds hashes of records.
  struct Traits {
    MemoryFile* file;
    RecordNumber& Next(RecordNumber page) const {
      return RecordAt<PageRecord>(*file, page).hash_next;
    }
    uint64_t Hash(RecordNumber page) const { return RecordAt<PageRecord>(*file, page).hash_low; }
  };
  // What is to be freed once the lock is gone.
  struct Garbage {
    ChunkList records;
    ChunkList segments;
    EmptySlab slab;
  };
  enum class Lack : uint8_t { kNothing, kPageRecord, kSlabRecord, kSlab };

  PageSet(const Options& options, std::unique_ptr<MemoryFile> records,
          std::unique_ptr<MemoryFile> slabs);

  PageRecord& Record(RecordNumber page) const { return RecordAt<PageRecord>(*records_file_, page); }
  std::byte* Bytes(const PageRecord& page) const {
    return SlabHeap::SlotBegin(*records_file_, *slabs_file_, {page.slab, page.slot});
  }
  RecordNumber FindShare(PageView page, const PageHash& hash, PageScratch& scratch);
  DecompressOutcome Decode(const PageRecord& page, PageScratch& scratch, PageView& out) const;
  RecordNumber AllocatePage(size_t size_class);
  Lack TryAllocateLocked(size_t size_class, RecordNumber& page) TMEM_REQUIRES(mutex_);
  bool Grow(Lack lack, size_t size_class);
  void GrowTable();
  bool FreeIfUnusedLocked(RecordNumber page, Garbage& garbage) TMEM_REQUIRES(mutex_);
  void CountLocked(const PageRecord& page, int64_t sign) TMEM_REQUIRES(mutex_);
  void FreeGarbage(Garbage& garbage);
  Claim OptionalClaim() const;
  Claim NeededClaim() const;

  const Lifetime lifetime_;
  const PageHasher hasher_;
  Budget& budget_;
  FaultPlan* const faults_;
  const std::unique_ptr<MemoryFile> records_file_;
  const std::unique_ptr<MemoryFile> slabs_file_;

  mutable Mutex mutex_;
  RecordArena pages_ TMEM_GUARDED_BY(mutex_);
  SlabHeap heap_ TMEM_GUARDED_BY(mutex_);
  ChainTable<Traits> table_ TMEM_GUARDED_BY(mutex_);
  Figures figures_ TMEM_GUARDED_BY(mutex_);
};

}  // namespace tmem
