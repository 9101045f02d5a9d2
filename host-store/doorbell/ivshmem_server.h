// SPDX-License-Identifier: GPL-2.0-only
// The server side of QEMU's ivshmem-doorbell: hands one guest its window and two eventfds.
#ifndef HOST_STORE_DOORBELL_IVSHMEM_SERVER_H_
#define HOST_STORE_DOORBELL_IVSHMEM_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "host-store/base/result.h"
#include "host-store/doorbell/event_loop.h"
#include "host-store/doorbell/unix_socket.h"

namespace tmem {

// The guest is peer 0, the host peer 1; one vector each.
struct IvshmemHandover {
  int memory_fd;
  int host_kick_fd;     // what the guest rings
  int guest_notify_fd;  // what rings the guest
};

// All called in the loop's thread.
struct IvshmemHandlers {
  // A client is there; its fds must stay open until the call returns. An error sends it away.
  std::function<Result<IvshmemHandover>(const PeerCredentials&)> on_connect;
  // The client is gone, or was sent away for `reason`. Only after a successful on_connect.
  std::function<void(const std::string& reason)> on_disconnect;
  // A client was sent away before it was connected.
  std::function<void(const std::string& reason)> on_refused;
};

// One socket for one guest: a second client is refused while the first is there. The protocol has
// no message from the client, so whatever it sends ends its connection; nothing here waits for it.
class IvshmemServer {
 public:
  static Result<std::unique_ptr<IvshmemServer>> Create(EventLoop& loop, const std::string& path,
                                                       IvshmemHandlers handlers);
  // Does not call on_disconnect.
  ~IvshmemServer();
  IvshmemServer(const IvshmemServer&) = delete;
  IvshmemServer& operator=(const IvshmemServer&) = delete;

  bool connected() const { return client_.valid(); }

 private:
  IvshmemServer(EventLoop& loop, UnixListener listener, IvshmemHandlers handlers);
  void OnListenerReady();
  Result<void> Greet(const UniqueFd& client);
  void OnClientReady();
  void Disconnect(const std::string& reason);

  EventLoop& loop_;
  const UnixListener listener_;
  const IvshmemHandlers handlers_;
  EventLoop::WatchId listener_watch_ = EventLoop::WatchId::kNone;
  UniqueFd client_;
  EventLoop::WatchId client_watch_ = EventLoop::WatchId::kNone;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_IVSHMEM_SERVER_H_
