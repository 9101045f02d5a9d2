// SPDX-License-Identifier: GPL-2.0-only
// What waiting costs: a daemon whose guests do nothing does nothing either.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "host-store/doorbell/test_directory.h"
#include "host-store/doorbell/test_ivshmem_client.h"
#include "host-store/window/test_guest.h"
#include "tests/daemon/daemon_process.h"

namespace tmem {
namespace {

constexpr int kGuests = 10;
constexpr std::chrono::seconds kIdle{10};
// 0.5 % of a core.
constexpr std::uint64_t kAllowedNs =
    static_cast<std::uint64_t>(std::chrono::nanoseconds(kIdle).count()) / 200;

// Each has registered, holds pages of both kinds and credits, and then waits: as guests mostly do.
TEST(Idle, TenIdleGuestsCostLessThanHalfAPercentOfACore) {
  const TestDirectory directory;
  std::vector<std::string> options = {"--memory-limit", "128M"};
  for (int i = 0; i < kGuests; ++i) {
    options.insert(options.end(), {"--guest", "g" + std::to_string(i)});
  }
  DaemonProcess daemon(directory.path(), options);
  ASSERT_TRUE(daemon.answers());
  std::vector<TestIvshmemClient> clients;
  clients.reserve(kGuests);
  for (int i = 0; i < kGuests; ++i) {
    const std::string socket = directory.path() + "/g" + std::to_string(i) + ".sock";
    clients.push_back(TestIvshmemClient::Connect(socket).value());
    TestGuest guest(clients.back().window(), [&client = clients.back()] { client.Kick(); });
    ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
    const std::uint64_t ephemeral = guest.CreatePool(TMEM_POOL_EPHEMERAL);
    const std::uint64_t persistent = guest.CreatePool(TMEM_POOL_PERSISTENT);
    for (std::uint64_t page = 0; page < 20; ++page) {
      const TestPage bytes = MakeTestPage(page, TestPageKind::kRandom);
      ASSERT_EQ(guest.Put({ephemeral, 1, page}, bytes), TMEM_STATUS_OK);
      if (guest.CreditsGranted() > page) {
        ASSERT_EQ(guest.Put({persistent, 1, page}, bytes), TMEM_STATUS_OK);
      }
    }
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // what is landed gets settled

  const std::uint64_t before_ns = ExactCpuNsOf(daemon.pid());
  if (before_ns == 0) GTEST_SKIP() << "this kernel has no /proc/PID/task/*/schedstat";
  std::this_thread::sleep_for(kIdle);
  const std::uint64_t used_ns = ExactCpuNsOf(daemon.pid()) - before_ns;
  std::printf("%d idle guests for 10 s: %.3f ms of CPU, %.4f %% of a core\n", kGuests,
              static_cast<double>(used_ns) / 1e6, static_cast<double>(used_ns) / 1e8);
  EXPECT_LT(used_ns, kAllowedNs);
  const nlohmann::json status = daemon.Status();
  for (const auto& guest : status["guests"]) EXPECT_EQ(guest["connected"], true);
}

}  // namespace
}  // namespace tmem
