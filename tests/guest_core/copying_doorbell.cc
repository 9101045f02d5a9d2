// SPDX-License-Identifier: GPL-2.0-only
// A double of the host's kernel module.
#include "tests/guest_core/copying_doorbell.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

constexpr auto kLongestCall = std::chrono::milliseconds(1);
constexpr auto kPoll = std::chrono::microseconds(20);
constexpr std::uint32_t kDescriptorsInAPage = TMEM_PAGE_BYTES / sizeof(tmem_desc);

}  // namespace

void CopyingDoorbell::Free::operator()(void* memory) const {
  std::free(memory);
}

CopyingDoorbell::CopyingDoorbell(const tmem_geometry& geometry)
    : geometry_(geometry),
      memory_(std::aligned_alloc(TMEM_PAGE_BYTES, geometry.window_bytes)),
      lanes_(geometry.key_lanes + 1) {
  std::memset(window(), 0, geometry.window_bytes);
  static_cast<tmem_header*>(window())->geometry = geometry;
}

std::uint32_t CopyingDoorbell::EntriesOf(std::uint32_t lane) const {
  return lane == geometry_.key_lanes ? geometry_.control_ring_entries : geometry_.ring_entries;
}

std::uint32_t CopyingDoorbell::SlotsOf(std::uint32_t lane) const {
  return lane == geometry_.key_lanes ? geometry_.control_slots : geometry_.lane_slots;
}

std::byte* CopyingDoorbell::At(void* window, std::uint32_t lane, std::uint64_t offset) const {
  return static_cast<std::byte*>(window) + tmem_lane_offset(&geometry_, lane) + offset;
}

tmem_lane_head& CopyingDoorbell::HeadAt(void* window, std::uint32_t lane) const {
  return *reinterpret_cast<tmem_lane_head*>(At(window, lane, 0));
}

tmem_desc& CopyingDoorbell::DescAt(void* window, std::uint32_t lane, std::uint64_t entry) const {
  const std::uint64_t place = entry & (EntriesOf(lane) - 1);
  return *reinterpret_cast<tmem_desc*>(
      At(window, lane, TMEM_PAGE_BYTES + place * sizeof(tmem_desc)));
}

std::byte* CopyingDoorbell::SlotAt(void* window, std::uint32_t lane, std::uint64_t slot) const {
  return At(window, lane, tmem_slots_offset(EntriesOf(lane)) + slot * TMEM_PAGE_BYTES);
}

tmem_lane_head& CopyingDoorbell::guest_head(std::uint32_t lane) {
  return HeadAt(window(), lane);
}

void CopyingDoorbell::Accept(Channel channel) {
  MutexLock lock(mutex_);
  channel_ = std::move(channel);
}

void CopyingDoorbell::End() {
  MutexLock lock(mutex_);
  channel_ = {};
  request_ = 0;
  if (state_ == State::kRegistered) state_ = State::kGone;
}

void CopyingDoorbell::Restore() {
  MutexLock lock(mutex_);
  channel_ = {};
  request_ = 0;
  state_ = State::kNotRegistered;
}

void CopyingDoorbell::PendNext(std::uint32_t hypercalls) {
  MutexLock lock(mutex_);
  pend_next_ = hypercalls;
}

CopyingDoorbell::Counts CopyingDoorbell::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

std::uint32_t CopyingDoorbell::Enter(tmem_hypercall operation, std::uint64_t lanes) {
  {
    MutexLock lock(mutex_);
    counts_.registers += operation == TMEM_HC_REGISTER;
    counts_.kicks += operation == TMEM_HC_KICK;
    counts_.calls += operation == TMEM_HC_CALL;
  }
  const std::uint32_t answer =
      operation == TMEM_HC_REGISTER ? Register() : HandOver(operation, lanes);
  MutexLock lock(mutex_);
  counts_.pendings += answer == TMEM_HC_PENDING;
  return answer;
}

bool CopyingDoorbell::TakePendingLocked() {
  if (pend_next_ == 0) return false;
  --pend_next_;
  return true;
}

// ---- registration -----------------------------------------------------------------------------

std::uint32_t CopyingDoorbell::Register() {
  const tmem_guest_page guest = CopyOnce(static_cast<tmem_header*>(window())->guest);
  {
    MutexLock lock(mutex_);
    if (!channel_.kick) return TMEM_HC_GONE;
    if (request_ != guest.register_request) {
      request_ = guest.register_request;
      state_ = State::kNotRegistered;
      ++registration_;
      tmem_guest_page& to = static_cast<tmem_header*>(channel_.window)->guest;
      StoreRelaxed(to.boot_id[0], guest.boot_id[0]);
      StoreRelaxed(to.boot_id[1], guest.boot_id[1]);
      StoreRelaxed(to.features_chosen, guest.features_chosen);
      StoreRelaxed(to.version_chosen, guest.version_chosen);
      StoreRelease(to.register_request, guest.register_request);
      FullFence();
      channel_.kick();
    }
    if (TakePendingLocked()) return TMEM_HC_PENDING;
  }
  const auto deadline = std::chrono::steady_clock::now() + kLongestCall;
  do {
    {
      MutexLock lock(mutex_);
      if (!channel_.kick) return TMEM_HC_GONE;
      if (AnsweredLocked(guest.register_request)) return TMEM_HC_OK;
    }
    std::this_thread::sleep_for(kPoll);
  } while (std::chrono::steady_clock::now() < deadline);
  return TMEM_HC_PENDING;
}

bool CopyingDoorbell::AnsweredLocked(std::uint64_t request) {
  const tmem_host_page& host = static_cast<tmem_header*>(channel_.window)->host;
  if (LoadAcquire(host.register_answer) != request) return false;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    ZeroShared(guest_head(lane));
    lanes_[lane] = {};
  }
  state_ = State::kRegistered;
  CopyHostPageLocked();
  StoreRelease(static_cast<tmem_header*>(window())->host.register_answer, tmem_u64{request});
  return true;
}

