// SPDX-License-Identifier: GPL-2.0-only
// The inside of the store: how index, page sets, landing buffer and budget work together.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <compare>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host-store/store/budget.h"
#include "host-store/store/guest.h"
#include "host-store/store/index_shard.h"
#include "host-store/store/landing_buffer.h"
#include "host-store/store/page_set.h"
#include "host-store/store/store.h"

namespace tmem {

// Model: two indexes, one a lifetime, each of shards chosen by the lane hash; a page set a lifetime
// in each trust domain; one landing buffer; one budget over all. What a key holds (Holder) is owned
// by whoever took it out of the index, and released outside every lock.
//
// Locks: none is taken while another is held, but for a guest's `control` and `lifecycle_`, under
// which the others may be taken; those two are never needed by puts, gets and flushes.
//
// How a put goes: copy into a landing slot -> Insert makes the key hold it -> the slot is queued.
// How it is settled: taken from the queue -> PageSet::Store codes it -> Swap, if the key still
// holds that very slot. Whatever happens meanwhile (replaced, flushed, evicted, got), the slot's
// bytes stay until the last holder lets go.
class Store::Impl {
 public:
  static Result<std::unique_ptr<Impl>> Create(const StoreOptions& options);
  ~Impl();

  // store_guests.cc
  Result<GuestId> AddGuest(const GuestOptions& options);
  void RemoveGuest(GuestId guest);
  void ResetGuest(GuestId guest);
  PoolOutcome CreatePool(GuestId guest, PoolKind kind);
  FlushProgress BeginDestroyPool(GuestId guest, PoolHandle pool);
  void BeginResetGuest(GuestId guest);
  void RestartCounters(GuestId guest);
  bool Reap(GuestId guest, FlushProgress& progress);
  void SetAdmission(GuestId guest, Admission admission);
  uint64_t TopUpCredits(GuestId guest, uint64_t unused_at_most);
  uint64_t ReturnCredits(GuestId guest, uint64_t credits);
  void EndEpoch();
  uint64_t epoch() const { return epoch_.load(); }
  uint64_t used_bytes() const { return budget_.used_bytes(); }
  Result<void> Reserve(uint64_t bytes);
  void Unreserve(uint64_t bytes);
  void SetLimit(uint64_t limit_bytes) { budget_.SetLimit(limit_bytes); }
  bool Shrink();
  uint64_t limit_bytes() const { return budget_.limit_bytes(); }
  uint64_t MinLimitBytes() const;

  // store_pages.cc
  Outcome Put(GuestId guest, const PageKey& key, PageView page, uint32_t tag);
  Outcome PutFilled(GuestId guest, const PageKey& key, uint64_t fill_word, uint32_t tag);
  GetResult Get(GuestId guest, const PageKey& key, PageBuffer out);
  size_t Settle(size_t max_pages);
  size_t SettleOf(GuestId guest, size_t max_pages);
  uint32_t landed_of(GuestId guest) const { return landing_->queued_of(Entered(guest)); }
  bool MustSettle(GuestId guest) const;
  // Indices first .. last of one object, or of all if that is null.
  FlushProgress BeginFlush(GuestId guest, PoolHandle pool, const ObjectId* object, uint64_t first,
                           uint64_t last, LaneFilter filter);
  size_t ContinueFlush(GuestId guest, FlushProgress& progress);
  FlushOutcome FinishFlush(GuestId guest, FlushProgress progress);

  // store_status.cc
  StoreStatus Status() const;
  GuestStatus StatusOf(GuestId guest) const;
  std::vector<MemoryFileView> MemoryFiles() const;
  Result<void> CheckInvariants() const;

 private:
  struct Index {
    std::unique_ptr<MemoryFile> file;
    std::vector<std::unique_ptr<IndexShard>> shards;
  };
  // A pool handle as found among a guest's own.
  struct Resolved {
    Outcome outcome;
    Pool* pool = nullptr;
    uint32_t pool_id = 0;
    Lifetime lifetime = Lifetime::kEphemeral;
  };

  explicit Impl(const StoreOptions& options);
  Result<void> CreateIndex(Lifetime lifetime);

