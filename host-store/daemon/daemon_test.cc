// SPDX-License-Identifier: GPL-2.0-only
// The daemon in this process, with a double of the host module: what only the whole of it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "host-store/daemon/test_daemon.h"

namespace tmem {
namespace {

using testing::HasSubstr;

// The operator lowers pool_limit_mb while the pool is full: obeyed within about a second, and kept.
TEST_F(DaemonTest, ALowerPoolLimitIsObeyedAtRunTime) {
  const kvm_tmem_guest vm = module_.Register(1, 77, "/x");
  Start();
  ASSERT_TRUE(Eventually([](const auto& status) { return status["guests"][0]["connected"]; }));
  TestGuest guest = module_.Side(vm);
  ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = guest.CreatePool(TMEM_POOL_EPHEMERAL);
  const auto push = [&](std::uint64_t pages) {
    for (std::uint64_t i = 0; i < pages; ++i) {
      (void)guest.Put({pool, 1, i}, MakeTestPage(i, TestPageKind::kRandom));
    }
  };
  push(16'000);
  EXPECT_GT(Status()["used_bytes"], 50 * kMiB);
  EXPECT_EQ(Status()["limit_bytes"], 64 * kMiB);
  EXPECT_EQ(Status()["pool_limit_bytes"], 0);
  module_.pool_limit_bytes = 40 * kMiB;
  EXPECT_TRUE(Eventually([](const auto& status) {
    return status["limit_bytes"] == 40 * kMiB && status["used_bytes"] <= 40 * kMiB;
  }));
  EXPECT_EQ(Status()["pool_limit_bytes"], 40 * kMiB);
  EXPECT_EQ(Status()["memory_limit_bytes"], 64 * kMiB);
  for (int round = 0; round < 4; ++round) {
    push(2'000);
    EXPECT_LE(Status()["used_bytes"], 40 * kMiB);
  }
  EXPECT_EQ(Status()["limit_bytes"], 40 * kMiB);
  module_.pool_limit_bytes = 0;
  EXPECT_TRUE(Eventually([](const auto& status) { return status["limit_bytes"] == 64 * kMiB; }));
}

TEST_F(DaemonTest, AtTheStartThePoolLimitBoundsWhatSwapMayRelyOn) {
  module_.pool_limit_bytes = 40 * kMiB;
  Start();
  EXPECT_EQ(Status()["limit_bytes"], 40 * kMiB);
  EXPECT_EQ(Status()["pool_min_bytes"], 20 * kMiB);
  EXPECT_EQ(Status()["refused_guests"], 0);
}

TEST_F(DaemonTest, APoolLimitBelowWhatSwapWasPromisedIsAnErrorAtTheStart) {
  module_.pool_limit_bytes = 40 * kMiB;
  config_.given_pool_min_bytes = 32 * kMiB;
  const auto refused = Create();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("pool_limit_mb"));
  EXPECT_THAT(refused.error().message, HasSubstr("--pool-min 32.0 MiB is too large"));
  module_.pool_limit_bytes = 6 * kMiB;
  config_.given_pool_min_bytes = 0;
  EXPECT_FALSE(Create().ok());
}

TEST_F(DaemonTest, WithoutTheModuleItStartsUnlessItIsRequired) {
  module_.absent = "there is no module";
  config_.kvm_tmem = KvmTmemUse::kRequired;
  const auto refused = Create();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("there is no module"));
  config_.kvm_tmem = KvmTmemUse::kAuto;
  Start();
  EXPECT_THAT(Status()["hypercall"]["state"].get<std::string>(), HasSubstr("there is no module"));
}

TEST_F(DaemonTest, SwitchedOffItLeavesTheModuleAlone) {
  config_.kvm_tmem = KvmTmemUse::kOff;
  Start();
  EXPECT_FALSE(module_.is_open());
  EXPECT_FALSE(Status().contains("hypercall"));
}

// What tmemctl drain $'\xff' asks; and a number below zero, which is none.
TEST_F(DaemonTest, RequestsOfAnyBytesAreAnswered) {
  Start();
  for (const char* request : {"drain \xff\xfe", "shrink \xc0 5", "undrain \x80", "\xff"}) {
    const auto reply = AskDaemon(config_.run_dir, request);
    ASSERT_FALSE(reply.ok()) << request;
    EXPECT_THAT(reply.error().message, testing::AnyOf(HasSubstr("no guest"), HasSubstr("unknown")));
  }
  const std::string name = config_.guests[0].guest.name;
  for (const char* pages : {"-1", "0x10", "18446744073709551616", "1.5", "5 5", ""}) {
    const auto reply = AskDaemon(config_.run_dir, "shrink " + name + " " + pages);
    ASSERT_FALSE(reply.ok()) << pages;
    EXPECT_THAT(reply.error().message, HasSubstr("unknown request")) << pages;
  }
  EXPECT_EQ(Status()["guests"].size(), config_.guests.size());
}

TEST_F(DaemonTest, StoppingDisconnectsTheGuestsAndClosesTheDevice) {
  const kvm_tmem_guest vm = module_.Register(1, 77, "/x");
  Start();
  ASSERT_TRUE(Eventually([](const auto& status) { return status["guests"][0]["connected"]; }));
  EXPECT_TRUE(module_.is_open());
  Stop();
  EXPECT_FALSE(module_.serves(vm));
  EXPECT_FALSE(module_.is_open());
}

}  // namespace
}  // namespace tmem
