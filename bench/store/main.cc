// SPDX-License-Identifier: GPL-2.0-only
// store_figures: measures the store and prints its figures as JSON. bench/store-bench runs it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/store/workbench.h"

namespace tmem {
namespace {

// Asked of the store, and not there yet: they count as not reached.
void AddNotBuilt(Figures& figures) {
  const auto missing = [&](const char* name, const char* unit, Figure::Bound bound, double target) {
    figures.push_back({.name = name,
                       .page_kind = "all",
                       .value = {},
                       .unit = unit,
                       .bound = bound,
                       .target = target,
                       .detail_unit = {},
                       .ours = {},
                       .floor = {},
                       .peer = {}});
  };
  missing("lock hold time, p99.99", "us", Figure::Bound::kAtMost, 5);
  missing("zram's memory, by ours with background zstd", "x", Figure::Bound::kAtLeast, 1.3);
}

nlohmann::json JsonOf(const Figure& figure) {
  const auto number = [](const std::optional<double>& value) {
    return value ? nlohmann::json(*value) : nlohmann::json();
  };
  nlohmann::json target;
  if (figure.bound != Figure::Bound::kNone) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%s %g",
                  figure.bound == Figure::Bound::kAtMost ? "<=" : ">=", figure.target);
    target = text.data();
  }
  return {{"name", figure.name},
          {"page_kind", figure.page_kind},
          {"value", number(figure.value)},
          {"unit", figure.unit},
          {"target", target},
          {"detail_unit", figure.detail_unit},
          {"ours", number(figure.ours)},
          {"floor", number(figure.floor)},
          {"peer", number(figure.peer)},
          {"pass", figure.pass()}};
}

int Main(int argc, const char* const* argv) {
  BenchContext context;
  std::string zram;
  std::vector<std::string> parts;
  CLI::App app{"store_figures measures the store on samples of pages; prints JSON"};
  app.add_option("samples", context.samples_dir, "what page_samples made")->required();
  app.add_option("--zram", zram, "a device of zram that may be overwritten, such as zram1");
  app.add_option("--part", parts, "only pages, density, many or scale");
  app.add_flag("--quick", context.quick, "few repetitions");
  CLI11_PARSE(app, argc, argv);
  std::unique_ptr<ZramPeer> peer;
  if (!zram.empty()) {
    auto opened = ZramPeer::Open(zram);
    if (!opened) {
      std::fprintf(stderr, "store_figures: %s\n", opened.error().message.c_str());
      return 1;
    }
    peer = std::move(opened).value();
    context.zram = peer.get();
  }
  const std::pair<const char*, void (*)(const BenchContext&, Figures&)> all_parts[] = {
      {"pages", MeasurePages},
      {"density", MeasureDensity},
      {"many", MeasureManyPages},
      {"scale", MeasureScale}};
  Figures figures;
  for (const auto& [name, measure] : all_parts) {
    if (parts.empty() || std::find(parts.begin(), parts.end(), name) != parts.end()) {
      measure(context, figures);
    }
  }
  if (parts.empty()) AddNotBuilt(figures);
  nlohmann::json list = nlohmann::json::array();
  for (const Figure& figure : figures) list.push_back(JsonOf(figure));
  std::printf("%s\n", list.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tmem

int main(int argc, char** argv) {
  return tmem::Main(argc, argv);
}
