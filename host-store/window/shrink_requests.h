// SPDX-License-Identifier: GPL-2.0-only
// What the operator would like back of one guest, and how far that guest is.
#ifndef HOST_STORE_WINDOW_SHRINK_REQUESTS_H_
#define HOST_STORE_WINDOW_SHRINK_REQUESTS_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "abi/tmem_abi.h"
#include "host-store/base/mutex.h"

namespace tmem {

// Two things can be asked: page cache (`shrink`), and that all persistent pages go home (`drain`).
//
// 1. A shrink is of a registration: the next one has another guest's cache, so it is over then. A
//    drain is the operator's until he takes it back, whoever registers.
// 2. What is left of a shrink is this object's count; the guest says what it gave [abi/README.md,
// section 8].
// 3. It may outlive channels: a guest's port keeps it.
//
// Thread rule: any. changed() is one load; everything else takes a lock that nobody holds long.
class ShrinkRequests {
 public:
  enum class Phase : std::uint8_t {
    kNone,
    kAsked,        // the guest has said nothing yet
    kWorking,      // it has begun
    kDone,         // all of it, as the guest says
    kNothingLeft,  // a shrink: it has no more cache to give
    kNoMemory,     // a drain: it has no room for more
    kUnreadable,   // a drain: some pages are lost
    kCancelled,
    kOver,  // a shrink: the guest registered anew, or is gone
  };
  struct Task {
    Phase phase = Phase::kNone;
    std::uint64_t asked_pages = 0;  // of a shrink
    std::uint64_t done_pages = 0;   // since it was asked
  };
  struct Status {
    bool taken;                // the guest is registered and has the feature
    std::uint64_t left_pages;  // of the shrink
    bool draining;
    Task shrink;
    Task drain;
  };
  // For the host page.
  struct Notices {
    std::uint64_t shrink_target_pages;
    std::uint32_t drain;
    bool no_credits;
  };

  ShrinkRequests() = default;
  ShrinkRequests(const ShrinkRequests&) = delete;
  ShrinkRequests& operator=(const ShrinkRequests&) = delete;

  // For the operator. 0 pages take back what is left. Whoever asks wakes the channel's worker.
  void AskShrink(std::uint64_t pages) TMEM_EXCLUDES(mutex_);
  void AskDrain() TMEM_EXCLUDES(mutex_);
  void EndDrain() TMEM_EXCLUDES(mutex_);
  Status status() const TMEM_EXCLUDES(mutex_);

  // For the channel.
  bool changed() const { return changed_.load(std::memory_order_acquire); }
  Notices Take() TMEM_EXCLUDES(mutex_);
  // A registration has begun (`taken`: with the feature), or has ended (not taken).
  void BeginRegistration(bool taken) TMEM_EXCLUDES(mutex_);
  // Returns the pages that are left.
  std::uint64_t OnShrunk(std::uint64_t pages, tmem_shrink_outcome outcome) TMEM_EXCLUDES(mutex_);
  void OnDrained(std::uint64_t pages, tmem_shrink_outcome outcome) TMEM_EXCLUDES(mutex_);

 private:
  void Change() TMEM_REQUIRES(mutex_) { changed_.store(true, std::memory_order_release); }

  mutable Mutex mutex_;
  std::atomic<bool> changed_{false};
  bool taken_ TMEM_GUARDED_BY(mutex_) = false;
  bool draining_ TMEM_GUARDED_BY(mutex_) = false;
  std::uint32_t drain_number_ TMEM_GUARDED_BY(mutex_) = 0;
  std::uint64_t left_pages_ TMEM_GUARDED_BY(mutex_) = 0;
  Task shrink_ TMEM_GUARDED_BY(mutex_);
  Task drain_ TMEM_GUARDED_BY(mutex_);
};

// As the status says it.
std::string_view NameOf(ShrinkRequests::Phase phase);

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_SHRINK_REQUESTS_H_
