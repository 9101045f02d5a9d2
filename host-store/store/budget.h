// SPDX-License-Identifier: GPL-2.0-only
// The one account of all memory the store holds, and of what it has promised to persistent puts.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "host-store/base/mutex.h"

namespace tmem {

// What memory is used for; the sum of all accounts is what the hard limit bounds.
enum class Account : uint8_t { kSlabs, kMetadata, kLanding, kReserved, kOverhead };
inline constexpr size_t kAccounts = 5;

// In whose name memory is asked for, which decides whether others have to make room.
enum class Claim : uint8_t {
  kFixed,      // held for long and never evicted: must leave what was promised untouched
  kEphemeral,  // evictable: takes what is free, makes nobody give way here
  kPromised,   // a persistent put that holds a promise: cannot fail
  kOptional,   // for persistent pages, but only if every promise can still be kept after it
};

// Promises. A credit promises that one persistent put will find memory in the worst case. Let P be
// the persistent bytes charged, n the promises out, W the worst case of one put, S the slack for
// chunks begun but not filled. A promise is made, and optional persistent memory given, only while
//     P + n * W + S <= min(pool_min, limit - fixed),
// and fixed memory only while P + n * W + S <= limit - fixed. (As pages take up slack, P + S may
// come to pass pool_min.)
// Let G be the growth that n worst puts would really need, given the records and slots now free:
// G <= n * W + S. Every other step keeps P + G from growing: a put that takes a free record takes a
// promise with it; one that needs a new chunk moves the chunk from G to P; freeing moves bytes the
// other way. So kept promises always fit, once everything ephemeral is evicted.
//
// The limit can be lowered while pages are held. From then on promises are made, and fixed and
// optional memory given, against the new one; the one that bounds what is used follows in steps, as
// ephemeral pages go (LowerLimit). It does not go below fixed + P + n * W + S: what was promised is
// kept.
//
// Thread rule: any thread; callers of Charge and Reclaim hold no lock. Cost: a mutex, per chunk or
// slab and never per page; promises given back are one atomic operation.
class Budget {
 public:
  struct Options {
    uint64_t limit_bytes;
    uint64_t pool_min_bytes;
    uint64_t worst_case_bytes;  // W
  };
  explicit Budget(const Options& options)
      : options_(options), wanted_limit_(options.limit_bytes), limit_(options.limit_bytes) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  // Evicts a little; returns false when nothing could go. Set once, before threads start.
  void SetReclaimer(std::function<bool()> reclaimer) { reclaimer_ = std::move(reclaimer); }
  bool Reclaim() { return reclaimer_ && reclaimer_(); }

  // Counts `bytes` before they come to exist. All claims but kEphemeral evict until they fit.
  [[nodiscard]] bool Charge(Account account, uint64_t bytes, Claim claim);
  // After the bytes went back to the kernel, under a claim that counts the same.
  void Uncharge(Account account, uint64_t bytes, Claim claim);

  // Makes up to `wanted` promises; returns how many. Each is ended by ReleasePromises.
  uint64_t MakePromises(uint64_t wanted);
  void ReleasePromises(uint64_t promises) { promises_.fetch_sub(promises); }
  // Chunks that may be begun but not filled by whoever has promises; false if it does not fit.
  [[nodiscard]] bool AddSlack(uint64_t bytes);
  void RemoveSlack(uint64_t bytes);

  // At most the limit it was made with. A higher one holds at once.
  void SetLimit(uint64_t limit_bytes);
  // Brings the limit down by at most `step_bytes`; false when it was where it was set.
  bool LowerLimit(uint64_t step_bytes);

  // More is used than it allows, promises apart.
  bool IsOver() const;
  // The one that holds now, and the one it was made with.
  uint64_t limit_bytes() const;
  uint64_t max_limit_bytes() const { return options_.limit_bytes; }
  uint64_t worst_case_bytes() const { return options_.worst_case_bytes; }
  uint64_t used_bytes() const;
  uint64_t account_bytes(Account account) const;
  // Below this limit not all of pool_min could be promised, or what was promised not be kept.
  uint64_t min_limit_bytes() const;
  uint64_t persistent_bytes() const;
  uint64_t promises() const { return promises_.load(); }
  // Times a promise could only be kept by passing the limit. Stays 0 unless there is a bug.
  uint64_t overruns() const { return overruns_.load(); }

 private:
  uint64_t LimitLocked() const TMEM_REQUIRES(mutex_);
  // P + n * W + S.
  uint64_t PromisedLocked() const TMEM_REQUIRES(mutex_);
  uint64_t RoomForPromisesLocked() const TMEM_REQUIRES(mutex_);
  bool PromisesHoldLocked(uint64_t more_persistent) const TMEM_REQUIRES(mutex_);
  // Whether a claim of long-lived memory would break what was promised; others never do.
  bool BreaksPromisesLocked(uint64_t bytes, Claim claim) const TMEM_REQUIRES(mutex_);
  bool ChargeReclaiming(Account account, uint64_t bytes, Claim claim);
  void AddLocked(Account account, uint64_t bytes, Claim claim) TMEM_REQUIRES(mutex_);

  const Options options_;
  std::function<bool()> reclaimer_;
  mutable Mutex mutex_;
  std::array<uint64_t, kAccounts> accounts_ TMEM_GUARDED_BY(mutex_){};
  uint64_t wanted_limit_ TMEM_GUARDED_BY(mutex_);
  uint64_t limit_ TMEM_GUARDED_BY(mutex_);  // on its way there
  uint64_t used_ TMEM_GUARDED_BY(mutex_) = 0;
  uint64_t fixed_ TMEM_GUARDED_BY(mutex_) = 0;
  uint64_t persistent_ TMEM_GUARDED_BY(mutex_) = 0;
  uint64_t slack_ TMEM_GUARDED_BY(mutex_) = 0;
  // Asked for by claims that evict: ephemeral claims must not take what was just freed for these.
  uint64_t pending_ TMEM_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> promises_{0};
  std::atomic<uint64_t> overruns_{0};
};

}  // namespace tmem
