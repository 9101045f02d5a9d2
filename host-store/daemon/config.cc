// SPDX-License-Identifier: GPL-2.0-only
// The command line of tmemd.
#include "host-store/daemon/config.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <set>
#include <thread>

#include "host-store/daemon/size_text.h"
#include "host-store/daemon/version.h"
#include "host-store/kvm_tmem/device.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

// Less room for pages than this is of no use to a guest.
constexpr std::uint64_t kMinPoolBytes = 8 * kMiB;

// In the 50 ms between two looks a guest that touches 2 GiB a second takes 100 MiB; a large host
// has more of them, and one bound.
constexpr std::uint64_t kReserveShare = 16;
constexpr std::uint64_t kMinReserveBytes = 16 * kMiB;
constexpr std::uint64_t kMaxReserveBytes = 512 * kMiB;

constexpr const char* kFooter =
    "Sizes take K, M, G (powers of 1024). A guest is started with\n"
    "  -chardev socket,path=DIR/NAME.sock,id=tmem -device ivshmem-doorbell,chardev=tmem,vectors=1\n"
    "or, where the host module kvm_tmem is loaded, with nothing: then uid=U (number or user name)\n"
    "and cgroup=PATH (as in /sys/fs/cgroup, or below it) say which VMM is this guest. The first\n"
    "guest whose rule holds and that is free is taken; no rule: refused. weight=N, 1 to 100, is "
    "its\n"
    "share of the workers' time and of the memory.\n"
    "ram=FILE (QEMU's memory-backend-file, share=on) lets a guest on a socket give free memory\n"
    "back; ram-layout=pc or q35 is its -machine. By hypercall nothing is needed for that.\n"
    "reports=off refuses what a guest reports free, whatever the doorbell.\n"
    "shrink=on lets tmemctl ask the guest for its page cache, and to take its swapped pages "
    "home,\n"
    "if it has tmem.shrink=1.\n"
    "\n"
    "With --host-budget the limit is what guests leave: budget - what they have resident - a\n"
    "reserve. A guest is seen by cgroup=, else by ram=; one that cannot be seen counts with all\n"
    "of memory=SIZE.\n"
    "The pool must not be swapped: run tmemd with MemorySwapMax=0 where the host has swap.\n"
    "\n"
    "Exit codes: 0 stopped by SIGTERM or SIGINT; 1 could not start or go on; 2 wrong command "
    "line;\n"
    "3 another tmemd serves this run directory.";

Error Invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Result<void> CheckGuestsCanBeSeen(const DaemonConfig& config) {
  if (config.host_budget_bytes == 0) return Ok();
  for (const GuestConfig& guest : config.guests) {
    if (!guest.rule.cgroup.empty() || !guest.ram.path.empty() || guest.memory_bytes != 0) continue;
    return Invalid("--host-budget: what --guest " + guest.guest.name +
                   " has cannot be seen: give it cgroup= or ram=, or memory= to count it in full");
  }
  return Ok();
}

// The limit that was asked for, or that pool-max, or else the budget, allows.
void TakeLimit(DaemonConfig& config, std::uint64_t fixed_bytes) {
  std::uint64_t most = UINT64_MAX;
  if (config.host_budget_bytes != 0) most = config.host_budget_bytes;
  if (config.given_pool_max_bytes != 0) {
    most = std::min(most, fixed_bytes + config.given_pool_max_bytes);
  }
  if (most == UINT64_MAX) return;
  config.limit_bytes = config.limit_bytes == 0 ? most : std::min(config.limit_bytes, most);
}

// An option that was not given leaves `bytes` as it is.
Result<void> ReadSize(const std::string& option, const std::string& text, std::uint64_t& bytes) {
  if (text.empty()) return Ok();
  const Result<std::uint64_t> size = ParseSize(text);
  if (!size) return Invalid(option + ": " + size.error().message);
  if (*size == 0) return Invalid(option + ": 0 is no size");
  bytes = *size;
  return Ok();
}

struct SizeTexts {
  std::string limit;
  std::string pool_min;
  std::string pool_max;
  std::string host_budget;
};

