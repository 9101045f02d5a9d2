// SPDX-License-Identifier: GPL-2.0-only
// The daemon's status as JSON; the keys are an interface, a superset may come, none goes.
#ifndef HOST_STORE_DAEMON_STATUS_JSON_H_
#define HOST_STORE_DAEMON_STATUS_JSON_H_

#include <nlohmann/json.hpp>

#include "host-store/store/store.h"
#include "host-store/window/channel_counters.h"
#include "host-store/window/shrink_requests.h"

namespace tmem {

nlohmann::json StoreStatusJson(const StoreStatus& status);
nlohmann::json GuestStatusJson(const GuestStatus& status, const ChannelCounters& counters);
// `last` is the guest's status when it went, or null; `now` is what it still holds.
nlohmann::json DisconnectedGuestJson(const nlohmann::json& last, const GuestStatus& now);

// What was asked of a guest and how far it is: {"shrink": {...}, "drain": {...}}.
nlohmann::json ShrinkStatusJson(const ShrinkRequests::Status& status);

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_STATUS_JSON_H_
