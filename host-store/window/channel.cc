// SPDX-License-Identifier: GPL-2.0-only
// Registration, hand-over and notices of a channel; channel_execute.cc has the operations.
#include "host-store/window/channel.h"

#include <algorithm>

#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

// Puts are published in groups: nobody waits for one. What is waited for is published one by one.
constexpr std::uint64_t kPublishEvery = 8;

// A guest that waits for free slots is told after so many, even if there is more in the lane.
constexpr std::uint64_t kRingEvery = 32;

ChannelOptions WithFeatures(ChannelOptions options) {
  if (options.reports != nullptr || options.module_reports) options.features |= TMEM_FEATURE_REPORT;
  if (options.shrink != nullptr) options.features |= TMEM_FEATURE_SHRINK;
  return options;
}

}  // namespace

Channel::Channel(Store& store, GuestId guest, const WindowView& window, GuestBell& bell,
                 const ChannelOptions& options)
    : store_(store),
      guest_(guest),
      window_(window),
      bell_(bell),
      options_(WithFeatures(options)),
      lanes_(window.lane_count()) {
  window_.PublishGeometry();
  tmem_host_page& host = window_.host_page();
  StoreRelaxed(host.features_offered, tmem_u64{options_.features});
  StoreRelaxed(host.max_pools, tmem_u32{TMEM_MAX_POOLS});
  if ((options_.features & TMEM_FEATURE_REPORT) != 0) {
    StoreRelaxed(host.max_report_ranges, tmem_u32{TMEM_MAX_REPORT_RANGES});
  }
  StoreRelaxed(host.shrink_target_pages, tmem_u64{0});
  StoreRelaxed(host.drain, tmem_u32{0});
  PublishCreditsTarget();
  pools_.reserve(TMEM_MAX_POOLS);
  if (LoadRelaxed(host.register_answer) != 0) {
    TakeOver();
  } else {
    PublishNotices();
  }
}

Channel::~Channel() {
  DropReport();
  if (options_.shrink != nullptr) options_.shrink->BeginRegistration(false);
}

// Goes on counting where the former channel stopped. A guest that wrote there harms only itself.
// Its last request is not answered twice: it is registered again when it asks again.
void Channel::TakeOver() {
  tmem_host_page& host = window_.host_page();
  answered_request_ = LoadRelaxed(host.register_answer);
  heartbeat_ = LoadRelaxed(host.heartbeat);
  former_epoch_ = LoadRelaxed(host.epoch);
  former_resets_ = LoadRelaxed(host.resets) + 1;
  StoreRelaxed(host.awake, tmem_u32{0});
  StoreRelaxed(host.credits_granted, tmem_u64{0});
  StoreRelaxed(host.frozen, tmem_u32{0});
  PublishNotices();
}

bool Channel::RegistrationPending() const {
  const std::uint64_t request = LoadAcquire(window_.guest_page().register_request);
  return request != 0 && request != answered_request_;
}

bool Channel::CountersMatch(std::uint32_t lane, std::uint64_t posted) const {
  const LaneView& view = window_.lane(lane);
  const std::uint64_t done = lanes_[lane].done;
  // Unsigned distance: a `posted` below `done` is a huge one.
  return posted - done <= view.ring_entries() && LoadRelaxed(view.head().done) == done;
}

bool Channel::HasWork() const {
  if (RegistrationPending() || reaping_ || ShrinkChanged()) return true;
  if (!registered_) return false;
  for (std::uint32_t lane = 0; lane < window_.lane_count(); ++lane) {
    const std::uint64_t posted = LoadAcquire(window_.lane(lane).head().posted);
    if (!CountersMatch(lane, posted)) return true;
    if (posted != lanes_[lane].done && !IsBlocked(lane)) return true;
  }
  return false;
}

Channel::Work Channel::Look() {
  if (RegistrationPending()) return Work::kUrgent;
  Work work = reaping_ || ShrinkChanged() ? Work::kPlain : Work::kNone;
  if (!registered_) return work;
  if (!LookAtLanes()) return Work::kUrgent;
  for (std::uint32_t lane = 0; lane < window_.lane_count(); ++lane) {
    if (lanes_[lane].posted == lanes_[lane].done || IsBlocked(lane)) continue;
    if (IsUrgent(lane)) return Work::kUrgent;
    work = Work::kPlain;
  }
  return work;
}

