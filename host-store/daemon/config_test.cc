// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tmem {
namespace {

using testing::HasSubstr;

struct Parsed {
  std::variant<DaemonConfig, ExitCode> outcome;
  std::string output;
  std::string error;

  const DaemonConfig& config() const { return std::get<DaemonConfig>(outcome); }
  bool usage_error() const {
    const auto* code = std::get_if<ExitCode>(&outcome);
    return code != nullptr && *code == ExitCode::kUsage;
  }
};

Parsed Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "tmemd");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  auto outcome = ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
  std::string output = testing::internal::GetCapturedStdout();
  return {std::move(outcome), std::move(output), testing::internal::GetCapturedStderr()};
}

TEST(Config, DefaultsAreThoseOfTheHelp) {
  const Parsed parsed = Parse({"--memory-limit", "1G", "--guest", "a"});
  ASSERT_FALSE(parsed.usage_error()) << parsed.error;
  const DaemonConfig& config = parsed.config();
  EXPECT_EQ(config.limit_bytes, 1u << 30);
  EXPECT_EQ(config.pool_min_bytes, 1u << 29);
  EXPECT_EQ(config.run_dir, "/run/tmem");
  EXPECT_EQ(config.window.window_bytes, 4u << 20);
  EXPECT_EQ(config.poll_ns, 100'000u);
  EXPECT_GE(config.workers, 1u);
  ASSERT_EQ(config.guests.size(), 1u);
  EXPECT_EQ(config.guests[0].guest.name, "a");
  EXPECT_EQ(config.guests[0].guest.domain, "");
}

TEST(Config, ReadsGuestsAndTheirDomains) {
  const Parsed parsed = Parse({"--memory-limit", "64M", "--guest", "a,domain=blue", "--guest",
                               "b-1.x", "--pool-min", "20M", "--window", "1M"});
  ASSERT_FALSE(parsed.usage_error()) << parsed.error;
  ASSERT_EQ(parsed.config().guests.size(), 2u);
  EXPECT_EQ(parsed.config().guests[0].guest.domain, "blue");
  EXPECT_EQ(parsed.config().guests[1].guest.name, "b-1.x");
  EXPECT_EQ(parsed.config().pool_min_bytes, 20u << 20);
}

TEST(Config, RefusesNamesThatAreNoFileNames) {
  for (const char* guest : {"", "..", ".a", "a/b", "a b", "control", "a,dom=x",
                            "a,domain=", "0123456789012345678901234567890123456789012345678"}) {
    EXPECT_TRUE(Parse({"--memory-limit", "64M", "--guest", guest}).usage_error()) << guest;
  }
  EXPECT_TRUE(Parse({"--memory-limit", "64M", "--guest", "a", "--guest", "a"}).usage_error());
}

TEST(Config, SaysWhatToDo) {
  EXPECT_THAT(Parse({"--guest", "a"}).error, HasSubstr("--memory-limit"));
  EXPECT_THAT(Parse({"--memory-limit", "64M"}).error, HasSubstr("--guest"));
  EXPECT_THAT(Parse({"--memory-limit", "10M", "--guest", "a"}).error, HasSubstr("need at least"));
  EXPECT_THAT(Parse({"--memory-limit", "64M", "--pool-min", "63M", "--guest", "a"}).error,
              HasSubstr("--pool-min 63.0 MiB is too large"));
  EXPECT_THAT(Parse({"--memory-limit", "64Q", "--guest", "a"}).error, HasSubstr("64M"));
  EXPECT_THAT(Parse({"--memory-limit", "64M", "--guest", "a", "--window", "3M"}).error,
              HasSubstr("power of two"));
}

TEST(Config, PoolMaxIsALimitWithoutWindowsAndDaemon) {
  const Parsed parsed = Parse({"--pool-max", "1G", "--guest", "a"});
  ASSERT_FALSE(parsed.usage_error()) << parsed.error;
  const DaemonConfig& config = parsed.config();
  EXPECT_EQ(config.limit_bytes, (1u << 30) + (4u << 20) + config.overhead_bytes);
  EXPECT_EQ(CheckConfig(config)->limit_bytes, config.limit_bytes) << "checked twice is the same";
  const Parsed both = Parse({"--pool-max", "1G", "--memory-limit", "512M", "--guest", "a"});
  EXPECT_EQ(both.config().limit_bytes, 512u << 20);
  EXPECT_THAT(Parse({"--pool-max", "64M", "--pool-min", "65M", "--guest", "a"}).error,
              HasSubstr("more than --pool-max"));
  EXPECT_THAT(Parse({"--pool-max", "0", "--guest", "a"}).error, HasSubstr("--pool-max"));
}

TEST(Config, AThreadThatDropsMemoryCountsInTheLimit) {
  const auto overhead = [](const char* guest) {
    return Parse({"--memory-limit", "1G", "--guest", guest}).config().overhead_bytes;
  };
  EXPECT_GT(overhead("a,ram=/dev/shm/a"), overhead("a"));
  EXPECT_EQ(overhead("a,ram=/dev/shm/a,reports=off"), overhead("a"));
}

TEST(Config, AHostBudgetIsALimitAndWantsToSeeEachGuest) {
  const Parsed parsed = Parse({"--host-budget", "4G", "--guest", "a,cgroup=/vm"});
  ASSERT_FALSE(parsed.usage_error()) << parsed.error;
  EXPECT_EQ(parsed.config().limit_bytes, std::uint64_t{4} << 30);
  EXPECT_EQ(parsed.config().pool_min_bytes, 512u << 20);
  EXPECT_FALSE(Parse({"--host-budget", "4G", "--guest", "a,ram=/dev/shm/a"}).usage_error());
  EXPECT_FALSE(Parse({"--host-budget", "4G", "--guest", "a,memory=1G"}).usage_error());
  EXPECT_THAT(Parse({"--host-budget", "4G", "--guest", "a,uid=0"}).error,
              HasSubstr("cannot be seen"));
  EXPECT_EQ(Parse({"--host-budget", "4G", "--memory-limit", "1G", "--guest", "a,memory=1G"})
                .config()
                .limit_bytes,
            1u << 30);
  EXPECT_EQ(BudgetReserveBytes(1u << 20), 16u << 20);
  EXPECT_EQ(BudgetReserveBytes(std::uint64_t{4} << 30), 256u << 20);
  EXPECT_EQ(BudgetReserveBytes(UINT64_MAX), 512u << 20);
}

TEST(Config, TheHostModuleIsUsedWhereARuleIs) {
  const Parsed automatic = Parse({"--memory-limit", "64M", "--guest", "a,uid=0"});
  ASSERT_FALSE(automatic.usage_error()) << automatic.error;
  EXPECT_EQ(automatic.config().kvm_tmem, KvmTmemUse::kAuto);
  EXPECT_EQ(automatic.config().kvm_tmem_path, "/dev/kvm_tmem");
  EXPECT_EQ(automatic.config().guests[0].rule.uid, 0u);
  const Parsed off = Parse({"--memory-limit", "64M", "--guest", "a,uid=0", "--kvm-tmem", "off",
                            "--kvm-tmem-device", "/dev/other"});
  EXPECT_EQ(off.config().kvm_tmem, KvmTmemUse::kOff);
  EXPECT_EQ(off.config().kvm_tmem_path, "/dev/other");
  EXPECT_THAT(Parse({"--memory-limit", "64M", "--guest", "a", "--kvm-tmem", "required"}).error,
              HasSubstr("no --guest has a rule"));
  EXPECT_TRUE(
      Parse({"--memory-limit", "64M", "--guest", "a,uid=0", "--kvm-tmem", "yes"}).usage_error());
}

TEST(Config, PoolMinFitsWhatTheHostModuleAllows) {
  const Parsed parsed = Parse({"--memory-limit", "1G", "--guest", "a,uid=0"});
  const Result<DaemonConfig> within = CheckConfigWithin(parsed.config(), 64u << 20);
  ASSERT_TRUE(within.ok()) << within.error().message;
  EXPECT_EQ(within->limit_bytes, 1u << 30) << "the module may be told to allow more later";
  EXPECT_EQ(within->pool_min_bytes, 32u << 20);
  const Result<DaemonConfig> small = CheckConfigWithin(parsed.config(), 8u << 20);
  ASSERT_FALSE(small.ok());
  EXPECT_THAT(small.error().message, HasSubstr("pool_limit_mb"));
  EXPECT_EQ(CheckConfigWithin(parsed.config(), 0)->pool_min_bytes, 1u << 29);
  const Parsed given = Parse({"--memory-limit", "1G", "--pool-min", "100M", "--guest", "a,uid=0"});
  EXPECT_FALSE(CheckConfigWithin(given.config(), 64u << 20).ok());
  EXPECT_EQ(CheckConfigWithin(given.config(), 256u << 20)->pool_min_bytes, 100u << 20);
}

TEST(Config, HelpDocumentsExitCodes) {
  const Parsed parsed = Parse({"--help"});
  EXPECT_EQ(std::get<ExitCode>(parsed.outcome), ExitCode::kOk);
  EXPECT_THAT(parsed.output, HasSubstr("Exit codes"));
}

TEST(Config, ManyWindowsLeaveRoomForEphemeralPages) {
  DaemonConfig config;
  config.limit_bytes = 64u << 20;
  for (int i = 0; i < 12; ++i) {
    config.guests.push_back(ParseGuest("g" + std::to_string(i)).value());
  }
  config.window = WindowOptionsFor(2u << 20).value();
  const Result<DaemonConfig> checked = CheckConfig(config);
  ASSERT_TRUE(checked.ok()) << checked.error().message;
  const std::uint64_t fixed = checked->overhead_bytes + 12 * (std::uint64_t{2} << 20);
  EXPECT_LT(checked->pool_min_bytes + fixed, checked->limit_bytes);
}

}  // namespace
}  // namespace tmem
