// SPDX-License-Identifier: GPL-2.0-only
// Whoever does not use tmem notices nothing of the module; whoever does gets the right answers.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "abi/tmem_abi.h"
#include "host-store/kvm_tmem/device.h"
#include "tests/kvm/answers.h"
#include "tests/kvm/kvm_fixture.h"
#include "tests/kvm/vm.h"

namespace tmem {
namespace {

constexpr std::uint64_t kEnosys = static_cast<std::uint64_t>(-1000);
constexpr std::uint64_t kEperm = static_cast<std::uint64_t>(-1);
constexpr Call kNegotiate = {TMEM_HYPERCALL_DEFAULT, TMEM_HC_NEGOTIATE, 0, 0, 0};
constexpr std::uint64_t kNegotiated = TMEM_HC_MAGIC | TMEM_ABI_VERSION;
constexpr const char* kFtraceEnabled = "/proc/sys/kernel/ftrace_enabled";

void ExpectSame(const Answers& before, const Answers& after) {
  for (const std::string& line : Differences(before, after)) ADD_FAILURE() << line;
}

// KVM's statistic of all VMs that there are.
std::uint64_t KvmHypercalls() {
  return std::strtoull(ReadText("/sys/kernel/debug/kvm/hypercalls").c_str(), nullptr, 10);
}

// The VMM itself, on a kernel without the module.
TEST(MicroGuest, MakesHypercallsInEachMode) {
  const std::string why = WhyNoKvm();
  if (!why.empty()) GTEST_SKIP() << why;
  ASSERT_FALSE(IsModuleLoaded());
  const Vm vm;
  Vcpu vcpu(vm);
  for (const bool foreign : {false, true}) {
    vcpu.UseForeignInstruction(foreign);
    for (const CpuMode mode : kCpuModes) {
      SCOPED_TRACE(ToString(mode));
      vcpu.SetMode(mode);
      const bool user = std::string(ToString(mode)).find("CPL 3") != std::string::npos;
      const bool is_long = mode == CpuMode::kLong || mode == CpuMode::kLongUser;
      const std::uint64_t mask = is_long ? ~0ull : 0xffffffff;
      const CallOutcome outcome = vcpu.Make(kNegotiate);
      EXPECT_EQ(outcome.exit_reason, std::uint32_t{KVM_EXIT_IO});
      EXPECT_EQ(outcome.rax(), (user ? kEperm : kEnosys) & mask);
    }
  }
  vcpu.SetMode(CpuMode::kLong);
  EXPECT_EQ(vcpu.MakeMany(kNegotiate, 100, kEnosys), 100u);
  const Answers once = RecordAnswers(vcpu);
  EXPECT_GT(once.size(), 500u);
  ExpectSame(once, RecordAnswers(vcpu));
}

class Conformance : public KvmModuleTest {};

TEST_F(Conformance, OthersAnswersAreTheSameWithAndWithoutTheModule) {
  ASSERT_EQ(UnloadModule(), 0);
  const Vm vm;
  Vcpu vcpu(vm);
  const Answers without = RecordAnswers(vcpu);
  ASSERT_GT(without.size(), 500u);
  ExpectSame(without, RecordAnswers(vcpu));  // else the comparison would say nothing
  ASSERT_EQ(LoadModule(), 0);
  ExpectSame(without, RecordAnswers(vcpu));
  EXPECT_EQ(vcpu.Make(kNegotiate).rax(), kNegotiated);

  // Where a permanent hook exists the kernel may refuse this; then there is nothing to survive.
  (void)WriteText(kFtraceEnabled, "0");
  ExpectSame(without, RecordAnswers(vcpu));
  // The hook stays: a guest would lose its pages otherwise. (The kernel refuses the write.)
  EXPECT_EQ(vcpu.Make(kNegotiate).rax(), kNegotiated);
  (void)WriteText(kFtraceEnabled, "1");

  ASSERT_EQ(UnloadModule(), 0);
  ExpectSame(without, RecordAnswers(vcpu));
  EXPECT_EQ(vcpu.Make(kNegotiate).rax(), kEnosys);
}

class ConformanceOfAGuest : public KvmGuestTest {};

TEST_F(ConformanceOfAGuest, OthersAnswersAreTheSameOnceItIsRegistered) {
  const Answers before = RecordAnswers(*vcpu_);
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  ExpectSame(before, RecordAnswers(*vcpu_));
  EXPECT_EQ(guest.Kick(0), TMEM_HC_OK);
}

TEST_F(Conformance, OurAnswersAreRightWithSingleStepToo) {
  const Vm vm;
  Vcpu vcpu(vm);
  const CallOutcome plain = vcpu.Make(kNegotiate);
  vcpu.SetSingleStep(true);
  const CallOutcome stepped = vcpu.Make(kNegotiate);
  EXPECT_EQ(plain.exit_reason, std::uint32_t{KVM_EXIT_IO});
  EXPECT_EQ(stepped.exit_reason, std::uint32_t{KVM_EXIT_DEBUG});
  EXPECT_EQ(plain.rax(), kNegotiated);
  EXPECT_EQ(stepped.rax(), kNegotiated);
  // Past the instruction once, not twice.
  EXPECT_EQ(plain.regs.rip, kCodeAddress + 3);
  EXPECT_EQ(stepped.regs.rip, kCodeAddress + 3);
  // Nothing but rax changes.
  EXPECT_EQ(plain.regs.rbx, std::uint64_t{TMEM_HC_NEGOTIATE});
  EXPECT_EQ(plain.regs.rdi, 0xd1d1d1d1u);
  EXPECT_EQ(plain.regs.r15, 0x1515151515151515u);
  vcpu.SetSingleStep(false);
  vcpu.UseForeignInstruction(true);
  EXPECT_EQ(vcpu.Make(kNegotiate).rax(), kNegotiated);
}

TEST_F(Conformance, OurNumberIsOursInLongModeAtCplZeroOnly) {
  const Vm vm;
  Vcpu vcpu(vm);
  const Counters before = ReadCounters();
  for (const CpuMode mode : kCpuModes) {
    if (mode == CpuMode::kLong) continue;
    SCOPED_TRACE(ToString(mode));
    vcpu.SetMode(mode);
    const std::uint64_t rax = vcpu.Make(kNegotiate).rax();
    EXPECT_NE(rax, kNegotiated);
    EXPECT_NE(rax, kNegotiated & 0xffffffff);
  }
  EXPECT_EQ(Moved(before, ReadCounters()).count("negotiates"), 0u);
}

TEST_F(Conformance, HypervGuestIsLeftAlone) {
  ASSERT_EQ(UnloadModule(), 0);
  const Vm vm;
  Vcpu vcpu(vm);
  BecomeHyperv(vcpu);
  // At CPL 3 Hyper-V raises #UD, which ends this guest.
  const auto record = [&] {
    Answers answers;
    for (const std::uint64_t operation : {0u, 1u, 2u, 3u, 4u, 5u}) {
      for (const std::uint64_t rcx : {0ull, 1ull, 0x10000ull, ~0ull}) {
        const CallOutcome outcome = vcpu.Make({TMEM_HYPERCALL_DEFAULT, operation, rcx, 0, 0});
        answers[std::to_string(operation) + " " + std::to_string(rcx)] =
            std::to_string(outcome.exit_reason) + " " + std::to_string(outcome.rax());
      }
    }
    return answers;
  };
  const Answers without = record();
  EXPECT_EQ(without.at("0 0").find(std::to_string(kEnosys)), std::string::npos)
      << "this guest is not one of Hyper-V's";
  ASSERT_EQ(LoadModule(), 0);
  const Counters before = ReadCounters();
  ExpectSame(without, record());
  const Counters moved = Moved(before, ReadCounters());
  EXPECT_EQ(moved.count("negotiates") + moved.count("registers"), 0u);
}

TEST_F(Conformance, HundredThousandCallsAnswerRight) {
  constexpr std::uint64_t kCalls = 100'000;
  const Vm vm;
  Vcpu vcpu(vm);
  const Counters before = ReadCounters();
  const std::uint64_t kvms = KvmHypercalls();
  EXPECT_EQ(vcpu.MakeMany(kNegotiate, kCalls, kNegotiated), kCalls);
  EXPECT_EQ(KvmHypercalls() - kvms, kCalls) << "KVM's own count";
  const Counters moved = Moved(before, ReadCounters());
  EXPECT_EQ(moved, (Counters{{"hypercalls", kCalls}, {"negotiates", kCalls}}));
}

// Without ftrace the module would sit there and answer nothing.
TEST_F(Conformance, LoadingWithoutFtraceFailsCleanly) {
  ASSERT_EQ(UnloadModule(), 0);
  ASSERT_TRUE(WriteText(kFtraceEnabled, "0"));
  EXPECT_NE(LoadModule(), 0);
  EXPECT_FALSE(IsModuleLoaded());
  ASSERT_TRUE(WriteText(kFtraceEnabled, "1"));
  EXPECT_EQ(LoadModule(), 0);
  const Vm vm;
  EXPECT_EQ(Vcpu(vm).Make(kNegotiate).rax(), kNegotiated);
}

TEST_F(Conformance, UnloadWhileTheDeviceIsOpenIsRefused) {
  const UniqueFd device(::open(KVM_TMEM_DEVICE_PATH, O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(device.valid());
  EXPECT_NE(UnloadModule(), 0);
  EXPECT_TRUE(IsModuleLoaded());
}

TEST_F(Conformance, UnloadAndReloadUnderLoad) {
  constexpr int kRounds = 3;
  const Vm vm;
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> ours = 0;
  std::atomic<std::uint64_t> wrong = 0;
  std::thread load([&] {
    Vcpu vcpu(vm);
    while (!stop) {
      ours += vcpu.MakeMany(kNegotiate, 500, kNegotiated);
      // Without the module, and never anything else.
      const std::uint64_t rax = vcpu.Make(kNegotiate).rax();
      if (rax != kNegotiated && rax != kEnosys) ++wrong;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t seen = ours;
    for (int ms = 0; ours == seen && ms < 20'000; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GT(ours, seen) << "no call of ours was answered in round " << round;
    int error = EBUSY;
    for (int ms = 0; error != 0 && ms < 20'000; ++ms) {
      error = UnloadModule();
      if (error != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(error, 0) << "in round " << round;
    EXPECT_EQ(LoadModule(), 0) << "in round " << round;
  }
  stop = true;
  load.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace tmem
