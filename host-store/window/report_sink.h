// SPDX-License-Identifier: GPL-2.0-only
// Who drops the memory that a guest has reported free, as a channel sees it.
#ifndef HOST_STORE_WINDOW_REPORT_SINK_H_
#define HOST_STORE_WINDOW_REPORT_SINK_H_

#include <cstdint>
#include <vector>

#include "abi/tmem_abi.h"

namespace tmem {

// Takes one report at a time and works on it in a thread of its own: dropping 2 MiB can take
// milliseconds, and gets do not wait for that. Called by the channel's thread only; nothing but
// Cancel blocks.
class ReportSink {
 public:
  struct Outcome {
    tmem_status status = TMEM_STATUS_NONE;  // of the whole report
    std::uint64_t dropped_bytes = 0;
    std::uint64_t cpu_ns = 0;
    std::vector<tmem_status> ranges;  // one for each
  };

  virtual ~ReportSink() = default;

  // `ranges` are the host's own copies and may hold anything. Whoever waits for the channel's work
  // is woken when Ready() has become true.
  virtual void Begin(std::vector<tmem_report_range> ranges) = 0;
  // The report that was begun is answered.
  virtual bool Ready() const = 0;
  // Its outcome. Only when Ready().
  virtual Outcome Take() = 0;
  // Ends what was begun, finished or not. When it returns nothing is dropped any more: it waits for
  // the one system call in progress.
  virtual void Cancel() = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_REPORT_SINK_H_
