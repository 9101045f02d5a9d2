// SPDX-License-Identifier: GPL-2.0-only
// What a codec answers: outcomes, none of which allocates or is an error of the program.
#pragma once

#include <cstddef>

namespace tmem {

// Either "fits", with the number of bytes written, or "does not fit".
class [[nodiscard]] CompressOutcome {
 public:
  static constexpr CompressOutcome Fits(std::size_t bytes) { return CompressOutcome(bytes); }
  static constexpr CompressOutcome DoesNotFit() { return CompressOutcome(0); }

  constexpr bool fits() const { return bytes_ != 0; }
  // Bytes written to the destination; 0 when they did not fit (no codec makes 0 bytes of a page).
  constexpr std::size_t bytes() const { return bytes_; }

 private:
  explicit constexpr CompressOutcome(std::size_t bytes) : bytes_(bytes) {}
  std::size_t bytes_;
};

// kPage: the destination is a whole page. kCorrupt: the source is not what this codec made; the
// destination then holds anything. A source that was altered may still give kPage with wrong
// bytes: the store's checksum finds that.
enum class [[nodiscard]] DecompressOutcome{kPage, kCorrupt};

}  // namespace tmem
