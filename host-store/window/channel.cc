// SPDX-License-Identifier: GPL-2.0-only
// Registration, hand-over and notices of a channel; channel_execute.cc has the operations.
#include "host-store/window/channel.h"

#include <algorithm>

#include "host-store/window/shared_memory_access.h"

namespace tmem {

Channel::Channel(Store& store, GuestId guest, const WindowView& window, GuestBell& bell,
                 const ChannelOptions& options)
    : store_(store),
      guest_(guest),
      window_(window),
      bell_(bell),
      options_(options),
      done_(window.lane_count(), 0) {
  window_.PublishGeometry();
  tmem_host_page& host = window_.host_page();
  host.features_offered = options_.features;
  host.max_pools = TMEM_MAX_POOLS;
  host.credits_target = options_.credit_window;
  pools_.reserve(TMEM_MAX_POOLS);
  PublishNotices();
}

bool Channel::RegistrationPending() const {
  const std::uint64_t request = LoadAcquire(window_.guest_page().register_request);
  return request != 0 && request != answered_request_;
}

bool Channel::CountersMatch(std::uint32_t lane, std::uint64_t posted) const {
  const LaneView& view = window_.lane(lane);
  const std::uint64_t done = done_[lane];
  // Unsigned distance: a `posted` below `done` is a huge one.
  return posted - done <= view.ring_entries() && LoadRelaxed(view.head().done) == done;
}

bool Channel::HasWork() const {
  if (RegistrationPending()) return true;
  if (!registered_) return false;
  for (std::uint32_t lane = 0; lane < window_.lane_count(); ++lane) {
    const std::uint64_t posted = LoadAcquire(window_.lane(lane).head().posted);
    if (posted != done_[lane] || !CountersMatch(lane, posted)) return true;
  }
  return false;
}

Channel::Visited Channel::Visit() {
  PublishNotices();
  if (RegistrationPending()) return {0, Register()};
  Visited visited{0, Event::kNone};
  if (!registered_) return visited;
  bool guest_waits = false;
  for (std::uint32_t lane = 0; lane < window_.lane_count(); ++lane) {
    const std::uint64_t posted = LoadAcquire(window_.lane(lane).head().posted);
    if (!CountersMatch(lane, posted)) {
      Reset();
      return {visited.completed, Event::kReset};
    }
    const std::uint64_t completed = VisitLane(lane, posted);
    if (completed == 0) continue;
    visited.completed += completed;
    guest_waits |= LoadRelaxed(window_.lane(lane).head().guest_waits) != 0;
  }
  if (visited.completed != 0) {
    counters_.visits.Add();
    StoreRelaxed(window_.host_page().heartbeat, ++heartbeat_);
    TopUpCredits();
    PublishNotices();
  }
  if (guest_waits) RingGuest();
  return visited;
}

std::uint64_t Channel::VisitLane(std::uint32_t lane, std::uint64_t posted) {
  const LaneView& view = window_.lane(lane);
  std::uint64_t& done = done_[lane];
  const std::uint64_t batch = std::min(posted - done, kLaneBatch);
  if (batch == 0) return 0;
  for (std::uint64_t i = 0; i < batch; ++i) {
    tmem_desc& entry = view.Entry(done + i);
    const tmem_desc desc = CopyOnce(entry);
    const Completion completion = Execute(lane, desc);
    StoreRelaxed(entry.value, completion.value);
    StoreRelaxed(entry.tag, completion.tag);
    StoreRelaxed(entry.flags, completion.flags);
    StoreRelaxed(entry.status, static_cast<tmem_u16>(completion.status));
    counters_
        .operations[OpPosition(desc.op)]
                   [StatusPosition(static_cast<std::uint16_t>(completion.status))]
        .Add();
  }
  done += batch;
  StoreRelease(view.head().done, done);
  FullFence();  // before the caller loads guest_waits
  return batch;
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

// Everything the channel had is gone: pools, credits, counters.
void Channel::StartOver() {
  store_.ResetGuest(guest_);
  std::fill(done_.begin(), done_.end(), 0);
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
  counters_.resets.Add();
  tmem_host_page& host = window_.host_page();
  PublishNotices();
  StoreRelease(host.resets, tmem_u64{counters_.resets.value()});
  RingGuest();
}

// ---- notices --------------------------------------------------------------------------------

void Channel::PublishNotices() {
  // Both terms only grow, so the sum changes whenever one of them does.
  const std::uint64_t epoch = store_.epoch() + counters_.resets.value() + 1;
  if (epoch != published_epoch_) {
    published_epoch_ = epoch;
    StoreRelease(window_.host_page().epoch, tmem_u64{epoch});
  }
  if (freeze_ == FreezeState::kDraining && store_.StatusOf(guest_).credits == 0) {
    freeze_ = FreezeState::kFrozen;
    store_.SetAdmission(guest_, Store::Admission::kFrozen);
    StoreRelease(window_.host_page().frozen, tmem_u32{1});
  }
}

bool Channel::CreditsLow() const {
  return has_persistent_pool_ && freeze_ == FreezeState::kOpen &&
         credits_granted_ - credits_spent_ < options_.credit_window / 2;
}

void Channel::TopUpCredits() {
  if (!has_persistent_pool_ || freeze_ != FreezeState::kOpen) return;
  const std::uint64_t granted = store_.TopUpCredits(guest_, options_.credit_window);
  if (granted == credits_granted_) return;
  credits_granted_ = granted;
  StoreRelease(window_.host_page().credits_granted, tmem_u64{granted});
}

void Channel::Freeze() {
  if (freeze_ != FreezeState::kOpen) return;
  freeze_ = FreezeState::kDraining;
  StoreRelease(window_.host_page().credits_target, tmem_u64{0});
  PublishNotices();
}

void Channel::Thaw() {
  freeze_ = FreezeState::kOpen;
  store_.SetAdmission(guest_, Store::Admission::kOpen);
  StoreRelease(window_.host_page().credits_target, tmem_u64{options_.credit_window});
  StoreRelease(window_.host_page().frozen, tmem_u32{0});
}

}  // namespace tmem
