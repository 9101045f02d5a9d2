// SPDX-License-Identifier: GPL-2.0-only
// One configured guest, and while it is connected its window and channel.
#ifndef HOST_STORE_DAEMON_GUEST_PORT_H_
#define HOST_STORE_DAEMON_GUEST_PORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "host-store/base/clock.h"
#include "host-store/base/result.h"
#include "host-store/daemon/log_limiter.h"
#include "host-store/doorbell/connection.h"
#include "host-store/doorbell/event_loop.h"
#include "host-store/doorbell/ram_puncher.h"
#include "host-store/doorbell/worker.h"
#include "host-store/store/store.h"
#include "host-store/window/channel.h"
#include "host-store/window/shrink_requests.h"

namespace tmem {

struct GuestPortOptions {
  GuestOptions guest;
  std::uint64_t window_bytes;  // what is reserved for its window: no larger one is taken
  ChannelOptions channel;
  RamConfig ram = {};  // no path: free memory is not reported over a socket
  bool shrink = false;
};

// A connection is a guest's life, whichever doorbell it came by: its end destroys the guest's pools
// and frees the window. Pages go in pieces, as chores of the loop; a guest that comes back before
// the last are gone does not see them. Thread rule: the event loop's thread, except OnChannelEvent.
class GuestPort {
 public:
  // Chooses the worker for a new connection.
  using PickWorker = std::function<Worker&()>;

  GuestPort(EventLoop& loop, Store& store, const Clock& clock, GuestPortOptions options,
            PickWorker pick_worker);
  ~GuestPort();
  GuestPort(const GuestPort&) = delete;
  GuestPort& operator=(const GuestPort&) = delete;

  const std::string& name() const { return options_.guest.name; }
  bool connected() const { return session_ != nullptr; }
  // Of its VMM, as the listener saw it; empty: not known.
  std::string cgroup() const;

  // Errors: connected already, window too large, no memory.
  Result<void> Connect(Connection connection);
  // When it returns nobody looks at the window or rings the bell any more.
  void Disconnect(const std::string& reason);

  // What the operator asks of the guest: clean page cache (0 pages: no more), or to take its
  // persistent pages home, which stays asked until it is ended. Errors: shrink=on is not
  // configured, not connected, the guest has no tmem.shrink=1.
  Result<void> AskShrink(std::uint64_t pages);
  Result<void> AskDrain();
  Result<void> EndDrain();

  // One row of the status. Of a guest that is gone: the counters it had.
  nlohmann::json Status() const;
  // Logs at most as often as the limiter allows.
  void Warn(const std::string& text);

 private:
  // All that exists only while a guest is connected.
  struct Session {
    Session(Store& store, GuestId id, Connection from, const ChannelOptions& options,
            const RamConfig& ram, RamPuncher::Handlers handlers);

    Connection connection;
    const std::unique_ptr<RamPuncher> puncher;  // null: not over this doorbell, or no RAM file
    Channel channel;
    Worker* worker = nullptr;
  };

  Result<void> EnterStore();
  void EndSession();
  Result<void> MayAsk() const;
  void WakeWorker();
  bool RemoveSome();
  // In a worker's thread.
  void OnChannelEvent(Channel::Event event);
  // In the puncher's thread.
  void OnReportRefused(const std::string& why);

  EventLoop& loop_;
  Store& store_;
  GuestPortOptions options_;
  const PickWorker pick_worker_;
  LogLimiter log_limiter_;
  // In the store while connected, and after that until its last page is gone.
  std::optional<GuestId> id_;
  EventLoop::ChoreId removal_ = EventLoop::ChoreId::kNone;
  FlushProgress removed_;                         // how far the removal is
  const std::unique_ptr<ShrinkRequests> shrink_;  // null: not configured; outlives sessions
  std::unique_ptr<Session> session_;
  std::uint64_t connections_ = 0;
  nlohmann::json last_status_;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_GUEST_PORT_H_
