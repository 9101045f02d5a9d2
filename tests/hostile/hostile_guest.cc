// SPDX-License-Identifier: GPL-2.0-only
// A guest's process that does harm for a while, or burns as much CPU without touching its window.
// Prints one line of JSON: what it did, how often, and what CPU time its two threads took.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/hostile/attacks.h"

namespace tmem {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint32_t kMinSliceMs = 10;
constexpr std::uint32_t kMaxSliceMs = 50;

struct Options {
  std::string run_dir;
  std::string guest = "bad";
  std::string only;
  std::uint64_t seed = 1;
  std::uint64_t duration_ms = 1000;
  std::vector<std::uint64_t> burn_ns;
};

std::uint64_t ThreadCpuNs() {
  timespec now{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Slices of every attack in turn, in an order that the seed shuffles anew each round.
int RunAttacks(const Options& options) {
  std::vector<Attack> attacks = AllAttacks();
  std::erase_if(attacks, [&](const Attack& attack) {
    return !options.only.empty() && options.only != attack.name;
  });
  if (attacks.empty()) {
    std::fprintf(stderr, "hostile_guest: no attack %s\n", options.only.c_str());
    return 2;
  }
  Attacker attacker(options.run_dir, options.guest, options.seed);
  std::map<std::string, std::uint64_t> slices;
  std::mt19937_64 order(options.seed);
  const auto end = steady_clock::now() + milliseconds(options.duration_ms);
  std::uint64_t unconnected = 0;
  for (std::size_t next = 0; steady_clock::now() < end; next = (next + 1) % attacks.size()) {
    if (next == 0) std::shuffle(attacks.begin(), attacks.end(), order);
    if (!attacker.EnsureConnected()) {
      ++unconnected;
      continue;
    }
    // Some harm is tried without a registration too.
    if (!attacker.OneIn(16)) (void)attacker.EnsureRegistered();
    const std::uint32_t slice_ms = kMinSliceMs + attacker.Below(kMaxSliceMs - kMinSliceMs);
    attacker.BeginSlice(milliseconds(slice_ms * attacks[next].slices));
    attacks[next].run(attacker);
    attacker.StopScribbling();
    ++slices[attacks[next].name];
  }
  const nlohmann::json done = {{"slices", slices},
                               {"unconnected", unconnected},
                               {"cpu_ns", {ThreadCpuNs(), attacker.ScribblerCpuNs()}}};
  std::printf("%s\n", done.dump().c_str());
  return 0;
}

// Uses `cpu_ns` of CPU time, evenly over the time that is left until `end`.
std::uint64_t Burn(std::uint64_t cpu_ns, steady_clock::time_point begin,
                   steady_clock::time_point end) {
  const std::uint64_t start_ns = ThreadCpuNs();
  const double rate = static_cast<double>(cpu_ns) / static_cast<double>((end - begin).count());
  for (auto now = begin; now < end; now = steady_clock::now()) {
    const std::uint64_t used_ns = ThreadCpuNs() - start_ns;
    if (static_cast<double>(used_ns) < rate * static_cast<double>((now - begin).count())) {
      for (int i = 0; i < 1000; ++i) __builtin_ia32_pause();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  return ThreadCpuNs() - start_ns;
}

int RunBurn(const Options& options) {
  Attacker idle(options.run_dir, options.guest, options.seed);
  if (!idle.EnsureConnected() || !idle.EnsureRegistered()) return 1;
  const auto begin = steady_clock::now();
  const auto end = begin + milliseconds(options.duration_ms);
  std::array<std::uint64_t, 2> used_ns{};
  std::thread second([&] { used_ns[1] = Burn(options.burn_ns[1], begin, end); });
  used_ns[0] = Burn(options.burn_ns[0], begin, end);
  second.join();
  std::printf("%s\n", nlohmann::json{{"cpu_ns", used_ns}}.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace tmem

int main(int argc, char** argv) {
  tmem::Options options;
  CLI::App app{"hostile_guest does harm to a running tmemd, as one of its guests"};
  app.add_option("--run-dir", options.run_dir, "that of the tmemd")->required();
  app.add_option("--guest", options.guest, "which guest it is")->capture_default_str();
  app.add_option("--ms", options.duration_ms, "for how long")->capture_default_str();
  app.add_option("--seed", options.seed, "of every choice")->capture_default_str();
  app.add_option("--only", options.only, "one attack instead of all");
  app.add_option("--burn-ns", options.burn_ns,
                 "instead of attacks: CPU time that the two threads use, the window untouched")
      ->expected(2);
  bool list = false;
  app.add_flag("--list", list, "names the attacks");
  CLI11_PARSE(app, argc, argv);
  if (list) {
    for (const tmem::Attack& attack : tmem::AllAttacks()) std::printf("%s\n", attack.name);
    return 0;
  }
  return options.burn_ns.empty() ? tmem::RunAttacks(options) : tmem::RunBurn(options);
}