bool Channel::LookAtLanes() {
  for (std::uint32_t number = 0; number < window_.lane_count(); ++number) {
    Lane& lane = lanes_[number];
    const LaneView& view = window_.lane(number);
    const std::uint64_t posted = LoadAcquire(view.head().posted);
    if (!CountersMatch(number, posted)) return false;
    if (posted == lane.posted) continue;
    lane.posted = posted;
    // Who waits posts what he waits for and hands over at once, so it is last. Only a hint, so it
    // may be read although it is not yet taken.
    const tmem_u8 last = LoadRelaxed(view.Entry(posted - 1).op);
    if (last == TMEM_OP_GET || number == window_.control_lane()) lane.urgent_until = posted;
  }
  return true;
}

bool Channel::IsUrgent(std::uint32_t number) const {
  const Lane& lane = lanes_[number];
  if (lane.done < lane.urgent_until) return true;
  return lane.done != lane.posted && LoadRelaxed(window_.lane(number).head().guest_waits) != 0;
}

Channel::Visited Channel::Visit(WorkUnits max_units) {
  PublishNotices();
  units_ = 0;
  if (ShrinkChanged()) {
    PublishShrink();
    RingGuest();
  }
  if (RegistrationPending()) {
    const Event event = Register();
    return {0, kRegistrationUnits, event};
  }
  Visited visited{0, 0, Event::kNone};
  if (registered_) {
    if (!LookAtLanes()) {
      Reset();
      return {0, kRegistrationUnits, Event::kReset};
    }
    VisitLanes(Work::kUrgent, max_units, visited);
    if (visited.units == 0) VisitLanes(Work::kPlain, max_units, visited);
  }
  // At least once, also in a flood: what a dead pool holds others may need.
  if (reaping_) {
    do ReapSome();
    while (reaping_ && units_ < max_units);
  }
  visited.units = units_;
  if (visited.completed != 0) {
    counters_.visits.Add();
    StoreRelaxed(window_.host_page().heartbeat, ++heartbeat_);
    TopUpCredits();
    PublishNotices();
  }
  counters_.work_units.Add(visited.units);
  return visited;
}

void Channel::VisitLanes(Work work, WorkUnits max_units, Visited& visited) {
  bool guest_sleeps = false;
  const std::uint32_t first = next_lane_;
  for (std::uint32_t i = 0; i < window_.lane_count() && units_ < max_units; ++i) {
    const std::uint32_t lane = (first + i) % window_.lane_count();
    if (lanes_[lane].done == lanes_[lane].posted || IsBlocked(lane)) continue;
    if (work == Work::kUrgent && !IsUrgent(lane)) continue;
    // A lane that was not finished comes last next time.
    next_lane_ = (lane + 1) % window_.lane_count();
    visited.completed += VisitLane(lane, max_units);
    guest_sleeps |= GuestSleepsOn(lane);
  }
  visited.units = units_;
  if (guest_sleeps) RingGuest();
}

std::uint64_t Channel::VisitLane(std::uint32_t number, WorkUnits max_units) {
  Lane& lane = lanes_[number];
  const std::uint64_t first = lane.done;
  std::uint64_t at = first;
  while (at != lane.posted && units_ < max_units && !IsBlocked(number)) {
    if (!ExecuteNext(number, at)) continue;  // a flush: the next piece
    ++at;
    if (at - lane.done == kPublishEvery || at <= lane.urgent_until) PublishDone(number, at);
  }
  if (at != lane.done) PublishDone(number, at);
  lane.unrung += at - first;
  return at - first;
}

