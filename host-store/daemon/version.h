// SPDX-License-Identifier: GPL-2.0-only
// The version of tmemd and tmemctl.
#ifndef HOST_STORE_DAEMON_VERSION_H_
#define HOST_STORE_DAEMON_VERSION_H_

namespace tmem {

inline constexpr const char* kVersionText = "tmem 0.1 (ABI version 1)";

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_VERSION_H_
