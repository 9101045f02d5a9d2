// SPDX-License-Identifier: GPL-2.0-only
// A configured guest, and by which rule a VMM that comes is that guest.
#ifndef HOST_STORE_DAEMON_GUEST_RULE_H_
#define HOST_STORE_DAEMON_GUEST_RULE_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "host-store/base/result.h"
#include "host-store/doorbell/connection.h"
#include "host-store/doorbell/guest_ram.h"
#include "host-store/store/store.h"

namespace tmem {

// What the kernel knows of a VMM process and the process cannot choose. Everything that is given
// must hold; nothing given: no VMM is this guest by rule.
struct GuestRule {
  std::optional<uid_t> uid;
  std::string cgroup;  // absolute path in the unified hierarchy, no '/' at its end; empty: any

  bool given() const { return uid.has_value() || !cgroup.empty(); }
  // Over the hypercall doorbell. The cgroup is that path or below it.
  bool Matches(const Peer& peer) const;
  // Over a socket, which tells the uid and not the cgroup, and is itself a guest's identity.
  bool AllowsUid(uid_t peer) const { return !uid.has_value() || *uid == peer; }
};

struct GuestConfig {
  GuestOptions guest;
  GuestRule rule;
  RamConfig ram;
  std::uint64_t memory_bytes = 0;  // how much memory it has; 0: not told
  bool shrink = false;             // the operator may ask it for its cache and to take pages home
};

// NAME[,domain=D][,uid=U][,cgroup=PATH][,weight=N][,ram=FILE[,ram-layout=pc|q35]][,memory=SIZE]
// [,reports=on|off][,shrink=on|off]. Errors say what is wrong and what would do.
Result<GuestConfig> ParseGuest(std::string_view text);

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_GUEST_RULE_H_
