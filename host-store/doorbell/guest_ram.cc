// SPDX-License-Identifier: GPL-2.0-only
// Layouts of QEMU's machines, and a look at a VMM through /proc.
#include "host-store/doorbell/guest_ram.h"

#include <dirent.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <memory>

namespace tmem {
namespace {

constexpr std::uint64_t k4Gib = std::uint64_t{4} << 30;

// Machines with less RAM than `from` have all of it below 4 GiB, others only `low` of it there
// (QEMU's hw/i386/pc_piix.c and pc_q35.c).
struct Split {
  std::uint64_t from;
  std::uint64_t low;
};
constexpr Split kPcSplit{0xe0000000, 0xc0000000};
constexpr Split kQ35Split{0xb0000000, 0x80000000};

// Display memory, option ROMs and the BIOS lie over the RAM here.
constexpr std::uint64_t kLegacyBegin = 0xa0000;
constexpr std::uint64_t kLegacyEnd = 0x100000;

Error Refused(std::string why) {
  return {ErrorCode::kUnavailable, std::move(why)};
}

std::string ProcPath(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

// The kilobytes that a line of /proc/PID/status gives; 0 if it has no such line.
std::uint64_t KilobytesOf(const std::string& line, std::string_view name) {
  if (line.compare(0, name.size(), name) != 0) return 0;
  const std::size_t digit = line.find_first_of("0123456789", name.size());
  std::uint64_t value = 0;
  if (digit != std::string::npos) {
    std::from_chars(line.data() + digit, line.data() + line.size(), value);
  }
  return value;
}

Result<void> CheckNothingLocked(pid_t pid) {
  std::ifstream status(ProcPath(pid, "status"));
  std::string line;
  bool seen = false;
  while (std::getline(status, line)) {
    seen |= line.compare(0, 6, "VmLck:") == 0;
    if (KilobytesOf(line, "VmLck:") != 0) return Refused("its process has locked memory");
    if (KilobytesOf(line, "VmPin:") != 0) return Refused("its process has pinned memory");
  }
  if (!seen) return Refused("its process cannot be looked at");
  return Ok();
}

Result<void> CheckDescriptors(pid_t pid) {
  const std::string directory = ProcPath(pid, "fd");
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(directory.c_str()), &::closedir);
  if (entries == nullptr) return SystemError(directory);
  while (const dirent* entry = ::readdir(entries.get())) {
    std::array<char, 64> target{};
    const std::string path = directory + "/" + entry->d_name;
    const ssize_t bytes = ::readlink(path.c_str(), target.data(), target.size());
    const std::string_view name(target.data(), bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
    if (name.starts_with("/dev/vfio/") || name.starts_with("/dev/iommu")) {
      return Refused("it has an assigned device");
    }
    if (name.starts_with("anon_inode:[userfaultfd]")) return Refused("it has a userfaultfd");
  }
  return Ok();
}

struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::array<char, 5> access{};
  std::uint64_t offset = 0;
  dev_t device = 0;
  ino_t inode = 0;
};

bool Parse(const std::string& line, Mapping& mapping) {
  unsigned long begin = 0;
  unsigned long end = 0;
  unsigned long offset = 0;
  unsigned long inode = 0;
  unsigned major = 0;
  unsigned minor = 0;
  if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx %x:%x %lu", &begin, &end, mapping.access.data(),
                  &offset, &major, &minor, &inode) != 7) {
    return false;
  }
  mapping.begin = begin;
  mapping.end = end;
  mapping.offset = offset;
  mapping.device = makedev(major, minor);
  mapping.inode = inode;
  return true;
}

// Mappings come in the order of their addresses; a RAM file is mapped in one piece, or in pieces
// that follow each other. Writable: what the process itself may only read, we destroy for nobody;
// it may have put another's file in the place of its own.
Result<void> CheckMappings(pid_t pid, const struct stat& file) {
  std::ifstream maps(ProcPath(pid, "maps"));
  std::string line;
  std::uint64_t covered = 0;
  if (!maps) return Refused("the mappings of its process cannot be read");
  while (std::getline(maps, line)) {
    Mapping mapping;
    if (!Parse(line, mapping) || mapping.device != file.st_dev || mapping.inode != file.st_ino) {
      continue;
    }
    if (mapping.access[3] != 's') return Refused("its RAM is mapped privately (share=off)");
    const bool writable = mapping.access[1] == 'w';
    if (writable && mapping.offset == covered) covered += mapping.end - mapping.begin;
  }
  if (covered < static_cast<std::uint64_t>(file.st_size)) {
    return Refused("its process does not map the RAM file, shared and writable");
  }
  return Ok();
}

}  // namespace

std::optional<RamLayout> RamLayoutOfName(std::string_view name) {
  if (name == "pc") return RamLayout::kPc;
  if (name == "q35") return RamLayout::kQ35;
  return std::nullopt;
}

RamMap::RamMap(RamLayout layout, std::uint64_t ram_bytes) : ram_bytes_(ram_bytes) {
  const Split& split = layout == RamLayout::kPc ? kPcSplit : kQ35Split;
  below_4g_bytes_ = ram_bytes >= split.from ? split.low : ram_bytes;
}

std::optional<FileRange> RamMap::Locate(std::uint64_t address, std::uint64_t bytes) const {
  const std::uint64_t end = address + bytes;
  if (bytes == 0 || end < address || (address | bytes) % TMEM_PAGE_BYTES != 0) return std::nullopt;
  if (end <= below_4g_bytes_) {
    if (address < kLegacyEnd && end > kLegacyBegin) return std::nullopt;
    return FileRange{address, bytes};
  }
  if (address < k4Gib || end - k4Gib > ram_bytes_ - below_4g_bytes_) return std::nullopt;
  return FileRange{address - k4Gib + below_4g_bytes_, bytes};
}

Result<void> CheckMayDrop(pid_t pid, const struct stat& file) {
  if (Result<void> locked = CheckNothingLocked(pid); !locked) return locked;
  if (Result<void> descriptors = CheckDescriptors(pid); !descriptors) return descriptors;
  return CheckMappings(pid, file);
}

}  // namespace tmem