void AddSizeOptions(CLI::App& app, SizeTexts& sizes) {
  app.add_option("--memory-limit", sizes.limit,
                 "all the memory tmemd may hold, windows included; this, --pool-max or "
                 "--host-budget must be given")
      ->type_name("SIZE");
  app.add_option("--pool-min", sizes.pool_min,
                 "memory that swapped-out pages may rely on (default: half the limit; an eighth of "
                 "--host-budget)")
      ->type_name("SIZE");
  app.add_option("--pool-max", sizes.pool_max,
                 "memory that pages may take at most: a limit without windows and daemon")
      ->type_name("SIZE");
  app.add_option("--host-budget", sizes.host_budget,
                 "memory that guests and tmemd may have together: the limit moves between "
                 "--pool-min and --pool-max as guests take memory and give it back")
      ->type_name("SIZE");
}

Result<void> ReadSizes(const SizeTexts& sizes, DaemonConfig& config) {
  struct Size {
    const char* option;
    const std::string& text;
    std::uint64_t& bytes;
  };
  for (const Size& size : {Size{"--memory-limit", sizes.limit, config.limit_bytes},
                           Size{"--pool-min", sizes.pool_min, config.given_pool_min_bytes},
                           Size{"--pool-max", sizes.pool_max, config.given_pool_max_bytes},
                           Size{"--host-budget", sizes.host_budget, config.host_budget_bytes}}) {
    if (Result<void> read = ReadSize(size.option, size.text, size.bytes); !read) return read;
  }
  if (sizes.limit.empty() && sizes.pool_max.empty() && sizes.host_budget.empty()) {
    return Invalid("no limit: give --memory-limit, --pool-max or --host-budget");
  }
  return Ok();
}

// Half the limit, unless windows take so much that it would leave ephemeral pages nothing. Guests
// can never have it, so of a budget it is a small part.
std::uint64_t DefaultPoolMin(const DaemonConfig& config, std::uint64_t room_bytes) {
  const std::uint64_t most = std::min(config.limit_bytes / 2, room_bytes / 4 * 3);
  return config.host_budget_bytes == 0 ? most : std::min(most, config.host_budget_bytes / 8);
}

std::uint32_t DefaultWorkers() {
  return std::clamp(std::thread::hardware_concurrency(), 1u, 2u);
}

}  // namespace

std::uint64_t OverheadBytes(std::uint32_t workers, std::size_t guests, std::size_t punchers) {
  return 6 * kMiB + workers * (kMiB / 4) + guests * (kMiB / 64) + punchers * (kMiB / 16);
}

std::uint64_t BudgetReserveBytes(std::uint64_t budget_bytes) {
  return std::clamp(budget_bytes / kReserveShare, kMinReserveBytes, kMaxReserveBytes);
}

Result<DaemonConfig> CheckConfig(DaemonConfig config) {
  if (config.guests.empty()) return Invalid("no guest: give --guest NAME at least once");
  std::set<std::string> names;
  bool any_rule = false;
  std::size_t punchers = 0;
  for (const GuestConfig& config_of : config.guests) {
    if (!names.insert(config_of.guest.name).second) {
      return Invalid("--guest " + config_of.guest.name + " is given twice");
    }
    any_rule |= config_of.rule.given();
    punchers += config_of.ram.path.empty() || !config_of.ram.reports ? 0 : 1;
  }
  if (config.kvm_tmem == KvmTmemUse::kRequired && !any_rule) {
    return Invalid("--kvm-tmem required: no --guest has a rule, give one uid= or cgroup=");
  }
  if (Result<void> seen = CheckGuestsCanBeSeen(config); !seen) return seen.error();
  config.overhead_bytes = OverheadBytes(config.workers, config.guests.size(), punchers);
  const std::uint64_t fixed_bytes =
      config.overhead_bytes + config.guests.size() * config.window.window_bytes;
  TakeLimit(config, fixed_bytes);
  if (config.limit_bytes < fixed_bytes + kMinPoolBytes) {
    return Invalid("a limit of " + FormatSize(config.limit_bytes) +
                   " is too small: " + std::to_string(config.guests.size()) + " windows of " +
                   FormatSize(config.window.window_bytes) + ", " +
                   FormatSize(config.overhead_bytes) + " for the daemon itself and " +
                   FormatSize(kMinPoolBytes) + " for pages need at least " +
                   FormatSize(fixed_bytes + kMinPoolBytes));
  }
  if (config.given_pool_max_bytes != 0 &&
      config.given_pool_min_bytes > config.given_pool_max_bytes) {
    return Invalid("--pool-min " + FormatSize(config.given_pool_min_bytes) +
                   " is more than --pool-max " + FormatSize(config.given_pool_max_bytes));
  }
  const std::uint64_t room_bytes = config.limit_bytes - fixed_bytes;
  config.pool_min_bytes = config.given_pool_min_bytes != 0 ? config.given_pool_min_bytes
                                                           : DefaultPoolMin(config, room_bytes);
  if (config.pool_min_bytes > room_bytes) {
    return Invalid("--pool-min " + FormatSize(config.pool_min_bytes) +
                   " is too large: windows and the daemon itself leave " + FormatSize(room_bytes) +
                   " of the limit");
  }
  return config;
}

