// SPDX-License-Identifier: GPL-2.0-only
// Keeps what was asked of a guest and what it answered.
#include "host-store/window/shrink_requests.h"

#include <algorithm>

namespace tmem {
namespace {

using Phase = ShrinkRequests::Phase;

// A guest may say any number.
void AddPages(std::uint64_t& to, std::uint64_t pages) {
  to += std::min(pages, UINT64_MAX - to);
}

bool IsOpen(Phase phase) {
  return phase == Phase::kAsked || phase == Phase::kWorking;
}

}  // namespace

void ShrinkRequests::AskShrink(std::uint64_t pages) {
  MutexLock lock(mutex_);
  if (pages == 0) {
    if (IsOpen(shrink_.phase)) shrink_.phase = Phase::kCancelled;
  } else {
    shrink_ = {.phase = Phase::kAsked, .asked_pages = pages, .done_pages = 0};
  }
  left_pages_ = pages;
  Change();
}

void ShrinkRequests::AskDrain() {
  MutexLock lock(mutex_);
  draining_ = true;
  if (++drain_number_ == 0) ++drain_number_;
  drain_ = {.phase = Phase::kAsked, .asked_pages = 0, .done_pages = 0};
  Change();
}

void ShrinkRequests::EndDrain() {
  MutexLock lock(mutex_);
  draining_ = false;
  if (IsOpen(drain_.phase)) drain_.phase = Phase::kCancelled;
  Change();
}

ShrinkRequests::Status ShrinkRequests::status() const {
  MutexLock lock(mutex_);
  return {.taken = taken_,
          .left_pages = left_pages_,
          .draining = draining_,
          .shrink = shrink_,
          .drain = drain_};
}

ShrinkRequests::Notices ShrinkRequests::Take() {
  MutexLock lock(mutex_);
  changed_.store(false, std::memory_order_relaxed);
  return {.shrink_target_pages = taken_ ? left_pages_ : 0,
          .drain = taken_ && draining_ ? drain_number_ : 0,
          .no_credits = draining_};
}

void ShrinkRequests::BeginRegistration(bool taken) {
  MutexLock lock(mutex_);
  taken_ = taken;
  left_pages_ = 0;
  if (IsOpen(shrink_.phase)) shrink_.phase = Phase::kOver;
  // The next guest begins with it anew, and has nothing yet.
  if (draining_) drain_.phase = Phase::kAsked;
  Change();
}

std::uint64_t ShrinkRequests::OnShrunk(std::uint64_t pages, tmem_shrink_outcome outcome) {
  MutexLock lock(mutex_);
  AddPages(shrink_.done_pages, pages);
  left_pages_ -= std::min(left_pages_, pages);
  if (IsOpen(shrink_.phase)) {
    shrink_.phase = left_pages_ == 0                   ? Phase::kDone
                    : outcome == TMEM_SHRINK_CONTINUES ? Phase::kWorking
                                                       : Phase::kNothingLeft;
  }
  if (outcome != TMEM_SHRINK_CONTINUES) left_pages_ = 0;
  Change();
  return left_pages_;
}

void ShrinkRequests::OnDrained(std::uint64_t pages, tmem_shrink_outcome outcome) {
  MutexLock lock(mutex_);
  AddPages(drain_.done_pages, pages);
  if (!IsOpen(drain_.phase)) return;
  switch (outcome) {
    case TMEM_SHRINK_CONTINUES: drain_.phase = Phase::kWorking; break;
    case TMEM_SHRINK_NOTHING_LEFT: drain_.phase = Phase::kDone; break;
    case TMEM_SHRINK_NO_MEMORY: drain_.phase = Phase::kNoMemory; break;
    case TMEM_SHRINK_UNREADABLE: drain_.phase = Phase::kUnreadable; break;
  }
}

std::string_view NameOf(Phase phase) {
  switch (phase) {
    case Phase::kNone: return "none";
    case Phase::kAsked: return "asked";
    case Phase::kWorking: return "working";
    case Phase::kDone: return "done";
    case Phase::kNothingLeft: return "nothing_left";
    case Phase::kNoMemory: return "no_memory";
    case Phase::kUnreadable: return "unreadable";
    case Phase::kCancelled: return "cancelled";
    case Phase::kOver: return "over";
  }
  return "none";
}

}  // namespace tmem
