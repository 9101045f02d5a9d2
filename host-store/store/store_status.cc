// SPDX-License-Identifier: GPL-2.0-only
// The store's figures, its files, and the check that everything adds up.
#include <algorithm>
#include <map>

#include "host-store/store/store_impl.h"

namespace tmem {
namespace {

// Counted down before it was counted up, for a moment, by two threads: nothing is below 0.
uint64_t AtLeastZero(const std::atomic<int64_t>& value) {
  return static_cast<uint64_t>(std::max<int64_t>(value.load(), 0));
}

Error Broken(const std::string& what) {
  return {ErrorCode::kInternal, "store: " + what};
}

Error Differ(const std::string& what, uint64_t recounted, uint64_t figure) {
  return Broken(what + ": " + std::to_string(recounted) + " recounted, the figure is " +
                std::to_string(figure));
}

}  // namespace

GuestStatus Store::Impl::StatusOfGuest(const Guest& guest) const {
  const Guest::Counters& counters = guest.counters;
  GuestStatus status{};
  status.id = GuestId{guest.slot};
  status.name = guest.name;
  status.domain = guest.domain_label;
  status.ephemeral_pages = AtLeastZero(guest.pages[IndexOf(Lifetime::kEphemeral)]);
  status.persistent_pages = AtLeastZero(guest.pages[IndexOf(Lifetime::kPersistent)]);
  status.stored_bytes = AtLeastZero(guest.bytes[IndexOf(Lifetime::kEphemeral)]) +
                        AtLeastZero(guest.bytes[IndexOf(Lifetime::kPersistent)]);
  status.credits = guest.credits.load();
  status.puts_ok = counters.puts_ok.load();
  status.puts_no_space = counters.puts_no_space.load();
  status.puts_no_credit = counters.puts_no_credit.load();
  status.puts_frozen = counters.puts_frozen.load();
  status.puts_bad_pool = counters.puts_bad_pool.load();
  status.gets_hit = counters.gets_hit.load();
  status.gets_miss = counters.gets_miss.load();
  status.gets_corrupt = counters.gets_corrupt.load();
  status.gets_bad_pool = counters.gets_bad_pool.load();
  status.flushes = counters.flushes.load();
  status.pages_flushed = counters.pages_flushed.load();
  status.pages_evicted = counters.pages_evicted.load();
  status.pages_replaced = counters.pages_replaced.load();
  return status;
}

GuestStatus Store::Impl::StatusOf(GuestId id) const {
  GuestUse guest(Entry(id));
  return guest ? StatusOfGuest(*guest) : GuestStatus{};
}

StoreStatus Store::Impl::Status() const {
  StoreStatus status{};
  status.limit_bytes = budget_.limit_bytes();
  status.pool_min_bytes = options_.pool_min_bytes;
  status.used_bytes = budget_.used_bytes();
  status.slab_bytes = budget_.account_bytes(Account::kSlabs);
  status.landing_bytes = budget_.account_bytes(Account::kLanding);
  status.metadata_bytes = budget_.account_bytes(Account::kMetadata);
  for (const Index& index : indexes_) {
    for (const auto& shard : index.shards) status.index_bytes += shard->charged_bytes();
  }
  status.reserved_bytes = budget_.account_bytes(Account::kReserved);
  status.overhead_bytes = budget_.account_bytes(Account::kOverhead);
  status.epoch = epoch_.load();
  for (uint32_t slot = 0; slot < options_.max_guests; ++slot) {
    GuestUse guest(entries_[slot]);
    if (!guest) continue;
    status.guests.push_back(StatusOfGuest(*guest));
    status.pages += status.guests.back().ephemeral_pages + status.guests.back().persistent_pages;
    status.same_filled += AtLeastZero(guest->held[static_cast<size_t>(HolderKind::kFilled)]);
    status.landed += AtLeastZero(guest->held[static_cast<size_t>(HolderKind::kLanded)]);
  }
  MutexLock lock(lifecycle_);
  for (const auto& domain : domains_) {
    for (const auto& set : domain->sets) {
      const PageSet::Figures figures = set->figures();
      status.compressed += figures.compressed;
      status.raw += figures.raw;
      status.duplicates +=
          figures.shares - std::min(figures.shares, figures.compressed + figures.raw);
      status.saved_by_dedup_bytes += figures.saved_bytes;
    }
  }
  return status;
}

std::vector<Store::MemoryFileView> Store::Impl::MemoryFiles() const {
  std::vector<MemoryFileView> views;
  const auto add = [&](const MemoryFile& file) {
    views.push_back({file.name(), file.fd(), file.stride_bytes()});
  };
  for (const Index& index : indexes_) add(*index.file);
  add(landing_->file());
  MutexLock lock(lifecycle_);
  for (const auto& domain : domains_) {
    for (const auto& set : domain->sets) {
      add(set->records_file());
      add(set->slabs_file());
    }
  }
  return views;
}

// ---- check ------------------------------------------------------------------------------------

Result<void> Store::Impl::CheckInvariants() const {
  for (const Index& index : indexes_) {
    for (const auto& shard : index.shards) {
      if (auto checked = shard->Check(); !checked) return checked;
    }
  }
  {
    MutexLock lock(lifecycle_);
    for (const auto& domain : domains_) {
      for (const auto& set : domain->sets) {
        if (auto checked = set->Check(); !checked) return checked;
      }
    }
  }
  if (auto checked = CheckGuests(); !checked) return checked;
  return CheckBudget();
}

// Keys, recounted from the index, against each guest's tallies and each set's shares.
Result<void> Store::Impl::CheckGuests() const {
  struct Counted {
    std::array<int64_t, kLifetimes> pages{};
    std::array<int64_t, kLifetimes> bytes{};
    std::array<int64_t, kHolderKinds> held{};
  };
  std::map<uint32_t, Counted> counted;
  std::map<const PageSet*, uint64_t> shares;
  for (const Lifetime lifetime : {Lifetime::kEphemeral, Lifetime::kPersistent}) {
    const size_t side = IndexOf(lifetime);
    for (const auto& shard : indexes_[side].shards) {
      shard->ForEachKey(
          [&](const ObjectRecord& object, const BlockRecord&, RecordNumber, const KeyRecord& key) {
            Counted& guest = counted[object.guest];
            ++guest.pages[side];
            ++guest.held[static_cast<size_t>(key.holder)];
            if (key.holder == HolderKind::kLanded) guest.bytes[side] += kPageBytes;
            if (key.holder != HolderKind::kStored) return;
            const PageSet& set = SetOf(*entries_[object.guest].guest.load(), lifetime);
            guest.bytes[side] +=
                static_cast<int64_t>(set.StoredBytes(static_cast<RecordNumber>(key.value)));
            ++shares[&set];
          });
    }
  }
  for (uint32_t slot = 0; slot < options_.max_guests; ++slot) {
    GuestUse guest(entries_[slot]);
    if (!guest) continue;
    const Counted& expected = counted[slot];
    for (size_t side = 0; side < kLifetimes; ++side) {
      if (guest->pages[side].load() != expected.pages[side]) return Broken("a guest's pages");
      if (guest->bytes[side].load() != expected.bytes[side]) return Broken("a guest's bytes");
    }
    for (size_t kind = 0; kind < kHolderKinds; ++kind) {
      if (guest->held[kind].load() != expected.held[kind]) return Broken("a guest's holders");
    }
  }
  MutexLock lock(lifecycle_);
  for (const auto& domain : domains_) {
    for (const auto& set : domain->sets) {
      if (set->figures().shares != shares[set.get()]) return Broken("shares without keys");
    }
  }
  return Ok();
}

// Every byte charged, recounted from what exists; every promise, from who has it.
Result<void> Store::Impl::CheckBudget() const {
  uint64_t slabs = 0;
  uint64_t metadata = fixed_metadata_bytes_;
  for (const Index& index : indexes_) {
    metadata += index.file->fixed_bytes();
    for (const auto& shard : index.shards) metadata += shard->charged_bytes();
  }
  uint64_t promises = landing_->promises_carried();
  for (uint32_t slot = 0; slot < options_.max_guests; ++slot) {
    GuestUse guest(entries_[slot]);
    if (!guest) continue;
    metadata += FixedBytesOfGuest();
    promises += guest->credits.load();
  }
  {
    MutexLock lock(lifecycle_);
    for (const auto& domain : domains_) {
      for (const auto& set : domain->sets) {
        const PageSet::Figures figures = set->figures();
        slabs += figures.slab_bytes + set->slabs_file().fixed_bytes();
        metadata += figures.record_bytes + set->records_file().fixed_bytes();
      }
    }
  }
  const uint64_t slabs_charged = budget_.account_bytes(Account::kSlabs);
  if (slabs != slabs_charged) return Differ("bytes of slabs", slabs, slabs_charged);
  const uint64_t metadata_charged = budget_.account_bytes(Account::kMetadata);
  if (metadata != metadata_charged) return Differ("bytes of metadata", metadata, metadata_charged);
  if (promises != budget_.promises()) return Differ("promises", promises, budget_.promises());
  if (budget_.used_bytes() > budget_.limit_bytes()) return Broken("over the limit");
  if (budget_.persistent_bytes() > options_.pool_min_bytes) return Broken("over pool-min");
  if (budget_.overruns() != 0) return Broken("a promise was kept over the limit");
  if (landing_->free_slots() + landing_->queued_slots() != landing_->slots()) {
    return Broken("landing slots");
  }
  return Ok();
}

}  // namespace tmem
