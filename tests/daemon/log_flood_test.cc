// SPDX-License-Identifier: GPL-2.0-only
// No guest, and no process at a guest's socket, fills the host's log.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "host-store/daemon/log_limiter.h"
#include "host-store/doorbell/test_directory.h"
#include "host-store/doorbell/test_ivshmem_client.h"
#include "host-store/doorbell/unix_socket.h"
#include "host-store/window/shared_memory_access.h"
#include "host-store/window/test_guest.h"
#include "tests/daemon/daemon_process.h"

namespace tmem {
namespace {

class LogFlood : public testing::Test {
 protected:
  // Lines that the daemon logs about the guest while `flood` runs, and what it may log.
  void ExpectFewLines(const std::function<void()>& flood) {
    const auto start = std::chrono::steady_clock::now();
    flood();
    const auto took = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(daemon_.Status().is_object());
    EXPECT_EQ(daemon_.Stop(SIGTERM), 0);
    const auto periods =
        static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count()) / LogLimiter::kPeriodNs +
        2;
    std::ifstream log(log_path_);
    std::uint64_t lines = 0;
    for (std::string line; std::getline(log, line);) {
      if (line.find("guest a: ") != std::string::npos) ++lines;
    }
    EXPECT_GT(lines, 0u);
    EXPECT_LE(lines, LogLimiter::kLines * periods);
    // Starting, stopping, and nothing that is about no guest.
    EXPECT_LE(std::filesystem::file_size(log_path_), 200 * (lines + 4));
  }

  TestDirectory directory_;
  const std::string socket_ = directory_.path() + "/a.sock";
  const std::string log_path_ = directory_.path() + "/log";
  DaemonProcess daemon_{directory_.path(), {"--memory-limit", "64M", "--guest", "a"}, log_path_};
};

TEST_F(LogFlood, ARegistrationStormIsAFewLines) {
  ASSERT_TRUE(daemon_.answers());
  auto client = TestIvshmemClient::Connect(socket_).value();
  TestGuest guest(client.window(), [&] { client.Kick(); });
  ExpectFewLines([&] {
    for (int i = 0; i < 2000; ++i) {
      ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
      if (i % 4 == 0) {
        EXPECT_NE(guest.Register(std::uint64_t{1} << 60), TMEM_STATUS_OK);  // refused
      }
    }
    const auto counters = daemon_.StatusOfGuest("a")["counters"];
    EXPECT_EQ(counters["registrations"], 2000);
    EXPECT_EQ(counters["registrations_refused"], 500);
  });
}

TEST_F(LogFlood, ResetsAreAFewLines) {
  ASSERT_TRUE(daemon_.answers());
  auto client = TestIvshmemClient::Connect(socket_).value();
  TestGuest guest(client.window(), [&] { client.Kick(); });
  ExpectFewLines([&] {
    for (std::uint64_t i = 1; i <= 500; ++i) {
      ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
      StoreRelease(guest.view().lane(0).head().posted, tmem_u64{1} << 40);
      client.Kick();
      while (LoadAcquire(guest.view().host_page().resets) < i) std::this_thread::yield();
    }
  });
}

TEST_F(LogFlood, ConnectionsAndRefusalsAreAFewLines) {
  ASSERT_TRUE(daemon_.answers());
  ExpectFewLines([&] {
    for (int i = 0; i < 300; ++i) {
      (void)TestIvshmemClient::Connect(socket_);
      const auto second = ConnectUnix(socket_);
      if (second.ok()) (void)::send(second->get(), "junk", 4, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  });
}

}  // namespace
}  // namespace tmem
