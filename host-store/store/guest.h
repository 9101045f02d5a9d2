// SPDX-License-Identifier: GPL-2.0-only
// What the store knows of one guest, and of the trust domain it belongs to.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "host-store/base/mutex.h"
#include "host-store/store/page_set.h"
#include "host-store/store/records.h"
#include "host-store/store/store.h"

namespace tmem {

inline constexpr size_t kLifetimes = 2;
inline constexpr size_t kHolderKinds = 4;

constexpr Lifetime LifetimeOf(PoolKind kind) {
  return kind == PoolKind::kPersistent ? Lifetime::kPersistent : Lifetime::kEphemeral;
}
constexpr PoolKind KindOf(Lifetime lifetime) {
  return lifetime == Lifetime::kPersistent ? PoolKind::kPersistent : PoolKind::kEphemeral;
}

constexpr size_t IndexOf(Lifetime lifetime) {
  return static_cast<size_t>(lifetime);
}

// Guests whose equal pages may be shared, and where these lie. `guests` counts them.
struct Domain {
  std::string key;  // unique; a guest's own domain never equals a configured one
  uint32_t guests = 0;
  std::array<std::unique_ptr<PageSet>, kLifetimes> sets;
  std::atomic<bool> has_slack{false};  // in the budget, once it has a persistent pool
};

// A pool is live while `handle` is not 0. Taking the handle away comes before the flush of its
// keys.
struct Pool {
  enum class State : uint8_t { kFree, kLive, kDying };

  std::atomic<uint64_t> handle{0};
  std::atomic<Lifetime> lifetime{Lifetime::kEphemeral};
  std::atomic<bool> was_used{false};  // tells a stale handle from one that never was
  // Guarded by the guest's control lock.
  State state = State::kFree;
  uint64_t dead_handle = 0;  // while dying: the handle whose keys still have to go
};

// Thread rule: atomics; `control` serialises pools and credits being made and ended, never pages.
struct Guest {
  uint32_t slot = 0;
  std::string name;
  std::string domain_label;
  uint32_t weight = 1;
  Domain* domain = nullptr;
  Mutex control;
  std::array<Pool, TMEM_MAX_POOLS> pools;
  std::atomic<bool> frozen{false};
  std::atomic<bool> swaps{false};  // has had a persistent pool since it was added or reset
  std::atomic<uint64_t> credits{0};
  std::atomic<uint64_t> credits_granted{0};

  // Signed: a page may leave before its arrival was counted elsewhere.
  std::array<std::atomic<int64_t>, kLifetimes> pages{};
  std::array<std::atomic<int64_t>, kLifetimes> bytes{};
  std::array<std::atomic<int64_t>, kHolderKinds> held{};
  std::array<std::atomic<int64_t>, kLifetimes> record_bytes{};  // of the index, kept by its shards

  // Free-running; names as in GuestStatus.
  struct Counters {
    std::atomic<uint64_t> puts_ok, puts_no_space, puts_no_credit, puts_frozen, puts_bad_pool;
    std::atomic<uint64_t> gets_hit, gets_miss, gets_corrupt, gets_bad_pool;
    std::atomic<uint64_t> flushes, pages_flushed, pages_evicted, pages_replaced;
  };
  Counters counters{};
};

// The entry of one guest in the store's table. Every operation counts itself in `users` while it is
// under way, so that a removed guest is freed only after the last one.
struct GuestEntry {
  alignas(64) std::atomic<uint32_t> users{0};
  std::atomic<Guest*> guest{nullptr};
  bool taken = false;  // guarded by the store's lifecycle lock
};

// Holds a guest for one operation; false if there is none.
class GuestUse {
 public:
  explicit GuestUse(GuestEntry& entry) : entry_(entry) {
    // Sequentially consistent on both sides: either this use sees that the guest is going, or the
    // remover sees this use.
    entry_.users.fetch_add(1);
    guest_ = entry_.guest.load();
  }
  ~GuestUse() { entry_.users.fetch_sub(1); }
  GuestUse(const GuestUse&) = delete;
  GuestUse& operator=(const GuestUse&) = delete;

  explicit operator bool() const { return guest_ != nullptr; }
  Guest& operator*() const { return *guest_; }
  Guest* operator->() const { return guest_; }

 private:
  GuestEntry& entry_;
  Guest* guest_;
};

}  // namespace tmem
