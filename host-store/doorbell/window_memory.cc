// SPDX-License-Identifier: GPL-2.0-only
// Allocates and maps the memory of windows.
#include "host-store/doorbell/window_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <utility>

namespace tmem {

WindowMemory::WindowMemory(std::byte* data, std::size_t bytes, UniqueFd fd, Owner owner)
    : data_(data), bytes_(bytes), fd_(std::move(fd)), owner_(owner) {}

WindowMemory::WindowMemory(WindowMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      fd_(std::move(other.fd_)),
      owner_(other.owner_) {}

WindowMemory::~WindowMemory() {
  if (data_ != nullptr && owner_ == Owner::kWe) ::munmap(data_, bytes_);
}

Result<WindowMemory> WindowMemory::Map(std::uint64_t bytes, int fd, UniqueFd kept) {
  const int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) return SystemError("mmap of a window");
  (void)::madvise(data, bytes, MADV_DONTDUMP);  // a core dump with it is still a core dump
  return WindowMemory(static_cast<std::byte*>(data), bytes, std::move(kept), Owner::kWe);
}

Result<WindowMemory> WindowMemory::CreatePrivate(std::uint64_t bytes) {
  return Map(bytes, -1, UniqueFd());
}

Result<WindowMemory> WindowMemory::MapShared(int fd, std::uint64_t bytes) {
  return Map(bytes, fd, UniqueFd());
}

WindowMemory WindowMemory::Borrow(std::byte* data, std::size_t bytes) {
  return WindowMemory(data, bytes, UniqueFd(), Owner::kCaller);
}

Result<WindowMemory> WindowMemory::CreateShared(std::uint64_t bytes) {
  UniqueFd fd(::memfd_create("tmem-window", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return SystemError("memfd_create");
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return SystemError("ftruncate");
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError("sealing a window");
  }
  const int number = fd.get();
  return Map(bytes, number, std::move(fd));
}

void WindowMemory::Discard() const {
  if (!fd_.valid()) return;
  (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    static_cast<off_t>(bytes_));
}

}  // namespace tmem
