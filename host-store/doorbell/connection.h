// SPDX-License-Identifier: GPL-2.0-only
// What every doorbell hands over when a guest has come: a window, and how the sides ring each
// other.
#ifndef HOST_STORE_DOORBELL_CONNECTION_H_
#define HOST_STORE_DOORBELL_CONNECTION_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "abi/tmem_abi.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/doorbell/window_memory.h"
#include "host-store/window/channel.h"

namespace tmem {

// Who is at the other end, as the kernel says; for log and status. Printable.
struct Peer {
  std::string doorbell;  // "ivshmem" or "hypercall"
  pid_t pid = 0;
  uid_t uid = 0;
  std::string cgroup;  // empty: this doorbell does not tell
  std::string label;   // what the VMM calls itself, never trusted; empty: likewise
};

// Whoever serves it needs to know no more of the doorbell than this.
struct Connection {
  WindowMemory memory;
  tmem_geometry geometry;           // checked
  UniqueFd kick;                    // eventfd, signalled when the guest rings
  std::shared_ptr<GuestBell> bell;  // rings the guest
  Peer peer;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_CONNECTION_H_
