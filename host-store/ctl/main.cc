// SPDX-License-Identifier: GPL-2.0-only
// tmemctl: asks tmemd what it holds, and tells what it would hold of a memory image.
#include <CLI/CLI.hpp>
#include <iostream>

#include "host-store/ctl/control_client.h"
#include "host-store/ctl/status_table.h"
#include "host-store/daemon/version.h"
#include "host-store/estimate/estimate_text.h"

namespace tmem {
namespace {

enum class CtlExit : int { kOk = 0, kFailed = 1, kUsage = 2, kNoDaemon = 3 };

CtlExit ShowStatus(const std::string& run_dir, bool as_json) {
  const Result<nlohmann::json> reply = AskDaemon(run_dir, "status");
  if (!reply) {
    std::cerr << "tmemctl: " << reply.error().message << '\n';
    return reply.error().code == ErrorCode::kUnavailable ? CtlExit::kNoDaemon : CtlExit::kFailed;
  }
  std::cout << (as_json ? reply->dump(2) + "\n" : StatusTable(*reply));
  return CtlExit::kOk;
}

CtlExit ShowEstimate(const std::string& file, MemoryImage::Reading reading, bool as_json) {
  const auto image = MemoryImage::Open(file, reading);
  if (!image) {
    std::cerr << "tmemctl: " << image.error().message << '\n';
    return CtlExit::kFailed;
  }
  PoolEstimate estimate;
  const auto read = (*image)->ForEachPage([&](PageView page) { estimate.Add(page); });
  if (!read) {
    std::cerr << "tmemctl: " << read.error().message << '\n';
    return CtlExit::kFailed;
  }
  std::cout << (as_json ? EstimateJson(**image, estimate).dump(2) + "\n"
                        : EstimateText(**image, estimate));
  return CtlExit::kOk;
}

CtlExit Main(int argc, const char* const* argv) {
  std::string run_dir = "/run/tmem";
  std::string file;
  bool as_json = false;
  bool as_raw = false;
  CLI::App app{"tmemctl shows what a running tmemd holds, or would hold"};
  app.set_version_flag("--version", kVersionText);
  app.footer(
      "Exit codes: 0 done; 1 no answer of the daemon, or no such image; 2 wrong command line; 3 no "
      "daemon.");
  app.add_option("--run-dir", run_dir, "directory of the daemon's sockets")
      ->capture_default_str()
      ->type_name("DIR");
  app.require_subcommand(1);
  CLI::App* status = app.add_subcommand("status", "the pool and each guest");
  status->add_flag("--json", as_json, "for programs");
  CLI::App* estimate =
      app.add_subcommand("estimate", "what the pool would hold of a memory image; needs no daemon");
  estimate->add_option("file", file, "raw memory image, or ELF core file")
      ->required()
      ->type_name("FILE");
  estimate->add_flag("--json", as_json, "for programs");
  estimate->add_flag("--raw", as_raw, "the file is pages, whatever it begins with");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? CtlExit::kOk : CtlExit::kUsage;
  }
  if (!*estimate) return ShowStatus(run_dir, as_json);
  using Reading = MemoryImage::Reading;
  return ShowEstimate(file, as_raw ? Reading::kRaw : Reading::kRecognise, as_json);
}

}  // namespace
}  // namespace tmem

int main(int argc, char** argv) {
  return static_cast<int>(tmem::Main(argc, argv));
}
