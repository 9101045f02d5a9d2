// SPDX-License-Identifier: GPL-2.0-only
// A hostile guest against a real tmemd, for a while: nothing crashes, hangs or leaks, and a
// well-behaved guest beside it sees nothing of it. TMEM_HOSTILE_S says for how long.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "compress/sample_pages.h"
#include "host-store/doorbell/test_directory.h"
#include "tests/daemon/daemon_process.h"
#include "tests/hostile/good_guest.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
// Small, so that one guest alone comes to the end of everything within a slice.
constexpr std::uint64_t kLimitBytes = 24 * kMiB;

// What a status may take while the machine is busy and the daemon is under attack.
constexpr std::chrono::seconds kStatusPatience{20};
// One operation of the good guest: far above what a loaded machine needs, far below a hang.
constexpr std::uint64_t kMaxOpNs = 20'000'000'000;

#ifdef TMEM_SANITIZED
constexpr std::uint64_t kShortS = 60;
constexpr std::uint64_t kLongS = 1800;
constexpr std::uint64_t kAllowedBytes = ~std::uint64_t{0};  // shadow memory is not ours to bound
#else
constexpr std::uint64_t kShortS = 20;
constexpr std::uint64_t kLongS = 60;
constexpr std::uint64_t kAllowedBytes = kLimitBytes + 16 * kMiB;
#endif

std::uint64_t TotalSeconds() {
  if (const char* text = std::getenv("TMEM_HOSTILE_S"); text != nullptr) {
    return std::strtoull(text, nullptr, 0);
  }
  const char* long_form = std::getenv("TMEM_LONG");
  return long_form != nullptr && std::string(long_form) == "1" ? kLongS : kShortS;
}

std::string FileText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What is looked at all the time while the attack goes on.
struct Watched {
  std::uint64_t statuses = 0;
  std::uint64_t unanswered = 0;
  std::uint64_t slow = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t peak_used_bytes = 0;
};