Result<DaemonConfig> CheckConfigWithin(const DaemonConfig& config, std::uint64_t pool_limit_bytes) {
  DaemonConfig within = config;
  if (pool_limit_bytes != 0) within.limit_bytes = std::min(config.limit_bytes, pool_limit_bytes);
  Result<DaemonConfig> checked = CheckConfig(std::move(within));
  if (!checked && pool_limit_bytes != 0) {
    return Invalid("kvm_tmem allows " + FormatSize(pool_limit_bytes) +
                   " (its parameter pool_limit_mb): " + checked.error().message);
  }
  if (checked) checked->limit_bytes = config.limit_bytes;
  return checked;
}

std::variant<DaemonConfig, ExitCode> ParseCommandLine(int argc, const char* const* argv) {
  DaemonConfig config;
  config.workers = DefaultWorkers();
  SizeTexts sizes;
  std::string window = "4M";
  std::vector<std::string> guests;
  std::uint64_t poll_us = 100;
  CLI::App app{
      "tmemd keeps the pages of KVM guests, compressed and deduplicated, within one limit"};
  app.set_version_flag("--version", kVersionText);
  app.footer(kFooter);
  AddSizeOptions(app, sizes);
  app.add_option("--guest", guests,
                 "a guest to serve, on DIR/NAME.sock; guests of one domain share equal pages; may "
                 "be given many times")
      ->required()
      ->type_name(
          "NAME[,domain=D][,uid=U][,cgroup=PATH][,weight=N][,ram=FILE[,ram-layout=L]]"
          "[,memory=SIZE][,reports=on|off][,shrink=on|off]");
  const std::map<std::string, KvmTmemUse> uses = {
      {"auto", KvmTmemUse::kAuto}, {"required", KvmTmemUse::kRequired}, {"off", KvmTmemUse::kOff}};
  app.add_option("--kvm-tmem", config.kvm_tmem,
                 "guests by hypercall, through the host module kvm_tmem: as soon as it is loaded "
                 "and some guest has a rule (auto), or it must be there at the start (required)")
      ->transform(CLI::CheckedTransformer(uses))
      ->option_text("auto|required|off=auto");
  config.kvm_tmem_path = KVM_TMEM_DEVICE_PATH;
  app.add_option("--kvm-tmem-device", config.kvm_tmem_path, "its device")
      ->capture_default_str()
      ->type_name("PATH");
  config.run_dir = "/run/tmem";
  app.add_option("--run-dir", config.run_dir, "directory of the sockets; must exist")
      ->capture_default_str()
      ->type_name("DIR");
  app.add_option("--workers", config.workers, "threads that serve guests")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--poll-us", poll_us, "microseconds a worker polls before it sleeps")
      ->capture_default_str()
      ->check(CLI::Range(0, 10000));
  app.add_option("--window", window, "shared memory of each guest, a power of two")
      ->capture_default_str()
      ->type_name("SIZE");
  config.log_level = "info";
  app.add_option("--log-level", config.log_level, "how much to log")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ExitCode::kOk : ExitCode::kUsage;
  }
  config.poll_ns = poll_us * 1000;

  const auto checked = [&]() -> Result<DaemonConfig> {
    if (Result<void> read = ReadSizes(sizes, config); !read) return read.error();
    const Result<std::uint64_t> window_bytes = ParseSize(window);
    if (!window_bytes) return Invalid("--window: " + window_bytes.error().message);
    const Result<WindowOptions> options = WindowOptionsFor(*window_bytes);
    if (!options) return Invalid("--window " + window + ": " + options.error().message);
    config.window = *options;
    for (const std::string& text : guests) {
      const Result<GuestConfig> guest = ParseGuest(text);
      if (!guest) return guest.error();
      config.guests.push_back(*guest);
    }
    return CheckConfig(config);
  }();
  if (checked) return *checked;
  std::cerr << "tmemd: " << checked.error().message << '\n';
  return ExitCode::kUsage;
}

}  // namespace tmem
