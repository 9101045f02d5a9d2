// SPDX-License-Identifier: GPL-2.0-only
// Parses and prints sizes.
#include "host-store/daemon/size_text.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <limits>

namespace tmem {
namespace {

constexpr std::string_view kUnits = "KMGT";

// 1 for no suffix, 0 for one that is not known.
std::uint64_t FactorOf(std::string_view suffix) {
  if (suffix.empty() || suffix == "B") return 1;
  const std::string_view rest = suffix.substr(1);
  if (!rest.empty() && rest != "iB" && rest != "i") return 0;
  const auto unit = kUnits.find(static_cast<char>(std::toupper(suffix[0])));
  if (unit == std::string_view::npos) return 0;
  return std::uint64_t{1} << (10 * (unit + 1));
}

}  // namespace

Result<std::uint64_t> ParseSize(std::string_view text) {
  const auto wrong = [&] {
    return Error{ErrorCode::kInvalidArgument, "'" + std::string(text) +
                                                  "' is not a size: give bytes, or a number with "
                                                  "K, M or G, such as 64M"};
  };
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{} || !(number >= 0)) return wrong();
  const std::uint64_t factor = FactorOf(text.substr(static_cast<std::size_t>(end - text.data())));
  if (factor == 0) return wrong();
  const double bytes = number * static_cast<double>(factor);
  if (bytes >= static_cast<double>(std::numeric_limits<std::int64_t>::max())) return wrong();
  return static_cast<std::uint64_t>(bytes);
}

std::string FormatSize(std::uint64_t bytes) {
  constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto amount = static_cast<double>(bytes);
  while (amount >= 1024 && unit + 1 < kNames.size()) {
    amount /= 1024;
    ++unit;
  }
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", amount, kNames[unit]);
  return text.data();
}

}  // namespace tmem