// False if it is not finished yet.
bool Channel::ExecuteNext(std::uint32_t number, std::uint64_t at) {
  const LaneView& view = window_.lane(number);
  Lane& lane = lanes_[number];
  tmem_desc& entry = view.Entry(at);
  __builtin_prefetch(&view.Entry(at + 1));
  std::optional<Completion> completion;
  tmem_u8 op = 0;
  if (lane.flush) {
    op = lane.flush->desc.op;
    completion = ContinueFlush(number);
  } else if (report_ && number == window_.control_lane()) {
    op = TMEM_OP_REPORT;
    completion = ContinueReport(entry);
  } else {
    const tmem_desc desc = CopyOnce(entry);
    op = desc.op;
    units_ += kDescriptorUnits;
    completion = Execute(number, desc, entry);
  }
  if (!completion) return false;
  StoreRelaxed(entry.value, completion->value);
  StoreRelaxed(entry.tag, completion->tag);
  StoreRelaxed(entry.flags, completion->flags);
  StoreRelaxed(entry.status, static_cast<tmem_u16>(completion->status));
  counters_
      .operations[OpPosition(op)][StatusPosition(static_cast<std::uint16_t>(completion->status))]
      .Add();
  return true;
}

bool Channel::IsBlocked(std::uint32_t lane) const {
  return report_ && lane == window_.control_lane() && !options_.reports->Ready();
}

void Channel::PublishDone(std::uint32_t number, std::uint64_t done) {
  lanes_[number].done = done;
  StoreRelease(window_.lane(number).head().done, done);
}

// Asked when a lane is done with, or when much of it is: a guest that waits for a batch is not rung
// for each part of it. Whenever a lane has run empty it has been asked, so none sleeps for ever.
bool Channel::GuestSleepsOn(std::uint32_t number) {
  Lane& lane = lanes_[number];
  const bool finished =
      lane.done == lane.posted || lane.done == lane.urgent_until || IsBlocked(number);
  if (lane.unrung == 0 || (!finished && lane.unrung < kRingEvery)) return false;
  lane.unrung = 0;
  FullFence();  // after `done`, before guest_waits
  return LoadRelaxed(window_.lane(number).head().guest_waits) != 0;
}

void Channel::ReapSome() {
  if (reaped_.done) reaped_ = {};
  const FlushProgress before = reaped_;
  reaping_ = store_.Reap(guest_, reaped_);
  units_ += UnitsSince(before, reaped_);
}

WorkUnits Channel::UnitsSince(const FlushProgress& before, const FlushProgress& now) {
  return kDescriptorUnits + (now.steps - before.steps) * kFlushStepUnits +
         (now.pages - before.pages) * kFlushedPageUnits;
}

void Channel::Wake() {
  StoreRelaxed(window_.host_page().awake, tmem_u32{1});
  StoreRelaxed(window_.host_page().heartbeat, ++heartbeat_);
}

void Channel::PrepareSleep() {
  StoreRelaxed(window_.host_page().awake, tmem_u32{0});
}

void Channel::RingGuest() {
  counters_.notifications_sent.Add();
  bell_.Ring();
}

// ---- registration ---------------------------------------------------------------------------

tmem_status Channel::CheckRegistration(const tmem_guest_page& page) const {
  if (page.version_chosen != TMEM_ABI_VERSION) return TMEM_STATUS_UNSUPPORTED;
  if ((page.features_chosen & ~options_.features) != 0) return TMEM_STATUS_UNSUPPORTED;
  if ((page.boot_id[0] | page.boot_id[1]) == 0) return TMEM_STATUS_BAD_FIELD;
  if (page.zero0 != 0 || (page.zero1[0] | page.zero1[1] | page.zero1[2]) != 0) {
    return TMEM_STATUS_BAD_FIELD;
  }
  return TMEM_STATUS_OK;
}

Channel::Event Channel::Register() {
  const tmem_guest_page page = CopyOnce(window_.guest_page());
  const tmem_status status = CheckRegistration(page);
  // A refused request ends the former registration all the same: its guest is gone (K5).
  StartOver();
  for (std::uint32_t lane = 0; lane < window_.lane_count(); ++lane) {
    ZeroShared(window_.lane(lane).head());
  }
  registered_ = status == TMEM_STATUS_OK;
  features_ = page.features_chosen;
  if (options_.shrink != nullptr) {
    options_.shrink->BeginRegistration(registered_ && (features_ & TMEM_FEATURE_SHRINK) != 0);
    PublishShrink();
  }
  answered_request_ = page.register_request;
  tmem_host_page& host = window_.host_page();
  StoreRelaxed(host.register_status, static_cast<tmem_u32>(status));
  StoreRelease(host.register_answer, page.register_request);
  RingGuest();
  if (!registered_) {
    counters_.registrations_refused.Add();
    return Event::kRegistrationRefused;
  }
  counters_.registrations.Add();
  return Event::kRegistered;
}

