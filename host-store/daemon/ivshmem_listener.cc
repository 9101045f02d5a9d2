// SPDX-License-Identifier: GPL-2.0-only
// Makes connections out of ivshmem clients.
#include "host-store/daemon/ivshmem_listener.h"

#include <sys/eventfd.h>

#include <utility>

namespace tmem {

Result<std::unique_ptr<IvshmemListener>> IvshmemListener::Create(EventLoop& loop, GuestPort& port,
                                                                 Options options) {
  const std::string path = options.socket_path;
  std::unique_ptr<IvshmemListener> listener(new IvshmemListener(port, std::move(options)));
  IvshmemHandlers handlers;
  handlers.on_connect = [self = listener.get()](const PeerCredentials& credentials) {
    return self->OnConnect(credentials);
  };
  handlers.on_disconnect = [self = listener.get()](const std::string& reason) {
    self->OnDisconnect(reason);
  };
  handlers.on_refused = [&port](const std::string& reason) {
    port.Warn("a client was refused: " + reason);
  };
  Result<std::unique_ptr<IvshmemServer>> server =
      IvshmemServer::Create(loop, path, std::move(handlers));
  if (!server) return std::move(server).error();
  listener->server_ = std::move(*server);
  return listener;
}

IvshmemListener::IvshmemListener(GuestPort& port, Options options)
    : port_(port), options_(std::move(options)), bell_(std::make_shared<EventfdBell>()) {}

IvshmemListener::~IvshmemListener() {
  server_.reset();
  if (notify_.valid()) OnDisconnect("tmemd stops");
}

Result<IvshmemHandover> IvshmemListener::OnConnect(const PeerCredentials& credentials) {
  if (!options_.rule.AllowsUid(credentials.uid)) {
    return Error{ErrorCode::kInvalidArgument, "its uid is " + std::to_string(credentials.uid) +
                                                  ", the guest's rule says " +
                                                  std::to_string(*options_.rule.uid)};
  }
  Result<WindowMemory> memory = WindowMemory::CreateShared(options_.window.window_bytes);
  if (!memory) return std::move(memory).error();
  UniqueFd kick(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  UniqueFd notify(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!kick.valid() || !notify.valid()) return SystemError("eventfd");
  const IvshmemHandover handover{memory->fd(), kick.get(), notify.get()};
  bell_->Aim(notify.get());
  Result<void> connected = port_.Connect({.memory = std::move(*memory),
                                          .geometry = MakeGeometry(options_.window).value(),
                                          .kick = std::move(kick),
                                          .bell = bell_,
                                          .peer = {.doorbell = "ivshmem",
                                                   .pid = credentials.pid,
                                                   .uid = credentials.uid,
                                                   .cgroup = "",
                                                   .label = ""}});
  if (!connected) {
    bell_->Aim(EventfdBell::kNoEventfd);
    return connected.error();
  }
  notify_ = std::move(notify);
  return handover;
}

void IvshmemListener::OnDisconnect(const std::string& reason) {
  port_.Disconnect(reason);
  bell_->Aim(EventfdBell::kNoEventfd);
  notify_.Close();
}

}  // namespace tmem
