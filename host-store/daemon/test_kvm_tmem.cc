// SPDX-License-Identifier: GPL-2.0-only
// The double: memfds for channels, socket pairs for their ends.
#include "host-store/daemon/test_kvm_tmem.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <utility>

#include "host-store/window/geometry.h"

namespace tmem {

class TestKvmTmem::Bell final : public GuestBell {
 public:
  explicit Bell(std::shared_ptr<std::atomic<std::uint64_t>> rings) : rings_(std::move(rings)) {}
  void Ring() override { rings_->fetch_add(1); }

 private:
  const std::shared_ptr<std::atomic<std::uint64_t>> rings_;
};

class TestKvmTmem::Device final : public KvmTmemDevice {
 public:
  explicit Device(TestKvmTmem& module) : module_(module) { module_.open_ = true; }
  ~Device() override {
    module_.open_ = false;
    MutexLock lock(module_.mutex_);
    module_.sides_.clear();
  }

  int fd() const override { return module_.readable_.get(); }
  Result<kvm_tmem_info> Info() const override {
    if (std::exchange(module_.info_fails, false)) return Error{ErrorCode::kSystem, "info"};
    return kvm_tmem_info{.version = KVM_TMEM_DEVICE_VERSION,
                         .max_guests = 64,
                         .pool_limit_bytes = module_.pool_limit_bytes,
                         .max_window_bytes = 16u << 20,
                         .hypercall = 1};
  }
  Result<std::optional<kvm_tmem_guest>> Next() override {
    MutexLock lock(module_.mutex_);
    if (module_.waiting_.empty()) {
      eventfd_t ignored = 0;
      (void)::eventfd_read(module_.readable_.get(), &ignored);
      return std::optional<kvm_tmem_guest>();
    }
    const kvm_tmem_guest guest = module_.waiting_.front();
    module_.waiting_.pop_front();
    return std::optional(guest);
  }
  Result<Channel> Accept(const kvm_tmem_guest& guest, int kick_fd) override {
    return module_.Accept(guest, kick_fd);
  }
  void Refuse(std::uint64_t channel) override {
    MutexLock lock(module_.mutex_);
    module_.refused_.push_back(channel);
  }

 private:
  TestKvmTmem& module_;
};

TestKvmTmem::TestKvmTmem() : readable_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<std::unique_ptr<KvmTmemDevice>> TestKvmTmem::Open() {
  if (!absent.empty()) return Error{ErrorCode::kUnavailable, absent};
  return std::unique_ptr<KvmTmemDevice>(std::make_unique<Device>(*this));
}

kvm_tmem_guest TestKvmTmem::Register(std::uint64_t vm, std::uint32_t uid, const std::string& cgroup,
                                     std::uint64_t window_bytes) {
  kvm_tmem_guest guest{};
  {
    MutexLock lock(mutex_);
    guest.channel = ++last_channel_;
  }
  guest.vm = vm;
  guest.window_bytes = window_bytes;
  guest.uid = uid;
  guest.tgid = 1000 + static_cast<std::int32_t>(vm);
  std::strncpy(guest.cgroup, cgroup.c_str(), sizeof guest.cgroup - 1);
  std::strncpy(guest.label, "vmm", sizeof guest.label);
  Register(guest);
  return guest;
}

void TestKvmTmem::Register(const kvm_tmem_guest& guest) {
  MutexLock lock(mutex_);
  waiting_.push_back(guest);
  (void)::eventfd_write(readable_.get(), 1);
}

Result<KvmTmemDevice::Channel> TestKvmTmem::Accept(const kvm_tmem_guest& guest, int kick_fd) {
  if (stale) return Error{ErrorCode::kNotFound, "it does not wait any more"};
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return SystemError("socketpair");
  }
  UniqueFd end(ends[0]);
  UniqueFd daemons_end(ends[1]);
  auto memory =
      std::make_shared<WindowMemory>(WindowMemory::CreateShared(guest.window_bytes).value());
  tmem_geometry written{};
  if (geometry) {
    written = *geometry;
  } else if (const auto usual = WindowOptionsFor(guest.window_bytes); usual.ok()) {
    written = MakeGeometry(*usual).value();
  }
  std::memcpy(memory->data(), &written, sizeof written);
  WindowMemory mapped = WindowMemory::MapShared(memory->fd(), guest.window_bytes).value();
  auto rings = std::make_shared<std::atomic<std::uint64_t>>(0);
  MutexLock lock(mutex_);
  sides_[guest.channel] = {.memory = memory,
                           .kick = std::make_shared<UniqueFd>(::dup(kick_fd)),
                           .end = std::move(end),
                           .rings = rings};
  return KvmTmemDevice::Channel{std::move(daemons_end), std::move(mapped),
                                std::make_shared<Bell>(rings)};
}

std::vector<std::uint64_t> TestKvmTmem::refused() const {
  MutexLock lock(mutex_);
  return refused_;
}

std::uint64_t TestKvmTmem::rings(const kvm_tmem_guest& guest) const {
  MutexLock lock(mutex_);
  return *sides_.at(guest.channel).rings;
}

void TestKvmTmem::HangUp(const kvm_tmem_guest& guest) {
  MutexLock lock(mutex_);
  sides_.erase(guest.channel);
}

bool TestKvmTmem::serves(const kvm_tmem_guest& guest) const {
  MutexLock lock(mutex_);
  const auto found = sides_.find(guest.channel);
  if (found == sides_.end()) return false;
  pollfd end{found->second.end.get(), 0, 0};
  return ::poll(&end, 1, 0) == 0;
}

// Keeps memory and doorbell for as long as the side is used, as a VM does that has not yet ended.
TestGuest TestKvmTmem::Side(const kvm_tmem_guest& guest) {
  MutexLock lock(mutex_);
  const GuestEnd& side = sides_.at(guest.channel);
  return TestGuest(side.memory->data(), [memory = side.memory, kick = side.kick] {
    (void)::eventfd_write(kick->get(), 1);
  });
}

}  // namespace tmem