  GuestEntry& Entry(GuestId guest) const;
  // As an index of arrays by guest.
  uint32_t Entered(GuestId guest) const {
    return std::min(static_cast<uint32_t>(guest), options_.max_guests - 1);
  }
  IndexShard& ShardOf(const KeyPath& path, Lifetime lifetime) const;
  static Resolved Resolve(Guest& guest, PoolHandle handle);
  static KeyPath PathOf(const Guest& guest, const Resolved& pool, const PageKey& key);
  static PageSet& SetOf(const Guest& guest, Lifetime lifetime) {
    return *guest.domain->sets[IndexOf(lifetime)];
  }

  // Pages.
  std::optional<Outcome> RefusePut(Guest& guest, const Resolved& pool, const KeyPath& path);
  Outcome InsertHolder(Guest& guest, const Resolved& pool, const KeyPath& path,
                       const Holder& holder, uint32_t tag);
  Outcome InsertFilled(Guest& guest, const Resolved& pool, const KeyPath& path, uint64_t fill_word,
                       uint32_t tag);
  std::optional<uint32_t> AcquireLandingSlot(uint32_t guest);
  Outcome PutDirect(Guest& guest, const Resolved& pool, const KeyPath& path, PageView page,
                    uint32_t tag);
  void Remove(Guest& guest, Lifetime lifetime, const KeyPath& path);
  Outcome CopyOut(Guest& guest, Lifetime lifetime, const Holder& holder, PageBuffer out);
  bool SettleTaken(std::optional<uint32_t> slot);
  void SettleSlot(Guest& guest, uint32_t slot);
  void Tally(Guest& guest, Lifetime lifetime, const Holder& holder, int64_t sign);
  void Release(Guest& guest, Lifetime lifetime, const Holder& holder);
  void DropHolder(Guest& guest, Lifetime lifetime, const Holder& holder);
  bool ShardConcerned(const LaneFilter& filter, uint32_t shard) const;
  void ContinueFlushOf(Guest& guest, FlushProgress& progress);

  // Room.
  struct Weight {
    int64_t bytes;  // held, for a guest's share of 1
    uint32_t slot;
    bool operator<(const Weight& other) const {
      return bytes != other.bytes ? bytes < other.bytes : slot < other.slot;
    }
  };
  Weight HeaviestBelow(const Weight& than) const;
  bool EvictSome();
  bool EvictOf(Guest& guest);
  bool DropSpares();
  bool TrimSome();

  // Guests.
  Result<Domain*> DomainForLocked(const GuestOptions& options) TMEM_REQUIRES(lifecycle_);
  bool MakeSlack(Domain& domain) TMEM_REQUIRES(lifecycle_);
  void DestroyPools(Guest& guest, const bool (&lifetimes)[kLifetimes]);
  static void KillPoolLocked(Pool& pool);
  void FreeDeadPool(Guest& guest, PoolHandle handle);
  static FlushProgress DeadPoolProgress(const Pool& pool, uint64_t handle);
  std::optional<FlushProgress> FindDeadPool(Guest& guest);
  void SetSwaps(Guest& guest, bool swaps);
  uint64_t CreditsWithinShare(const Guest& guest) const;
  void TakeBackAllCredits(Guest& guest);
  uint64_t FixedBytesOfGuest() const;
  GuestStatus StatusOfGuest(const Guest& guest) const;
  Result<void> CheckGuests() const;
  Result<void> CheckBudget() const;

  const StoreOptions options_;
  mutable Budget budget_;
  uint32_t shard_count_ = 1;
  uint64_t fixed_metadata_bytes_ = 0;  // besides files' heads and guests
  std::array<Index, kLifetimes> indexes_;
  std::unique_ptr<LandingBuffer> landing_;
  const std::unique_ptr<GuestEntry[]> entries_;
  std::atomic<uint32_t> next_generation_;
  std::atomic<uint64_t> epoch_{1};
  std::atomic<uint32_t> evict_cursor_{0};
  std::atomic<uint64_t> swapping_weight_{0};  // of all guests that swap

  // Serialises guests coming and going. Held across system calls, as only those wait for it.
  mutable Mutex lifecycle_;
  std::vector<std::unique_ptr<Domain>> domains_ TMEM_GUARDED_BY(lifecycle_);
  uint64_t domains_made_ TMEM_GUARDED_BY(lifecycle_) = 0;
  bool index_has_slack_ TMEM_GUARDED_BY(lifecycle_) = false;
};

}  // namespace tmem
