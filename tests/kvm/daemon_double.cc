// SPDX-License-Identifier: GPL-2.0-only
// The daemon's side of /dev/kvm_tmem, driven by a test.
#include "tests/kvm/daemon_double.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

constexpr std::uint32_t kMaxPools = 8;

[[noreturn]] void Throw(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

DoubleChannel::DoubleChannel(UniqueFd fd, UniqueFd kick_fd, std::uint64_t window_bytes)
    : fd_(std::move(fd)), kick_fd_(std::move(kick_fd)), window_bytes_(window_bytes) {
  void* memory = ::mmap(nullptr, window_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) Throw("mmap of a channel");
  memory_ = static_cast<std::byte*>(memory);
  view_.emplace(memory_, CopyOnce(reinterpret_cast<const tmem_header*>(memory_)->geometry));
  done_.assign(view_->lane_count(), 0);
  tmem_host_page& host = view_->host_page();
  host.features_offered = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL;
  host.max_pools = kMaxPools;
  host.epoch = 1;
}

DoubleChannel::~DoubleChannel() {
  ::munmap(memory_, window_bytes_);
}

void DoubleChannel::AnswerRegistration(tmem_status status) {
  tmem_host_page& host = view_->host_page();
  host.register_status = status;
  StoreRelease(host.register_answer, LoadRelaxed(view_->guest_page().register_request));
  Notify();
}

void DoubleChannel::Notify() const {
  (void)::ioctl(fd_.get(), KVM_TMEM_COMPLETE);
}

std::uint64_t DoubleChannel::Waiting(std::uint32_t lane) const {
  return LoadAcquire(view_->lane(lane).head().posted) - done_[lane];
}

tmem_desc DoubleChannel::TakeAndAnswer(std::uint32_t lane, tmem_status status,
                                       std::uint64_t value) {
  const LaneView& view = view_->lane(lane);
  tmem_desc& entry = view.Entry(done_[lane]);
  const tmem_desc taken = CopyOnce(entry);
  entry.value = value;
  entry.status = static_cast<tmem_u16>(status);
  StoreRelease(view.head().done, tmem_u64{++done_[lane]});
  return taken;
}

std::uint64_t DoubleChannel::Serve() {
  std::uint64_t served = 0;
  for (std::uint32_t lane = 0; lane < view_->lane_count(); ++lane) {
    const LaneView& view = view_->lane(lane);
    for (; Waiting(lane) > 0; ++served) {
      Execute(lane, view.Entry(done_[lane]));
      StoreRelease(view.head().done, tmem_u64{++done_[lane]});
    }
  }
  return served;
}

std::uint64_t DoubleChannel::Flush(const tmem_desc& desc, std::uint32_t lane) {
  return std::erase_if(pages_, [&](const auto& entry) {
    const Key& key = entry.first;
    if (key[0] != desc.pool) return false;
    const tmem_u64 object[3] = {key[1], key[2], key[3]};
    if (tmem_lane_of(key[0], object, key[4], view_->geometry().key_lanes) != lane) return false;
    if (desc.op == TMEM_OP_FLUSH_POOL) return true;
    if (std::memcmp(object, desc.object, sizeof object) != 0) return false;
    return desc.op == TMEM_OP_FLUSH_OBJECT ||
           (key[4] >= desc.index && key[4] - desc.index < desc.count);
  });
}

void DoubleChannel::Execute(std::uint32_t lane, tmem_desc& entry) {
  const tmem_desc desc = CopyOnce(entry);
  const Key key = {desc.pool, desc.object[0], desc.object[1], desc.object[2], desc.index};
  entry.status = TMEM_STATUS_OK;
  if (desc.op == TMEM_OP_POOL_CREATE) {
    ++pools_;
    entry.value = pools_ << 32 | (pools_ % kMaxPools);
  } else if (desc.op == TMEM_OP_PUT && desc.value < view_->lane(lane).slots()) {
    const PageBuffer slot = view_->lane(lane).Slot(static_cast<std::uint32_t>(desc.value));
    std::memcpy(pages_[key].data(), slot.data(), kPageBytes);
    entry.value = 0;
  } else if (desc.op == TMEM_OP_GET && desc.value < view_->lane(lane).slots()) {
    const auto found = pages_.find(key);
    entry.status = found == pages_.end() ? TMEM_STATUS_MISS : TMEM_STATUS_OK;
    if (found == pages_.end()) return;
    const PageBuffer slot = view_->lane(lane).Slot(static_cast<std::uint32_t>(desc.value));
    std::memcpy(slot.data(), found->second.data(), kPageBytes);
    pages_.erase(found);
  } else if (desc.op >= TMEM_OP_FLUSH && desc.op <= TMEM_OP_FLUSH_POOL) {
    entry.value = Flush(desc, lane);
  } else if (desc.op != TMEM_OP_NOP) {
    entry.status = desc.op == TMEM_OP_PUT || desc.op == TMEM_OP_GET ? TMEM_STATUS_BAD_SLOT
                                                                    : TMEM_STATUS_BAD_OP;
  }
}

bool DoubleChannel::WasKicked() const {
  eventfd_t count = 0;
  return ::eventfd_read(kick_fd_.get(), &count) == 0;
}

bool DoubleChannel::HasHungUp() const {
  pollfd wanted{fd_.get(), 0, 0};
  return ::poll(&wanted, 1, 0) == 1 && (wanted.revents & POLLHUP) != 0;
}

std::optional<std::vector<kvm_tmem_slot>> DoubleChannel::Slots() const {
  kvm_tmem_slots slots{};
  slots.count = KVM_TMEM_MAX_SLOTS;
  if (::ioctl(fd_.get(), KVM_TMEM_SLOTS, &slots) != 0) return std::nullopt;
  return std::vector<kvm_tmem_slot>(slots.slots, slots.slots + slots.count);
}

DaemonDouble::DaemonDouble() : fd_(::open(KVM_TMEM_DEVICE_PATH, O_RDWR | O_CLOEXEC)) {
  if (!fd_.valid()) Throw(KVM_TMEM_DEVICE_PATH);
}

kvm_tmem_info DaemonDouble::Info() const {
  kvm_tmem_info info{};
  if (::ioctl(fd_.get(), KVM_TMEM_INFO, &info) != 0) Throw("KVM_TMEM_INFO");
  return info;
}

std::optional<kvm_tmem_guest> DaemonDouble::Next() const {
  kvm_tmem_guest guest{};
  if (::ioctl(fd_.get(), KVM_TMEM_NEXT, &guest) == 0) return guest;
  if (errno != EAGAIN) Throw("KVM_TMEM_NEXT");
  return std::nullopt;
}

bool DaemonDouble::IsReadable(int timeout_ms) const {
  pollfd wanted{fd_.get(), POLLIN, 0};
  return ::poll(&wanted, 1, timeout_ms) == 1 && (wanted.revents & POLLIN) != 0;
}

std::unique_ptr<DoubleChannel> DaemonDouble::Accept(const kvm_tmem_guest& guest) const {
  UniqueFd kick_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  kvm_tmem_accept accept{};
  accept.channel = guest.channel;
  accept.kick_fd = kick_fd.get();
  UniqueFd fd(::ioctl(fd_.get(), KVM_TMEM_ACCEPT, &accept));
  if (!fd.valid() && errno == ENOENT) return nullptr;
  if (!fd.valid()) Throw("KVM_TMEM_ACCEPT");
  return std::make_unique<DoubleChannel>(std::move(fd), std::move(kick_fd), guest.window_bytes);
}

int DaemonDouble::Refuse(std::uint64_t channel) const {
  __u64 number = channel;
  return ::ioctl(fd_.get(), KVM_TMEM_REFUSE, &number) == 0 ? 0 : errno;
}

}  // namespace tmem
