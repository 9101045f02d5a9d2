// SPDX-License-Identifier: GPL-2.0-only
// A timer, a look, a limit.
#include "host-store/daemon/host_budget.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <utility>

#include "host-store/daemon/size_text.h"

namespace tmem {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;

}  // namespace

Result<std::unique_ptr<HostBudget>> HostBudget::Create(EventLoop& loop, const Store& store,
                                                       const Clock& clock, Options options) {
  std::unique_ptr<HostBudget> budget(new HostBudget(loop, store, clock, std::move(options)));
  if (Result<void> started = budget->Start(); !started) return started.error();
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
  loop_.Unwatch(timer_watch_);
}

Result<void> HostBudget::Start() {
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer_.valid()) return SystemError("timerfd_create");
  const Result<EventLoop::WatchId> watch =
      loop_.Watch(timer_.get(), EPOLLIN, [this](std::uint32_t) { Look(); });
  if (!watch) return watch.error();
  timer_watch_ = *watch;
  Look();
  return Ok();
}

void HostBudget::Look() {
  SeeGuests();
  guests_bytes_ = SumResident(guests_);
  min_limit_bytes_ = store_.MinLimitBytes();
  NoteSum(guests_bytes_);
  options_.on_limit(controller_.Next({.now_ns = clock_.NowNs(),
                                      .guests_bytes = guests_bytes_,
                                      .min_limit_bytes = min_limit_bytes_,
                                      .stalled_ns = StalledNs()}));
  ++looks_;
  const std::uint64_t next_ns = controller_.next_sample_ns();
  const itimerspec once{
      {0, 0},
      {static_cast<time_t>(next_ns / kNsPerSecond), static_cast<long>(next_ns % kNsPerSecond)}};
  (void)::timerfd_settime(timer_.get(), 0, &once, nullptr);
}

void HostBudget::SeeGuests() {
  for (std::size_t i = 0; i < guests_.size(); ++i) {
    const Place& place = options_.places[i];
    const std::string cgroup = place.port->cgroup();
    GuestResident seen = SeeGuest(options_.cgroup_root,
                                  {.cgroup = cgroup.empty() ? place.cgroup : cgroup,
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

std::uint64_t HostBudget::StalledNs() {
  const Result<std::uint64_t> stalled_ns = ReadStalledNs(options_.pressure_path);
  no_pressure_ = stalled_ns ? "" : stalled_ns.error().message;
  return stalled_ns ? *stalled_ns : 0;
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
