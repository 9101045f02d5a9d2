// SPDX-License-Identifier: GPL-2.0-only
// The store's data path: put, get, flush, settle, and making room.
#include <algorithm>
#include <cstring>

#include "compress/same_filled.h"
#include "host-store/store/store_impl.h"

namespace tmem {
namespace {

// Keys evicted at once, from one shard: few, so that shards take turns and order stays near FIFO.
constexpr size_t kEvictBatch = 8;

// Rounds of eviction for one ephemeral key's record, as for its bytes.
constexpr int kMaxReclaims = 64;

// 30 KiB a thread, part of the overhead that the daemon declares.
PageScratch& Scratch() {
  thread_local PageScratch scratch;
  return scratch;
}

uint32_t SlotOf(const Holder& holder) {
  return static_cast<uint32_t>(holder.value);
}
RecordNumber PageOf(const Holder& holder) {
  return static_cast<RecordNumber>(holder.value);
}

Claim NeededClaim(Lifetime lifetime) {
  return lifetime == Lifetime::kPersistent ? Claim::kPromised : Claim::kEphemeral;
}

bool TakeCredit(Guest& guest) {
  uint64_t credits = guest.credits.load();
  while (credits != 0) {
    if (guest.credits.compare_exchange_weak(credits, credits - 1)) return true;
  }
  return false;
}

}  // namespace

GuestEntry& Store::Impl::Entry(GuestId guest) const {
  // An id that was never given is a caller's bug; it finds the last entry, which never has a guest.
  return entries_[std::min(static_cast<uint32_t>(guest), options_.max_guests)];
}

IndexShard& Store::Impl::ShardOf(const KeyPath& path, Lifetime lifetime) const {
  return *indexes_[IndexOf(lifetime)].shards[path.LaneHash() & (shard_count_ - 1)];
}

Store::Impl::Resolved Store::Impl::Resolve(Guest& guest, PoolHandle handle) {
  const auto id = static_cast<uint32_t>(handle);
  const bool has_generation = static_cast<uint64_t>(handle) >> 32 != 0;
  if (id >= guest.pools.size() || !has_generation) return {.outcome = Outcome::kBadPool};
  Pool& pool = guest.pools[id];
  if (pool.handle.load() == static_cast<uint64_t>(handle)) {
    return {Outcome::kOk, &pool, id, pool.lifetime.load()};
  }
  return {.outcome = pool.was_used.load() ? Outcome::kStalePool : Outcome::kBadPool};
}

KeyPath Store::Impl::PathOf(const Guest& guest, const Resolved& pool, const PageKey& key) {
  return {guest.slot, pool.pool_id, static_cast<uint64_t>(key.pool), key.object, key.index};
}

// ---- put --------------------------------------------------------------------------------------

// Why this put cannot be taken; then the key is gone (P1, P2). Takes the credit otherwise.
std::optional<Outcome> Store::Impl::RefusePut(Guest& guest, const Resolved& pool,
                                              const KeyPath& path) {
  if (guest.frozen.load()) {
    Remove(guest, pool.lifetime, path);
    guest.counters.puts_frozen.fetch_add(1);
    return Outcome::kFrozen;
  }
  if (pool.lifetime == Lifetime::kPersistent && !TakeCredit(guest)) {
    Remove(guest, pool.lifetime, path);
    guest.counters.puts_no_credit.fetch_add(1);
    return Outcome::kNoCredit;
  }
  return std::nullopt;
}

Outcome Store::Impl::Put(GuestId id, const PageKey& key, PageView page, uint32_t tag) {
  GuestUse guest(Entry(id));
  if (!guest) return Outcome::kBadPool;
  const Resolved pool = Resolve(*guest, key.pool);
  if (pool.outcome != Outcome::kOk) {
    guest->counters.puts_bad_pool.fetch_add(1);
    return pool.outcome;
  }
  const KeyPath path = PathOf(*guest, pool, key);
  if (const auto refused = RefusePut(*guest, pool, path)) return *refused;

  // Looked at where it lies: whatever the guest changes meanwhile, all that is taken is one word
  // that it had there. Costs 4 ns where the page differs at once.
  if (const auto word = SameFilledWord(page)) {
    return InsertFilled(*guest, pool, path, *word, tag);
  }
  const std::optional<uint32_t> slot = AcquireLandingSlot(guest->slot);
  if (!slot) return PutDirect(*guest, pool, path, page, tag);
  // The one read of memory that the guest may be changing: from here on the copy is the page.
  std::memcpy(landing_->Page(*slot).data(), page.data(), kPageBytes);
  if (pool.lifetime == Lifetime::kPersistent) landing_->CarryPromise(*slot);
  landing_->Hold(*slot);  // for the key; the first hold is the queue's
  const Outcome outcome = InsertHolder(*guest, pool, path, {HolderKind::kLanded, *slot}, tag);
  if (outcome == Outcome::kOk) {
    landing_->Enqueue(*slot, {path, pool.lifetime});
  } else {
    landing_->Release(*slot);
  }
  return outcome;
}

// When the buffer is full, a page is settled to make room, the guest's own if there is one: whoever
// puts faster than workers settle pays for it.
std::optional<uint32_t> Store::Impl::AcquireLandingSlot(uint32_t guest) {
  std::optional<uint32_t> slot = landing_->Acquire();
  if (!slot && (SettleTaken(landing_->Dequeue(guest)) || SettleTaken(landing_->DequeueAny()))) {
    slot = landing_->Acquire();
  }
  return slot;
}

Outcome Store::Impl::PutDirect(Guest& guest, const Resolved& pool, const KeyPath& path,
                               PageView page, uint32_t tag) {
  PageScratch& scratch = Scratch();
  std::memcpy(scratch.landing.data(), page.data(), kPageBytes);
  const Holder holder = SetOf(guest, pool.lifetime).Store(PageView(scratch.landing), scratch);
  Outcome outcome = Outcome::kNoSpace;
  if (holder.kind == HolderKind::kNone) {
    Remove(guest, pool.lifetime, path);
    guest.counters.puts_no_space.fetch_add(1);
  } else {
    outcome = InsertHolder(guest, pool, path, holder, tag);
  }
  if (pool.lifetime == Lifetime::kPersistent) budget_.ReleasePromises(1);
  return outcome;
}

Outcome Store::Impl::PutFilled(GuestId id, const PageKey& key, uint64_t fill_word, uint32_t tag) {
  GuestUse guest(Entry(id));
  if (!guest) return Outcome::kBadPool;
  const Resolved pool = Resolve(*guest, key.pool);
  if (pool.outcome != Outcome::kOk) {
    guest->counters.puts_bad_pool.fetch_add(1);
    return pool.outcome;
  }
  const KeyPath path = PathOf(*guest, pool, key);
  if (const auto refused = RefusePut(*guest, pool, path)) return *refused;
  return InsertFilled(*guest, pool, path, fill_word, tag);
}

// Needs no memory but the key's record.
Outcome Store::Impl::InsertFilled(Guest& guest, const Resolved& pool, const KeyPath& path,
                                  uint64_t fill_word, uint32_t tag) {
  const Outcome outcome = InsertHolder(guest, pool, path, {HolderKind::kFilled, fill_word}, tag);
  if (pool.lifetime == Lifetime::kPersistent) budget_.ReleasePromises(1);
  return outcome;
}

// Makes the key hold `holder`, or releases that and leaves no older data. Counts the put.
Outcome Store::Impl::InsertHolder(Guest& guest, const Resolved& pool, const KeyPath& path,
                                  const Holder& holder, uint32_t tag) {
  using InsertOutcome = IndexShard::InsertOutcome;
  IndexShard& shard = ShardOf(path, pool.lifetime);
  const Claim claim = NeededClaim(pool.lifetime);
  Tally(guest, pool.lifetime, holder, +1);
  for (int reclaims = 0;;) {
    const IndexShard::Inserted inserted = shard.Insert(path, pool.pool->handle, holder, tag);
    if (inserted.outcome == InsertOutcome::kNeedsRecords) {
      if (shard.Grow(claim)) continue;
      if (claim == Claim::kEphemeral && ++reclaims <= kMaxReclaims && EvictSome()) continue;
      Release(guest, pool.lifetime, holder);
      Remove(guest, pool.lifetime, path);
      guest.counters.puts_no_space.fetch_add(1);
      return Outcome::kNoSpace;
    }
    if (inserted.outcome == InsertOutcome::kPoolGone) {
      Release(guest, pool.lifetime, holder);
      guest.counters.puts_bad_pool.fetch_add(1);
      return Outcome::kStalePool;
    }
    if (inserted.outcome == InsertOutcome::kReplaced) {
      Release(guest, pool.lifetime, inserted.replaced);
      guest.counters.pages_replaced.fetch_add(1);
    }
    if (inserted.wants_tables) {
      shard.GrowTables(claim == Claim::kEphemeral ? Claim::kEphemeral : Claim::kOptional);
    }
    guest.counters.puts_ok.fetch_add(1);
    return Outcome::kOk;
  }
}

void Store::Impl::Remove(Guest& guest, Lifetime lifetime, const KeyPath& path) {
  const auto found = ShardOf(path, lifetime).Take(path, IndexShard::Reason::kFlush);
  if (found.holder.kind != HolderKind::kNone) Release(guest, lifetime, found.holder);
}

// ---- get --------------------------------------------------------------------------------------

GetResult Store::Impl::Get(GuestId id, const PageKey& key, PageBuffer out) {
  GetResult result{.outcome = Outcome::kBadPool, .filled = false, .fill_word = 0, .tag = 0};
  GuestUse guest(Entry(id));
  if (!guest) return result;
  const Resolved pool = Resolve(*guest, key.pool);
  result.outcome = pool.outcome;
  if (pool.outcome != Outcome::kOk) {
    guest->counters.gets_bad_pool.fetch_add(1);
    return result;
  }
  const KeyPath path = PathOf(*guest, pool, key);
  IndexShard& shard = ShardOf(path, pool.lifetime);
  const bool exclusive = pool.lifetime == Lifetime::kEphemeral;
  const IndexShard::Found found = exclusive
                                      ? shard.Take(path, IndexShard::Reason::kGet)
                                      : shard.Pin(path, SetOf(*guest, pool.lifetime), *landing_);
  if (found.holder.kind == HolderKind::kNone) {
    guest->counters.gets_miss.fetch_add(1);
    result.outcome = Outcome::kMiss;
    return result;
  }

  result.tag = found.tag;
  if (found.holder.kind == HolderKind::kFilled) {
    result.filled = true;
    result.fill_word = found.holder.value;
    result.outcome = Outcome::kOk;
  } else {
    result.outcome = CopyOut(*guest, pool.lifetime, found.holder, out);
  }
  if (exclusive) {
    Release(*guest, pool.lifetime, found.holder);
  } else if (found.holder.kind == HolderKind::kStored) {
    SetOf(*guest, pool.lifetime).Unpin(PageOf(found.holder));
  } else {
    DropHolder(*guest, pool.lifetime, found.holder);
  }
  (result.outcome == Outcome::kOk ? guest->counters.gets_hit : guest->counters.gets_corrupt)
      .fetch_add(1);
  return result;
}

// Verifies, then copies (G3): `out` is the guest's to read while it is written.
Outcome Store::Impl::CopyOut(Guest& guest, Lifetime lifetime, const Holder& holder,
                             PageBuffer out) {
  if (holder.kind == HolderKind::kLanded) {
    std::memcpy(out.data(), landing_->Page(SlotOf(holder)).data(), kPageBytes);
    return Outcome::kOk;
  }
  const auto page = SetOf(guest, lifetime).Fetch(PageOf(holder), Scratch());
  if (!page) return lifetime == Lifetime::kEphemeral ? Outcome::kMiss : Outcome::kCorrupt;
  std::memcpy(out.data(), page->data(), kPageBytes);
  return Outcome::kOk;
}

// ---- flush ------------------------------------------------------------------------------------

FlushProgress Store::Impl::BeginFlush(GuestId id, PoolHandle handle, const ObjectId* object,
                                      uint64_t first, uint64_t last, LaneFilter filter) {
  FlushProgress progress;
  GuestUse guest(Entry(id));
  if (!guest) {
    progress.outcome = Outcome::kBadPool;
    return progress;
  }
  const Resolved pool = Resolve(*guest, handle);
  progress.outcome = pool.outcome;
  if (pool.outcome != Outcome::kOk) return progress;
  guest->counters.flushes.fetch_add(1);
  progress.pool = handle;
  progress.kind = KindOf(pool.lifetime);
  if (object != nullptr) progress.object = *object;
  progress.first = progress.next = first;
  progress.last = last;
  progress.filter = filter;
  if (object != nullptr && first >> TMEM_LANE_BLOCK_SHIFT == last >> TMEM_LANE_BLOCK_SHIFT) {
    // All in one block, so in one shard.
    const KeyPath path{guest->slot, pool.pool_id, static_cast<uint64_t>(handle), *object, first};
    if ((path.LaneHash() & (filter.key_lanes - 1)) != filter.lane) return progress;
    progress.shard = static_cast<uint32_t>(path.LaneHash() & (shard_count_ - 1));
    progress.filter = {progress.shard, shard_count_};
  }
  progress.done = false;
  return progress;
}

// Shard and lane are low bits of the same hash.
bool Store::Impl::ShardConcerned(const LaneFilter& filter, uint32_t shard) const {
  const uint32_t common_bits = std::min(shard_count_, filter.key_lanes) - 1;
  return (shard & common_bits) == (filter.lane & common_bits);
}

// Of one shard.
void Store::Impl::ContinueFlushOf(Guest& guest, FlushProgress& progress) {
  const auto skip_shards = [&] {
    while (progress.shard < shard_count_ && !ShardConcerned(progress.filter, progress.shard)) {
      ++progress.shard;
    }
  };
  const Lifetime lifetime = LifetimeOf(progress.kind);
  Detached detached;
  skip_shards();
  if (progress.shard < shard_count_) {
    FlushScope part{.guest = guest.slot,
                    .pool_id = static_cast<uint32_t>(progress.pool),
                    .pool = static_cast<uint64_t>(progress.pool),
                    .object = progress.object ? &*progress.object : nullptr,
                    .first = progress.next,
                    .last = progress.last,
                    .filter = progress.filter,
                    .at_object = progress.at_object,
                    .at_base = progress.at_base};
    if (progress.filter.key_lanes <= shard_count_) part.filter = {0, 1};
    const bool shard_done =
        indexes_[IndexOf(lifetime)].shards[progress.shard]->FlushPiece(part, detached);
    progress.next = shard_done ? progress.first : part.first;
    progress.at_object = shard_done ? std::nullopt : part.at_object;
    progress.at_base = shard_done ? std::nullopt : part.at_base;
    progress.steps += part.steps;
    if (shard_done) ++progress.shard;
    skip_shards();
  }
  for (const Holder& holder : detached) Release(guest, lifetime, holder);
  progress.pages += detached.size();
  guest.counters.pages_flushed.fetch_add(detached.size());
  progress.done = progress.shard == shard_count_;
  if (progress.done && progress.ends_pool) FreeDeadPool(guest, progress.pool);
}

size_t Store::Impl::ContinueFlush(GuestId id, FlushProgress& progress) {
  GuestUse guest(Entry(id));
  if (!guest) progress.done = true;
  if (progress.done) return 0;
  const uint64_t pages = progress.pages;
  ContinueFlushOf(*guest, progress);
  return progress.pages - pages;
}

Store::FlushOutcome Store::Impl::FinishFlush(GuestId guest, FlushProgress progress) {
  while (!progress.done) ContinueFlush(guest, progress);
  return {progress.outcome, progress.pages};
}

// ---- settle -----------------------------------------------------------------------------------

size_t Store::Impl::Settle(size_t max_pages) {
  size_t pages = 0;
  while (pages < max_pages && SettleTaken(landing_->DequeueAny())) ++pages;
  return pages;
}

size_t Store::Impl::SettleOf(GuestId guest, size_t max_pages) {
  size_t pages = 0;
  while (pages < max_pages && SettleTaken(landing_->Dequeue(Entered(guest)))) ++pages;
  return pages;
}

bool Store::Impl::MustSettle(GuestId guest) const {
  const uint32_t slot = Entered(guest);
  return landing_->queued_of(slot) != 0 && landing_->TakesTooMuch(slot);
}

// False when nothing was queued.
bool Store::Impl::SettleTaken(std::optional<uint32_t> slot) {
  if (!slot) return false;
  {
    // The guest may have gone and its number may be another's: but then this slot is held by no
    // key, and no key of a guest that is in use can be lost without being seen here.
    GuestUse guest(Entry(GuestId{landing_->owner(*slot).path.guest}));
    if (guest && !landing_->HeldOnce(*slot)) SettleSlot(*guest, *slot);
  }
  landing_->Release(*slot);
  return true;
}

void Store::Impl::SettleSlot(Guest& guest, uint32_t slot) {
  const LandedOwner owner = landing_->owner(slot);
  const Holder landed{HolderKind::kLanded, slot};
  const Holder stored = SetOf(guest, owner.lifetime).Store(landing_->Page(slot), Scratch());
  // Counted before others can release it.
  if (stored.kind != HolderKind::kNone) Tally(guest, owner.lifetime, stored, +1);
  if (ShardOf(owner.path, owner.lifetime).Swap(owner.path, landed, stored)) {
    if (stored.kind == HolderKind::kNone) guest.counters.pages_evicted.fetch_add(1);
    Release(guest, owner.lifetime, landed);
  } else if (stored.kind != HolderKind::kNone) {
    Release(guest, owner.lifetime, stored);
  }
}

// ---- holders ----------------------------------------------------------------------------------

void Store::Impl::Tally(Guest& guest, Lifetime lifetime, const Holder& holder, int64_t sign) {
  int64_t bytes = 0;
  if (holder.kind == HolderKind::kLanded) bytes = kPageBytes;
  if (holder.kind == HolderKind::kStored) {
    bytes = static_cast<int64_t>(SetOf(guest, lifetime).StoredBytes(PageOf(holder)));
  }
  guest.pages[IndexOf(lifetime)].fetch_add(sign);
  guest.bytes[IndexOf(lifetime)].fetch_add(sign * bytes);
  guest.held[static_cast<size_t>(holder.kind)].fetch_add(sign);
}

void Store::Impl::Release(Guest& guest, Lifetime lifetime, const Holder& holder) {
  Tally(guest, lifetime, holder, -1);
  DropHolder(guest, lifetime, holder);
}

void Store::Impl::DropHolder(Guest& guest, Lifetime lifetime, const Holder& holder) {
  if (holder.kind == HolderKind::kLanded) landing_->Release(SlotOf(holder));
  if (holder.kind == HolderKind::kStored) SetOf(guest, lifetime).Drop(PageOf(holder));
}

// ---- room -------------------------------------------------------------------------------------

// The guest with the most ephemeral bytes of those lighter than `than`; none: slot UINT32_MAX.
Store::Impl::Weight Store::Impl::HeaviestBelow(const Weight& than) const {
  constexpr auto kEphemeral = IndexOf(Lifetime::kEphemeral);
  Weight heaviest{.bytes = 0, .slot = UINT32_MAX};
  for (uint32_t slot = 0; slot < options_.max_guests; ++slot) {
    if (entries_[slot].guest.load() == nullptr) continue;
    GuestUse guest(entries_[slot]);
    if (!guest) continue;
    // Records too: a guest with keys of no bytes, or in objects of their own, is not free.
    const int64_t bytes = guest->bytes[kEphemeral].load() + guest->record_bytes[kEphemeral].load();
    const Weight weight{.bytes = bytes / guest->weight, .slot = slot};
    if (weight.bytes > 0 && weight < than && (heaviest.slot == UINT32_MAX || heaviest < weight)) {
      heaviest = weight;
    }
  }
  return heaviest;
}

// Evicts a few of the oldest ephemeral pages of the guest that is most over its share: the one that
// holds most for its weight. Lighter guests follow if nothing of its can go: its
// pages may all be on their way in or out. False when there is nothing to evict.
bool Store::Impl::EvictSome() {
  if (DropSpares()) return true;  // nobody's pages need to go yet
  Weight weight{.bytes = INT64_MAX, .slot = UINT32_MAX};
  for (;;) {
    weight = HeaviestBelow(weight);
    if (weight.slot == UINT32_MAX) return TrimSome();
    GuestUse guest(entries_[weight.slot]);
    if (guest && EvictOf(*guest)) return true;
  }
}

bool Store::Impl::EvictOf(Guest& guest) {
  const uint32_t first_shard = evict_cursor_.fetch_add(1);
  for (uint32_t i = 0; i < shard_count_; ++i) {
    Detached detached;
    const uint32_t shard = (first_shard + i) & (shard_count_ - 1);
    indexes_[IndexOf(Lifetime::kEphemeral)].shards[shard]->Evict(guest.slot, kEvictBatch, detached);
    if (detached.size() == 0) continue;
    for (const Holder& holder : detached) Release(guest, Lifetime::kEphemeral, holder);
    guest.counters.pages_evicted.fetch_add(detached.size());
    return true;
  }
  return false;
}

bool Store::Impl::DropSpares() {
  for (uint32_t slot = 0; slot < options_.max_guests; ++slot) {
    if (entries_[slot].guest.load() == nullptr) continue;
    GuestUse guest(entries_[slot]);
    if (guest && SetOf(*guest, Lifetime::kEphemeral).DropSpares()) return true;
  }
  return false;
}

bool Store::Impl::TrimSome() {
  bool trimmed = false;
  for (const auto& shard : indexes_[IndexOf(Lifetime::kEphemeral)].shards) {
    trimmed |= shard->Trim();
  }
  for (uint32_t slot = 0; slot < options_.max_guests; ++slot) {
    GuestUse guest(entries_[slot]);
    if (guest) trimmed |= SetOf(*guest, Lifetime::kEphemeral).Trim();
  }
  return trimmed;
}

}  // namespace tmem
