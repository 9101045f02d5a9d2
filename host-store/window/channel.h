// SPDX-License-Identifier: GPL-2.0-only
// One guest's channel: takes descriptors out of a window, executes them, answers.
#ifndef HOST_STORE_WINDOW_CHANNEL_H_
#define HOST_STORE_WINDOW_CHANNEL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/store/store.h"
#include "host-store/window/channel_counters.h"
#include "host-store/window/decoder.h"
#include "host-store/window/report_sink.h"
#include "host-store/window/shrink_requests.h"
#include "host-store/window/window_view.h"
#include "host-store/window/work_units.h"

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
  // Where reports go; null: they are not offered. Outlives the channel.
  ReportSink* reports = nullptr;
  // Reports are offered, and the host module, whose channel this is, has answered each before it
  // comes here.
  bool module_reports = false;
  // What is asked of the guest; null: nothing ever, and that is not offered. Outlives the channel.
  ShrinkRequests* shrink = nullptr;
};

// The host side of one window.
//
// 1. Registration: the guest's request destroys what the channel had (K5), zeroes the lanes and
// their
//    counters, and is answered. Before the first one no lane is looked at.
//    The pages of its former pools go piece by piece, in later visits.
// 2. Lanes: Visit takes descriptors, each lane's in order, executes and completes them, until it
// has
//    done as many units of work as it was given. Lanes in which somebody waits come first, and
//    while there are any the others are left for a later visit. A long flush is one that a later
//    visit goes on with; its lane waits for it, other lanes do not. So does the control lane for a
//    report, which the sink drops meanwhile. The counters are this object's
//    own; those in the window are compared with them, and a difference resets the channel (X3).
// 3. Completions are published as they come, so that a guest copies out one page while the next is
//    unpacked.
// 4. What the operator asks (ShrinkRequests) is announced by the next visit, and the guest rung.
// 5. Kick suppression: Wake and PrepareSleep write `awake`; see abi/README.md section 4.
//
// Thread rule: one thread at a time, except counters(). Cost of a look without work: two loads a
// lane.
class Channel {
 public:
  // Units of one visit, 16 us: what anybody else may have to wait for. It may be exceeded by the
  // last descriptor or piece of a flush, and by a piece of a former pool.
  static constexpr WorkUnits kVisitUnits = 160;
  static constexpr WorkUnits kMaxVisitUnits =
      kVisitUnits + kDescriptorUnits +
      2 * (kDescriptorUnits + (Store::kFlushPieceSteps + 1) * kFlushStepUnits +
           Store::kFlushPiecePages * kFlushedPageUnits);

  enum class Event : std::uint8_t { kNone, kRegistered, kRegistrationRefused, kReset };
  struct Visited {
    std::uint64_t completed;
    WorkUnits units;
    Event event;
  };
  enum class Work : std::uint8_t {
    kNone,
    kPlain,
    kUrgent,  // the guest waits for it: gets, and whatever is before them in their lanes
  };

  // `window` is zeroed memory that no guest has seen, or was served by a channel that is gone. Then
  // the guest is told of a new epoch and of a reset, and puts again what was not answered [P3].
  // Writes geometry and host page.
  Channel(Store& store, GuestId guest, const WindowView& window, GuestBell& bell,
          const ChannelOptions& options);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Whether a visit would find anything. Wrong counters are work too.
  bool HasWork() const;
  // The same, with what kind of work it is.
  Work Look();
  Visited Visit(WorkUnits max_units = kVisitUnits);

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
  // The descriptor at `done`, begun and not finished.
  struct LongFlush {
    tmem_desc desc;
    FlushProgress progress;
  };
  // This side's own copies; the window's are never trusted.
  struct Lane {
    std::uint64_t done = 0;
    std::uint64_t posted = 0;        // as last looked at
    std::uint64_t urgent_until = 0;  // somebody waits for what is before this
    std::uint64_t unrung = 0;        // completed since the guest was last asked whether it sleeps
    std::optional<LongFlush> flush = {};
  };
  enum class FreezeState : std::uint8_t { kOpen, kDraining, kFrozen };

