// SPDX-License-Identifier: GPL-2.0-only
// The status of tmemd for a person.
#ifndef HOST_STORE_CTL_STATUS_TABLE_H_
#define HOST_STORE_CTL_STATUS_TABLE_H_

#include <nlohmann/json.hpp>
#include <string>

namespace tmem {

// Unknown or missing keys show as 0 or "-": the daemon may be older or newer.
std::string StatusTable(const nlohmann::json& status);

}  // namespace tmem

#endif  // HOST_STORE_CTL_STATUS_TABLE_H_
