// SPDX-License-Identifier: GPL-2.0-only
// One request, then looks at the status.
#include "host-store/ctl/ask_guest.h"

#include <chrono>
#include <iostream>
#include <thread>

#include "host-store/base/clock.h"
#include "host-store/ctl/control_client.h"
#include "host-store/daemon/size_text.h"

namespace tmem {
namespace {

constexpr std::uint64_t kPageBytes = 4096;
constexpr std::chrono::milliseconds kLook{200};

nlohmann::json RowOf(const nlohmann::json& status, const std::string& guest) {
  for (const nlohmann::json& row : status.value("guests", nlohmann::json::array())) {
    if (row.value("name", "") == guest) return row;
  }
  return nlohmann::json::object();
}

Result<void> Follow(const std::string& run_dir, const std::string& guest, ShrinkWatch watch) {
  const SteadyClock clock;
  std::string shown;
  for (;;) {
    const Result<nlohmann::json> status = AskDaemon(run_dir, "status");
    if (!status) return status.error();
    const auto verdict = watch.Look(RowOf(*status, guest), clock.NowNs());
    if (verdict && !verdict->done) return Error{ErrorCode::kSystem, guest + ": " + verdict->text};
    if (verdict) {
      std::cout << guest << ": " << verdict->text << '\n';
      return Ok();
    }
    if (watch.progress() != shown) {
      shown = watch.progress();
      std::cerr << guest << ": " << shown << '\n';
    }
    std::this_thread::sleep_for(kLook);
  }
}

Result<std::string> RequestOf(ShrinkWatch::Task task, const AskOptions& options,
                              bool& ends_something) {
  if (task == ShrinkWatch::Task::kDrain) {
    ends_something = options.undo;
    return (options.undo ? "undrain " : "drain ") + options.guest;
  }
  const Result<std::uint64_t> bytes = ParseSize(options.size);
  if (!bytes) return Error{ErrorCode::kInvalidArgument, bytes.error().message};
  const std::uint64_t pages = *bytes / kPageBytes + (*bytes % kPageBytes != 0 ? 1 : 0);
  ends_something = pages == 0;
  return "shrink " + options.guest + " " + std::to_string(pages);
}

}  // namespace

Result<void> AskGuest(const std::string& run_dir, ShrinkWatch::Task task,
                      const AskOptions& options) {
  bool ends_something = false;
  const Result<std::string> request = RequestOf(task, options, ends_something);
  if (!request) return request.error();
  const Result<nlohmann::json> asked = AskDaemon(run_dir, *request);
  if (!asked) return asked.error();
  if (ends_something || options.no_wait) return Ok();
  return Follow(run_dir, options.guest,
                ShrinkWatch(task, std::uint64_t{options.patience_s} * 1'000'000'000));
}

}  // namespace tmem
