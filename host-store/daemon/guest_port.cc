// SPDX-License-Identifier: GPL-2.0-only
// Connects and disconnects one guest.
#include "host-store/daemon/guest_port.h"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <utility>

#include "host-store/daemon/status_json.h"

namespace tmem {

// ---- session ----------------------------------------------------------------------------------

GuestPort::Session::Session(Store& store, GuestId id, WindowMemory window_memory, UniqueFd kick_fd,
                            UniqueFd notify_fd, GuestBell& bell, const GuestPortOptions& options)
    : memory(std::move(window_memory)),
      kick(std::move(kick_fd)),
      notify(std::move(notify_fd)),
      channel(store, id, WindowView(memory.data(), MakeGeometry(options.window).value()), bell,
              options.channel) {}

// ---- port -------------------------------------------------------------------------------------

Result<std::unique_ptr<GuestPort>> GuestPort::Create(EventLoop& loop, Store& store,
                                                     const Clock& clock, GuestPortOptions options,
                                                     PickWorker pick_worker) {
  const std::string path = options.socket_path;
  std::unique_ptr<GuestPort> port(
      new GuestPort(store, clock, std::move(options), std::move(pick_worker)));
  IvshmemHandlers handlers;
  handlers.on_connect = [self = port.get()](const PeerCredentials& peer) {
    return self->Connect(peer);
  };
  handlers.on_disconnect = [self = port.get()](const std::string& reason) {
    self->Disconnect(reason);
  };
  handlers.on_refused = [self = port.get()](const std::string& reason) {
    self->Warn("a client was refused: " + reason);
  };
  Result<std::unique_ptr<IvshmemServer>> server =
      IvshmemServer::Create(loop, path, std::move(handlers));
  if (!server) return std::move(server).error();
  port->server_ = std::move(*server);
  return port;
}

GuestPort::GuestPort(Store& store, const Clock& clock, GuestPortOptions options,
                     PickWorker pick_worker)
    : store_(store),
      options_(std::move(options)),
      pick_worker_(std::move(pick_worker)),
      log_limiter_(clock) {}

GuestPort::~GuestPort() {
  server_.reset();
  if (session_ != nullptr) EndSession();
}

Result<IvshmemHandover> GuestPort::Connect(const PeerCredentials& peer) {
  Result<WindowMemory> memory = WindowMemory::CreateShared(options_.window.window_bytes);
  if (!memory) return std::move(memory).error();
  UniqueFd kick(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  UniqueFd notify(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!kick.valid() || !notify.valid()) return SystemError("eventfd");
  Result<GuestId> id = store_.AddGuest(options_.guest);
  if (!id) return std::move(id).error();
  session_ = std::make_unique<Session>(store_, *id, std::move(*memory), std::move(kick),
                                       std::move(notify), bell_, options_);
  bell_.Aim(session_->notify.get());
  Worker& worker = pick_worker_();
  Result<void> attached =
      worker.Attach(session_->channel, options_.guest.weight, session_->kick.get(),
                    [this](Channel::Event event) { OnChannelEvent(event); });
  if (!attached) {
    EndSession();
    return attached.error();
  }
  session_->worker = &worker;
  ++connections_;
  if (const auto end_of_line = log_limiter_.Admit()) {
    spdlog::info("guest {}: connected by process {} (uid {}, gid {}){}", name(), peer.pid, peer.uid,
                 peer.gid, *end_of_line);
  }
  return IvshmemHandover{session_->memory.fd(), session_->kick.get(), session_->notify.get()};
}

void GuestPort::Disconnect(const std::string& reason) {
  DetachSession();
  // The process that had the window may live on, keep it, and come back for the next one.
  session_->memory.Discard();
  EndSession();
  if (const auto end_of_line = log_limiter_.Admit()) {
    spdlog::info("guest {}: disconnected: {}{}", name(), reason, *end_of_line);
  }
}

void GuestPort::DetachSession() {
  Worker* const worker = std::exchange(session_->worker, nullptr);
  if (worker != nullptr) worker->Detach(session_->channel, session_->kick.get());
  bell_.Aim(EventfdBell::kNoEventfd);
}

void GuestPort::EndSession() {
  DetachSession();
  last_status_ = Status();
  store_.RemoveGuest(session_->channel.guest());
  session_.reset();
}

nlohmann::json GuestPort::Status() const {
  nlohmann::json row = session_ != nullptr
                           ? GuestStatusJson(store_.StatusOf(session_->channel.guest()),
                                             session_->channel.counters())
                           : DisconnectedGuestJson(last_status_);
  row["name"] = options_.guest.name;
  row["domain"] = options_.guest.domain;
  row["connected"] = session_ != nullptr;
  row["connections"] = connections_;
  row["window_bytes"] = options_.window.window_bytes;
  return row;
}

void GuestPort::OnChannelEvent(Channel::Event event) {
  switch (event) {
    case Channel::Event::kNone: break;
    case Channel::Event::kRegistered:
      if (const auto end_of_line = log_limiter_.Admit()) {
        spdlog::info("guest {}: registered{}", name(), *end_of_line);
      }
      break;
    case Channel::Event::kRegistrationRefused: Warn("its registration was refused"); break;
    case Channel::Event::kReset:
      Warn("channel reset: its counters do not match (rolled back or hostile)");
      break;
  }
}

void GuestPort::Warn(const std::string& text) {
  if (const auto end_of_line = log_limiter_.Admit()) {
    spdlog::warn("guest {}: {}{}", name(), text, *end_of_line);
  }
}

}  // namespace tmem