void CopyingDoorbell::CopyHostPageLocked() {
  const auto* from =
      reinterpret_cast<const std::uint64_t*>(&static_cast<tmem_header*>(channel_.window)->host);
  auto* to = reinterpret_cast<std::uint64_t*>(&static_cast<tmem_header*>(window())->host);
  for (std::size_t word = 0; word < sizeof(tmem_host_page) / sizeof *to; ++word) {
    if (word == offsetof(tmem_host_page, register_answer) / sizeof *to) continue;
    const bool awake = word == offsetof(tmem_host_page, awake) / sizeof *to;
    StoreRelaxed(to[word], awake ? 0 : LoadRelaxed(from[word]));
  }
}

// ---- hand-over --------------------------------------------------------------------------------

std::uint32_t CopyingDoorbell::RefusalLocked() const {
  if (state_ == State::kRegistered) return TMEM_HC_OK;
  return state_ == State::kGone ? TMEM_HC_GONE : TMEM_HC_NOT_REGISTERED;
}

// All lanes first, then one kick; what is done comes back, a CALL waits for all of it.
std::uint32_t CopyingDoorbell::HandOver(tmem_hypercall operation, std::uint64_t lanes) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestCall;
  std::uint64_t registration = 0;
  {
    MutexLock lock(mutex_);
    if (const std::uint32_t refusal = RefusalLocked(); refusal != TMEM_HC_OK) return refusal;
    if (lanes >> lanes_.size() != 0) return TMEM_HC_BAD_ARGUMENT;
    for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
      if ((lanes >> lane & 1) == 0 || TakeLaneLocked(lane)) continue;
      ++counts_.torn_down;
      state_ = State::kGone;
      return TMEM_HC_GONE;
    }
    registration = registration_;
    FullFence();
    if (LoadRelaxed(static_cast<tmem_header*>(channel_.window)->host.awake) == 0) channel_.kick();
    if (operation == TMEM_HC_CALL && TakePendingLocked()) return TMEM_HC_PENDING;
  }
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (registration_ != registration) return TMEM_HC_GONE;
      if (const std::uint32_t refusal = RefusalLocked(); refusal != TMEM_HC_OK) return refusal;
      const bool all = ReturnLanesLocked(lanes);
      CopyHostPageLocked();
      if (operation == TMEM_HC_KICK || all) return TMEM_HC_OK;
      if (std::chrono::steady_clock::now() >= deadline) return TMEM_HC_PENDING;
    }
    std::this_thread::sleep_for(kPoll);
  }
}

// False: the counters are not this registration's (X3).
bool CopyingDoorbell::TakeLaneLocked(std::uint32_t lane) {
  Lane& own = lanes_[lane];
  const std::uint64_t posted = LoadAcquire(guest_head(lane).posted);
  if (posted < own.taken || posted - own.returned > EntriesOf(lane) ||
      LoadRelaxed(guest_head(lane).done) != own.returned) {
    return false;
  }
  for (; own.taken != posted; ++own.taken) {
    const tmem_desc desc = DescAt(window(), lane, own.taken);
    if (desc.op == TMEM_OP_PUT && (desc.flags & TMEM_DESC_FILL) == 0 &&
        desc.value < SlotsOf(lane)) {
      std::memcpy(SlotAt(channel_.window, lane, desc.value), SlotAt(window(), lane, desc.value),
                  TMEM_PAGE_BYTES);
      ++counts_.pages_in;
    }
    DescAt(channel_.window, lane, own.taken) = desc;
  }
  StoreRelease(HeadAt(channel_.window, lane).posted, tmem_u64{posted});
  return true;
}

// False: some of what the lanes hold is not done, or more than one hypercall may write.
bool CopyingDoorbell::ReturnLanesLocked(std::uint64_t lanes) {
  bool all = true;
  std::uint32_t pages = 0;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if ((lanes >> lane & 1) != 0) all &= ReturnLaneLocked(lane, pages);
  }
  return all;
}

bool CopyingDoorbell::ReturnLaneLocked(std::uint32_t lane, std::uint32_t& pages) {
  Lane& own = lanes_[lane];
  const std::uint64_t done = LoadAcquire(HeadAt(channel_.window, lane).done);
  const std::uint64_t before = own.returned;
  if (done - own.returned > own.taken - own.returned) std::abort();  // the store's fault
  for (; own.returned != done; ++own.returned) {
    const tmem_desc& from = DescAt(channel_.window, lane, own.returned);
    const bool payload = from.op == TMEM_OP_GET && from.status == TMEM_STATUS_OK &&
                         (from.flags & TMEM_DESC_FILL) == 0 && from.value < SlotsOf(lane);
    // Head and ring page of the lane's first entry, each further ring page, and the payload.
    const std::uint32_t more = (own.returned == before ? 2 : 0) +
                               (own.returned % kDescriptorsInAPage == 0 ? 1 : 0) +
                               (payload ? 1 : 0);
    if (pages + more > kMaxPagesWritten) break;
    pages += more;
    tmem_desc& to = DescAt(window(), lane, own.returned);
    to.value = from.value;
    to.tag = from.tag;
    to.flags = from.flags;
    StoreRelaxed(to.status, from.status);
    if (payload) {
      std::memcpy(SlotAt(window(), lane, from.value), SlotAt(channel_.window, lane, from.value),
                  TMEM_PAGE_BYTES);
      ++counts_.pages_out;
    }
  }
  StoreRelease(guest_head(lane).done, tmem_u64{own.returned});
  return own.returned == own.taken;
}

}  // namespace tmem
