// SPDX-License-Identifier: GPL-2.0-only
// The listener of the host module: takes guests that use the hypercall doorbell, by rule.
#ifndef HOST_STORE_DAEMON_HYPERCALL_LISTENER_H_
#define HOST_STORE_DAEMON_HYPERCALL_LISTENER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "host-store/base/clock.h"
#include "host-store/base/result.h"
#include "host-store/daemon/guest_port.h"
#include "host-store/daemon/guest_rule.h"
#include "host-store/daemon/log_limiter.h"
#include "host-store/doorbell/event_loop.h"
#include "host-store/doorbell/kvm_tmem_device.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// Who a guest is follows from uid and cgroup of its VMM: the first configured guest whose rule
// holds and that is not connected. None: it is refused, which is counted. A VM that registers anew
// keeps its place, and its old channel ends first.
//
// The device is looked for once a second until it is there, and then asked once a second what the
// operator lets the daemon hold. Thread rule: the event loop's.
class HypercallListener {
 public:
  struct Place {
    GuestRule rule;
    GuestPort* port;
  };
  using OpenDevice = std::function<Result<std::unique_ptr<KvmTmemDevice>>()>;
  struct Options {
    std::vector<Place> places;
    std::uint64_t max_window_bytes;
    OpenDevice open;
    // Once a second; 0: the daemon decides itself.
    std::function<void(std::uint64_t pool_limit_bytes)> on_pool_limit;
  };
  // `device` may be null: not there yet.
  static Result<std::unique_ptr<HypercallListener>> Create(EventLoop& loop, const Clock& clock,
                                                           Options options,
                                                           std::unique_ptr<KvmTmemDevice> device);
  ~HypercallListener();
  HypercallListener(const HypercallListener&) = delete;
  HypercallListener& operator=(const HypercallListener&) = delete;

  nlohmann::json Status() const;
  std::uint64_t refused() const { return no_rule_ + busy_ + window_ + failed_; }
  std::uint64_t pool_limit_bytes() const { return info_.pool_limit_bytes; }

  // What happens once a second; tests do not wait.
  void Tick();

 private:
  struct Served {
    std::uint64_t vm;
    UniqueFd fd;
    GuestPort* port;
    EventLoop::WatchId watch = EventLoop::WatchId::kNone;
  };
  using ServedIterator = std::list<Served>::iterator;

  HypercallListener(EventLoop& loop, const Clock& clock, Options options);
  Result<void> Start(std::unique_ptr<KvmTmemDevice> device);
  Result<void> Use(std::unique_ptr<KvmTmemDevice> device);
  void Open();
  void Lose(const std::string& why);
  void OnDeviceReady(std::uint32_t events);
  void Welcome(const kvm_tmem_guest& guest);
  GuestPort* FindPort(const Peer& peer, const GuestPort* former, std::string& why_not);
  Result<void> Accept(const kvm_tmem_guest& guest, Peer peer, GuestPort& port);
  void Refuse(const kvm_tmem_guest& guest, const Peer& peer, const std::string& reason);
  void EndThoseThatHungUp();
  void End(ServedIterator served, const std::string& reason);
  // Once for each new state of things.
  void Tell(const std::string& state);

  EventLoop& loop_;
  const Options options_;
  LogLimiter log_limiter_;
  EventLoop::AlarmId next_tick_ = EventLoop::AlarmId::kNone;
  std::unique_ptr<KvmTmemDevice> device_;
  EventLoop::WatchId device_watch_ = EventLoop::WatchId::kNone;
  kvm_tmem_info info_{};
  std::string state_;
  std::list<Served> served_;
  std::uint64_t no_rule_ = 0;
  std::uint64_t busy_ = 0;
  std::uint64_t window_ = 0;
  std::uint64_t failed_ = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_HYPERCALL_LISTENER_H_
