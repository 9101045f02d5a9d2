// SPDX-License-Identifier: GPL-2.0-only
// The ioctls of the device.
#include "host-store/doorbell/kvm_tmem_device.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <utility>

namespace tmem {
namespace {

// Wakes the vCPUs that wait in a call.
class ChannelBell final : public GuestBell {
 public:
  explicit ChannelBell(int channel_fd) : channel_fd_(channel_fd) {}
  void Ring() override { (void)::ioctl(channel_fd_, KVM_TMEM_COMPLETE); }

 private:
  const int channel_fd_;
};

class OpenedDevice final : public KvmTmemDevice {
 public:
  explicit OpenedDevice(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const override { return fd_.get(); }

  Result<kvm_tmem_info> Info() const override {
    kvm_tmem_info info{};
    if (::ioctl(fd_.get(), KVM_TMEM_INFO, &info) != 0) return SystemError("KVM_TMEM_INFO");
    return info;
  }

  Result<std::optional<kvm_tmem_guest>> Next() override {
    kvm_tmem_guest guest{};
    if (::ioctl(fd_.get(), KVM_TMEM_NEXT, &guest) == 0) return std::optional(guest);
    if (errno == EAGAIN || errno == EINTR) return std::optional<kvm_tmem_guest>();
    return SystemError("KVM_TMEM_NEXT");
  }

  Result<Channel> Accept(const kvm_tmem_guest& guest, int kick_fd) override {
    kvm_tmem_accept accept{};
    accept.channel = guest.channel;
    accept.kick_fd = kick_fd;
    UniqueFd channel(::ioctl(fd_.get(), KVM_TMEM_ACCEPT, &accept));
    if (!channel.valid()) return SystemError("KVM_TMEM_ACCEPT");
    Result<WindowMemory> memory = WindowMemory::MapShared(channel.get(), guest.window_bytes);
    if (!memory) return std::move(memory).error();
    auto bell = std::make_shared<ChannelBell>(channel.get());
    return Channel{std::move(channel), std::move(*memory), std::move(bell)};
  }

  void Refuse(std::uint64_t channel) override {
    __u64 number = channel;
    (void)::ioctl(fd_.get(), KVM_TMEM_REFUSE, &number);
  }

 private:
  const UniqueFd fd_;
};

}  // namespace

Result<std::unique_ptr<KvmTmemDevice>> OpenKvmTmemDevice(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    const int why = errno;
    if (why == ENOENT || why == ENXIO || why == ENODEV) {
      return Error{ErrorCode::kUnavailable,
                   path + " is not there: the host module kvm_tmem is not loaded"};
    }
    if (why == EBUSY) {
      return Error{ErrorCode::kAlreadyExists, path + " is in use by another process"};
    }
    return SystemError("open " + path, why);
  }
  auto device = std::make_unique<OpenedDevice>(std::move(fd));
  const Result<kvm_tmem_info> info = device->Info();
  if (!info) return info.error();
  if (info->version != KVM_TMEM_DEVICE_VERSION) {
    return Error{ErrorCode::kInvalidArgument,
                 path + " speaks version " + std::to_string(info->version) + ", this tmemd " +
                     std::to_string(KVM_TMEM_DEVICE_VERSION) + ": install both from one release"};
  }
  return std::unique_ptr<KvmTmemDevice>(std::move(device));
}

}  // namespace tmem
