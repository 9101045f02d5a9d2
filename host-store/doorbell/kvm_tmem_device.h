// SPDX-License-Identifier: GPL-2.0-only
// /dev/kvm_tmem, through which the host module hands over guests that use the hypercall doorbell.
#ifndef HOST_STORE_DOORBELL_KVM_TMEM_DEVICE_H_
#define HOST_STORE_DOORBELL_KVM_TMEM_DEVICE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/doorbell/window_memory.h"
#include "host-store/kvm_tmem/device.h"
#include "host-store/window/channel.h"

namespace tmem {

// The device, open. An interface, so that what the listener makes of its answers can be tested
// where there is no module. Closing it ends every channel. Thread rule: one thread.
class KvmTmemDevice {
 public:
  // A guest that was accepted: in its memory the module plays the guest's part.
  struct Channel {
    UniqueFd fd;  // EPOLLHUP once the module has ended it; closing it ends it
    WindowMemory memory;
    std::shared_ptr<GuestBell> bell;  // for as long as `fd` is open
  };

  virtual ~KvmTmemDevice() = default;

  // Readable while a guest waits.
  virtual int fd() const = 0;
  virtual Result<kvm_tmem_info> Info() const = 0;
  // The guest that has waited longest and was not returned before; nothing if there is none.
  virtual Result<std::optional<kvm_tmem_guest>> Next() = 0;
  // Maps the guest's channel. The module signals `kick_fd` from now on. Errors: it waits no more.
  virtual Result<Channel> Accept(const kvm_tmem_guest& guest, int kick_fd) = 0;
  virtual void Refuse(std::uint64_t channel) = 0;
};

// Errors: kUnavailable where there is no such device, kAlreadyExists while another process has it
// open, kInvalidArgument when the module is of another version.
Result<std::unique_ptr<KvmTmemDevice>> OpenKvmTmemDevice(const std::string& path);

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_KVM_TMEM_DEVICE_H_
