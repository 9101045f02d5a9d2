// SPDX-License-Identifier: GPL-2.0-only
// Sizes as people write them: 64M, 1.5GiB, 4096.
#ifndef HOST_STORE_DAEMON_SIZE_TEXT_H_
#define HOST_STORE_DAEMON_SIZE_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "host-store/base/result.h"

namespace tmem {

// Bytes, or with a suffix K, M, G, T (also KiB, MiB, ..., kb is not taken for 1000): powers of
// 1024.
Result<std::uint64_t> ParseSize(std::string_view text);

// "64.0 MiB".
std::string FormatSize(std::uint64_t bytes);

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_SIZE_TEXT_H_
