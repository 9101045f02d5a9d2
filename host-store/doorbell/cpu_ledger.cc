// SPDX-License-Identifier: GPL-2.0-only
// Spreads CPU time over guests.
#include "host-store/doorbell/cpu_ledger.h"

#include <algorithm>

namespace tmem {

void CpuLedger::Note(ChannelCounters& who, Kind kind, std::uint64_t wall_ns) {
  if (last_ >= accounts_.size() || accounts_[last_].who != &who) {
    const auto found = std::find_if(accounts_.begin(), accounts_.end(),
                                    [&](const Account& account) { return account.who == &who; });
    last_ = static_cast<std::size_t>(found - accounts_.begin());
    if (found == accounts_.end()) accounts_.push_back({&who, {}});
  }
  accounts_[last_].wall_ns[static_cast<std::size_t>(kind)] += wall_ns;
}

void CpuLedger::Close(std::uint64_t cpu_ns) {
  std::uint64_t all_ns = 0;
  for (const Account& account : accounts_) {
    for (const std::uint64_t wall_ns : account.wall_ns) all_ns += wall_ns;
  }
  if (all_ns == 0) return;
  const double share = static_cast<double>(cpu_ns) / static_cast<double>(all_ns);
  for (Account& account : accounts_) {
    std::array<std::uint64_t, kKinds> part_ns{};
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      part_ns[kind] =
          static_cast<std::uint64_t>(static_cast<double>(account.wall_ns[kind]) * share);
    }
    account.wall_ns = {};
    ChannelCounters& counters = *account.who;
    counters.settle_cpu_ns.Add(part_ns[static_cast<std::size_t>(Kind::kSettle)]);
    counters.poll_cpu_ns.Add(part_ns[static_cast<std::size_t>(Kind::kPoll)]);
    counters.cpu_ns.Add(part_ns[0] + part_ns[1] + part_ns[2]);
  }
}

void CpuLedger::Remove(const ChannelCounters& who) {
  std::erase_if(accounts_, [&](const Account& account) { return account.who == &who; });
}

}  // namespace tmem
