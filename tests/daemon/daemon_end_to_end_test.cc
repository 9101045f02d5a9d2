// SPDX-License-Identifier: GPL-2.0-only
// tmemd from start to stop, as an operator and a QEMU see it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "compress/page.h"
#include "host-store/doorbell/test_directory.h"
#include "host-store/doorbell/test_ivshmem_client.h"
#include "host-store/doorbell/unix_socket.h"
#include "host-store/window/shared_memory_access.h"
#include "host-store/window/test_guest.h"
#include "tests/daemon/daemon_process.h"

namespace tmem {
namespace {

using testing::HasSubstr;

class DaemonEndToEnd : public testing::Test {
 protected:
  std::string Socket(const std::string& guest) const {
    return directory_.path() + "/" + guest + ".sock";
  }
  static TestGuest Side(TestIvshmemClient& client) {
    return TestGuest(client.window(), [&client] { client.Kick(); });
  }
  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 600; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

  TestDirectory directory_;
  const std::vector<std::string> options_ = {"--memory-limit", "64M",          "--guest", "a",
                                             "--guest",        "b,domain=blue"};
};

TEST_F(DaemonEndToEnd, ServesAGuestFromConnectionToStop) {
  DaemonProcess daemon(directory_.path(), options_);
  ASSERT_TRUE(daemon.answers());
  auto client = TestIvshmemClient::Connect(Socket("a")).value();
  EXPECT_EQ(client.window_bytes(), 4u << 20);
  TestGuest guest = Side(client);
  ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
  const std::uint64_t ephemeral = guest.CreatePool(TMEM_POOL_EPHEMERAL);
  const std::uint64_t persistent = guest.CreatePool(TMEM_POOL_PERSISTENT);
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(guest.Put({ephemeral, 1, i}, MakeTestPage(i, TestPageKind::kCompressible)),
              TMEM_STATUS_OK);
    ASSERT_EQ(guest.Put({persistent, 1, i}, MakeTestPage(i, TestPageKind::kRandom), 7),
              TMEM_STATUS_OK);
  }
  TestPage page;
  ASSERT_EQ(guest.Get({ephemeral, 1, 9}, page), TMEM_STATUS_OK);
  EXPECT_EQ(page, MakeTestPage(9, TestPageKind::kCompressible));
  ASSERT_EQ(guest.Get({persistent, 1, 9}, page), TMEM_STATUS_OK);
  EXPECT_EQ(page, MakeTestPage(9, TestPageKind::kRandom));
  ASSERT_EQ(guest.Flush({persistent, 1, 0}, 10), TMEM_STATUS_OK);
  EXPECT_EQ(guest.Get({persistent, 1, 9}, page), TMEM_STATUS_MISS);

  const auto status = daemon.StatusOfGuest("a");
  ASSERT_FALSE(status.is_null());
  EXPECT_EQ(status["connected"], true);
  EXPECT_EQ(status["window_bytes"], 4u << 20);
  EXPECT_EQ(status["ephemeral_pages"], 99);
  EXPECT_EQ(status["persistent_pages"], 90);
  EXPECT_GT(status["credits"], 0);
  EXPECT_EQ(status["counters"]["operations"]["put"]["ok"], 200);
  EXPECT_EQ(status["counters"]["operations"]["get"]["ok"], 2);
  EXPECT_EQ(status["counters"]["operations"]["get"]["miss"], 1);
  EXPECT_GT(status["counters"]["rings_received"], 0);
  EXPECT_GT(status["counters"]["cpu_ns"], 0);

