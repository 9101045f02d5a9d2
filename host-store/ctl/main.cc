// SPDX-License-Identifier: GPL-2.0-only
// tmemctl: asks tmemd what it holds, guests for memory, and tells what the pool would hold of an
// image.
#include <CLI/CLI.hpp>
#include <iostream>

#include "host-store/ctl/ask_guest.h"
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

CtlExit Ask(const std::string& run_dir, ShrinkWatch::Task task, const AskOptions& options) {
  const Result<void> asked = AskGuest(run_dir, task, options);
  if (asked) return CtlExit::kOk;
  std::cerr << "tmemctl: " << asked.error().message << '\n';
  switch (asked.error().code) {
    case ErrorCode::kUnavailable: return CtlExit::kNoDaemon;
    case ErrorCode::kInvalidArgument: return CtlExit::kUsage;
    default: return CtlExit::kFailed;
  }
}

CLI::App* AddGuestCommand(CLI::App& app, const char* name, const char* what, AskOptions& options) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("guest", options.guest, "its name")->required()->type_name("GUEST");
  command->add_flag("--no-wait", options.no_wait, "only ask; status shows how far it is");
  command
      ->add_option("--patience", options.patience_s, "seconds without progress after which to stop")
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400));
  return command;
}

CtlExit Main(int argc, const char* const* argv) {
  std::string run_dir = "/run/tmem";
  std::string file;
  bool as_json = false;
  bool as_raw = false;
  AskOptions ask;
  CLI::App app{
      "tmemctl shows what a running tmemd holds, or would hold, and asks guests for memory"};
  app.set_version_flag("--version", kVersionText);
  app.footer(
      "shrink and drain need --guest NAME,shrink=on of tmemd and tmem.shrink=1 in the guest.\n"
      "Exit codes: 0 done; 1 no answer of the daemon, no such image, or the guest did not do it;\n"
      "2 wrong command line; 3 no daemon.");
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
  CLI::App* shrink = AddGuestCommand(
      app, "shrink", "ask a guest to give up clean page cache, which goes to the pool", ask);
  shrink->add_option("size", ask.size, "how much, as in 512M; 0 takes back what is left of it")
      ->required()
      ->type_name("SIZE");
  CLI::App* drain = AddGuestCommand(
      app, "drain", "ask a guest to take all its swapped-out pages home, and let it put no more",
      ask);
  drain->add_flag("--undo", ask.undo, "let it put again");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? CtlExit::kOk : CtlExit::kUsage;
  }
  if (*shrink) return Ask(run_dir, ShrinkWatch::Task::kShrink, ask);
  if (*drain) return Ask(run_dir, ShrinkWatch::Task::kDrain, ask);
  if (!*estimate) return ShowStatus(run_dir, as_json);
  using Reading = MemoryImage::Reading;
  return ShowEstimate(file, as_raw ? Reading::kRaw : Reading::kRecognise, as_json);
}

}  // namespace
}  // namespace tmem

int main(int argc, char** argv) {
  return static_cast<int>(tmem::Main(argc, argv));
}
