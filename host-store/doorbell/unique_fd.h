// SPDX-License-Identifier: GPL-2.0-only
// A file descriptor that is closed by its owner.
#ifndef HOST_STORE_DOORBELL_UNIQUE_FD_H_
#define HOST_STORE_DOORBELL_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace tmem {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { Close(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_UNIQUE_FD_H_
