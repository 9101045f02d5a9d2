// SPDX-License-Identifier: GPL-2.0-only
// One guest's channel: takes descriptors out of a window, executes them, answers.
#ifndef HOST_STORE_WINDOW_CHANNEL_H_
#define HOST_STORE_WINDOW_CHANNEL_H_

#include <cstdint>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/store/store.h"
#include "host-store/window/channel_counters.h"
#include "host-store/window/decoder.h"
#include "host-store/window/window_view.h"

namespace tmem {

// How the host notifies the guest. Rung by the thread that visits the channel; must not block.
class GuestBell {
 public:
  virtual ~GuestBell() = default;
  virtual void Ring() = 0;
};

struct ChannelOptions {
  std::uint64_t features = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL;
  // Unused credits that a guest with a persistent pool may hold: 8 MiB of swap in flight.
  std::uint64_t credit_window = 2048;
};

// The host side of one window.
//
// 1. Registration: the guest's request destroys what the channel had (K5), zeroes the lanes and
// their
//    counters, and is answered. Before the first one no lane is looked at.
// 2. Lanes: Visit takes at most kLaneBatch descriptors of each, in order, executes and completes
// them.
//    The counters are this object's own; those in the window are compared with them, and a
//    difference resets the channel (X3).
// 3. Kick suppression: Wake and PrepareSleep write `awake`; see abi/README.md section 4.
//
// Thread rule: one thread at a time, except counters(). Cost of a visit without work: two loads a
// lane. A visit is bounded: 9 lanes x 16 descriptors in a usual window.
class Channel {
 public:
  // Descriptors of a lane taken in one visit: long enough to make a batch of a read-ahead, short
  // enough that a waiting get is not behind more than 0.2 ms of landing in other lanes.
  static constexpr std::uint64_t kLaneBatch = 16;

  enum class Event : std::uint8_t { kNone, kRegistered, kRegistrationRefused, kReset };
  struct Visited {
    std::uint64_t completed;
    Event event;
  };

  // `window` is zeroed memory that no guest has seen. Writes geometry and host page.
  Channel(Store& store, GuestId guest, const WindowView& window, GuestBell& bell,
          const ChannelOptions& options);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Whether a visit would find anything. Wrong counters are work too.
  bool HasWork() const;
  Visited Visit();

  // Says that the lanes are polled. After a sleep.
  void Wake();
  // Says that they are not any more. The caller then makes a FullFence() and asks HasWork() again
  // before it sleeps.
  void PrepareSleep();

  // Grants what the store can give. Visit does it after each batch; the worker does it for a guest
  // that CreditsLow() when others may have freed memory.
  void TopUpCredits();
  bool CreditsLow() const;

  // X2, first half: asks for all credits back. A visit that finds them returned refuses puts.
  void Freeze();
  void Thaw();

  GuestId guest() const { return guest_; }
  ChannelCounters& counters() { return counters_; }
  const ChannelCounters& counters() const { return counters_; }

 private:
  struct Completion {
    tmem_status status;
    std::uint8_t flags = 0;
    std::uint32_t tag = 0;
    std::uint64_t value = 0;
  };
  struct Pool {
    PoolHandle handle;
    PoolKind kind;
  };
  enum class FreezeState : std::uint8_t { kOpen, kDraining, kFrozen };

  bool RegistrationPending() const;
  Event Register();
  tmem_status CheckRegistration(const tmem_guest_page& page) const;
  void StartOver();
  void Reset();
  bool CountersMatch(std::uint32_t lane, std::uint64_t posted) const;
  std::uint64_t VisitLane(std::uint32_t lane, std::uint64_t posted);
  void PublishNotices();
  void RingGuest();
  const Pool* FindPool(PoolHandle handle) const;

  Completion Execute(std::uint32_t lane, const tmem_desc& desc);
  Completion Put(std::uint32_t lane, const op::Put& put);
  Completion PutFilled(const op::PutFilled& put);
  Completion FinishPut(const PageKey& key, Outcome outcome);
  bool TagOfEphemeral(const PageKey& key, std::uint32_t tag);
  Completion Get(std::uint32_t lane, const op::Get& get);
  Completion Refuse(const op::Refused& refused);
  Completion CreatePool(const op::PoolCreate& create);
  Completion DestroyPool(const op::PoolDestroy& destroy);
  Completion ReturnCredits(const op::CreditReturn& back);

  Store& store_;
  const GuestId guest_;
  const WindowView window_;
  GuestBell& bell_;
  const ChannelOptions options_;

  // This side's own copies; the window's are never trusted.
  std::vector<std::uint64_t> done_;  // by lane; what was taken is done when a visit ends
  std::uint64_t answered_request_ = 0;
  bool registered_ = false;
  std::uint64_t features_ = 0;
  std::uint64_t heartbeat_ = 0;
  std::uint64_t published_epoch_ = 0;
  std::vector<Pool> pools_;  // at most TMEM_MAX_POOLS
  bool has_persistent_pool_ = false;
  std::uint64_t credits_granted_ = 0;
  std::uint64_t credits_spent_ = 0;  // consumed by puts or returned
  FreezeState freeze_ = FreezeState::kOpen;
  ChannelCounters counters_;
};

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_CHANNEL_H_
