// SPDX-License-Identifier: GPL-2.0-only
// tmemctl shrink and drain: ask a guest through tmemd, and follow it to its end.
#ifndef HOST_STORE_CTL_ASK_GUEST_H_
#define HOST_STORE_CTL_ASK_GUEST_H_

#include <cstdint>
#include <string>

#include "host-store/base/result.h"
#include "host-store/ctl/shrink_watch.h"

namespace tmem {

struct AskOptions {
  std::string guest;
  std::string size;   // of a shrink
  bool undo = false;  // a drain
  bool no_wait = false;
  std::uint32_t patience_s = 30;
};

// True: done, or only asked if that was wanted. Errors: kInvalidArgument (the size), kUnavailable
// (no daemon), others: refused, or the guest did not do it. Progress goes to standard error, the
// outcome to standard output.
Result<void> AskGuest(const std::string& run_dir, ShrinkWatch::Task task,
                      const AskOptions& options);

}  // namespace tmem

#endif  // HOST_STORE_CTL_ASK_GUEST_H_
