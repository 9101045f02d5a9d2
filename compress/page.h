// SPDX-License-Identifier: GPL-2.0-only
// What a page is to every C++ part: 4 KiB of bytes, seen through spans of that exact length.
#pragma once

#include <cstddef>
#include <span>

namespace tmem {

// The only page size of the ABI: x86-64 guests have 4 KiB base pages.
inline constexpr std::size_t kPageBytes = 4096;

// A page to read. It must not change while a function of compress/ reads it: what a guest can
// write to is copied first.
using PageView = std::span<const std::byte, kPageBytes>;

// A page to write.
using PageBuffer = std::span<std::byte, kPageBytes>;

}  // namespace tmem
