// SPDX-License-Identifier: GPL-2.0-only
// What the tests of the host module have in common: it is loaded, and the kernel stays content.
#ifndef TESTS_KVM_KVM_FIXTURE_H_
#define TESTS_KVM_KVM_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "tests/kvm/daemon_double.h"
#include "tests/kvm/module.h"
#include "tests/kvm/vm.h"
#include "tests/kvm/window_guest.h"

namespace tmem {

// The module stays loaded from test to test, because loading and unloading take half a second in
// the lab; a suite unloads it at its end.
class KvmModuleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = WhyNoModule();
    if (!why.empty()) GTEST_SKIP() << why;
    log_.emplace();
    if (IsModuleLoaded()) {
      SetDefaults();
    } else {
      Reload("");
    }
  }

  // Every test leaves nothing in the module.
  void TearDown() override {
    if (!log_) return;
    if (IsModuleLoaded()) {
      EXPECT_TRUE(Eventually([] { return IsEmpty(ReadCounters()); })) << "channels are left";
    }
    for (const std::string& line : log_->NewTrouble()) ADD_FAILURE() << "kernel: " << line;
  }

  static void TearDownTestSuite() {
    if (WhyNoModule().empty() && IsModuleLoaded()) {
      EXPECT_EQ(UnloadModule(), 0) << "something still holds the module";
    }
  }

  // Whether it becomes true within 20 s.
  static bool Eventually(const std::function<bool()>& condition) {
    for (int ms = 0; ms < 20'000; ++ms) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  static void SetDefaults() {
    const std::string parameters = "/sys/module/kvm_tmem/parameters/";
    EXPECT_TRUE(WriteText(parameters + "pool_limit_mb", "0"));
    EXPECT_TRUE(WriteText(parameters + "max_guests", "64"));
    EXPECT_TRUE(WriteText(parameters + "max_window_kb", "16384"));
  }

  static bool IsEmpty(const Counters& counters) {
    return counters.at("channels") == 0 && counters.at("channel_bytes") == 0 &&
           counters.at("guests_waiting") == 0;
  }

  static void Reload(const std::string& parameters) {
    if (IsModuleLoaded()) {
      ASSERT_EQ(UnloadModule(), 0);
    }
    ASSERT_EQ(LoadModule(parameters), 0) << "errno of loading the module with: " << parameters;
  }

 private:
  std::optional<KernelLog> log_;
};

// With one VM and a daemon that does as told.
class KvmGuestTest : public KvmModuleTest {
 protected:
  void SetUp() override {
    KvmModuleTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    vm_ = std::make_unique<Vm>();
    vcpu_ = std::make_unique<Vcpu>(*vm_);
    daemon_ = std::make_unique<DaemonDouble>();
  }

  void TearDown() override {
    vcpu_.reset();
    vm_.reset();
    daemon_.reset();
    KvmModuleTest::TearDown();
  }

  // Registers the guest; null, and the test has failed, if that does not end well.
  std::unique_ptr<DoubleChannel> Connect(WindowGuest& guest,
                                         std::uint64_t features = TMEM_FEATURE_EPHEMERAL |
                                                                  TMEM_FEATURE_PERSISTENT |
                                                                  TMEM_FEATURE_FILL) {
    guest.PrepareRegistration(features);
    std::optional<kvm_tmem_guest> waiting;
    // It waits where the VM's former channels are not freed yet.
    for (int i = 0; !waiting && i < 1000; ++i) {
      const tmem_hypercall_answer answer = guest.Register();
      EXPECT_STREQ(ToString(answer), "PENDING");
      if (answer != TMEM_HC_PENDING) return nullptr;
      waiting = daemon_->Next();
    }
    if (!waiting) {
      ADD_FAILURE() << "no guest waits";
      return nullptr;
    }
    auto channel = daemon_->Accept(*waiting);
    if (!channel) {
      ADD_FAILURE() << "it does not wait any more";
      return nullptr;
    }
    channel->AnswerRegistration();
    const tmem_hypercall_answer answer = guest.RegisterAndWait();
    EXPECT_STREQ(ToString(answer), "OK");
    return answer == TMEM_HC_OK ? std::move(channel) : nullptr;
  }

  std::unique_ptr<Vm> vm_;
  std::unique_ptr<Vcpu> vcpu_;
  std::unique_ptr<DaemonDouble> daemon_;
};

}  // namespace tmem

#endif  // TESTS_KVM_KVM_FIXTURE_H_
