// SPDX-License-Identifier: GPL-2.0-only
// Asks a running tmemd over its control socket.
#ifndef HOST_STORE_CTL_CONTROL_CLIENT_H_
#define HOST_STORE_CTL_CONTROL_CLIENT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "host-store/base/result.h"

namespace tmem {

// Waits at most 10 s. Errors: kUnavailable (no daemon), kSystem, kCorrupt (not JSON, or it says
// "error").
Result<nlohmann::json> AskDaemon(const std::string& run_dir, const std::string& request);

}  // namespace tmem

#endif  // HOST_STORE_CTL_CONTROL_CLIENT_H_
