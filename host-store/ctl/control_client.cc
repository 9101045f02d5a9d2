// SPDX-License-Identifier: GPL-2.0-only
// One request, one reply.
#include "host-store/ctl/control_client.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <cerrno>

#include "host-store/doorbell/unix_socket.h"

namespace tmem {
namespace {

constexpr timeval kPatience{10, 0};

// A status of 64 guests is about 100 KiB.
constexpr std::size_t kMaxReplyBytes = 16u << 20;

Result<std::string> ReadAll(int socket) {
  std::string reply;
  std::array<char, 16384> bytes;
  for (;;) {
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got == 0) return reply;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      return Error{ErrorCode::kSystem, "tmemd did not answer within 10 s"};
    }
    if (got < 0) return SystemError("recv");
    reply.append(bytes.data(), static_cast<std::size_t>(got));
    if (reply.size() > kMaxReplyBytes) return Error{ErrorCode::kCorrupt, "reply is too long"};
  }
}

}  // namespace

Result<nlohmann::json> AskDaemon(const std::string& run_dir, const std::string& request) {
  const std::string path = run_dir + "/control.sock";
  const Result<UniqueFd> socket = ConnectUnix(path);
  if (!socket) {
    if (socket.error().code != ErrorCode::kUnavailable) return socket.error();
    return Error{ErrorCode::kUnavailable,
                 "no tmemd serves " + run_dir + ": start it, or give its directory with --run-dir"};
  }
  (void)::setsockopt(socket->get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  const std::string line = request + "\n";
  if (::send(socket->get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) return SystemError("send");
  const Result<std::string> reply = ReadAll(socket->get());
  if (!reply) return reply.error();
  nlohmann::json parsed = nlohmann::json::parse(*reply, nullptr, false);
  if (!parsed.is_object()) return Error{ErrorCode::kCorrupt, "tmemd's reply is not JSON"};
  if (parsed.contains("error")) {
    const nlohmann::json& error = parsed["error"];
    return Error{ErrorCode::kCorrupt, error.is_string() ? error.get<std::string>() : error.dump()};
  }
  return parsed;
}

}  // namespace tmem
