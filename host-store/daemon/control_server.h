// SPDX-License-Identifier: GPL-2.0-only
// The control socket: a request line in, one line of JSON out.
#ifndef HOST_STORE_DAEMON_CONTROL_SERVER_H_
#define HOST_STORE_DAEMON_CONTROL_SERVER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "host-store/base/result.h"
#include "host-store/doorbell/event_loop.h"
#include "host-store/doorbell/unix_socket.h"

namespace tmem {

// Every connection is for one request and is closed after the reply. When kMaxClients are open the
// oldest is dropped for a new one, so that idle clients lock nobody out. Thread rule: the loop's.
class ControlServer {
 public:
  static constexpr std::size_t kMaxClients = 8;
  static constexpr std::size_t kMaxRequestBytes = 256;

  // The reply to one request, without the line's end.
  using Answer = std::function<std::string(const std::string& request)>;

  static Result<std::unique_ptr<ControlServer>> Create(EventLoop& loop, const std::string& path,
                                                       Answer answer);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  struct Client {
    UniqueFd fd;
    EventLoop::WatchId watch = EventLoop::WatchId::kNone;
    std::string request;
    std::string reply;
    std::size_t sent = 0;
  };
  using ClientIterator = std::list<Client>::iterator;
  enum class Verdict : std::uint8_t { kKeep, kClose };

  ControlServer(EventLoop& loop, UnixListener listener, Answer answer);
  void OnListenerReady();
  void OnClientReady(ClientIterator client);
  Verdict Receive(Client& client);
  Verdict Send(Client& client);
  void Close(ClientIterator client);

  EventLoop& loop_;
  const UnixListener listener_;
  const Answer answer_;
  EventLoop::WatchId listener_watch_ = EventLoop::WatchId::kNone;
  std::list<Client> clients_;  // oldest first
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_CONTROL_SERVER_H_
