// SPDX-License-Identifier: GPL-2.0-only
// An alarm, a look, a limit.
#include "host-store/daemon/host_budget.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "host-store/daemon/size_text.h"

namespace tmem {
namespace {

// kswapd works in bursts; tasks wait before and after them.
constexpr std::uint64_t kScansHoldNs = 1'000'000'000;

}  // namespace

std::unique_ptr<HostBudget> HostBudget::Create(EventLoop& loop, const Store& store,
                                               const Clock& clock, Options options) {
  std::unique_ptr<HostBudget> budget(new HostBudget(loop, store, clock, std::move(options)));
  // What was before counts as nothing.
  if (const auto stalled_ns = ReadStalledNs(budget->options_.pressure_path)) {
    budget->seen_stalled_ns_ = *stalled_ns;
  }
  if (const auto scans = ReadHostScans(budget->options_.vmstat_path)) budget->seen_scans_ = *scans;
  budget->Look();
  return budget;
}

HostBudget::HostBudget(EventLoop& loop, const Store& store, const Clock& clock, Options options)
    : loop_(loop),
      store_(store),
      clock_(clock),
      options_(std::move(options)),
      controller_({.budget_bytes = options_.budget_bytes,
                   .reserve_bytes = options_.reserve_bytes,
                   .max_limit_bytes = options_.max_limit_bytes}),
      log_limiter_(clock),
      guests_(options_.places.size()) {}

HostBudget::~HostBudget() {
  loop_.CancelAlarm(next_look_);
}

void HostBudget::Look() {
  SeeGuests();
  guests_bytes_ = SumResident(guests_);
  min_limit_bytes_ = store_.MinLimitBytes();
  NoteSum(guests_bytes_);
  const std::uint64_t now_ns = clock_.NowNs();
  options_.on_limit(controller_.Next({.now_ns = now_ns,
                                      .guests_bytes = guests_bytes_,
                                      .min_limit_bytes = min_limit_bytes_,
                                      .stalled_ns = StalledNs(now_ns)}));
  ++looks_;
  next_look_ = loop_.SetAlarm(controller_.next_sample_ns(), [this] { Look(); });
}

void HostBudget::SeeGuests() {
  for (std::size_t i = 0; i < guests_.size(); ++i) {
    const Place& place = options_.places[i];
    // The rule's first: below it a tenant may move a VMM that has told where it is.
    GuestResident seen =
        SeeGuest(options_.cgroup_root,
                 {.cgroup = place.cgroup.empty() ? place.port->cgroup() : place.cgroup,
                  .ram_path = place.ram_path,
                  .memory_bytes = place.memory_bytes,
                  .connected = place.port->connected()},
                 options_.budget_bytes);
    if (!seen.why_not.empty() && seen.why_not != guests_[i].why_not) {
      if (const auto end_of_line = log_limiter_.Admit()) {
        spdlog::warn("guest {}: counts as {} in full, because it cannot be seen: {}{}",
                     place.port->name(), FormatSize(seen.bytes), seen.why_not, *end_of_line);
      }
    }
    guests_[i] = std::move(seen);
  }
}

// A control group at its own limit makes its tasks wait, and that is in the host's pressure too.
// It counts only where the host as a whole has looked for memory.
std::uint64_t HostBudget::StalledNs(std::uint64_t now_ns) {
  const Result<std::uint64_t> stalled_ns = ReadStalledNs(options_.pressure_path);
  no_pressure_ = stalled_ns ? "" : stalled_ns.error().message;
  if (!stalled_ns || *stalled_ns == seen_stalled_ns_) return stalled_ns_;
  const Result<std::uint64_t> scans = ReadHostScans(options_.vmstat_path);
  if (!scans || *scans != seen_scans_) scanned_at_ns_ = now_ns;
  if (scans) seen_scans_ = *scans;
  if (scanned_at_ns_ && now_ns - *scanned_at_ns_ < kScansHoldNs)
    stalled_ns_ += *stalled_ns - seen_stalled_ns_;
  seen_stalled_ns_ = *stalled_ns;
  return stalled_ns_;
}

// Before the limit follows what guests have: as an observer sees it.
void HostBudget::NoteSum(std::uint64_t guests_bytes) {
  const std::uint64_t sum = guests_bytes + store_.used_bytes();
  const bool was_over = over_bytes_ != 0;
  over_bytes_ = sum > options_.budget_bytes ? sum - options_.budget_bytes : 0;
  worst_over_bytes_ = std::max(worst_over_bytes_, over_bytes_);
  if (over_bytes_ == 0 || was_over) return;
  ++times_over_;
  if (const auto end_of_line = log_limiter_.Admit()) {
    spdlog::warn("guests have {} and the store {}: {} over --host-budget{}",
                 FormatSize(guests_bytes), FormatSize(sum - guests_bytes), FormatSize(over_bytes_),
                 *end_of_line);
  }
}

nlohmann::json HostBudget::Status() const {
  return {
      {"budget_bytes", options_.budget_bytes},
      {"reserve_bytes", options_.reserve_bytes},
      {"guests_bytes", guests_bytes_},
      {"limit_bytes", controller_.limit_bytes()},
      {"min_limit_bytes", min_limit_bytes_},
      {"over_bytes", over_bytes_},
      {"worst_over_bytes", worst_over_bytes_},
      {"times_over", times_over_},
      {"looks", looks_},
      {"interval_ns", controller_.next_sample_ns()},
      {"pressed", controller_.pressed()},
      {"times_pressed", controller_.times_pressed()},
      {"no_pressure", no_pressure_},
  };
}

nlohmann::json HostBudget::GuestStatus(std::size_t place) const {
  const GuestResident& guest = guests_[place];
  nlohmann::json status = {{"resident_bytes", guest.bytes},
                           {"resident_from", ToString(guest.source)}};
  if (!guest.why_not.empty()) status["resident_why_not"] = guest.why_not;
  return status;
}

}  // namespace tmem
