// SPDX-License-Identifier: GPL-2.0-only
// A guest with a timer and a worker, as the module has them, on a real store in this process.
#ifndef TESTS_GUEST_CORE_LIVE_GUEST_H_
#define TESTS_GUEST_CORE_LIVE_GUEST_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include "host-store/base/mutex.h"
#include "host-store/doorbell/in_process.h"
#include "tests/guest_core/copying_doorbell.h"
#include "tests/guest_core/core.h"

namespace tmem {

enum class DoorbellKind {
  kMemory,     // guest and store share the window
  kHypercall,  // the guest has a window of its own, a double of the host's module copies
};

// Thread rule: client(), channel(), store() from any thread while the host is not replaced.
class LiveGuest {
 public:
  LiveGuest(DoorbellKind kind, std::uint64_t limit_bytes);
  ~LiveGuest();
  LiveGuest(const LiveGuest&) = delete;
  LiveGuest& operator=(const LiveGuest&) = delete;

  // The store dies with all it held; `delay` later another one serves the guest.
  void ReplaceHost(std::chrono::milliseconds delay);
  // The guest was saved and is restored on a host that never saw it. It does not run meanwhile.
  void RestoreOnNewHost();

  tmem_client* client() { return &client_; }
  InProcessGuest& channel() { return *channel_; }
  CopyingDoorbell& doorbell() { return *doorbell_; }
  Store& store() { return host_->store(); }
  std::uint64_t Count(tmem_counter counter) { return tmem_client_count_of(&client_, counter); }

 private:
  static LiveGuest* Self(void* context) { return static_cast<LiveGuest*>(context); }
  static void RingHost(void* context);
  static std::uint32_t EnterHost(void* context, tmem_hypercall operation, std::uint64_t lanes);

  bool by_hypercall() const { return doorbell_ != nullptr; }
  std::unique_ptr<InProcessHost> CreateHost();
  void ConnectTo(std::unique_ptr<InProcessHost> host);
  WindowMemory LeaveHost();
  void AdoptBy(std::unique_ptr<InProcessHost> host, WindowMemory window);
  void RestoreWindow();
  void CreateClient();
  void Notified();
  void Tick();

  static const tmem_client_ops kMemoryOps;
  static const tmem_client_ops kHypercallOps;

  const std::uint64_t limit_bytes_;
  std::uint64_t seed_ = 7;
  SteadyClock clock_;
  std::unique_ptr<CopyingDoorbell> doorbell_;  // by hypercall only
  std::unique_ptr<InProcessHost> host_;
  Mutex running_;        // held while the guest's own thread works
  Mutex channel_mutex_;  // of channel_ itself, which is replaced; after running_
  std::unique_ptr<InProcessGuest> channel_;
  tmem_client client_{};
  std::atomic<bool> connected_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> work_{false};
  std::thread ticker_;
};

}  // namespace tmem

#endif  // TESTS_GUEST_CORE_LIVE_GUEST_H_
