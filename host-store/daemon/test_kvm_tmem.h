// SPDX-License-Identifier: GPL-2.0-only
// A double of the host module, for tests of what the daemon makes of its answers.
#ifndef HOST_STORE_DAEMON_TEST_KVM_TMEM_H_
#define HOST_STORE_DAEMON_TEST_KVM_TMEM_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host-store/base/mutex.h"
#include "host-store/doorbell/kvm_tmem_device.h"
#include "host-store/window/test_guest.h"

namespace tmem {

// Thread rule: one for the daemon's side and one for the test's.
class TestKvmTmem {
 public:
  TestKvmTmem();

  std::atomic<std::uint64_t> pool_limit_bytes{0};
  // How it fails; to be changed while nothing goes on.
  std::string absent;       // why the device cannot be opened; empty: it can
  bool info_fails = false;  // the next INFO
  bool stale = false;       // no guest waits any more when it is accepted
  // What a guest's geometry is; else the usual one for its size.
  std::optional<tmem_geometry> geometry;

  // The opener that the listener is given; this must outlive what it opens.
  Result<std::unique_ptr<KvmTmemDevice>> Open();
  bool is_open() const { return open_; }

  // A guest registers and waits; the fields that are not given are filled in.
  kvm_tmem_guest Register(std::uint64_t vm, std::uint32_t uid, const std::string& cgroup,
                          std::uint64_t window_bytes = 4u << 20);
  void Register(const kvm_tmem_guest& guest);
  std::vector<std::uint64_t> refused() const;

  // The guest's side of a channel that was accepted and has not ended.
  bool serves(const kvm_tmem_guest& guest) const;
  TestGuest Side(const kvm_tmem_guest& guest);
  std::uint64_t rings(const kvm_tmem_guest& guest) const;
  // As when its VM ends.
  void HangUp(const kvm_tmem_guest& guest);

 private:
  class Device;
  class Bell;
  struct GuestEnd {
    std::shared_ptr<WindowMemory> memory;
    std::shared_ptr<UniqueFd> kick;
    UniqueFd end;  // of a pair whose other one the daemon has
    std::shared_ptr<std::atomic<std::uint64_t>> rings;
  };
  Result<KvmTmemDevice::Channel> Accept(const kvm_tmem_guest& guest, int kick_fd);

  const UniqueFd readable_;
  std::atomic<bool> open_{false};
  mutable Mutex mutex_;
  std::uint64_t last_channel_ TMEM_GUARDED_BY(mutex_) = 0;
  std::deque<kvm_tmem_guest> waiting_ TMEM_GUARDED_BY(mutex_);
  std::vector<std::uint64_t> refused_ TMEM_GUARDED_BY(mutex_);
  std::map<std::uint64_t, GuestEnd> sides_ TMEM_GUARDED_BY(mutex_);
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_TEST_KVM_TMEM_H_
