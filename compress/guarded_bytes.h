// SPDX-License-Identifier: GPL-2.0-only
// Memory with a forbidden page before and after it, for tests of code that sanitizers cannot see
// into, such as the system's codec libraries: one byte out of bounds stops the test.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "compress/page.h"

namespace tmem {

// `kPages` pages between two guards. Tail(n) is the last n bytes, Head(n) the first.
class GuardedBytes {
 public:
  static constexpr std::size_t kPages = 3;
  static constexpr std::size_t kBytes = kPages * kPageBytes;

  GuardedBytes() {
    void* mapped =
        mmap(nullptr, kBytes + 2 * kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) Die();
    begin_ = static_cast<std::byte*>(mapped) + kPageBytes;
    if (mprotect(begin_, kBytes, PROT_READ | PROT_WRITE) != 0) Die();
  }
  ~GuardedBytes() { munmap(begin_ - kPageBytes, kBytes + 2 * kPageBytes); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  std::span<std::byte> Head(std::size_t bytes) const { return {begin_, bytes}; }
  std::span<std::byte> Tail(std::size_t bytes) const { return {begin_ + kBytes - bytes, bytes}; }
  PageBuffer FirstPage() const { return PageBuffer(begin_, kPageBytes); }
  PageBuffer LastPage() const { return PageBuffer(begin_ + kBytes - kPageBytes, kPageBytes); }

 private:
  [[noreturn]] static void Die() {
    std::perror("tmem: guarded bytes");
    std::abort();
  }

  std::byte* begin_ = nullptr;
};

}  // namespace tmem
