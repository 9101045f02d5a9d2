// SPDX-License-Identifier: GPL-2.0-only
// tmemctl: asks tmemd what it holds.
#include <CLI/CLI.hpp>
#include <iostream>

#include "host-store/ctl/control_client.h"
#include "host-store/ctl/status_table.h"
#include "host-store/daemon/version.h"

namespace tmem {
namespace {

enum class CtlExit : int { kOk = 0, kFailed = 1, kUsage = 2, kNoDaemon = 3 };

CtlExit Main(int argc, const char* const* argv) {
  std::string run_dir = "/run/tmem";
  bool as_json = false;
  CLI::App app{"tmemctl shows what a running tmemd holds"};
  app.set_version_flag("--version", kVersionText);
  app.footer(
      "Exit codes: 0 done; 1 the daemon failed to answer; 2 wrong command line; 3 no daemon.");
  app.add_option("--run-dir", run_dir, "directory of the daemon's sockets")
      ->capture_default_str()
      ->type_name("DIR");
  app.require_subcommand(1);
  CLI::App* status = app.add_subcommand("status", "the pool and each guest");
  status->add_flag("--json", as_json, "for programs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? CtlExit::kOk : CtlExit::kUsage;
  }
  const Result<nlohmann::json> reply = AskDaemon(run_dir, "status");
  if (!reply) {
    std::cerr << "tmemctl: " << reply.error().message << '\n';
    return reply.error().code == ErrorCode::kUnavailable ? CtlExit::kNoDaemon : CtlExit::kFailed;
  }
  std::cout << (as_json ? reply->dump(2) + "\n" : StatusTable(*reply));
  return CtlExit::kOk;
}

}  // namespace
}  // namespace tmem

int main(int argc, char** argv) {
  return static_cast<int>(tmem::Main(argc, argv));
}
