// SPDX-License-Identifier: GPL-2.0-only
// Listening and connecting on UNIX sockets.
#include "host-store/doorbell/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tmem {
namespace {

// More clients than this wait in connect(); a guest has one.
constexpr int kBacklog = 8;

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error{ErrorCode::kInvalidArgument, "socket path " + path + " is longer than " +
                                                  std::to_string(sizeof address.sun_path - 1) +
                                                  " bytes: choose a shorter run directory"};
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// A process that does not accept for this long is stuck, and still there.
constexpr timeval kConnectPatience{2, 0};

// Makes room for a new socket file, if what is there may go.
Result<void> RemoveStale(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return Ok();
    return SystemError("stat " + path);
  }
  if (!S_ISSOCK(status.st_mode)) {
    return Error{ErrorCode::kInvalidArgument, path + " exists and is not a socket: remove it"};
  }
  const Result<UniqueFd> served = ConnectUnix(path);
  if (served.ok() || served.error().code != ErrorCode::kUnavailable) {
    return Error{ErrorCode::kAlreadyExists, path + " is served by a running process"};
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return SystemError("unlink " + path);
  return Ok();
}

}  // namespace

Result<UnixListener> UnixListener::Create(const std::string& path, mode_t mode) {
  const Result<sockaddr_un> address = AddressOf(path);
  if (!address) return address.error();
  if (Result<void> removed = RemoveStale(path); !removed) return removed.error();
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SystemError("socket");
  // The file gets its mode at bind: no moment in which others could connect.
  const mode_t former = ::umask(static_cast<mode_t>(~mode & 0777));
  const int bound =
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(sockaddr_un));
  const int bind_errno = errno;
  ::umask(former);
  if (bound != 0) return SystemError("bind " + path, bind_errno);
  UnixListener listener(std::move(fd), path);
  if (::listen(listener.fd(), kBacklog) != 0) return SystemError("listen " + path);
  return listener;
}

UnixListener::~UnixListener() {
  if (fd_.valid()) ::unlink(path_.c_str());
}

UniqueFd UnixListener::Accept() const {
  return UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Result<UniqueFd> ConnectUnix(const std::string& path) {
  const Result<sockaddr_un> address = AddressOf(path);
  if (!address) return address.error();
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SystemError("socket");
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &kConnectPatience, sizeof kConnectPatience);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(sockaddr_un)) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return Error{ErrorCode::kUnavailable, "nobody listens on " + path};
    }
    return SystemError("connect " + path);
  }
  return fd;
}

Result<PeerCredentials> CredentialsOf(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return SystemError("SO_PEERCRED");
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

}  // namespace tmem
