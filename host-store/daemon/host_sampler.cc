// SPDX-License-Identifier: GPL-2.0-only
// Reads cgroups, files and /proc/pressure.
#include "host-store/daemon/host_sampler.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "host-store/doorbell/unique_fd.h"

namespace tmem {
namespace {

// memory.stat has about 2 KiB on 6.1.
constexpr std::size_t kMaxFileBytes = 16 << 10;

constexpr std::uint64_t kBlockBytes = 512;  // of st_blocks, whatever the file system
constexpr std::uint64_t kNsPerUs = 1000;

Result<std::string> ReadSmallFile(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT || errno == ENOTDIR) return Error{ErrorCode::kNotFound, path};
    return SystemError(path);
  }
  std::string text(kMaxFileBytes, '\0');
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t got = ::read(fd.get(), text.data() + bytes, text.size() - bytes);
    if (got < 0 && errno == EINTR) continue;
    // A cgroup that was removed after it was opened.
    if (got < 0 && errno == ENODEV) return Error{ErrorCode::kNotFound, path};
    if (got < 0) return SystemError(path);
    if (got == 0) break;
    bytes += static_cast<std::size_t>(got);
  }
  text.resize(bytes);
  return text;
}

// The number after `name` and one more character, at the beginning of a line or word.
std::optional<std::uint64_t> NumberAfter(std::string_view text, std::string_view name,
                                         std::string_view before) {
  for (std::size_t at = text.find(name); at != std::string_view::npos;
       at = text.find(name, at + 1)) {
    if (at != 0 && before.find(text[at - 1]) == std::string_view::npos) continue;
    const char* const digits = text.data() + at + name.size();
    std::uint64_t number = 0;
    const auto [rest, failed] = std::from_chars(digits, text.data() + text.size(), number);
    if (failed == std::errc() && rest != digits) return number;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Field(std::string_view stat, const std::string& name) {
  return NumberAfter(stat, name + " ", "\n");
}

// Of a memory.stat of either version; below it included.
std::optional<std::uint64_t> ResidentOf(std::string_view stat) {
  if (const auto anonymous = Field(stat, "anon")) {
    const std::uint64_t kernel = Field(stat, "kernel").value_or(0);
    const std::uint64_t reclaimable = Field(stat, "slab_reclaimable").value_or(0);
    return *anonymous + Field(stat, "shmem").value_or(0) + kernel - std::min(kernel, reclaimable);
  }
  const auto anonymous = Field(stat, "total_rss");
  if (!anonymous) return std::nullopt;
  return *anonymous + Field(stat, "total_shmem").value_or(0);
}

bool IsDirectory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool IsInside(const std::string& path, const std::string& other) {
  return path.size() > other.size() && path.compare(0, other.size(), other) == 0 &&
         path[other.size()] == '/';
}

}  // namespace

const char* ToString(ResidentSource source) {
  switch (source) {
    case ResidentSource::kCgroup: return "cgroup";
    case ResidentSource::kRamFile: return "ram-file";
    case ResidentSource::kNotRunning: return "not-running";
    case ResidentSource::kInFull: return "in-full";
  }
  return "unknown";
}

std::string FindCgroupRoot() {
  const std::string unified = "/sys/fs/cgroup";
  const std::string version1 = unified + "/memory";
  return ::access((version1 + "/memory.stat").c_str(), F_OK) == 0 ? version1 : unified;
}

Result<CgroupResident> ReadCgroupResident(const std::string& root, const std::string& path) {
  if ((path + "/").find("/../") != std::string::npos || !IsDirectory(root + path)) {
    return Error{ErrorCode::kNotFound, "no cgroup " + root + path};
  }
  for (std::string at = path; at.size() > 1; at.resize(at.rfind('/'))) {
    const Result<std::string> stat = ReadSmallFile(root + at + "/memory.stat");
    if (!stat && stat.error().code == ErrorCode::kNotFound) continue;
    if (!stat) return stat.error();
    const auto bytes = ResidentOf(*stat);
    if (!bytes) return Error{ErrorCode::kSystem, root + at + "/memory.stat: not understood"};
    return CgroupResident{at, *bytes};
  }
  return Error{ErrorCode::kUnavailable, "no memory controller for cgroup " + path};
}

Result<std::uint64_t> ReadFileResident(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return Error{ErrorCode::kNotFound, "no file " + path};
    return SystemError(path);
  }
  if (!S_ISREG(status.st_mode)) return Error{ErrorCode::kSystem, path + ": not a regular file"};
  return static_cast<std::uint64_t>(status.st_blocks) * kBlockBytes;
}

Result<std::uint64_t> ReadStalledNs(const std::string& path) {
  const Result<std::string> text = ReadSmallFile(path);
  if (!text) return text.error();
  const std::string_view some = std::string_view(*text).substr(0, text->find('\n'));
  const auto total_us = some.starts_with("some ") ? NumberAfter(some, "total=", " ") : std::nullopt;
  if (!total_us) return Error{ErrorCode::kSystem, path + ": not understood"};
  return *total_us * kNsPerUs;
}

Result<std::uint64_t> ReadHostScans(const std::string& path) {
  const Result<std::string> text = ReadSmallFile(path);
  if (!text) return text.error();
  const auto by_kswapd = Field(*text, "pgscan_kswapd");
  const auto direct = Field(*text, "pgscan_direct");
  if (!by_kswapd || !direct) return Error{ErrorCode::kSystem, path + ": not understood"};
  return *by_kswapd + *direct;
}

GuestResident SeeGuest(const std::string& cgroup_root, const GuestView& view,
                       std::uint64_t unknown_bytes) {
  // Something would tell, and says that there is no VMM.
  bool absent = !view.cgroup.empty() || !view.ram_path.empty();
  std::string why_not;
  if (!view.cgroup.empty()) {
    Result<CgroupResident> cgroup = ReadCgroupResident(cgroup_root, view.cgroup);
    if (cgroup) {
      return {.source = ResidentSource::kCgroup,
              .bytes = cgroup->bytes,
              .cgroup = std::move(cgroup->path),
              .why_not = ""};
    }
    absent &= cgroup.error().code == ErrorCode::kNotFound;
    why_not = cgroup.error().message;
  }
  if (!view.ram_path.empty()) {
    const Result<std::uint64_t> file = ReadFileResident(view.ram_path);
    if (file) {
      return {.source = ResidentSource::kRamFile, .bytes = *file, .cgroup = "", .why_not = ""};
    }
    absent &= file.error().code == ErrorCode::kNotFound;
    why_not = file.error().message;
  }
  if (absent && !view.connected) {
    return {.source = ResidentSource::kNotRunning, .bytes = 0, .cgroup = "", .why_not = ""};
  }
  return {.source = ResidentSource::kInFull,
          .bytes = view.memory_bytes != 0 ? view.memory_bytes : unknown_bytes,
          .cgroup = "",
          .why_not = std::move(why_not)};
}

std::uint64_t SumResident(const std::vector<GuestResident>& guests) {
  std::uint64_t sum = 0;
  std::map<std::string, std::uint64_t> cgroups;
  for (const GuestResident& guest : guests) {
    if (guest.source == ResidentSource::kCgroup) {
      cgroups[guest.cgroup] = guest.bytes;
    } else {
      sum += guest.bytes;
    }
  }
  for (const auto& [path, bytes] : cgroups) {
    const bool counted =
        std::any_of(cgroups.begin(), cgroups.end(),
                    [&path = path](const auto& other) { return IsInside(path, other.first); });
    if (!counted) sum += bytes;
  }
  return sum;
}

}  // namespace tmem
