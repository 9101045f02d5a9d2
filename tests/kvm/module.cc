// SPDX-License-Identifier: GPL-2.0-only
// Loads, unloads and reads the host module.
#include "tests/kvm/module.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

namespace tmem {
namespace {

constexpr const char* kCounters = "/sys/class/misc/kvm_tmem/counters";
constexpr const char* kLevels[] = {"channels", "channel_bytes", "guests_waiting", "entry_max_us",
                                   "entry_run_max_us"};

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::string(value) == "1";
}

}  // namespace

std::string WhyNoKvm() {
  if (!IsSet("TMEM_IN_L1") && !IsSet("TMEM_KVM_HERE")) {
    return "not in the lab's KVM host: tests/kvm/check.py runs it there";
  }
  const UniqueFd kvm(::open("/dev/kvm", O_RDWR | O_CLOEXEC));
  return kvm.valid() ? "" : "/dev/kvm does not open";
}

std::string WhyNoModule() {
  std::string why = WhyNoKvm();
  if (!why.empty()) return why;
  const char* file = std::getenv("TMEM_KVM_MODULE");
  if (file == nullptr || !std::filesystem::exists(file)) return "TMEM_KVM_MODULE names no module";
  return "";
}

bool IsModuleLoaded() {
  return std::filesystem::exists("/sys/module/kvm_tmem");
}

int LoadModule(const std::string& parameters) {
  const char* file = std::getenv("TMEM_KVM_MODULE");
  const UniqueFd fd(::open(file == nullptr ? "" : file, O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno;
  return ::syscall(SYS_finit_module, fd.get(), parameters.c_str(), 0) == 0 ? 0 : errno;
}

int UnloadModule() {
  return ::syscall(SYS_delete_module, "kvm_tmem", O_NONBLOCK) == 0 ? 0 : errno;
}

Counters ReadCounters() {
  Counters counters;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(kCounters, ignored)) {
    std::uint64_t value = 0;
    std::ifstream(file.path()) >> value;
    counters[file.path().filename()] = value;
  }
  return counters;
}

Counters Moved(const Counters& before, const Counters& after) {
  Counters moved;
  for (const auto& [name, value] : after) {
    const auto old = before.find(name);
    const std::uint64_t from = old == before.end() ? 0 : old->second;
    if (value != from) moved[name] = value - from;
  }
  for (const char* level : kLevels) moved.erase(level);
  return moved;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

KernelLog::KernelLog() : fd_(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  (void)::lseek(fd_.get(), 0, SEEK_END);
}

std::vector<std::string> KernelLog::NewLines() {
  std::vector<std::string> lines;
  char record[8192];
  while (true) {
    const ssize_t got = ::read(fd_.get(), record, sizeof record);
    if (got < 0 && errno == EPIPE) continue;  // some were overwritten
    if (got <= 0) return lines;
    const std::string text(record, static_cast<std::size_t>(got));
    lines.push_back(text.substr(text.find(';') + 1));
  }
}

std::vector<std::string> KernelLog::NewTrouble() {
  static const std::regex trouble(
      "WARNING:|BUG:|BUG at|Oops|general protection|blocked for more than|soft lockup|"
      "detected stall|possible .* locking|inconsistent lock|suspicious RCU|refcount_t:|"
      "list_(add|del) corruption|Bad page|scheduling while atomic|sleeping function|Call Trace|"
      "unable to handle");
  std::vector<std::string> found;
  for (const std::string& line : NewLines()) {
    if (std::regex_search(line, trouble)) found.push_back(line);
  }
  return found;
}

KernelMemory ReadKernelMemory() {
  KernelMemory memory;
  std::istringstream text(ReadText("/proc/meminfo"));
  for (std::string line; std::getline(text, line);) {
    const std::size_t colon = line.find(':');
    const std::string name = line.substr(0, colon);
    const std::uint64_t bytes = std::strtoull(line.c_str() + colon + 1, nullptr, 10) * 1024;
    if (name == "VmallocUsed") memory.vmalloc_bytes = bytes;
    if (name == "SUnreclaim") memory.unreclaimable_slab_bytes = bytes;
  }
  return memory;
}

}  // namespace tmem
