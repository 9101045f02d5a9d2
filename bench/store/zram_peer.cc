// SPDX-License-Identifier: GPL-2.0-only
// Linux zram as a peer.
#include "bench/store/zram_peer.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace tmem {
namespace {

[[noreturn]] void Die(const char* what, const std::string& device) {
  std::perror((std::string("store_figures: ") + what + " " + device).c_str());
  std::exit(1);
}

std::string ReadSys(const std::string& device, const char* name) {
  std::ifstream file("/sys/block/" + device + "/" + name);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

Result<std::unique_ptr<ZramPeer>> ZramPeer::Open(const std::string& device) {
  const std::string codecs = ReadSys(device, "comp_algorithm");
  if (codecs.find("[lz4]") == std::string::npos) {
    return Error{ErrorCode::kInvalidArgument, device + " does not use lz4: " + codecs};
  }
  UniqueFd file(::open(("/dev/" + device).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC));
  if (!file.valid()) return SystemError("open /dev/" + device);
  return std::unique_ptr<ZramPeer>(new ZramPeer(device, std::move(file)));
}

void ZramPeer::Write(uint64_t offset, const std::byte* from, size_t bytes) {
  if (::pwrite(file_.get(), from, bytes, static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(bytes)) {
    Die("write to", device_);
  }
}

void ZramPeer::Read(uint64_t offset, std::byte* to, size_t bytes) {
  if (::pread(file_.get(), to, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes)) {
    Die("read from", device_);
  }
}

void ZramPeer::Discard() {
  std::array<uint64_t, 2> range{};  // from, length
  if (::ioctl(file_.get(), BLKGETSIZE64, &range[1]) != 0 ||
      ::ioctl(file_.get(), BLKDISCARD, range.data()) != 0) {
    Die("discard", device_);
  }
}

uint64_t ZramPeer::mem_used_bytes() const {
  unsigned long long original = 0, compressed = 0, used = 0;
  const std::string line = ReadSys(device_, "mm_stat");
  if (std::sscanf(line.c_str(), "%llu %llu %llu", &original, &compressed, &used) != 3) {
    Die("statistics of", device_);
  }
  return used;
}

}  // namespace tmem
