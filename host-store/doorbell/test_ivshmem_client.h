// SPDX-License-Identifier: GPL-2.0-only
// What QEMU's ivshmem-doorbell does at start-up, for tests: connects, takes the fds, maps the
// window.
#ifndef HOST_STORE_DOORBELL_TEST_IVSHMEM_CLIENT_H_
#define HOST_STORE_DOORBELL_TEST_IVSHMEM_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {

class TestIvshmemClient {
 public:
  // Checks every message as QEMU 7.2 does. Errors: nobody listens, or the server sends us away.
  static Result<TestIvshmemClient> Connect(const std::string& path);
  TestIvshmemClient(TestIvshmemClient&& other) noexcept;
  TestIvshmemClient& operator=(TestIvshmemClient&&) = delete;
  ~TestIvshmemClient();

  std::byte* window() const { return window_; }
  std::size_t window_bytes() const { return window_bytes_; }
  int socket() const { return socket_.get(); }
  int memory_fd() const { return memory_.get(); }
  int notify_fd() const { return notify_.get(); }
  // A write to BAR 0.
  void Kick() const;
  // Closes the connection, as the end of QEMU does; the window stays mapped.
  void Disconnect() { socket_.Close(); }

 private:
  TestIvshmemClient() = default;

  UniqueFd socket_;
  UniqueFd memory_;
  UniqueFd kick_;
  UniqueFd notify_;
  std::byte* window_ = nullptr;
  std::size_t window_bytes_ = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_TEST_IVSHMEM_CLIENT_H_
