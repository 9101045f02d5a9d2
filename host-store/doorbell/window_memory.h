// SPDX-License-Identifier: GPL-2.0-only
// The memory of a window: private to the process, a memfd that a VMM maps too, or a mapped channel.
#ifndef HOST_STORE_DOORBELL_WINDOW_MEMORY_H_
#define HOST_STORE_DOORBELL_WINDOW_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// Zeroed, page-aligned, not in core dumps: guest pages pass through it. Unmapped by its owner,
// unless it is borrowed.
class WindowMemory {
 public:
  // For in-process guests.
  static Result<WindowMemory> CreatePrivate(std::uint64_t bytes);
  // Memory of a VMM, such as a part of its guest's; page-aligned, stays the VMM's.
  static WindowMemory Borrow(std::byte* data, std::size_t bytes);
  // A memfd sealed against shrinking, growing and further seals, so that whoever gets the fd
  // cannot make an access of ours fail.
  static Result<WindowMemory> CreateShared(std::uint64_t bytes);
  // Memory of another owner, mapped; `fd` stays the caller's and may be closed.
  static Result<WindowMemory> MapShared(int fd, std::uint64_t bytes);

  WindowMemory(WindowMemory&& other) noexcept;
  WindowMemory& operator=(WindowMemory&& other) = delete;
  ~WindowMemory();

  // Gives the pages back although others may keep the file open or mapped: for them it is zero.
  // What they touch afterwards is theirs, and counted as theirs.
  void Discard() const;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }  // of a memfd of ours, else -1

 private:
  enum class Owner : std::uint8_t { kWe, kCaller };
  WindowMemory(std::byte* data, std::size_t bytes, UniqueFd fd, Owner owner);
  // Private if `fd` is none; `kept` stays open as long as the mapping.
  static Result<WindowMemory> Map(std::uint64_t bytes, int fd, UniqueFd kept);

  std::byte* data_;
  std::size_t bytes_;
  UniqueFd fd_;
  Owner owner_;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_WINDOW_MEMORY_H_