  bool RegistrationPending() const;
  Event Register();
  tmem_status CheckRegistration(const tmem_guest_page& page) const;
  void TakeOver();
  void StartOver();
  void Reset();
  bool CountersMatch(std::uint32_t lane, std::uint64_t posted) const;
  // False if some lane's counters are wrong.
  bool LookAtLanes();
  bool IsUrgent(std::uint32_t lane) const;
  void VisitLanes(Work work, WorkUnits max_units, Visited& visited);
  std::uint64_t VisitLane(std::uint32_t lane, WorkUnits max_units);
  bool ExecuteNext(std::uint32_t lane, std::uint64_t at);
  // Its next descriptor is a report that the sink has not finished.
  bool IsBlocked(std::uint32_t lane) const;
  void PublishDone(std::uint32_t lane, std::uint64_t done);
  bool GuestSleepsOn(std::uint32_t lane);
  void ReapSome();
  static WorkUnits UnitsSince(const FlushProgress& before, const FlushProgress& now);
  void PublishNotices();
  void PublishCreditsTarget();
  bool MayGrant() const;
  bool ShrinkChanged() const;
  void PublishShrink();
  void RingGuest();
  const Pool* FindPool(PoolHandle handle) const;

  // Nothing while the descriptor is a flush or a report that is not finished. `desc` is the copy of
  // `entry`.
  std::optional<Completion> Execute(std::uint32_t lane, const tmem_desc& desc, tmem_desc& entry);
  std::optional<Completion> BeginReport(const op::Report& report, tmem_desc& entry);
  std::optional<Completion> ContinueReport(tmem_desc& entry);
  Completion CountReport(const op::ReportDone& report);
  void DropReport();
  Completion OnShrunk(const op::Shrunk& shrunk);
  Completion OnDrained(const op::Drained& drained);
  std::optional<Completion> ContinueFlush(std::uint32_t lane);
  Completion Put(std::uint32_t lane, const op::Put& put);
  Completion PutFilled(const op::PutFilled& put);
  Completion FinishPut(const PageKey& key, Outcome outcome);
  bool TagOfEphemeral(const PageKey& key, std::uint32_t tag);
  Completion Get(std::uint32_t lane, const op::Get& get);
  Completion Refuse(const op::Refused& refused);
  Completion CreatePool(const op::PoolCreate& create);
  FlushProgress DestroyPool(const op::PoolDestroy& destroy);
  Completion ReturnCredits(const op::CreditReturn& back);

  Store& store_;
  const GuestId guest_;
  const WindowView window_;
  GuestBell& bell_;
  const ChannelOptions options_;

  std::vector<Lane> lanes_;
  std::uint32_t next_lane_ = 0;       // where the next visit begins
  WorkUnits units_ = 0;               // of the visit in progress
  std::optional<op::Report> report_;  // that the sink has
  bool reaping_ = false;
  FlushProgress reaped_;
  std::uint64_t answered_request_ = 0;
  bool registered_ = false;
  std::uint64_t features_ = 0;
  std::uint64_t heartbeat_ = 0;
  std::uint64_t former_epoch_ = 0;   // of the channels that served the window before
  std::uint64_t former_resets_ = 0;  // theirs, and one for each of them
  std::vector<Pool> pools_;          // at most TMEM_MAX_POOLS
  bool has_persistent_pool_ = false;
  std::uint64_t credits_granted_ = 0;
  std::uint64_t credits_spent_ = 0;  // consumed by puts or returned
  FreezeState freeze_ = FreezeState::kOpen;
  bool draining_ = false;  // no credits: persistent pages are to go home
  ChannelCounters counters_;
};

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_CHANNEL_H_
