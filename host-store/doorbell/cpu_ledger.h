// SPDX-License-Identifier: GPL-2.0-only
// Which guest a worker's CPU time went to.
#ifndef HOST_STORE_DOORBELL_CPU_LEDGER_H_
#define HOST_STORE_DOORBELL_CPU_LEDGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "host-store/window/channel_counters.h"

namespace tmem {

// Intervals of wall time are noted as they pass, which costs no system call; when the account is
// closed, the thread's CPU time since the last closing is spread over them in proportion. So what
// guests are charged adds up to what the thread used, its looks at the lanes and its sleeping and
// waking included, and time in which the thread did not run is nobody's.
//
// Thread rule: one thread.
class CpuLedger {
 public:
  enum class Kind : std::uint8_t { kVisit, kSettle, kPoll };
  static constexpr std::size_t kKinds = 3;

  // `who` must stay until Remove.
  void Note(ChannelCounters& who, Kind kind, std::uint64_t wall_ns);
  void Close(std::uint64_t cpu_ns);
  // After Close.
  void Remove(const ChannelCounters& who);

 private:
  struct Account {
    ChannelCounters* who;
    std::array<std::uint64_t, kKinds> wall_ns;
  };
  std::vector<Account> accounts_;
  std::size_t last_ = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_CPU_LEDGER_H_
