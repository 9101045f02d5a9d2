// SPDX-License-Identifier: GPL-2.0-only
// One measured figure of the store, with what it is held against.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tmem {

// `value` is what the target speaks of, often a ratio; the times or bytes behind it stand beside
// it, in `detail_unit`. A figure without value is one whose feature is not there: not passed.
struct Figure {
  enum class Bound : unsigned char { kNone, kAtMost, kAtLeast };

  std::string name;
  std::string page_kind;
  std::optional<double> value;
  std::string unit;
  Bound bound = Bound::kNone;
  double target = 0;
  std::string detail_unit;
  std::optional<double> ours, floor, peer;

  bool pass() const {
    if (bound == Bound::kNone) return true;
    if (!value) return false;
    return bound == Bound::kAtMost ? *value <= target : *value >= target;
  }
};

using Figures = std::vector<Figure>;

}  // namespace tmem
