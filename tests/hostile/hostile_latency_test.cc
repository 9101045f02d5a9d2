// SPDX-License-Identifier: GPL-2.0-only
// What a hostile guest may cost another one's gets: at most twice the p99 that the same guest costs
// by burning as much CPU time without touching its window.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

#include "compress/sample_pages.h"
#include "host-store/doorbell/test_directory.h"
#include "tests/daemon/daemon_process.h"
#include "tests/hostile/good_guest.h"

namespace tmem {
namespace {

// A phase is long enough for every attack to have its slices more than once, and for some thousand
// gets; attack and burn take turns, so that what else the machine does falls on both alike.
constexpr std::uint64_t kPhaseMs = 2500;
constexpr std::size_t kPairs = 5;
// All pairs count, so more of them is no second chance for a daemon that is unfair.
constexpr std::size_t kMaxPairs = 10;
constexpr double kAllowedRatio = 2;

// Where other processes take more than this much of a core, what is measured is their share of the
// cores against ours: such a pair tells nothing about the daemon, and is measured again.
constexpr double kMaxOtherCores = 0.3;
constexpr std::size_t kMaxDisturbed = 10;

struct Phase {
  double p99_us;
  double median_us;
  std::size_t gets;
  double other_cores;                 // what processes that are none of ours used meanwhile
  std::vector<std::uint64_t> cpu_ns;  // of the attacker's two threads
};

double Percentile(std::vector<std::uint64_t>& ns, std::size_t percent) {
  if (ns.empty()) return 0;
  const auto at = ns.begin() + static_cast<std::ptrdiff_t>(ns.size() * percent / 100);
  std::nth_element(ns.begin(), at, ns.end());
  return static_cast<double>(*at) / 1000;
}

double Median(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::uint64_t NsOf(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(time.tv_usec) * 1000u;
}

// CPU time that everything but this test and its processes has used since boot.
std::uint64_t OthersCpuNs(const DaemonProcess& daemon) {
  std::ifstream file("/proc/stat");
  std::string cpu;
  std::uint64_t user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0;
  std::uint64_t stolen = 0;
  file >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> stolen;
  const std::uint64_t tick_ns = 1'000'000'000u / static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  std::uint64_t ours_ns = CpuNsOf(daemon.pid());
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    (void)::getrusage(who, &usage);
    ours_ns += NsOf(usage.ru_utime) + NsOf(usage.ru_stime);
  }
  const std::uint64_t busy_ns = (user + nice + system + irq + softirq + stolen) * tick_ns;
  return busy_ns - std::min(busy_ns, ours_ns);
}

class HostileLatency : public testing::Test {
 protected:
  Phase Run(const DaemonProcess& daemon, GoodGuest& good, const std::vector<std::string>& what) {
    std::vector<std::string> command = {TMEM_HOSTILE_GUEST, "--run-dir", directory_.path(), "--ms",
                                        std::to_string(kPhaseMs)};
    command.insert(command.end(), what.begin(), what.end());
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t others_ns = OthersCpuNs(daemon);
    (void)good.TakeGetNs();
    const Finished finished = RunProgram(command);
    std::vector<std::uint64_t> get_ns = good.TakeGetNs();
    const auto other_cores =
        static_cast<double>(static_cast<std::int64_t>(OthersCpuNs(daemon) - others_ns)) /
        static_cast<double>((std::chrono::steady_clock::now() - start).count());
    EXPECT_EQ(finished.exit_code, 0) << finished.output;
    const auto done = nlohmann::json::parse(finished.output, nullptr, false);
    if (!done.is_object()) return {};
    return {Percentile(get_ns, 99), Percentile(get_ns, 50), get_ns.size(), other_cores,
            done["cpu_ns"].get<std::vector<std::uint64_t>>()};
  }

  static void Print(const char* what, const Phase& phase) {
    std::printf(
        "%-6s p99 %7.0f us, median %5.0f us, %6zu gets, CPU %4.0f + %4.0f ms; others %.2f "
        "cores\n",
        what, phase.p99_us, phase.median_us, phase.gets, static_cast<double>(phase.cpu_ns[0]) / 1e6,
        static_cast<double>(phase.cpu_ns[1]) / 1e6, phase.other_cores);
  }

  TestDirectory directory_;
};

TEST_F(HostileLatency, AnAttackAtMostDoublesTheP99OfAnotherGuestsGets) {
#ifdef TMEM_SANITIZED
  GTEST_SKIP() << "a figure of the release build";
#endif
  // Speeds need a quiet machine, which the short form does not ask for.
  if (std::getenv("TMEM_LONG") == nullptr) GTEST_SKIP() << "a figure: TMEM_LONG=1 measures it";
  const std::uint64_t seed = TestSeed();
  DaemonProcess daemon(directory_.path(),
                       {"--memory-limit", "64M", "--guest", "good", "--guest", "bad"});
  ASSERT_TRUE(daemon.answers());
  GoodGuest good(directory_.path() + "/good.sock", seed);
  std::vector<double> attacked;
  std::vector<double> burned;
  double ratio = 0;
  for (std::size_t disturbed = 0; attacked.size() < kMaxPairs;) {
    const Phase attack =
        Run(daemon, good, {"--seed", std::to_string(seed + attacked.size() + disturbed)});
    ASSERT_EQ(attack.cpu_ns.size(), 2u);
    const Phase burn =
        Run(daemon, good,
            {"--burn-ns", std::to_string(attack.cpu_ns[0]), std::to_string(attack.cpu_ns[1])});
    ASSERT_EQ(burn.cpu_ns.size(), 2u);
    Print("attack", attack);
    Print("burn", burn);
    if (std::max(attack.other_cores, burn.other_cores) > kMaxOtherCores) {
      if (++disturbed > kMaxDisturbed) GTEST_SKIP() << "other processes keep the cores busy";
      continue;
    }
    ASSERT_GT(attack.gets, 100u);
    ASSERT_GT(burn.gets, 100u);
    attacked.push_back(attack.p99_us);
    burned.push_back(burn.p99_us);
    ratio = Median(attacked) / Median(burned);
    if (attacked.size() >= kPairs && ratio <= kAllowedRatio) break;
  }
  std::printf("p99 of gets: %.0f us under attack, %.0f us beside as much CPU burnt: %.2fx\n",
              Median(attacked), Median(burned), ratio);
  EXPECT_LE(ratio, kAllowedRatio);
  EXPECT_TRUE(good.Stop().clean());
}

}  // namespace
}  // namespace tmem
