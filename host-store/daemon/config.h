// SPDX-License-Identifier: GPL-2.0-only
// What the operator asks of tmemd, checked.
#ifndef HOST_STORE_DAEMON_CONFIG_H_
#define HOST_STORE_DAEMON_CONFIG_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "host-store/base/result.h"
#include "host-store/daemon/guest_rule.h"
#include "host-store/store/store.h"
#include "host-store/window/geometry.h"

namespace tmem {

// Exit codes of tmemd, shown by --help.
enum class ExitCode : int {
  kOk = 0,      // stopped by SIGTERM or SIGINT
  kFailed = 1,  // could not start or go on
  kUsage = 2,   // wrong command line
  kInUse = 3,   // another tmemd serves this run directory
};

// Whether guests are taken from the host module kvm_tmem.
enum class KvmTmemUse : std::uint8_t { kAuto, kRequired, kOff };

struct DaemonConfig {
  std::uint64_t limit_bytes = 0;           // 0: CheckConfig takes what the next two allow
  std::uint64_t given_pool_max_bytes = 0;  // 0: no bound of its own
  std::uint64_t host_budget_bytes = 0;     // 0: the limit does not follow guests
  std::uint64_t given_pool_min_bytes = 0;  // 0: none, CheckConfig chooses
  std::uint64_t pool_min_bytes = 0;
  std::uint64_t overhead_bytes = 0;
  std::vector<GuestConfig> guests;
  KvmTmemUse kvm_tmem = KvmTmemUse::kAuto;
  std::string kvm_tmem_path;
  std::string run_dir;
  std::uint32_t workers = 1;
  std::uint64_t poll_ns = 0;
  WindowOptions window;
  std::string log_level;
  std::string cgroup_root;  // empty: found
  std::string pressure_path = "/proc/pressure/memory";
  std::string vmstat_path = "/proc/vmstat";
};

// What the process holds besides what the store counts: program, libraries, stacks, allocator
// slack. Each guest whose RAM file is given has a thread that punches it.
std::uint64_t OverheadBytes(std::uint32_t workers, std::size_t guests, std::size_t punchers);

// What is kept free of a budget, so that guests may take memory before the store has given it up.
std::uint64_t BudgetReserveBytes(std::uint64_t budget_bytes);

// Checks what depends on several options and fills in the defaults that do.
// Errors say which option to change, and to what.
Result<DaemonConfig> CheckConfig(DaemonConfig config);

// The same with what the host module lets the daemon hold at most; 0: no bound. The limit stays the
// operator's, so that the module's may be raised later; pool-min is one that fits both.
Result<DaemonConfig> CheckConfigWithin(const DaemonConfig& config, std::uint64_t pool_limit_bytes);

// A config, or the exit code after --help, --version or an error, already printed.
std::variant<DaemonConfig, ExitCode> ParseCommandLine(int argc, const char* const* argv);

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_CONFIG_H_
