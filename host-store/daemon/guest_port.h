// SPDX-License-Identifier: GPL-2.0-only
// One configured guest: its socket, and while it is connected its window and channel.
#ifndef HOST_STORE_DAEMON_GUEST_PORT_H_
#define HOST_STORE_DAEMON_GUEST_PORT_H_

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "host-store/base/clock.h"
#include "host-store/base/result.h"
#include "host-store/daemon/log_limiter.h"
#include "host-store/doorbell/event_loop.h"
#include "host-store/doorbell/eventfd_bell.h"
#include "host-store/doorbell/ivshmem_server.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/doorbell/window_memory.h"
#include "host-store/doorbell/worker.h"
#include "host-store/store/store.h"
#include "host-store/window/channel.h"
#include "host-store/window/geometry.h"

namespace tmem {

struct GuestPortOptions {
  GuestOptions guest;
  std::string socket_path;
  WindowOptions window;
  ChannelOptions channel;
};

// Who the guest is follows from its socket alone: no message says it. A connection is a guest's
// life: it gets a fresh window, and its end destroys the guest's pools and frees the window. Thread
// rule: the event loop's thread, except OnChannelEvent.
class GuestPort {
 public:
  // Chooses the worker for a new connection.
  using PickWorker = std::function<Worker&()>;

  static Result<std::unique_ptr<GuestPort>> Create(EventLoop& loop, Store& store,
                                                   const Clock& clock, GuestPortOptions options,
                                                   PickWorker pick_worker);
  ~GuestPort();
  GuestPort(const GuestPort&) = delete;
  GuestPort& operator=(const GuestPort&) = delete;

  const std::string& name() const { return options_.guest.name; }
  // One row of the status. Of a guest that is gone: the counters it had.
  nlohmann::json Status() const;

 private:
  // All that exists only while a guest is connected.
  struct Session {
    Session(Store& store, GuestId id, WindowMemory window_memory, UniqueFd kick_fd,
            UniqueFd notify_fd, GuestBell& bell, const GuestPortOptions& options);

    WindowMemory memory;
    UniqueFd kick;
    UniqueFd notify;
    Channel channel;
    Worker* worker = nullptr;
  };

  GuestPort(Store& store, const Clock& clock, GuestPortOptions options, PickWorker pick_worker);
  Result<IvshmemHandover> Connect(const PeerCredentials& peer);
  void Disconnect(const std::string& reason);
  // From here on no worker looks at the window.
  void DetachSession();
  void EndSession();
  // In a worker's thread.
  void OnChannelEvent(Channel::Event event);
  // Logs at most as often as the limiter allows.
  void Warn(const std::string& text);

  Store& store_;
  const GuestPortOptions options_;
  const PickWorker pick_worker_;
  LogLimiter log_limiter_;
  EventfdBell bell_;  // rings the session's eventfd; aimed while no worker has its channel
  std::unique_ptr<Session> session_;
  std::unique_ptr<IvshmemServer> server_;
  std::uint64_t connections_ = 0;
  nlohmann::json last_status_;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_GUEST_PORT_H_
