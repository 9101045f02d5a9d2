// SPDX-License-Identifier: GPL-2.0-only
// The socket of one guest: what connects there is that guest, over ivshmem.
#ifndef HOST_STORE_DAEMON_IVSHMEM_LISTENER_H_
#define HOST_STORE_DAEMON_IVSHMEM_LISTENER_H_

#include <memory>
#include <string>

#include "host-store/base/result.h"
#include "host-store/daemon/guest_port.h"
#include "host-store/daemon/guest_rule.h"
#include "host-store/doorbell/event_loop.h"
#include "host-store/doorbell/eventfd_bell.h"
#include "host-store/doorbell/ivshmem_server.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/window/geometry.h"

namespace tmem {

// Who the guest is follows from the socket alone: no message says it. Each connection gets a fresh
// window. Thread rule: the event loop's.
class IvshmemListener {
 public:
  struct Options {
    std::string socket_path;
    WindowOptions window;
    GuestRule rule;  // of which the uid must hold here too
  };
  static Result<std::unique_ptr<IvshmemListener>> Create(EventLoop& loop, GuestPort& port,
                                                         Options options);
  ~IvshmemListener();
  IvshmemListener(const IvshmemListener&) = delete;
  IvshmemListener& operator=(const IvshmemListener&) = delete;

 private:
  IvshmemListener(GuestPort& port, Options options);
  Result<IvshmemHandover> OnConnect(const PeerCredentials& credentials);
  void OnDisconnect(const std::string& reason);

  GuestPort& port_;
  const Options options_;
  // Rings the eventfd of the connection; one for all of them, see there.
  const std::shared_ptr<EventfdBell> bell_;
  UniqueFd notify_;  // valid while connected
  std::unique_ptr<IvshmemServer> server_;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_IVSHMEM_LISTENER_H_
