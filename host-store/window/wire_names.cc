// SPDX-License-Identifier: GPL-2.0-only
// Inverts the name tables at compile time, so that counting costs one load.
#include "host-store/window/wire_names.h"

namespace tmem {
namespace {

template <std::size_t kNumbers, std::size_t kNames>
constexpr std::array<std::uint8_t, kNumbers> Positions(const std::array<WireName, kNames>& names) {
  std::array<std::uint8_t, kNumbers> positions{};
  positions.fill(static_cast<std::uint8_t>(kNames - 1));
  for (std::size_t i = 0; i + 1 < kNames; ++i) {
    positions[names[i].number] = static_cast<std::uint8_t>(i);
  }
  return positions;
}

constexpr auto kOpPositions = Positions<256>(kOpNames);
constexpr auto kStatusPositions = Positions<128>(kStatusNames);

}  // namespace

std::size_t OpPosition(std::uint8_t op) {
  return kOpPositions[op];
}

std::size_t StatusPosition(std::uint16_t status) {
  return status < kStatusPositions.size() ? kStatusPositions[status] : kStatusNames.size() - 1;
}

}  // namespace tmem
