// SPDX-License-Identifier: GPL-2.0-only
// What tests of the whole daemon share: it runs in this process, with a double of the host module.
#ifndef HOST_STORE_DAEMON_TEST_DAEMON_H_
#define HOST_STORE_DAEMON_TEST_DAEMON_H_

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "host-store/ctl/control_client.h"
#include "host-store/daemon/daemon.h"
#include "host-store/daemon/test_kvm_tmem.h"
#include "host-store/doorbell/test_directory.h"

namespace tmem {

inline constexpr std::uint64_t kMiB = 1u << 20;

class DaemonTest : public testing::Test {
 protected:
  DaemonTest() : stop_(::eventfd(0, EFD_CLOEXEC)) {
    config_.limit_bytes = 64 * kMiB;
    config_.run_dir = directory_.path();
    config_.guests.push_back(ParseGuest("a,uid=77").value());
    config_ = CheckConfig(config_).value();
  }
  ~DaemonTest() override { Stop(); }

  Result<std::unique_ptr<Daemon>> Create() {
    return Daemon::Create(config_, clock_, [this] { return module_.Open(); });
  }
  void Start() {
    daemon_ = Create().value();
    thread_ = std::thread([this] { ran_ = daemon_->Run(stop_.get()).ok(); });
  }
  void Stop() {
    if (!thread_.joinable()) return;
    (void)::eventfd_write(stop_.get(), 1);
    thread_.join();
    EXPECT_TRUE(ran_);
    daemon_.reset();
  }
  nlohmann::json Status() const { return AskDaemon(directory_.path(), "status").value(); }
  bool Eventually(const std::function<bool(const nlohmann::json&)>& condition) const {
    for (int i = 0; i < 2'000; ++i) {
      if (condition(Status())) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  const TestDirectory directory_;
  const UniqueFd stop_;
  SteadyClock clock_;
  TestKvmTmem module_;
  DaemonConfig config_;
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
  bool ran_ = false;
};

}  // namespace tmem

#endif  // HOST_STORE_DAEMON_TEST_DAEMON_H_
