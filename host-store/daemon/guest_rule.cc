// SPDX-License-Identifier: GPL-2.0-only
// Reads and applies the rules of --guest.
#include "host-store/daemon/guest_rule.h"

#include <pwd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <set>

#include "host-store/daemon/size_text.h"
#include "host-store/doorbell/service.h"

namespace tmem {
namespace {

// A socket name with its directory has to fit 107 bytes.
constexpr std::size_t kMaxNameBytes = 48;

constexpr std::string_view kForm =
    "want NAME[,domain=D][,uid=U][,cgroup=PATH][,weight=N][,ram=FILE[,ram-layout=pc|q35]]"
    "[,memory=SIZE][,reports=on|off][,shrink=on|off]";

// The uid that means "none" in system calls.
constexpr std::uint64_t kNoUid = UINT32_MAX;

Error Invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

bool ParseNumber(std::string_view text, std::uint64_t& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, number);
  return failed == std::errc() && rest == end && !text.empty();
}

Result<void> SetUid(std::string_view value, GuestConfig& config) {
  std::uint64_t number = 0;
  if (ParseNumber(value, number)) {
    if (number >= kNoUid) return Invalid("uid=" + std::string(value) + " is no user id");
    config.rule.uid = static_cast<uid_t>(number);
    return Ok();
  }
  const passwd* const user = ::getpwnam(std::string(value).c_str());
  if (user == nullptr) {
    return Invalid("uid=" + std::string(value) +
                   ": want a number or the name of a user that exists");
  }
  config.rule.uid = user->pw_uid;
  return Ok();
}

Result<void> SetCgroup(std::string_view value, GuestConfig& config) {
  const std::string path(value);
  // As the kernel writes it: a rule that can never hold is a mistake.
  const bool plain = path.find("//") == std::string::npos &&
                     path.find("/./") == std::string::npos &&
                     path.find("/../") == std::string::npos;
  if (path[0] != '/' || !plain) {
    return Invalid("cgroup=" + path +
                   ": want the path in /sys/fs/cgroup, as in cgroup=/machine.slice/web1.scope");
  }
  if (path.size() >= 256) return Invalid("cgroup=" + path + ": longer than the host module tells");
  config.rule.cgroup =
      path.size() > 1 && path.back() == '/' ? path.substr(0, path.size() - 1) : path;
  return Ok();
}

Result<void> SetWeight(std::string_view value, GuestConfig& config) {
  std::uint64_t weight = 0;
  if (!ParseNumber(value, weight) || weight < 1 || weight > Service::kMaxWeight) {
    return Invalid("weight=" + std::string(value) + ": want a number from 1 to " +
                   std::to_string(Service::kMaxWeight));
  }
  config.guest.weight = static_cast<std::uint32_t>(weight);
  return Ok();
}

Result<void> SetRam(std::string_view value, GuestConfig& config) {
  if (value.front() != '/') {
    return Invalid("ram=" + std::string(value) + ": want an absolute path, QEMU's mem-path");
  }
  config.ram.path = value;
  return Ok();
}

Result<void> SetReports(std::string_view value, GuestConfig& config) {
  if (value != "on" && value != "off") {
    return Invalid("reports=" + std::string(value) + ": want on or off");
  }
  config.ram.reports = value == "on";
  return Ok();
}

Result<void> SetRamLayout(std::string_view value, GuestConfig& config) {
  const std::optional<RamLayout> layout = RamLayoutOfName(value);
  if (!layout) {
    return Invalid("ram-layout=" + std::string(value) + ": want pc or q35, QEMU's -machine");
  }
  config.ram.layout = *layout;
  return Ok();
}

Result<void> SetMemory(std::string_view value, GuestConfig& config) {
  const Result<std::uint64_t> bytes = ParseSize(value);
  if (!bytes) return Invalid("memory=" + std::string(value) + ": " + bytes.error().message);
  if (*bytes == 0) return Invalid("memory=" + std::string(value) + ": a guest has some");
  config.memory_bytes = *bytes;
  return Ok();
}

Result<void> SetShrink(std::string_view value, GuestConfig& config) {
  if (value != "on" && value != "off") {
    return Invalid("shrink=" + std::string(value) + ": want on or off");
  }
  config.shrink = value == "on";
  return Ok();
}

Result<void> SetOption(std::string_view name, std::string_view value, GuestConfig& config) {
  if (name == "domain") {
    config.guest.domain = value;
    return Ok();
  }
  if (name == "uid") return SetUid(value, config);
  if (name == "cgroup") return SetCgroup(value, config);
  if (name == "weight") return SetWeight(value, config);
  if (name == "reports") return SetReports(value, config);
  if (name == "ram") return SetRam(value, config);
  if (name == "ram-layout") return SetRamLayout(value, config);
  if (name == "memory") return SetMemory(value, config);
  if (name == "shrink") return SetShrink(value, config);
  return Invalid("'" + std::string(name) + "' is unknown: " + std::string(kForm));
}

Result<void> CheckName(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_' || letter == '.';
  });
  if (!plain || name.empty() || name[0] == '.' || name.size() > kMaxNameBytes) {
    return Invalid("a name is 1 to 48 letters, digits, '-', '_' or '.', and not first a '.'");
  }
  if (name == "control") {
    return Invalid("that is the name of the control socket; choose another one");
  }
  return Ok();
}

Result<GuestConfig> Parse(std::string_view text) {
  GuestConfig config;
  std::set<std::string_view> seen;
  std::size_t at = text.find(',');
  config.guest.name = text.substr(0, at);
  if (Result<void> name = CheckName(config.guest.name); !name) return name.error();
  while (at != std::string_view::npos) {
    const std::size_t next = text.find(',', at + 1);
    const std::string_view option = text.substr(at + 1, next - at - 1);
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos || equals + 1 == option.size()) {
      return Invalid("'" + std::string(option) + "' has no value: " + std::string(kForm));
    }
    const std::string_view name = option.substr(0, equals);
    if (!seen.insert(name).second) return Invalid(std::string(name) + " is given twice");
    if (Result<void> set = SetOption(name, option.substr(equals + 1), config); !set) {
      return set.error();
    }
    at = next;
  }
  if (seen.contains("ram-layout") && !seen.contains("ram")) {
    return Invalid("ram-layout= without ram=");
  }
  return config;
}

}  // namespace

bool GuestRule::Matches(const Peer& peer) const {
  if (!given() || !AllowsUid(peer.uid)) return false;
  if (cgroup.empty() || cgroup == peer.cgroup) return true;
  const std::string below = cgroup == "/" ? cgroup : cgroup + "/";
  return peer.cgroup.compare(0, below.size(), below) == 0;
}

Result<GuestConfig> ParseGuest(std::string_view text) {
  Result<GuestConfig> parsed = Parse(text);
  if (parsed) return parsed;
  return Invalid("--guest " + std::string(text) + ": " + parsed.error().message);
}

}  // namespace tmem
