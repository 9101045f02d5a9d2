// SPDX-License-Identifier: GPL-2.0-only
// tmemd put together: store, workers, guests, the listeners of both doorbells, control socket.
#ifndef HOST_STORE_DAEMON_DAEMON_H_
#define HOST_STORE_DAEMON_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "host-store/base/clock.h"
#include "host-store/base/result.h"
#include "host-store/daemon/config.h"
#include "host-store/daemon/control_server.h"
#include "host-store/daemon/guest_port.h"
#include "host-store/daemon/host_budget.h"
#include "host-store/daemon/hypercall_listener.h"
#include "host-store/daemon/ivshmem_listener.h"
#include "host-store/doorbell/event_loop.h"
#include "host-store/doorbell/worker.h"
#include "host-store/store/store.h"

namespace tmem {

// The main thread runs the loop: sockets and signals, nothing of the data path. Workers serve the
// windows. Thread rule: one thread.
class Daemon {
 public:
  using OpenDevice = HypercallListener::OpenDevice;

  // Everything is reserved and every socket listens when it returns. Error kAlreadyExists: another
  // daemon serves the run directory.
  static Result<std::unique_ptr<Daemon>> Create(const DaemonConfig& config, const Clock& clock);
  // The same with another way to the host module, for tests.
  static Result<std::unique_ptr<Daemon>> Create(const DaemonConfig& config, const Clock& clock,
                                                OpenDevice open_device);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Until `signal_fd` (a signalfd of the signals that stop it) is readable.
  Result<void> Run(int signal_fd);

 private:
  Daemon(const DaemonConfig& config, const Clock& clock, OpenDevice open_device,
         std::unique_ptr<EventLoop> loop, std::unique_ptr<Store> store);
  Result<void> Start(std::unique_ptr<KvmTmemDevice> device);
  Result<void> StartGuests();
  Result<void> Listen(std::unique_ptr<KvmTmemDevice> device);
  Result<void> KeepBudget();
  Worker& LeastBusyWorker();
  void OnPoolLimit(std::uint64_t pool_limit_bytes);
  void OnBudgetLimit(std::uint64_t limit_bytes);
  void ApplyLimit();
  std::string Answer(const std::string& request);
  std::string AnswerOfGuest(const std::string& request);

  const DaemonConfig config_;
  const Clock& clock_;
  const OpenDevice open_device_;
  const std::uint64_t start_ns_;
  const std::unique_ptr<EventLoop> loop_;
  const std::unique_ptr<Store> store_;
  std::unique_ptr<ControlServer> control_;
  // In this order: listeners disconnect ports, and ports detach from workers, when they end.
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<GuestPort>> ports_;
  std::vector<std::unique_ptr<IvshmemListener>> sockets_;
  std::unique_ptr<HypercallListener> hypercalls_;  // none without rules
  std::unique_ptr<HostBudget> budget_;             // none without --host-budget
  // What the operator, the host module and the host's budget allow: the least of them holds.
  std::uint64_t pool_limit_bytes_ = UINT64_MAX;
  std::uint64_t budget_limit_bytes_ = UINT64_MAX;
  std::uint64_t limit_bytes_;  // what was asked of the store last
  EventLoop::ChoreId shrinking_ = EventLoop::ChoreId::kNone;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_DAEMON_H_
