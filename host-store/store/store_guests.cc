// SPDX-License-Identifier: GPL-2.0-only
// The store's guests, trust domains, pools, credits and reservations.
#include <algorithm>
#include <cstring>
#include <thread>

#include "host-store/store/store_impl.h"

namespace tmem {
namespace {

// Three arenas in each shard may each have begun a chunk.
constexpr uint64_t kIndexSlackBytesPerShard = 3 * ChargedBytes(kRecordChunkBytes);

// How far a lower limit goes at once, and how often pages are evicted for it at once: about 1 ms.
constexpr uint64_t kShrinkStepBytes = 1 << 20;
constexpr int kShrinkEvictions = 64;

}  // namespace

uint64_t Store::Impl::FixedBytesOfGuest() const {
  return sizeof(Guest) + sizeof(Domain) + kLifetimes * shard_count_ * IndexShard::kBytesPerGuest;
}

// ---- guests -----------------------------------------------------------------------------------

Result<Domain*> Store::Impl::DomainForLocked(const GuestOptions& options) {
  // The prefix keeps a guest's own domain apart from a configured one of that name.
  const std::string key =
      options.domain.empty() ? "guest:" + options.name : "domain:" + options.domain;
  for (const auto& domain : domains_) {
    if (domain->key == key) return domain.get();
  }
  auto domain = std::make_unique<Domain>();
  domain->key = key;
  std::array<std::byte, 32> hash_key;
  uint64_t word = tmem_mix(options_.seed, ++domains_made_);
  for (size_t i = 0; i < hash_key.size(); i += sizeof(word)) {
    word = tmem_mix(word ^ options_.seed, i + 1);
    std::memcpy(hash_key.data() + i, &word, sizeof(word));
  }
  for (const Lifetime lifetime : {Lifetime::kEphemeral, Lifetime::kPersistent}) {
    const bool ephemeral = lifetime == Lifetime::kEphemeral;
    auto set =
        PageSet::Create({.name = std::string("tmem-") + (ephemeral ? "ephemeral-" : "persistent-") +
                                 std::to_string(domains_made_),
                         .lifetime = lifetime,
                         .hash_key = hash_key,
                         .budget = &budget_,
                         .faults = options_.faults});
    if (!set) return set.error();
    domain->sets[IndexOf(lifetime)] = std::move(set).value();
  }
  domains_.push_back(std::move(domain));
  return domains_.back().get();
}

Result<GuestId> Store::Impl::AddGuest(const GuestOptions& options) {
  MutexLock lock(lifecycle_);
  uint32_t slot = options_.max_guests;
  for (uint32_t i = 0; i < options_.max_guests; ++i) {
    if (!entries_[i].taken) slot = std::min(slot, i);
    const Guest* other = entries_[i].guest.load();
    if (other != nullptr && other->name == options.name) {
      return Error{ErrorCode::kAlreadyExists, "guest " + options.name};
    }
  }
  if (slot == options_.max_guests) return Error{ErrorCode::kExhausted, "too many guests"};
  const uint64_t fixed_bytes = FixedBytesOfGuest();
  if (!budget_.Charge(Account::kMetadata, fixed_bytes, Claim::kFixed)) {
    return Error{ErrorCode::kExhausted, "guest " + options.name + ": over the limit"};
  }
  auto domain = DomainForLocked(options);
  if (!domain) {
    budget_.Uncharge(Account::kMetadata, fixed_bytes, Claim::kFixed);
    return domain.error();
  }
  ++(*domain)->guests;
  auto guest = std::make_unique<Guest>();
  guest->slot = slot;
  guest->name = options.name;
  guest->domain_label = options.domain.empty() ? options.name : options.domain;
  guest->weight = std::max(options.weight, 1u);
  guest->domain = *domain;
  for (const Lifetime lifetime : {Lifetime::kEphemeral, Lifetime::kPersistent}) {
    for (const auto& shard : indexes_[IndexOf(lifetime)].shards) {
      shard->AddGuest(slot, guest->record_bytes[IndexOf(lifetime)]);
    }
  }
  entries_[slot].taken = true;
  entries_[slot].guest.store(guest.release());
  return GuestId{slot};
}

void Store::Impl::RemoveGuest(GuestId id) {
  GuestEntry& entry = Entry(id);
  std::unique_ptr<Guest> guest(entry.guest.exchange(nullptr));
  if (guest == nullptr) return;
  // Puts under way may still insert; no operation begins any more.
  while (entry.users.load() != 0) std::this_thread::yield();
  DestroyPools(*guest, {true, true});
  SetSwaps(*guest, false);
  TakeBackAllCredits(*guest);
  // No key holds these pages any more, and nobody settles for a guest that is gone.
  SettleOf(id, SIZE_MAX);

  std::unique_ptr<Domain> unused;
  MutexLock lock(lifecycle_);
  for (const Index& index : indexes_) {
    for (const auto& shard : index.shards) shard->RemoveGuest(guest->slot);
  }
  if (--guest->domain->guests == 0) {
    const auto found = std::find_if(domains_.begin(), domains_.end(), [&](const auto& domain) {
      return domain.get() == guest->domain;
    });
    unused = std::move(*found);
    domains_.erase(found);
    // Pages are gone, but chunks that are kept for a next page are not.
    for (const auto& set : unused->sets) set->Trim();
    if (unused->has_slack.load()) budget_.RemoveSlack(PageSet::kSlackBytes);
  }
  budget_.Uncharge(Account::kMetadata, FixedBytesOfGuest(), Claim::kFixed);
  entry.taken = false;
}

void Store::Impl::ResetGuest(GuestId id) {
  GuestUse guest(Entry(id));
  if (!guest) return;
  DestroyPools(*guest, {true, true});
  SetSwaps(*guest, false);
  TakeBackAllCredits(*guest);
}

// ---- pools ------------------------------------------------------------------------------------

Store::PoolOutcome Store::Impl::CreatePool(GuestId id, PoolKind kind) {
  GuestUse guest(Entry(id));
  if (!guest) return {Outcome::kBadPool, PoolHandle{0}};
  const Lifetime lifetime = LifetimeOf(kind);
  if (lifetime == Lifetime::kPersistent) {
    MutexLock lock(lifecycle_);
    if (!MakeSlack(*guest->domain)) return {Outcome::kNoSpace, PoolHandle{0}};
  }
  MutexLock lock(guest->control);
  for (uint32_t pool_id = 0; pool_id < guest->pools.size(); ++pool_id) {
    Pool& pool = guest->pools[pool_id];
    if (pool.state != Pool::State::kFree) continue;
    uint32_t generation = 0;
    while (generation == 0) generation = next_generation_.fetch_add(1);
    const uint64_t handle = uint64_t{generation} << 32 | pool_id;
    pool.state = Pool::State::kLive;
    pool.lifetime.store(lifetime);
    pool.was_used.store(true);
    pool.handle.store(handle);
    if (lifetime == Lifetime::kPersistent) SetSwaps(*guest, true);
    return {Outcome::kOk, PoolHandle{handle}};
  }
  return {Outcome::kTooMany, PoolHandle{0}};
}

// What promises may begin and not fill must fit beside them, before the first is made.
bool Store::Impl::MakeSlack(Domain& domain) {
  if (!index_has_slack_) {
    if (!budget_.AddSlack(shard_count_ * kIndexSlackBytesPerShard)) return false;
    index_has_slack_ = true;
  }
  if (!domain.has_slack.load()) {
    if (!budget_.AddSlack(PageSet::kSlackBytes)) return false;
    domain.has_slack.store(true);
  }
  return true;
}

void Store::Impl::KillPoolLocked(Pool& pool) {
  pool.state = Pool::State::kDying;
  pool.dead_handle = pool.handle.exchange(0);
}

// The handle is taken already, so each shard that was flushed stays without keys of it. Only then
// may the pool's place be another's.
FlushProgress Store::Impl::DeadPoolProgress(const Pool& pool, uint64_t handle) {
  FlushProgress progress;
  progress.done = false;
  progress.pool = PoolHandle{handle};
  progress.kind = KindOf(pool.lifetime.load());
  progress.ends_pool = true;
  return progress;
}

FlushProgress Store::Impl::BeginDestroyPool(GuestId id, PoolHandle handle) {
  FlushProgress refused;
  refused.outcome = Outcome::kBadPool;
  GuestUse guest(Entry(id));
  if (!guest) return refused;
  const Resolved resolved = Resolve(*guest, handle);
  refused.outcome = resolved.outcome;
  if (resolved.outcome != Outcome::kOk) return refused;
  MutexLock lock(guest->control);
  if (resolved.pool->handle.load() != static_cast<uint64_t>(handle)) {
    refused.outcome = Outcome::kStalePool;
    return refused;
  }
  KillPoolLocked(*resolved.pool);
  return DeadPoolProgress(*resolved.pool, static_cast<uint64_t>(handle));
}

// Several may flush the same dead pool: whoever is done first frees its place.
void Store::Impl::FreeDeadPool(Guest& guest, PoolHandle handle) {
  Pool& pool = guest.pools[static_cast<uint32_t>(handle)];
  MutexLock lock(guest.control);
  if (pool.state != Pool::State::kDying || pool.dead_handle != static_cast<uint64_t>(handle))
    return;
  pool.state = Pool::State::kFree;
  pool.dead_handle = 0;
}

std::optional<FlushProgress> Store::Impl::FindDeadPool(Guest& guest) {
  MutexLock lock(guest.control);
  for (const Pool& pool : guest.pools) {
    if (pool.state == Pool::State::kDying) return DeadPoolProgress(pool, pool.dead_handle);
  }
  return std::nullopt;
}

bool Store::Impl::Reap(GuestId id, FlushProgress& progress) {
  GuestUse guest(Entry(id));
  if (!guest) return false;
  if (progress.done) {
    std::optional<FlushProgress> dead = FindDeadPool(*guest);
    if (!dead) return false;
    progress = *dead;
  }
  ContinueFlushOf(*guest, progress);
  return true;
}

void Store::Impl::BeginResetGuest(GuestId id) {
  GuestUse guest(Entry(id));
  if (!guest) return;
  {
    MutexLock lock(guest->control);
    for (Pool& pool : guest->pools) {
      if (pool.state == Pool::State::kLive) KillPoolLocked(pool);
    }
  }
  SetSwaps(*guest, false);
  TakeBackAllCredits(*guest);
}

void Store::Impl::RestartCounters(GuestId id) {
  GuestUse guest(Entry(id));
  if (!guest) return;
  Guest::Counters& counters = guest->counters;
  for (std::atomic<uint64_t>* counter :
       {&counters.puts_ok, &counters.puts_no_space, &counters.puts_no_credit, &counters.puts_frozen,
        &counters.puts_bad_pool, &counters.gets_hit, &counters.gets_miss, &counters.gets_corrupt,
        &counters.gets_bad_pool, &counters.flushes, &counters.pages_flushed,
        &counters.pages_evicted, &counters.pages_replaced}) {
    counter->store(0);
  }
}

// Those that were dying already too, unless another thread ends them.
void Store::Impl::DestroyPools(Guest& guest, const bool (&lifetimes)[kLifetimes]) {
  for (Pool& pool : guest.pools) {
    FlushProgress progress;
    {
      MutexLock lock(guest.control);
      if (pool.state == Pool::State::kFree || !lifetimes[IndexOf(pool.lifetime.load())]) continue;
      if (pool.state == Pool::State::kLive) KillPoolLocked(pool);
      progress = DeadPoolProgress(pool, pool.dead_handle);
    }
    while (!progress.done) ContinueFlushOf(guest, progress);
  }
}

void Store::Impl::EndEpoch() {
  for (uint32_t slot = 0; slot < options_.max_guests; ++slot) {
    GuestUse guest(entries_[slot]);
    if (guest) DestroyPools(*guest, {true, false});
  }
  epoch_.fetch_add(1);
}

void Store::Impl::SetAdmission(GuestId id, Admission admission) {
  GuestUse guest(Entry(id));
  if (guest) guest->frozen.store(admission == Admission::kFrozen);
}

// ---- credits and reservations -----------------------------------------------------------------

void Store::Impl::SetSwaps(Guest& guest, bool swaps) {
  if (guest.swaps.exchange(swaps) == swaps) return;
  if (swaps) {
    swapping_weight_.fetch_add(guest.weight);
  } else {
    swapping_weight_.fetch_sub(guest.weight);
  }
}

// What it may be granted until pages and credits are its share. Bytes are counted as stored, so
// that who has pages that fit badly into slabs may come to hold a little more.
uint64_t Store::Impl::CreditsWithinShare(const Guest& guest) const {
  constexpr auto kPersistent = IndexOf(Lifetime::kPersistent);
  const uint64_t weights = std::max<uint64_t>(swapping_weight_.load(), guest.weight);
  const uint64_t share = options_.pool_min_bytes / weights * guest.weight;
  const int64_t held = guest.bytes[kPersistent].load() + guest.record_bytes[kPersistent].load();
  const uint64_t used = static_cast<uint64_t>(std::max<int64_t>(held, 0)) +
                        guest.credits.load() * budget_.worst_case_bytes();
  return used >= share ? 0 : (share - used) / budget_.worst_case_bytes();
}

uint64_t Store::Impl::TopUpCredits(GuestId id, uint64_t unused_at_most) {
  GuestUse guest(Entry(id));
  if (!guest) return 0;
  // Without a persistent pool nothing could be put on credit, and its slack is not there yet.
  if (!guest->domain->has_slack.load()) return guest->credits_granted.load();
  MutexLock lock(guest->control);
  const uint64_t unused = guest->credits.load();
  if (unused < unused_at_most) {
    const uint64_t wanted = std::min(unused_at_most - unused, CreditsWithinShare(*guest));
    const uint64_t made = budget_.MakePromises(wanted);
    guest->credits.fetch_add(made);
    guest->credits_granted.fetch_add(made);
  }
  return guest->credits_granted.load();
}

uint64_t Store::Impl::ReturnCredits(GuestId id, uint64_t credits) {
  GuestUse guest(Entry(id));
  if (!guest) return 0;
  uint64_t unused = guest->credits.load();
  uint64_t taken = 0;
  do {
    taken = std::min(unused, credits);
  } while (!guest->credits.compare_exchange_weak(unused, unused - taken));
  budget_.ReleasePromises(taken);
  return taken;
}

void Store::Impl::TakeBackAllCredits(Guest& guest) {
  MutexLock lock(guest.control);
  budget_.ReleasePromises(guest.credits.exchange(0));
  guest.credits_granted.store(0);
}

Result<void> Store::Impl::Reserve(uint64_t bytes) {
  if (budget_.Charge(Account::kReserved, bytes, Claim::kFixed)) return Ok();
  return Error{ErrorCode::kExhausted, std::to_string(bytes) + " bytes do not fit in the limit"};
}

bool Store::Impl::Shrink() {
  for (int i = 0; i < kShrinkEvictions; ++i) {
    // All that is ephemeral goes before promises hold the limit up: what they keep free is theirs.
    if (!budget_.IsOver() || !EvictSome()) return budget_.LowerLimit(kShrinkStepBytes);
  }
  return true;
}

uint64_t Store::Impl::MinLimitBytes() const {
  // A guest to come may have a domain of its own.
  const uint64_t bytes_per_guest =
      FixedBytesOfGuest() + kLifetimes * PageSet::FixedBytes(options_.limit_bytes);
  MutexLock lock(lifecycle_);
  const auto to_come = std::count_if(entries_.get(), entries_.get() + options_.max_guests,
                                     [](const GuestEntry& entry) { return !entry.taken; });
  return budget_.min_limit_bytes() + static_cast<uint64_t>(to_come) * bytes_per_guest;
}

void Store::Impl::Unreserve(uint64_t bytes) {
  budget_.Uncharge(Account::kReserved, bytes, Claim::kFixed);
}

}  // namespace tmem