// Everything the channel had is gone: pools, credits, counters. Only the memory goes later.
void Channel::StartOver() {
  DropReport();
  store_.BeginResetGuest(guest_);
  reaping_ = true;
  reaped_ = {};
  std::fill(lanes_.begin(), lanes_.end(), Lane{});
  pools_.clear();
  has_persistent_pool_ = false;
  credits_granted_ = 0;
  credits_spent_ = 0;
  StoreRelaxed(window_.host_page().credits_granted, tmem_u64{0});
  PublishNotices();
}

void Channel::Reset() {
  StartOver();
  registered_ = false;
  if (options_.shrink != nullptr) {
    options_.shrink->BeginRegistration(false);
    PublishShrink();
  }
  counters_.resets.Add();
  PublishNotices();
  RingGuest();
}

// ---- notices --------------------------------------------------------------------------------

void Channel::PublishNotices() {
  // All terms only grow, so the sum changes whenever one of them does.
  const std::uint64_t epoch = former_epoch_ + store_.epoch() + counters_.resets.value() + 1;
  const std::uint64_t resets = former_resets_ + counters_.resets.value();
  // Compared with the window's: in one that was rolled back with its guest older ones stand again.
  tmem_host_page& host = window_.host_page();
  if (LoadRelaxed(host.epoch) != epoch) StoreRelease(host.epoch, tmem_u64{epoch});
  if (LoadRelaxed(host.resets) != resets) StoreRelease(host.resets, tmem_u64{resets});
  if (freeze_ == FreezeState::kDraining && store_.StatusOf(guest_).credits == 0) {
    freeze_ = FreezeState::kFrozen;
    store_.SetAdmission(guest_, Store::Admission::kFrozen);
    StoreRelease(window_.host_page().frozen, tmem_u32{1});
  }
}

bool Channel::MayGrant() const {
  return freeze_ == FreezeState::kOpen && !draining_;
}

// A guest returns what it has above it.
void Channel::PublishCreditsTarget() {
  StoreRelease(window_.host_page().credits_target,
               MayGrant() ? tmem_u64{options_.credit_window} : tmem_u64{0});
}

bool Channel::CreditsLow() const {
  return has_persistent_pool_ && MayGrant() &&
         credits_granted_ - credits_spent_ < options_.credit_window / 2;
}

void Channel::TopUpCredits() {
  if (!has_persistent_pool_ || !MayGrant()) return;
  if (credits_granted_ - credits_spent_ >= options_.credit_window) return;
  const std::uint64_t granted = store_.TopUpCredits(guest_, options_.credit_window);
  if (granted == credits_granted_) return;
  credits_granted_ = granted;
  StoreRelease(window_.host_page().credits_granted, tmem_u64{granted});
}

void Channel::Freeze() {
  if (freeze_ != FreezeState::kOpen) return;
  freeze_ = FreezeState::kDraining;
  PublishCreditsTarget();
  PublishNotices();
}

void Channel::Thaw() {
  freeze_ = FreezeState::kOpen;
  store_.SetAdmission(guest_, Store::Admission::kOpen);
  PublishCreditsTarget();
  StoreRelease(window_.host_page().frozen, tmem_u32{0});
}

// ---- what the operator asks -------------------------------------------------------------------

bool Channel::ShrinkChanged() const {
  return options_.shrink != nullptr && options_.shrink->changed();
}

void Channel::PublishShrink() {
  const ShrinkRequests::Notices notices = options_.shrink->Take();
  draining_ = notices.no_credits;
  PublishCreditsTarget();
  tmem_host_page& host = window_.host_page();
  StoreRelease(host.shrink_target_pages, tmem_u64{notices.shrink_target_pages});
  StoreRelease(host.drain, tmem_u32{notices.drain});
  TopUpCredits();
}

}  // namespace tmem
