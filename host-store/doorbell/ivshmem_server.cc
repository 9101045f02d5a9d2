// SPDX-License-Identifier: GPL-2.0-only
// Messages of the ivshmem server protocol, version 0 (QEMU, docs/specs/ivshmem-spec).
#include "host-store/doorbell/ivshmem_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace tmem {
namespace {

constexpr std::int64_t kProtocolVersion = 0;
// QEMU saves the window with a guest's state only for the first peer (`master=on`).
constexpr std::int64_t kGuestPeer = 0;
constexpr std::int64_t kHostPeer = 1;
constexpr std::int64_t kMemoryFollows = -1;

// QEMU and its clients run under this gid or as root; others have no business here.
constexpr mode_t kSocketMode = 0660;

constexpr int kNoFd = -1;

// Eight bytes, little-endian, with at most one fd. Never blocks: all messages together are 40
// bytes, so a socket without room for them is one that somebody has filled on purpose.
Result<void> SendMessage(int socket, std::int64_t message, int fd) {
  iovec data{&message, sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (fd != kNoFd) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) return SystemError("sendmsg");
  if (sent != sizeof message) return Error{ErrorCode::kUnavailable, "short send"};
  return Ok();
}

Result<void> SendHandover(int socket, const IvshmemHandover& handover) {
  const std::array<std::pair<std::int64_t, int>, 5> messages = {{
      {kProtocolVersion, kNoFd},
      {kGuestPeer, kNoFd},
      {kMemoryFollows, handover.memory_fd},
      {kHostPeer, handover.host_kick_fd},
      {kGuestPeer, handover.guest_notify_fd},
  }};
  for (const auto& [message, fd] : messages) {
    if (Result<void> sent = SendMessage(socket, message, fd); !sent) return sent;
  }
  return Ok();
}

}  // namespace

Result<std::unique_ptr<IvshmemServer>> IvshmemServer::Create(EventLoop& loop,
                                                             const std::string& path,
                                                             IvshmemHandlers handlers) {
  Result<UnixListener> listener = UnixListener::Create(path, kSocketMode);
  if (!listener) return std::move(listener).error();
  std::unique_ptr<IvshmemServer> server(
      new IvshmemServer(loop, std::move(*listener), std::move(handlers)));
  Result<EventLoop::WatchId> watch =
      loop.Watch(server->listener_.fd(), EPOLLIN,
                 [self = server.get()](std::uint32_t) { self->OnListenerReady(); });
  if (!watch) return std::move(watch).error();
  server->listener_watch_ = *watch;
  return server;
}

IvshmemServer::IvshmemServer(EventLoop& loop, UnixListener listener, IvshmemHandlers handlers)
    : loop_(loop), listener_(std::move(listener)), handlers_(std::move(handlers)) {}

IvshmemServer::~IvshmemServer() {
  loop_.Unwatch(client_watch_);
  loop_.Unwatch(listener_watch_);
}

void IvshmemServer::OnListenerReady() {
  UniqueFd client = listener_.Accept();
  if (!client.valid()) return;
  if (connected()) {
    handlers_.on_refused("another client is connected");
    return;
  }
  if (Result<void> greeted = Greet(client); !greeted) {
    handlers_.on_refused(greeted.error().message);
    return;
  }
  client_ = std::move(client);
}

Result<void> IvshmemServer::Greet(const UniqueFd& client) {
  const Result<PeerCredentials> peer = CredentialsOf(client.get());
  if (!peer) return peer.error();
  const Result<IvshmemHandover> handover = handlers_.on_connect(*peer);
  if (!handover) return handover.error();
  Result<void> sent = SendHandover(client.get(), *handover);
  if (sent) {
    Result<EventLoop::WatchId> watch =
        loop_.Watch(client.get(), EPOLLIN | EPOLLRDHUP, [this](std::uint32_t) { OnClientReady(); });
    if (watch) {
      client_watch_ = *watch;
      return Ok();
    }
    sent = std::move(watch).error();
  }
  handlers_.on_disconnect(sent.error().message);
  return sent;
}

void IvshmemServer::OnClientReady() {
  std::array<char, 64> junk;
  const ssize_t got = ::recv(client_.get(), junk.data(), junk.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0) {
    Disconnect("it sent data, which the protocol does not know");
  } else if (got == 0) {
    Disconnect("it closed the connection");
  } else {
    Disconnect(std::strerror(errno));
  }
}

void IvshmemServer::Disconnect(const std::string& reason) {
  loop_.Unwatch(client_watch_);
  client_watch_ = EventLoop::WatchId::kNone;
  client_.Close();
  handlers_.on_disconnect(reason);
}

}  // namespace tmem
