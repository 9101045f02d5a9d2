// SPDX-License-Identifier: GPL-2.0-only
// UNIX sockets of the daemon: listening, connecting, who is at the other end.
#ifndef HOST_STORE_DOORBELL_UNIX_SOCKET_H_
#define HOST_STORE_DOORBELL_UNIX_SOCKET_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// As the kernel recorded it when the peer connected; not what the peer says.
struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};

// A socket file that listens, unlinked when this ends. Accepts without blocking.
class UnixListener {
 public:
  // Replaces a socket that nobody serves any more. Errors say what to do: path too long, directory
  // missing, something else than a socket in the way, kAlreadyExists when a process serves it.
  static Result<UnixListener> Create(const std::string& path, mode_t mode);
  UnixListener(UnixListener&& other) noexcept = default;
  ~UnixListener();

  int fd() const { return fd_.get(); }
  // An fd that does not block, or an invalid one when nobody waits any more.
  UniqueFd Accept() const;

 private:
  UnixListener(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
};

// Errors: kUnavailable when nobody listens there.
Result<UniqueFd> ConnectUnix(const std::string& path);

Result<PeerCredentials> CredentialsOf(int socket);

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_UNIX_SOCKET_H_
