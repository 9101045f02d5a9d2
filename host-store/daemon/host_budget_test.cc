// SPDX-License-Identifier: GPL-2.0-only
// A whole daemon that shares a budget with a process whose memory is real.
#include "host-store/daemon/host_budget.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "host-store/daemon/test_daemon.h"

namespace tmem {
namespace {

using testing::HasSubstr;

// Stands for a VMM: a process that touches the file that is its guest's memory, and drops it.
class Process {
 public:
  static constexpr std::uint64_t kBytes = 96 * kMiB;

  // Before any thread: it forks.
  Process() : file_(::memfd_create("ram", MFD_CLOEXEC)) {
    int ends[2];
    if (::ftruncate(file_.get(), kBytes) != 0 ||
        ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
      ADD_FAILURE() << "no process";
      return;
    }
    socket_ = UniqueFd(ends[0]);
    const UniqueFd other(ends[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      socket_.Close();
      Serve(other.get(), file_.get());
    }
  }
  ~Process() {
    socket_.Close();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  std::string ram_path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }
  // Has so many bytes when it returns, from the beginning of the file.
  void Hold(std::uint64_t bytes) {
    char done = 0;
    EXPECT_EQ(::write(socket_.get(), &bytes, sizeof bytes), ssize_t{sizeof bytes});
    EXPECT_EQ(::read(socket_.get(), &done, 1), 1);
  }

 private:
  // Only what may be done between fork and exec.
  [[noreturn]] static void Serve(int socket, int file) {
    void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) ::_exit(1);
    std::uint64_t held = 0;
    std::uint64_t wanted = 0;
    while (::read(socket, &wanted, sizeof wanted) == ssize_t{sizeof wanted}) {
      for (; held < wanted; held += 4096) static_cast<volatile char*>(memory)[held] = 1;
      if (wanted < held) {
        (void)::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                          static_cast<off_t>(wanted), static_cast<off_t>(held - wanted));
        held = wanted;
      }
      if (::write(socket, "", 1) != 1) break;
    }
    ::_exit(0);
  }

  const UniqueFd file_;
  UniqueFd socket_;
  pid_t pid_ = -1;
};

class HostBudgetTest : public DaemonTest {
 protected:
  static constexpr std::uint64_t kBudget = 160 * kMiB;

  HostBudgetTest() {
    config_ = DaemonConfig{};
    config_.run_dir = directory_.path();
    config_.host_budget_bytes = kBudget;
    config_.given_pool_min_bytes = 16 * kMiB;
    config_.window = WindowOptionsFor(4 * kMiB).value();
    config_.pressure_path = directory_.path() + "/pressure";
    config_.cgroup_root = directory_.path() + "/cgroup";
    config_.vmstat_path = directory_.path() + "/vmstat";
    SetStalled(0);
    SetScans(0);
  }

  void Begin(const std::string& guest, const std::string& from = "/x") {
    config_.guests.push_back(ParseGuest(guest).value());
    config_ = CheckConfig(config_).value();
    vm_ = module_.Register(1, 77, from);
    Start();
    ASSERT_TRUE(Eventually([](const auto& status) { return status["guests"][0]["connected"]; }));
    guest_.emplace(module_.Side(vm_));
    ASSERT_EQ(guest_->Register(), TMEM_STATUS_OK);
    pool_ = guest_->CreatePool(TMEM_POOL_EPHEMERAL);
  }
  void Push(std::uint64_t pages) {
    for (std::uint64_t i = 0; i < pages; ++i, ++next_) {
      (void)guest_->Put({pool_, 1, next_}, MakeTestPage(next_, TestPageKind::kRandom));
    }
  }
  static void Replace(const std::string& path, const std::string& text) {
    std::ofstream(path + ".next") << text;
    std::filesystem::rename(path + ".next", path);
  }
  void SetStalled(std::uint64_t total_us) const {
    Replace(config_.pressure_path,
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=" + std::to_string(total_us) + "\n");
  }
  // By the host as a whole; groups at their limits scan as well.
  void SetScans(std::uint64_t scans) const {
    Replace(config_.vmstat_path, "pgscan_kswapd " + std::to_string(scans) +
                                     "\npgscan_direct 0\npgscan_direct_throttle 7\n"
                                     "pgscan_anon 5\n");
  }
  // All at once.
  void SetCgroup(std::uint64_t bytes, const std::string& path = "/x") const {
    const std::string directory = config_.cgroup_root + path;
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/next") << "anon " << bytes << "\nshmem 0\n";
    std::filesystem::rename(directory + "/next", directory + "/memory.stat");
  }
  // The daemon has looked, and the store has followed: how long that takes is the machine's.
  void AwaitLook() const {
    const std::uint64_t looks = Status()["budget"]["looks"];
    EXPECT_TRUE(Eventually([&](const auto& status) {
      return status["budget"]["looks"] > looks &&
             status["used_bytes"] <= status["budget"]["limit_bytes"];
    }));
  }

  kvm_tmem_guest vm_{};
  std::optional<TestGuest> guest_;
  std::uint64_t pool_ = 0;
  std::uint64_t next_ = 0;
};

class HostBudgetProcessTest : public HostBudgetTest {
 protected:
  void SetUp() override { Begin("a,uid=77,ram=" + process_.ram_path()); }
  std::uint64_t SeenFromOutside() const {
    return ReadFileResident(process_.ram_path()).value() +
           Status()["used_bytes"].get<std::uint64_t>();
  }