Watched WatchUntil(const DaemonProcess& daemon, const std::atomic<bool>& stop) {
  Watched watched;
  while (!stop.load()) {
    const auto start = std::chrono::steady_clock::now();
    const nlohmann::json status = daemon.Status();
    ++watched.statuses;
    watched.slow += std::chrono::steady_clock::now() - start > kStatusPatience ? 1 : 0;
    if (status.is_object()) {
      watched.peak_used_bytes =
          std::max(watched.peak_used_bytes, status["used_bytes"].get<std::uint64_t>());
    } else {
      ++watched.unanswered;
    }
    for (int i = 0; i < 5 && !stop.load(); ++i) {
      watched.peak_bytes = std::max(watched.peak_bytes, MemoryBytesOf(daemon.pid()));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  return watched;
}

class Hostile : public testing::TestWithParam<int> {
 protected:
  std::string Socket(const std::string& guest) const {
    return directory_.path() + "/" + guest + ".sock";
  }
  Finished Attack(std::uint64_t ms, std::uint64_t seed) const {
    std::vector<std::string> command = {
        TMEM_HOSTILE_GUEST, "--run-dir", directory_.path(),   "--ms",
        std::to_string(ms), "--seed",    std::to_string(seed)};
    if (only_ != nullptr) command.insert(command.end(), {"--only", only_});
    return RunProgram(command);
  }
  // The daemon has noticed that the guest is gone, and removed what it held.
  static bool Gone(const DaemonProcess& daemon, const std::string& guest) {
    for (int i = 0; i < 600; ++i) {
      const nlohmann::json row = daemon.StatusOfGuest(guest);
      if (row.is_object() && row["connected"] == false && row["leaving"] == false) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }
  void ExpectNothingRefused(const nlohmann::json& good) const {
    for (const auto& [op, statuses] : good["counters"]["operations"].items()) {
      for (const auto& [status, count] : statuses.items()) {
        EXPECT_TRUE(status == "ok" || status == "miss") << op << " " << status << " " << count;
      }
    }
    EXPECT_EQ(good["counters"]["resets"], 0);
    EXPECT_EQ(good["counters"]["registrations"], 1);
    EXPECT_EQ(good["counters"]["gets_corrupt"], 0);
  }
  void ExpectEveryAttackRan(const Finished& attack) const {
    ASSERT_EQ(attack.exit_code, 0) << attack.output;
    if (only_ != nullptr) return;
    const auto done = nlohmann::json::parse(attack.output, nullptr, false);
    ASSERT_TRUE(done.is_object()) << attack.output;
    std::istringstream names(RunProgram({TMEM_HOSTILE_GUEST, "--list", "--run-dir", "."}).output);
    std::size_t attacks = 0;
    for (std::string name; names >> name; ++attacks) {
      EXPECT_GT(done["slices"].value(name, 0), 0) << name;
    }
    EXPECT_GT(attacks, 30u);
    std::printf("attacks: %s\n", done.dump().c_str());
  }

  TestDirectory directory_;
  const char* const only_ = std::getenv("TMEM_HOSTILE_ONLY");  // the name of one attack
};

// With one worker both guests are served by the same thread; with two they race.
INSTANTIATE_TEST_SUITE_P(Workers, Hostile, testing::Values(1, 2));

TEST_P(Hostile, DoesNoHarmToTheDaemonOrToAnotherGuest) {
  const std::uint64_t seed = TestSeed();
  const std::uint64_t ms = TotalSeconds() * 1000 / 2;
  const std::string log_path = directory_.path() + "/log";
  DaemonProcess daemon(directory_.path(),
                       {"--memory-limit", std::to_string(kLimitBytes), "--window", "1M", "--guest",
                        "good", "--guest", "bad", "--workers", std::to_string(GetParam())},
                       log_path);
  ASSERT_TRUE(daemon.answers());
  const auto used_before = daemon.Status()["used_bytes"].get<std::uint64_t>();
  GoodGuest good(Socket("good"), seed);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::size_t files_before = OpenFilesOf(daemon.pid());

  std::atomic<bool> stop{false};
  auto watching = std::async(std::launch::async, [&] { return WatchUntil(daemon, stop); });
  const Finished attack = Attack(ms, seed);
  stop = true;
  const Watched watched = watching.get();

  const std::string log = FileText(log_path);
  for (const char* bad : {"ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error"}) {
    EXPECT_EQ(log.find(bad), std::string::npos) << log.substr(0, 8000);
  }
  EXPECT_EQ(watched.unanswered, 0u);
  EXPECT_EQ(watched.slow, 0u);
  EXPECT_LE(watched.peak_used_bytes, kLimitBytes);
  EXPECT_GE(watched.peak_used_bytes, kLimitBytes / 10 * 8) << "the attack never got that far";
  EXPECT_LE(watched.peak_bytes, kAllowedBytes);
  ASSERT_TRUE(Gone(daemon, "bad")) << log.substr(0, 8000);
  const nlohmann::json bad = daemon.StatusOfGuest("bad");
  for (const char* held : {"persistent_pages", "ephemeral_pages", "stored_bytes", "credits"}) {
    EXPECT_EQ(bad[held], 0) << held;
  }
  EXPECT_LE(OpenFilesOf(daemon.pid()), files_before + 2) << "a status in progress has one or two";
  ExpectEveryAttackRan(attack);

  ExpectNothingRefused(daemon.StatusOfGuest("good"));
  const GoodGuestReport report = good.Stop();
  std::printf(
      "good guest: %llu operations, %llu hits, %llu evicted, longest %.1f ms; status %llu "
      "times; peak %.1f MiB\n",
      static_cast<unsigned long long>(report.ops), static_cast<unsigned long long>(report.hits),
      static_cast<unsigned long long>(report.evicted), static_cast<double>(report.max_ns) / 1e6,
      static_cast<unsigned long long>(watched.statuses),
      static_cast<double>(watched.peak_bytes) / static_cast<double>(kMiB));
  EXPECT_EQ(report.wrong_bytes, 0u);
  EXPECT_EQ(report.wrong_tags, 0u);
  EXPECT_EQ(report.resurrected, 0u);
  EXPECT_EQ(report.lost_persistent, 0u);
  EXPECT_EQ(report.refused, 0u);
  EXPECT_EQ(report.unanswered, 0u);
  EXPECT_GT(report.hits, 100u);
  EXPECT_LE(report.max_ns, kMaxOpNs);
  // Empty tables may stay; the good guest's few pages are still there.
  EXPECT_LT(daemon.Status()["used_bytes"], used_before + 8 * kMiB);
  EXPECT_EQ(daemon.Stop(SIGTERM), 0);
  EXPECT_EQ(FileText(log_path).find("Sanitizer"), std::string::npos);
}

}  // namespace
}  // namespace tmem
