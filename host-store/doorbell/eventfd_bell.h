// SPDX-License-Identifier: GPL-2.0-only
// Rings a guest's eventfd without ever blocking, whatever the guest's process does to it.
#ifndef HOST_STORE_DOORBELL_EVENTFD_BELL_H_
#define HOST_STORE_DOORBELL_EVENTFD_BELL_H_

#include <linux/aio_abi.h>

#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/window/channel.h"

namespace tmem {

// The other process shares the open file: it can clear O_NONBLOCK and fill the counter, and then a
// write of ours would sleep for as long as it likes, with a worker in it. So the kernel rings in
// our place, as it does for an irqfd: the completion of an (empty) asynchronous read signals the
// eventfd, and that never waits. Costs two system calls. Where the kernel has no AIO it is a plain
// write. Its end takes the kernel tens of milliseconds, so one serves all connections of a guest.
// Thread rule: one thread at a time.
class EventfdBell final : public GuestBell {
 public:
  static constexpr int kNoEventfd = -1;

  explicit EventfdBell(int eventfd = kNoEventfd);
  ~EventfdBell() override;
  EventfdBell(const EventfdBell&) = delete;
  EventfdBell& operator=(const EventfdBell&) = delete;

  // What rings from now on; must stay open until the next call.
  void Aim(int eventfd) { eventfd_ = eventfd; }
  // With no eventfd, nothing.
  void Ring() override;
  bool never_blocks() const { return context_ != 0; }

 private:
  int eventfd_;
  const UniqueFd empty_file_;
  aio_context_t context_ = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_EVENTFD_BELL_H_
