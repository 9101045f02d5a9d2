// SPDX-License-Identifier: GPL-2.0-only
// A client of the ivshmem server protocol.
#include "host-store/doorbell/test_ivshmem_client.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <array>
#include <cstring>
#include <utility>

#include "host-store/doorbell/unix_socket.h"

namespace tmem {
namespace {

constexpr timeval kPatience{60, 0};

struct Message {
  std::int64_t number;
  UniqueFd fd;
};

Result<Message> Receive(int socket) {
  Message message{};
  iovec data{&message.number, sizeof message.number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &header, MSG_WAITALL | MSG_CMSG_CLOEXEC);
  if (got < 0) return SystemError("recvmsg");
  if (got != sizeof message.number) return Error{ErrorCode::kUnavailable, "server closed"};
  if (const cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
    message.fd = UniqueFd(fd);
  }
  return message;
}

Error Unexpected(const char* what) {
  return {ErrorCode::kCorrupt, std::string("unexpected message: want ") + what};
}

}  // namespace

Result<TestIvshmemClient> TestIvshmemClient::Connect(const std::string& path) {
  Result<UniqueFd> socket = ConnectUnix(path);
  if (!socket) return std::move(socket).error();
  TestIvshmemClient client;
  client.socket_ = std::move(*socket);
  (void)::setsockopt(client.socket(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  std::array<Message, 5> messages;
  for (Message& message : messages) {
    Result<Message> received = Receive(client.socket());
    if (!received) return std::move(received).error();
    message = std::move(*received);
  }
  auto& [version, id, memory, host, own] = messages;
  if (version.number != 0 || version.fd.valid()) return Unexpected("version 0");
  if (id.number != 0 || id.fd.valid()) return Unexpected("our id, 0");
  if (memory.number != -1 || !memory.fd.valid()) return Unexpected("the memory");
  if (host.number != 1 || !host.fd.valid()) return Unexpected("the host's eventfd");
  if (own.number != 0 || !own.fd.valid()) return Unexpected("our eventfd");
  client.memory_ = std::move(memory.fd);
  client.kick_ = std::move(host.fd);
  client.notify_ = std::move(own.fd);
  struct stat status {};
  if (::fstat(client.memory_fd(), &status) != 0) return SystemError("fstat");
  client.window_bytes_ = static_cast<std::size_t>(status.st_size);
  void* window = ::mmap(nullptr, client.window_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED,
                        client.memory_fd(), 0);
  if (window == MAP_FAILED) return SystemError("mmap");
  client.window_ = static_cast<std::byte*>(window);
  return client;
}

TestIvshmemClient::TestIvshmemClient(TestIvshmemClient&& other) noexcept
    : socket_(std::move(other.socket_)),
      memory_(std::move(other.memory_)),
      kick_(std::move(other.kick_)),
      notify_(std::move(other.notify_)),
      window_(std::exchange(other.window_, nullptr)),
      window_bytes_(other.window_bytes_) {}

TestIvshmemClient::~TestIvshmemClient() {
  if (window_ != nullptr) ::munmap(window_, window_bytes_);
}

void TestIvshmemClient::Kick() const {
  (void)::eventfd_write(kick_.get(), 1);
}

}  // namespace tmem
