// SPDX-License-Identifier: GPL-2.0-only
// The one account of all memory the store holds, and of what it has promised to persistent puts.
#include "host-store/store/budget.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tmem {
namespace {

// A claim looks again when nothing can be evicted at the moment: pages on their way in or out, in
// the hands of other threads, come back within microseconds, or when those threads run again. A
// promise waits for that longer than any scheduler makes them wait.
constexpr int kIdleYields = 200;
constexpr int kIdleSleeps = 5000;
constexpr std::chrono::milliseconds kIdleSleep(1);

int IdleRounds(Claim claim) {
  return claim == Claim::kPromised ? kIdleYields + kIdleSleeps : kIdleYields;
}

bool IsPersistent(Claim claim) {
  return claim == Claim::kPromised || claim == Claim::kOptional;
}

}  // namespace

// ---- the limit --------------------------------------------------------------------------------

void Budget::SetLimit(uint64_t limit_bytes) {
  MutexLock lock(mutex_);
  wanted_limit_ = std::min(limit_bytes, options_.limit_bytes);
  limit_ = std::max(limit_, wanted_limit_);
  // Nothing in the way: no need for steps.
  if (used_ + pending_ <= wanted_limit_) limit_ = wanted_limit_;
}

bool Budget::LowerLimit(uint64_t step_bytes) {
  MutexLock lock(mutex_);
  if (limit_ == wanted_limit_) return false;
  limit_ -= std::min(limit_ - wanted_limit_, step_bytes);
  return true;
}

uint64_t Budget::LimitLocked() const {
  // While a promise becomes memory it counts twice: the limit of old is never passed.
  return std::max(limit_, std::min(fixed_ + PromisedLocked(), options_.limit_bytes));
}

bool Budget::IsOver() const {
  MutexLock lock(mutex_);
  return used_ > limit_;
}

uint64_t Budget::limit_bytes() const {
  MutexLock lock(mutex_);
  return LimitLocked();
}

// ---- promises and charges ---------------------------------------------------------------------

uint64_t Budget::PromisedLocked() const {
  return persistent_ + promises_.load() * options_.worst_case_bytes + slack_;
}

uint64_t Budget::RoomForPromisesLocked() const {
  return fixed_ > wanted_limit_ ? 0 : std::min(options_.pool_min_bytes, wanted_limit_ - fixed_);
}

bool Budget::PromisesHoldLocked(uint64_t more_persistent) const {
  return fixed_ <= wanted_limit_ && PromisedLocked() + more_persistent <= RoomForPromisesLocked();
}

bool Budget::BreaksPromisesLocked(uint64_t bytes, Claim claim) const {
  if (claim == Claim::kOptional) return !PromisesHoldLocked(bytes);
  return claim == Claim::kFixed && fixed_ + bytes + PromisedLocked() > wanted_limit_;
}

void Budget::AddLocked(Account account, uint64_t bytes, Claim claim) {
  accounts_[static_cast<size_t>(account)] += bytes;
  used_ += bytes;
  if (claim == Claim::kFixed) fixed_ += bytes;
  if (IsPersistent(claim)) persistent_ += bytes;
}

bool Budget::Charge(Account account, uint64_t bytes, Claim claim) {
  {
    MutexLock lock(mutex_);
    if (BreaksPromisesLocked(bytes, claim)) return false;
    const uint64_t reserved_for_others = claim == Claim::kEphemeral ? pending_ : 0;
    // Evictable memory never fills what only promises keep above the limit.
    const uint64_t limit = claim == Claim::kEphemeral ? limit_ : LimitLocked();
    if (used_ + reserved_for_others + bytes <= limit) {
      AddLocked(account, bytes, claim);
      return true;
    }
    if (claim == Claim::kEphemeral) return false;
    pending_ += bytes;
  }
  return ChargeReclaiming(account, bytes, claim);
}

bool Budget::ChargeReclaiming(Account account, uint64_t bytes, Claim claim) {
  int idle_rounds = 0;
  for (;;) {
    const bool reclaimed = Reclaim();
    idle_rounds = reclaimed ? 0 : idle_rounds + 1;
    MutexLock lock(mutex_);
    // Promises may have been made since this claim was looked at.
    if (BreaksPromisesLocked(bytes, claim)) {
      pending_ -= bytes;
      return false;
    }
    const bool fits = used_ + bytes <= LimitLocked();
    const bool waited = idle_rounds > IdleRounds(claim);
    const bool forced = !fits && waited && claim == Claim::kPromised;
    if (fits || forced) {
      if (forced) overruns_.fetch_add(1);
      pending_ -= bytes;
      AddLocked(account, bytes, claim);
      return true;
    }
    if (waited) {
      pending_ -= bytes;
      return false;
    }
    lock.Unlock();
    if (idle_rounds > kIdleYields) {
      std::this_thread::sleep_for(kIdleSleep);
    } else if (!reclaimed) {
      std::this_thread::yield();
    }
  }
}

void Budget::Uncharge(Account account, uint64_t bytes, Claim claim) {
  MutexLock lock(mutex_);
  accounts_[static_cast<size_t>(account)] -= bytes;
  used_ -= bytes;
  if (claim == Claim::kFixed) fixed_ -= bytes;
  if (IsPersistent(claim)) persistent_ -= bytes;
}

uint64_t Budget::MakePromises(uint64_t wanted) {
  MutexLock lock(mutex_);
  if (wanted == 0 || !PromisesHoldLocked(0)) return 0;
  const uint64_t room = RoomForPromisesLocked();
  // Promises only fall outside this lock, so the room computed here cannot shrink.
  const uint64_t taken = PromisedLocked();
  const uint64_t made =
      taken >= room ? 0 : std::min(wanted, (room - taken) / options_.worst_case_bytes);
  promises_.fetch_add(made);
  return made;
}

bool Budget::AddSlack(uint64_t bytes) {
  MutexLock lock(mutex_);
  if (!PromisesHoldLocked(bytes)) return false;
  slack_ += bytes;
  return true;
}

void Budget::RemoveSlack(uint64_t bytes) {
  MutexLock lock(mutex_);
  slack_ -= bytes;
}

uint64_t Budget::used_bytes() const {
  MutexLock lock(mutex_);
  return used_;
}

uint64_t Budget::account_bytes(Account account) const {
  MutexLock lock(mutex_);
  return accounts_[static_cast<size_t>(account)];
}

uint64_t Budget::min_limit_bytes() const {
  MutexLock lock(mutex_);
  return fixed_ + std::max(options_.pool_min_bytes, PromisedLocked());
}

uint64_t Budget::persistent_bytes() const {
  MutexLock lock(mutex_);
  return persistent_;
}

}  // namespace tmem
