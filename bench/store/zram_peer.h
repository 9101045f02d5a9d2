// SPDX-License-Identifier: GPL-2.0-only
// Linux zram as a peer: the same pages, in requests of 1 MiB past the page cache.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// A device that the caller added, with lz4 and a size, and removes. Thread rule: one thread.
class ZramPeer {
 public:
  static constexpr size_t kRequestBytes = 1 << 20;

  // `device` is a name such as zram1. Errors: cannot be opened; its codec is not lz4.
  static Result<std::unique_ptr<ZramPeer>> Open(const std::string& device);

  // Whole pages at a page's offset; buffers are page-aligned. A failure ends the program: what is
  // measured would mean nothing.
  void Write(uint64_t offset, const std::byte* from, size_t bytes);
  void Read(uint64_t offset, std::byte* to, size_t bytes);

  // Forgets everything.
  void Discard();
  // All memory that the device's allocator takes.
  uint64_t mem_used_bytes() const;

 private:
  ZramPeer(std::string device, UniqueFd file)
      : device_(std::move(device)), file_(std::move(file)) {}

  const std::string device_;
  const UniqueFd file_;
};

}  // namespace tmem
