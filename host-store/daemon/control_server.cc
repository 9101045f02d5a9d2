// SPDX-License-Identifier: GPL-2.0-only
// Serves the control socket without ever waiting for a client.
#include "host-store/daemon/control_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

namespace tmem {
namespace {

// Only the daemon's own user, and root, may ask.
constexpr mode_t kSocketMode = 0600;

bool WouldBlock() {
  return errno == EAGAIN || errno == EINTR;
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::Create(EventLoop& loop,
                                                             const std::string& path,
                                                             Answer answer) {
  Result<UnixListener> listener = UnixListener::Create(path, kSocketMode);
  if (!listener) return std::move(listener).error();
  std::unique_ptr<ControlServer> server(
      new ControlServer(loop, std::move(*listener), std::move(answer)));
  Result<EventLoop::WatchId> watch =
      loop.Watch(server->listener_.fd(), EPOLLIN,
                 [self = server.get()](std::uint32_t) { self->OnListenerReady(); });
  if (!watch) return std::move(watch).error();
  server->listener_watch_ = *watch;
  return server;
}

ControlServer::ControlServer(EventLoop& loop, UnixListener listener, Answer answer)
    : loop_(loop), listener_(std::move(listener)), answer_(std::move(answer)) {}

ControlServer::~ControlServer() {
  while (!clients_.empty()) Close(clients_.begin());
  loop_.Unwatch(listener_watch_);
}

void ControlServer::OnListenerReady() {
  UniqueFd fd = listener_.Accept();
  if (!fd.valid()) return;
  if (clients_.size() == kMaxClients) Close(clients_.begin());
  clients_.emplace_back();
  const ClientIterator client = std::prev(clients_.end());
  client->fd = std::move(fd);
  const Result<EventLoop::WatchId> watch = loop_.Watch(
      client->fd.get(), EPOLLIN, [this, client](std::uint32_t) { OnClientReady(client); });
  if (!watch) {
    clients_.erase(client);
    return;
  }
  client->watch = *watch;
}

void ControlServer::OnClientReady(ClientIterator client) {
  const Verdict verdict = client->reply.empty() ? Receive(*client) : Send(*client);
  if (verdict == Verdict::kClose) Close(client);
}

ControlServer::Verdict ControlServer::Receive(Client& client) {
  std::array<char, kMaxRequestBytes> bytes;
  const ssize_t got = ::recv(client.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && WouldBlock()) return Verdict::kKeep;
  if (got <= 0) return Verdict::kClose;
  client.request.append(bytes.data(), static_cast<std::size_t>(got));
  const std::size_t end = client.request.find('\n');
  if (end == std::string::npos) {
    return client.request.size() > kMaxRequestBytes ? Verdict::kClose : Verdict::kKeep;
  }
  client.reply = answer_(client.request.substr(0, end)) + "\n";
  loop_.Change(client.watch, EPOLLOUT);
  return Send(client);
}

ControlServer::Verdict ControlServer::Send(Client& client) {
  const ssize_t sent = ::send(client.fd.get(), client.reply.data() + client.sent,
                              client.reply.size() - client.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return WouldBlock() ? Verdict::kKeep : Verdict::kClose;
  client.sent += static_cast<std::size_t>(sent);
  return client.sent == client.reply.size() ? Verdict::kClose : Verdict::kKeep;
}

void ControlServer::Close(ClientIterator client) {
  loop_.Unwatch(client->watch);
  clients_.erase(client);
}

}  // namespace tmem
