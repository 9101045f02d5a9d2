// SPDX-License-Identifier: GPL-2.0-only
// Keeps guests and store together within what the operator gives them of the host's memory.
#ifndef HOST_STORE_DAEMON_HOST_BUDGET_H_
#define HOST_STORE_DAEMON_HOST_BUDGET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "host-store/base/clock.h"
#include "host-store/daemon/budget_controller.h"
#include "host-store/daemon/guest_port.h"
#include "host-store/daemon/host_sampler.h"
#include "host-store/daemon/log_limiter.h"
#include "host-store/doorbell/event_loop.h"
#include "host-store/store/store.h"

namespace tmem {

// Looks at the host when the controller asks for it, and hands on the limit that follows. Thread
// rule: the event loop's. Cost of a look: 70 us for pressure, and 70 us for each cgroup
// (docs/decisions.md).
class HostBudget {
 public:
  struct Place {
    std::string cgroup;          // of the guest's rule; the one that it connected from goes first
    std::string ram_path;        // may be empty
    std::uint64_t memory_bytes;  // 0: not known
    const GuestPort* port;
  };
  struct Options {
    std::uint64_t budget_bytes;
    std::uint64_t reserve_bytes;
    std::uint64_t max_limit_bytes;  // that the store was made with
    std::string cgroup_root;
    std::string pressure_path;
    std::string vmstat_path;
    std::vector<Place> places;
    std::function<void(std::uint64_t limit_bytes)> on_limit;
  };
  // The first limit has been handed on when it returns.
  static std::unique_ptr<HostBudget> Create(EventLoop& loop, const Store& store, const Clock& clock,
                                            Options options);
  ~HostBudget();
  HostBudget(const HostBudget&) = delete;
  HostBudget& operator=(const HostBudget&) = delete;

  // As of the last look.
  nlohmann::json Status() const;
  // Of the guest at that place, to be added to its row.
  nlohmann::json GuestStatus(std::size_t place) const;

 private:
  HostBudget(EventLoop& loop, const Store& store, const Clock& clock, Options options);
  void Look();
  void SeeGuests();
  std::uint64_t StalledNs(std::uint64_t now_ns);
  void NoteSum(std::uint64_t guests_bytes);

  EventLoop& loop_;
  const Store& store_;
  const Clock& clock_;
  const Options options_;
  BudgetController controller_;
  LogLimiter log_limiter_;
  EventLoop::AlarmId next_look_ = EventLoop::AlarmId::kNone;
  std::vector<GuestResident> guests_;  // by place
  std::string no_pressure_;            // why it is not known
  std::uint64_t seen_stalled_ns_ = 0;
  std::uint64_t seen_scans_ = 0;
  std::optional<std::uint64_t> scanned_at_ns_;
  std::uint64_t stalled_ns_ = 0;  // of what was seen, what counts
  std::uint64_t looks_ = 0;
  std::uint64_t guests_bytes_ = 0;
  std::uint64_t min_limit_bytes_ = 0;
  std::uint64_t over_bytes_ = 0;
  std::uint64_t worst_over_bytes_ = 0;
  std::uint64_t times_over_ = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_HOST_BUDGET_H_