  EXPECT_EQ(daemon.Stop(SIGTERM), 0);
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

// The keys that bench and lab read.
TEST_F(DaemonEndToEnd, StatusHasTheKeysThatOthersRead) {
  DaemonProcess daemon(directory_.path(), options_);
  const auto status = daemon.Status();
  ASSERT_TRUE(status.is_object());
  for (const char* key : {"limit_bytes", "pool_min_bytes", "used_bytes", "landing_bytes", "pages",
                          "pool", "guests", "cpu_ns", "version"}) {
    EXPECT_TRUE(status.contains(key)) << key;
  }
  for (const char* key :
       {"limit_bytes", "used_bytes", "pages", "same_filled", "duplicates", "compressed", "raw"}) {
    EXPECT_TRUE(status["pool"].contains(key)) << key;
  }
  EXPECT_EQ(status["limit_bytes"], 64u << 20);
  EXPECT_EQ(status["pool_min_bytes"], 32u << 20);
  EXPECT_EQ(status["guests"][1]["name"], "b");
  EXPECT_EQ(status["guests"][1]["domain"], "blue");
  EXPECT_EQ(status["guests"][1]["connected"], false);
}

// K5: the end of QEMU is the end of the guest; what comes next starts with nothing.
TEST_F(DaemonEndToEnd, ADisconnectedGuestLeavesNothing) {
  DaemonProcess daemon(directory_.path(), options_);
  ASSERT_TRUE(daemon.answers());
  const auto used_before = daemon.Status()["used_bytes"].get<std::uint64_t>();
  {
    auto client = TestIvshmemClient::Connect(Socket("a")).value();
    TestGuest guest = Side(client);
    ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
    const std::uint64_t pool = guest.CreatePool(TMEM_POOL_EPHEMERAL);
    for (std::uint64_t i = 0; i < 2000; ++i) {
      ASSERT_EQ(guest.Put({pool, 1, i}, MakeTestPage(i, TestPageKind::kRandom)), TMEM_STATUS_OK);
    }
    EXPECT_GT(daemon.Status()["used_bytes"], used_before + std::uint64_t{2000} * 4096);
  }
  EXPECT_TRUE(Eventually([&] {
    const auto guest = daemon.StatusOfGuest("a");
    return guest["connected"] == false && guest["leaving"] == false;
  }));
  const auto after = daemon.Status();
  EXPECT_EQ(after["pages"], 0);
  // Empty tables may stay; pages may not.
  EXPECT_LT(after["used_bytes"], used_before + (2u << 20));
  // What it did can still be read when it is gone.
  EXPECT_EQ(daemon.StatusOfGuest("a")["counters"]["operations"]["put"]["ok"], 2000);

  auto client = TestIvshmemClient::Connect(Socket("a")).value();
  EXPECT_EQ(client.window()[TMEM_PAGE_BYTES], std::byte{0});  // a fresh window
  TestGuest guest = Side(client);
  ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
  EXPECT_NE(guest.CreatePool(TMEM_POOL_EPHEMERAL), 0u);
}

// A VMM that was taken over could collect windows: what the daemon touched in them would count as
// the daemon's memory, beyond its limit.
TEST_F(DaemonEndToEnd, AWindowThatItsProcessKeepsHoldsNoMemory) {
  DaemonProcess daemon(directory_.path(), options_);
  ASSERT_TRUE(daemon.answers());
  std::vector<TestIvshmemClient> kept;
  const auto blocks_of = [](const TestIvshmemClient& client) {
    struct stat status {};
    EXPECT_EQ(::fstat(client.memory_fd(), &status), 0);
    return status.st_blocks;
  };
  for (std::uint64_t round = 0; round < 8; ++round) {
    kept.push_back(TestIvshmemClient::Connect(Socket("a")).value());
    TestGuest guest = Side(kept.back());
    ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
    const std::uint64_t pool = guest.CreatePool(TMEM_POOL_EPHEMERAL);
    ASSERT_EQ(guest.Put({pool, 1, round}, MakeTestPage(round, TestPageKind::kRandom)),
              TMEM_STATUS_OK);
    EXPECT_GT(blocks_of(kept.back()), 0);
    kept.back().Disconnect();
    ASSERT_TRUE(Eventually([&] { return daemon.StatusOfGuest("a")["connected"] == false; }));
    EXPECT_EQ(blocks_of(kept.back()), 0);
  }
}

TEST_F(DaemonEndToEnd, AHostileGuestDoesNotDisturbAnotherOne) {
  DaemonProcess daemon(directory_.path(), options_);
  ASSERT_TRUE(daemon.answers());
  auto good = TestIvshmemClient::Connect(Socket("a")).value();
  auto bad = TestIvshmemClient::Connect(Socket("b")).value();
  TestGuest side = Side(good);
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = side.CreatePool(TMEM_POOL_PERSISTENT);
  ASSERT_EQ(side.Put({pool, 1, 1}, MakeTestPage(1, TestPageKind::kRandom), 3), TMEM_STATUS_OK);
  TestGuest bad_side = Side(bad);
  for (int round = 0; round < 50; ++round) {
    ASSERT_EQ(bad_side.Register(), TMEM_STATUS_OK);
    auto& head = bad_side.view().lane(static_cast<std::uint32_t>(round) % 9).head();
    StoreRelease(head.posted, tmem_u64{1} << 40);
    bad.Kick();
    ASSERT_EQ(side.Do(0, tmem_desc{}).status, TMEM_STATUS_OK);
  }
  EXPECT_TRUE(Eventually([&] { return daemon.StatusOfGuest("b")["counters"]["resets"] > 0; }));
  TestPage page;
  EXPECT_EQ(side.Get({pool, 1, 1}, page), TMEM_STATUS_OK);
  EXPECT_EQ(page, MakeTestPage(1, TestPageKind::kRandom));
  EXPECT_EQ(daemon.Stop(SIGINT), 0);
}

TEST_F(DaemonEndToEnd, ASecondDaemonSaysThatTheFirstIsThere) {
  DaemonProcess daemon(directory_.path(), options_);
  ASSERT_TRUE(daemon.answers());
  const Finished second = RunProgram(
      {TMEM_TMEMD, "--run-dir", directory_.path(), "--memory-limit", "64M", "--guest", "a"});
  EXPECT_EQ(second.exit_code, 3);
  EXPECT_THAT(second.output, HasSubstr("another tmemd serves"));
  EXPECT_FALSE(daemon.Status().is_null());
}

TEST_F(DaemonEndToEnd, StartsOverTheStaleSocketsOfAKilledDaemon) {
  {
    DaemonProcess daemon(directory_.path(), options_);
    ASSERT_TRUE(daemon.answers());
    EXPECT_EQ(daemon.Stop(SIGKILL), 128 + SIGKILL);
  }
  EXPECT_TRUE(std::filesystem::exists(Socket("a")));
  DaemonProcess daemon(directory_.path(), options_);
  ASSERT_TRUE(daemon.answers());
  EXPECT_TRUE(TestIvshmemClient::Connect(Socket("a")).ok());
  EXPECT_EQ(daemon.Stop(SIGTERM), 0);
}

TEST_F(DaemonEndToEnd, ExitCodesAndErrorsSayWhatToDo) {
  const std::string missing = directory_.path() + "/none";
  const Finished no_dir =
      RunProgram({TMEM_TMEMD, "--run-dir", missing, "--memory-limit", "64M", "--guest", "a"});
  EXPECT_EQ(no_dir.exit_code, 1);
  EXPECT_THAT(no_dir.output, HasSubstr("mkdir"));
  const Finished small = RunProgram(
      {TMEM_TMEMD, "--run-dir", directory_.path(), "--memory-limit", "8M", "--guest", "a"});
  EXPECT_EQ(small.exit_code, 2);
  EXPECT_THAT(small.output, HasSubstr("need at least"));
  const Finished no_daemon = RunProgram({TMEM_TMEMCTL, "--run-dir", directory_.path(), "status"});
  EXPECT_EQ(no_daemon.exit_code, 3);
  EXPECT_THAT(no_daemon.output, HasSubstr("no tmemd serves"));
  EXPECT_EQ(RunProgram({TMEM_TMEMCTL}).exit_code, 2);
  EXPECT_THAT(RunProgram({TMEM_TMEMD, "--version"}).output, HasSubstr("ABI version 1"));
}

TEST_F(DaemonEndToEnd, AnEstimateNeedsNoDaemon) {
  const std::string image = directory_.path() + "/image";
  std::ofstream(image) << std::string(2 * kPageBytes, 'x');
  const Finished good = RunProgram({TMEM_TMEMCTL, "estimate", "--json", image});
  EXPECT_EQ(good.exit_code, 0) << good.output;
  EXPECT_EQ(nlohmann::json::parse(good.output)["same_filled_pages"], 2);
  EXPECT_THAT(RunProgram({TMEM_TMEMCTL, "estimate", image}).output,
              HasSubstr("same-filled  2 (100.0 %)"));
  const Finished program = RunProgram({TMEM_TMEMCTL, "estimate", TMEM_TMEMD});
  EXPECT_EQ(program.exit_code, 1);
  EXPECT_THAT(program.output, HasSubstr("program and no core file"));
  EXPECT_EQ(RunProgram({TMEM_TMEMCTL, "estimate"}).exit_code, 2);
}

TEST_F(DaemonEndToEnd, TheControlSocketTakesJunkAndIdlers) {
  DaemonProcess daemon(directory_.path(), options_);
  ASSERT_TRUE(daemon.answers());
  const std::string path = directory_.path() + "/control.sock";
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 30; ++i) idle.push_back(ConnectUnix(path).value());
  EXPECT_FALSE(daemon.Status().is_null());
  const UniqueFd junk = ConnectUnix(path).value();
  const std::string long_line(100'000, 'x');
  (void)::send(junk.get(), long_line.data(), long_line.size(), MSG_NOSIGNAL);
  EXPECT_FALSE(daemon.Status().is_null());
  const UniqueFd unknown = ConnectUnix(path).value();
  ASSERT_EQ(::send(unknown.get(), "stop\n", 5, MSG_NOSIGNAL), 5);
  char reply[256] = {};
  EXPECT_GT(::recv(unknown.get(), reply, sizeof reply - 1, 0), 0);
  EXPECT_THAT(reply, HasSubstr("unknown request"));
}

TEST_F(DaemonEndToEnd, AnIdleDaemonUsesNoCpu) {
  DaemonProcess daemon(directory_.path(), options_);
  ASSERT_TRUE(daemon.answers());
  auto client = TestIvshmemClient::Connect(Socket("a")).value();
  TestGuest guest = Side(client);
  ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
  ASSERT_NE(guest.CreatePool(TMEM_POOL_PERSISTENT), 0u);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::uint64_t before_ns = CpuNsOf(daemon.pid());
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const std::uint64_t used_ns = CpuNsOf(daemon.pid()) - before_ns;
  std::printf("idle for 3 s: %llu us of CPU, %llu KiB of memory with windows\n",
              static_cast<unsigned long long>(used_ns / 1000),
              static_cast<unsigned long long>(MemoryBytesOf(daemon.pid()) / 1024));
  EXPECT_LE(used_ns, 30'000'000u);  // 1 %
}

// ---- memory that the operator wants back ------------------------------------------------------

Finished Ctl(const std::string& run_dir, std::vector<std::string> words) {
  words.insert(words.begin(), {TMEM_TMEMCTL, "--run-dir", run_dir});
  return RunProgram(words);
}

TEST_F(DaemonEndToEnd, S3_AGuestIsAskedOnlyWhereBothSidesSaySo) {
  DaemonProcess daemon(directory_.path(),
                       {"--memory-limit", "64M", "--guest", "a", "--guest", "b,shrink=on"});
  ASSERT_TRUE(daemon.answers());
  const std::string dir = directory_.path();
  const auto refused = [&](std::vector<std::string> words, const char* why) {
    const Finished ctl = Ctl(dir, std::move(words));
    EXPECT_EQ(ctl.exit_code, 1) << ctl.output;
    EXPECT_THAT(ctl.output, HasSubstr(why));
  };
  refused({"shrink", "a", "1M"}, "shrink=on");
  refused({"drain", "a"}, "shrink=on");
  refused({"shrink", "nobody", "1M"}, "there is no guest nobody");
  refused({"shrink", "b", "1M"}, "not connected");
  auto client = TestIvshmemClient::Connect(Socket("b")).value();
  TestGuest guest = Side(client);
  ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
  refused({"shrink", "b", "1M"}, "tmem.shrink=1");
  EXPECT_EQ(Ctl(dir, {"shrink", "b", "lots"}).exit_code, 2);
  ASSERT_EQ(guest.Register(TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_SHRINK), TMEM_STATUS_OK);
  // It never answers.
  refused({"shrink", "b", "1T", "--patience", "1"}, "nothing for 1 s");
  EXPECT_EQ(guest.view().host_page().shrink_target_pages, 1u << 28);
  EXPECT_EQ(Ctl(dir, {"shrink", "b", "0"}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return guest.view().host_page().shrink_target_pages == 0; }));
}

TEST_F(DaemonEndToEnd, S1_AShrinkIsFollowedToItsEnd) {
  DaemonProcess daemon(directory_.path(), {"--memory-limit", "64M", "--guest", "a,shrink=on"});
  ASSERT_TRUE(daemon.answers());
  auto client = TestIvshmemClient::Connect(Socket("a")).value();
  TestGuest guest = Side(client);
  ASSERT_EQ(guest.Register(TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_SHRINK), TMEM_STATUS_OK);
  Finished ctl{};
  std::thread operator_side([&] { ctl = Ctl(directory_.path(), {"shrink", "a", "1M"}); });
  tmem_desc said{};
  EXPECT_TRUE(Eventually([&] { return guest.view().host_page().shrink_target_pages == 256; }));
  for (int i = 0; i < 4; ++i) {
    tmem_desc desc{};
    desc.op = TMEM_OP_SHRUNK;
    desc.value = 64;
    said = guest.Do(guest.view().control_lane(), desc);
  }
  operator_side.join();
  EXPECT_EQ(said.value, 0u);
  EXPECT_EQ(ctl.exit_code, 0) << ctl.output;
  EXPECT_THAT(ctl.output, HasSubstr("1.0 MiB of 1.0 MiB given up"));
  EXPECT_EQ(daemon.StatusOfGuest("a")["shrink"]["state"], "done");
}

}  // namespace
}  // namespace tmem