  Process process_;  // forked before SetUp starts the daemon's threads
};

// The pool gives way before a guest that takes its memory, whose growth in a look is less than half
// of the reserve, and has it again when the guest gives it back; nobody sees more than the budget.
TEST_F(HostBudgetProcessTest, ThePoolGivesWayToAGuestAndComesBack) {
  Push(40'000);
  EXPECT_GT(Status()["used_bytes"], 120 * kMiB);
  EXPECT_LE(SeenFromOutside(), kBudget);
  for (std::uint64_t held = 0; held <= Process::kBytes; held += 6 * kMiB) {
    process_.Hold(held);
    EXPECT_LE(SeenFromOutside(), kBudget) << held;
    AwaitLook();
    Push(300);
    EXPECT_LE(SeenFromOutside(), kBudget) << held;
  }
  nlohmann::json status = Status();
  EXPECT_EQ(status["guests"][0]["resident_from"], "ram-file");
  EXPECT_EQ(status["guests"][0]["resident_bytes"], Process::kBytes);
  EXPECT_EQ(status["budget"]["guests_bytes"], Process::kBytes);
  EXPECT_LE(status["budget"]["limit_bytes"], kBudget - Process::kBytes - 16 * kMiB);
  EXPECT_LE(status["used_bytes"], kBudget - Process::kBytes);
  EXPECT_GE(status["limit_bytes"], status["budget"]["min_limit_bytes"]);
  EXPECT_EQ(status["budget"]["times_over"], 0);

  process_.Hold(0);
  EXPECT_TRUE(Eventually([](const auto& now) { return now["limit_bytes"] > 135 * kMiB; }));
  Push(40'000);
  EXPECT_GT(Status()["used_bytes"], 120 * kMiB);
  EXPECT_EQ(Status()["budget"]["worst_over_bytes"], 0);
}

// Faster than any look: the pool gives way afterwards, and it is told.
TEST_F(HostBudgetTest, WhatIsOverTheBudgetIsCounted) {
  SetCgroup(0);
  Begin("a,uid=77,cgroup=/x");
  Push(40'000);
  EXPECT_GT(Status()["used_bytes"], 120 * kMiB);
  SetCgroup(96 * kMiB);
  EXPECT_TRUE(Eventually([](const auto& status) { return status["used_bytes"] < 60 * kMiB; }));
  EXPECT_TRUE(Eventually([](const auto& status) { return status["budget"]["over_bytes"] == 0; }));
  const nlohmann::json budget = Status()["budget"];
  EXPECT_EQ(budget["times_over"], 1);
  EXPECT_GT(budget["worst_over_bytes"], 50 * kMiB);
}

TEST_F(HostBudgetTest, AGuestThatCannotBeSeenCountsInFull) {
  Begin("a,uid=77,memory=64M");
  const nlohmann::json status = Status();
  EXPECT_EQ(status["guests"][0]["resident_from"], "in-full");
  EXPECT_EQ(status["guests"][0]["resident_bytes"], 64 * kMiB);
  EXPECT_EQ(status["limit_bytes"], kBudget - 64 * kMiB - 16 * kMiB);
}

// A guest of a rule without a cgroup is seen by the one that the module tells.
TEST_F(HostBudgetTest, TheCgroupThatAGuestCameFromIsLookedAt) {
  SetCgroup(32 * kMiB);
  Begin("a,uid=77,memory=64M");
  EXPECT_TRUE(Eventually([](const auto& status) {
    return status["guests"][0]["resident_from"] == "cgroup" &&
           status["limit_bytes"] == kBudget - 32 * kMiB - 16 * kMiB;
  }));
  // It goes away while the guest is connected: as good as none.
  std::filesystem::remove_all(config_.cgroup_root + "/x");
  EXPECT_TRUE(Eventually([](const auto& status) {
    return status["guests"][0]["resident_bytes"] == 64 * kMiB &&
           status["limit_bytes"] <= kBudget - 64 * kMiB - 16 * kMiB;
  }));
  EXPECT_THAT(Status()["guests"][0]["resident_why_not"].get<std::string>(), HasSubstr("/x"));
}

// Who owns what is below the rule's cgroup moves its VMM there at will; the module tells it once.
TEST_F(HostBudgetTest, AGuestThatMovesToAnotherCgroupOfItsRuleCounts) {
  SetCgroup(48 * kMiB);
  SetCgroup(1 * kMiB, "/x/left");
  Begin("a,uid=77,cgroup=/x", "/x/left");
  EXPECT_TRUE(Eventually([](const auto& status) {
    return status["guests"][0]["resident_bytes"] == 48 * kMiB &&
           status["limit_bytes"] == kBudget - 48 * kMiB - 16 * kMiB;
  }));
}

TEST_F(HostBudgetTest, PressureShrinksThePool) {
  Begin("a,uid=77,memory=32M");
  Push(20'000);
  const std::uint64_t before = Status()["limit_bytes"];
  EXPECT_GT(Status()["used_bytes"], 70 * kMiB);
  EXPECT_EQ(Status()["budget"]["times_pressed"], 0);
  std::uint64_t total_us = 0;
  EXPECT_TRUE(Eventually([&](const auto& status) {
    SetScans(total_us);
    SetStalled(total_us += 100'000);
    return status["budget"]["times_pressed"] >= 3;
  }));
  EXPECT_TRUE(Eventually([&](const auto& status) {
    return status["limit_bytes"] < before - before / 6 &&
           status["used_bytes"] <= status["limit_bytes"];
  }));
  EXPECT_EQ(Status()["budget"]["no_pressure"], "");
}

// A test in a group of its own, on the machine of the lab, held the pool down for a minute.
TEST_F(HostBudgetTest, TasksThatWaitAtTheirOwnGroupsLimitAreNoPressure) {
  Begin("a,uid=77,memory=32M");
  const std::uint64_t looks = Status()["budget"]["looks"];
  std::uint64_t total_us = 0;
  EXPECT_TRUE(Eventually([&](const auto& status) {
    SetScans(0);
    SetStalled(total_us += 100'000);
    return status["budget"]["looks"] >= looks + 5;
  }));
  EXPECT_EQ(Status()["budget"]["times_pressed"], 0);
}

TEST_F(HostBudgetTest, AllThatWaitCountsWhereTheKernelDoesNotTellWhatItScans) {
  std::filesystem::remove(config_.vmstat_path);
  Begin("a,uid=77,memory=32M");
  std::uint64_t total_us = 0;
  EXPECT_TRUE(Eventually([&](const auto& status) {
    SetStalled(total_us += 100'000);
    return status["budget"]["times_pressed"] >= 1;
  }));
}

TEST_F(HostBudgetTest, TheModulesLimitAndTheBudgetHoldBoth) {
  module_.pool_limit_bytes = 60 * kMiB;
  Begin("a,uid=77,memory=64M");
  EXPECT_TRUE(Eventually([](const auto& status) { return status["limit_bytes"] == 60 * kMiB; }));
  module_.pool_limit_bytes = 0;
  EXPECT_TRUE(Eventually([](const auto& status) { return status["limit_bytes"] == 80 * kMiB; }));
}

TEST_F(HostBudgetTest, ABudgetThatLeavesGuestsNothingIsAnErrorAtTheStart) {
  config_.guests.push_back(ParseGuest("a,uid=77,memory=64M").value());
  config_.host_budget_bytes = 50 * kMiB;
  config_.given_pool_min_bytes = 32 * kMiB;
  config_ = CheckConfig(config_).value();
  const auto refused = Create();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--host-budget 50.0 MiB"));
}

}  // namespace
}  // namespace tmem
