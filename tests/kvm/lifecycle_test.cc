// SPDX-License-Identifier: GPL-2.0-only
// Ends in every order: daemon, VMM, VM, memory, module. Nobody waits long, nothing is left behind.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/window/geometry.h"
#include "host-store/window/shared_memory_access.h"
#include "tests/kvm/child.h"
#include "tests/kvm/daemon_double.h"
#include "tests/kvm/kvm_fixture.h"
#include "tests/kvm/module.h"
#include "tests/kvm/vm.h"
#include "tests/kvm/window_guest.h"

namespace tmem {
namespace {

constexpr std::chrono::milliseconds kLongestWait{100};
// Another process may have the only CPU for as long; what is our doing shows every time.
constexpr int kAttempts = 3;

class Lifecycle : public KvmGuestTest {
 protected:
  static void PostOne(const WindowGuest& guest, std::uint32_t lane = 0) {
    const LaneView& view = guest.view().lane(lane);
    const std::uint64_t posted = LoadRelaxed(view.head().posted);
    view.Entry(posted) = {};
    StoreRelease(view.head().posted, tmem_u64{posted + 1});
  }

  // Runs it until its longest stay in the kernel was short; fails if it never was.
  void ExpectShortWaits(const std::function<void()>& attempt) {
    std::chrono::nanoseconds longest{0};
    for (int i = 0; i < kAttempts; ++i) {
      (void)vcpu_->TakeLongestRun();
      attempt();
      if (HasFatalFailure()) return;
      longest = vcpu_->TakeLongestRun();
      if (longest < kLongestWait) break;
    }
    std::printf("the vCPU's thread was in the kernel for at most %.1f ms\n",
                std::chrono::duration<double, std::milli>(longest).count());
    EXPECT_LT(longest, kLongestWait);
  }

  // A daemon of its own process: accepts one guest, answers, and then does nothing.
  static void BeSilentDaemon(Child& self) {
    const DaemonDouble device;
    self.Say();
    std::unique_ptr<DoubleChannel> channel;
    while (!channel) {
      (void)device.IsReadable(100);
      if (const auto waiting = device.Next()) channel = device.Accept(*waiting);
    }
    channel->AnswerRegistration();
    self.Say();
    self.Await();
    // Told to go on: serve what there is, then be silent again.
    (void)channel->Serve();
    channel->Notify();
    self.Say();
    self.Await();
  }
};

TEST_F(Lifecycle, ADaemonKilledWithCallsInFlightEndsTheCallAtOnce) {
  daemon_.reset();
  ExpectShortWaits([&] {
    Child daemon(BeSilentDaemon);
    ASSERT_TRUE(daemon.AwaitSaid());
    WindowGuest guest(*vm_, *vcpu_);
    guest.PrepareRegistration();
    ASSERT_STREQ(ToString(guest.RegisterAndWait()), "OK");
    PostOne(guest);
    ASSERT_STREQ(ToString(guest.CallOnce(1)), "PENDING");
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      daemon.Signal(SIGKILL);
    });
    const tmem_hypercall_answer answer = guest.CallAndWait(1);
    killer.join();
    EXPECT_STREQ(ToString(answer), "GONE");
    EXPECT_EQ(daemon.Wait(), 128 + SIGKILL);
    EXPECT_STREQ(ToString(guest.Kick(0)), "GONE");
    guest.PrepareRegistration();
    EXPECT_STREQ(ToString(guest.Register()), "GONE") << "there is no daemon";
  });
  // A new daemon and a new registration.
  daemon_ = std::make_unique<DaemonDouble>();
  WindowGuest guest(*vm_, *vcpu_);
  EXPECT_STREQ(ToString(guest.Kick(0)), "GONE") << "until it registers anew";
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  PostOne(guest);
  EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
  EXPECT_EQ(channel->Serve(), 1u);
  EXPECT_STREQ(ToString(guest.CallAndWait(1)), "OK");
}

TEST_F(Lifecycle, ADaemonThatEndsBeforeItAnsweredEndsTheRegistration) {
  WindowGuest guest(*vm_, *vcpu_);
  guest.PrepareRegistration();
  ASSERT_STREQ(ToString(guest.Register()), "PENDING");
  const auto waiting = daemon_->Next();
  ASSERT_TRUE(waiting);
  ASSERT_TRUE(daemon_->Accept(*waiting));  // and closed
  // The guest, which knows nothing of it, asks again: that is another registration.
  std::optional<kvm_tmem_guest> again;
  for (int i = 0; !again && i < 1000; ++i) {
    ASSERT_STREQ(ToString(guest.Register()), "PENDING");
    again = daemon_->Next();
  }
  ASSERT_TRUE(again);
  EXPECT_EQ(again->vm, waiting->vm);
  EXPECT_NE(again->channel, waiting->channel);
  daemon_.reset();
  EXPECT_STREQ(ToString(guest.RegisterAndWait()), "GONE");
}

TEST_F(Lifecycle, AStoppedDaemonMakesCallsPendNotHang) {
  daemon_.reset();
  ExpectShortWaits([&] {
    Child daemon(BeSilentDaemon);
    ASSERT_TRUE(daemon.AwaitSaid());
    WindowGuest guest(*vm_, *vcpu_);
    guest.PrepareRegistration();
    ASSERT_STREQ(ToString(guest.RegisterAndWait()), "OK");
    ASSERT_TRUE(daemon.AwaitSaid());
    daemon.Signal(SIGSTOP);
    PostOne(guest);
    for (int i = 0; i < 50; ++i) {
      ASSERT_STREQ(ToString(guest.CallOnce(1)), "PENDING");
      ASSERT_STREQ(ToString(guest.Kick(3)), "OK");
    }
    daemon.GoOn();
    daemon.Signal(SIGCONT);
    EXPECT_STREQ(ToString(guest.CallAndWait(1)), "OK");
    EXPECT_STREQ(ToString(guest.Do(TMEM_HC_UNREGISTER)), "OK");
  });
}

// A monitor stops vCPUs by a signal, while their guest calls a daemon that does not answer.
TEST_F(Lifecycle, AVcpuThatCallsIsStoppedAtOnce) {
  constexpr int kStops = 20;
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  PostOne(guest);
  const Call call = {TMEM_HYPERCALL_DEFAULT, TMEM_HC_CALL, 1, 0, 0};
  std::chrono::nanoseconds longest{0};
  std::atomic<std::uint64_t> calls = 0;
  std::atomic<int> stops = 0;
  std::atomic<bool> end = false;
  // One thread for all: KVM takes tens of milliseconds when another one begins to run a vCPU.
  std::thread runs([&] {
    while (!end) {
      calls += vcpu_->MakeMany(call, 1'000'000, TMEM_HC_TAG | TMEM_HC_PENDING);
      ++stops;
    }
  });
  const auto stop_once = [&] {
    const int before = stops;
    const std::uint64_t pendings = ReadCounters().at("pendings");
    EXPECT_TRUE(Eventually([&] { return ReadCounters().at("pendings") > pendings; }));
    const auto begin = std::chrono::steady_clock::now();
    vcpu_->Stop(runs.native_handle());
    while (stops == before) std::this_thread::sleep_for(std::chrono::microseconds(100));
    return std::chrono::steady_clock::now() - begin;
  };
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    longest = {};
    for (int i = 0; i < kStops; ++i) {
      longest = std::max<std::chrono::nanoseconds>(longest, stop_once());
    }
    if (longest < kLongestWait) break;
  }
  end = true;
  (void)stop_once();
  runs.join();
  std::printf("stopped within %.1f ms, %llu calls\n",
              std::chrono::duration<double, std::milli>(longest).count(),
              static_cast<unsigned long long>(calls.load()));
  EXPECT_LT(longest, kLongestWait);
  EXPECT_GT(calls, 10u);
  EXPECT_EQ(channel->Serve(), 1u);
  EXPECT_STREQ(ToString(guest.CallAndWait(1)), "OK");
}

TEST_F(Lifecycle, AVmmKilledInACallEndsItsChannel) {
  for (int round = 0; round < 3; ++round) {
    Child vmm([](Child& self) {
      const Vm vm;
      Vcpu vcpu(vm);
      WindowGuest guest(vm, vcpu);
      guest.PrepareRegistration();
      (void)guest.RegisterAndWait();
      PostOne(guest);
      self.Say();
      while (true) (void)guest.CallOnce(1);
    });
    ASSERT_TRUE(daemon_->IsReadable(20'000));
    const auto waiting = daemon_->Next();
    ASSERT_TRUE(waiting);
    EXPECT_EQ(waiting->tgid, vmm.pid());
    const auto channel = daemon_->Accept(*waiting);
    ASSERT_TRUE(channel);
    channel->AnswerRegistration();
    ASSERT_TRUE(vmm.AwaitSaid());
    ASSERT_TRUE(Eventually([&] { return channel->Waiting(0) == 1; }));
    EXPECT_FALSE(channel->HasHungUp());
    EXPECT_EQ(vmm.Kill(), 128 + SIGKILL);
    EXPECT_TRUE(Eventually([&] { return channel->HasHungUp(); }));
    // What the daemon still does with it harms nobody.
    EXPECT_EQ(channel->Serve(), 1u);
    channel->Notify();
  }
  EXPECT_TRUE(Eventually([] { return ReadCounters().at("channels") == 0; }));
}

TEST_F(Lifecycle, VmsOfOneProcessComeAndGo) {
  std::set<std::uint64_t> vms;
  std::set<std::uint64_t> channels;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    auto vm = std::make_unique<Vm>();
    auto vcpu = std::make_unique<Vcpu>(*vm);
    auto guest = std::make_unique<WindowGuest>(*vm, *vcpu);
    guest->PrepareRegistration();
    ASSERT_STREQ(ToString(guest->Register()), "PENDING");
    const auto waiting = daemon_->Next();
    ASSERT_TRUE(waiting);
    EXPECT_TRUE(vms.insert(waiting->vm).second) << "the number of a VM that has gone";
    EXPECT_TRUE(channels.insert(waiting->channel).second);
    const auto channel = round % 3 == 0 ? nullptr : daemon_->Accept(*waiting);
    if (channel && round % 3 == 1) channel->AnswerRegistration();
    guest.reset();
    // The VM goes with its last vCPU, whatever is closed first.
    if (round % 2 == 0) {
      vcpu.reset();
      EXPECT_FALSE(channel && channel->HasHungUp());
      vm.reset();
    } else {
      vm->CloseFd();
      EXPECT_FALSE(channel && channel->HasHungUp());
      vcpu.reset();
      vm.reset();
    }
    if (channel) {
      EXPECT_TRUE(channel->HasHungUp());
      EXPECT_FALSE(channel->Slots());
    }
    EXPECT_FALSE(daemon_->Accept(*waiting)) << "accepted a guest that has gone, or twice";
  }
}

TEST_F(Lifecycle, RegisteringAgainReplacesTheChannel) {
  WindowGuest guest(*vm_, *vcpu_);
  std::unique_ptr<DoubleChannel> last;
  for (int round = 0; round < 5; ++round) {
    auto channel = Connect(guest);
    ASSERT_TRUE(channel);
    PostOne(guest);
    EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
    EXPECT_EQ(channel->Waiting(0), 1u);
    if (last) {
      EXPECT_TRUE(last->HasHungUp());
      EXPECT_EQ(last->Waiting(0), 1u) << "a hand-over reached the channel that had ended";
    }
    last = std::move(channel);
    EXPECT_EQ(ReadCounters().at("channels"), 1u);
  }
}

// Each registration costs the daemon a mapping and a reset.
TEST_F(Lifecycle, AGuestThatRegistersAllTheTimeIsPaced) {
  WindowGuest guest(*vm_, *vcpu_);
  int registered = 0;
  const auto begin = std::chrono::steady_clock::now();
  auto end = begin;
  for (; registered < 120; end = std::chrono::steady_clock::now()) {
    guest.PrepareRegistration();
    std::optional<kvm_tmem_guest> waiting;
    while (!waiting) {
      ASSERT_STREQ(ToString(guest.Register()), "PENDING");
      waiting = daemon_->Next();
    }
    ++registered;
  }
  const double seconds = std::chrono::duration<double>(end - begin).count();
  EXPECT_LE(registered, 50 * (std::floor(seconds) + 2)) << "in " << seconds << " s";
  EXPECT_GE(seconds, 1.0);
}

// The VM is open in two processes and ends in the one that did not make it.
TEST_F(Lifecycle, AVmMayEndInAForkedChild) {
  Child vmm([](Child& self) {
    const Vm vm;
    Vcpu vcpu(vm);
    WindowGuest guest(vm, vcpu);
    guest.PrepareRegistration();
    (void)guest.RegisterAndWait();
    if (::fork() == 0) {
      self.Await();
      ::_exit(0);
    }
    ::_exit(0);
  });
  ASSERT_TRUE(daemon_->IsReadable(20'000));
  const auto waiting = daemon_->Next();
  ASSERT_TRUE(waiting);
  const auto channel = daemon_->Accept(*waiting);
  ASSERT_TRUE(channel);
  channel->AnswerRegistration();
  EXPECT_EQ(vmm.Wait(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(channel->HasHungUp()) << "the VM is still open in the other process";
  vmm.GoOn();
  EXPECT_TRUE(Eventually([&] { return channel->HasHungUp(); }));
}

TEST_F(Lifecycle, MemoryComesAndGoesDuringCalls) {
  ExpectShortWaits([&] {
    WindowGuest guest(*vm_, *vcpu_);
    const auto channel = Connect(guest);
    ASSERT_TRUE(channel);
    std::atomic<bool> stop = false;
    std::atomic<int> changes = 0;
    std::thread plugger([&] {
      static std::vector<std::byte> memory((2u << 20) + kPageBytes);
      const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
      auto* page = memory.data() + (kPageBytes - at % kPageBytes) % kPageBytes;
      while (!stop) {
        vm_->AddSlot(5, 256u << 20, 2u << 20, page);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        vm_->RemoveSlot(5, 256u << 20);
        ++changes;
      }
    });
    for (int i = 0; i < 200 || changes < 10; ++i) {
      PostOne(guest);
      EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
      (void)channel->Serve();
      EXPECT_STREQ(ToString(guest.CallAndWait(1)), "OK");
    }
    stop = true;
    plugger.join();
    EXPECT_STREQ(ToString(guest.Do(TMEM_HC_UNREGISTER)), "OK");
  });
}

TEST_F(Lifecycle, AWindowWhoseMemoryIsUnpluggedIsABadAddressUntilItIsBack) {
  // The same memory once more, further up, so that the window's slot alone can go.
  constexpr std::uint64_t kAlias = 64u << 20;
  vm_->AddSlot(1, kAlias, kRamBytes, vm_->ram());
  WindowGuest guest(*vm_, *vcpu_);
  for (std::uint64_t page = 0; page < guest.pages(); ++page) guest.page_list()[page] += kAlias;
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  PostOne(guest);
  EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
  EXPECT_EQ(channel->Serve(), 1u);
  vm_->RemoveSlot(1, kAlias);
  for (int i = 0; i < 3; ++i) {
    EXPECT_STREQ(ToString(guest.CallOnce(1)), "BAD_ADDRESS");
    EXPECT_STREQ(ToString(guest.Kick(1)), "BAD_ADDRESS");
  }
  EXPECT_EQ(LoadAcquire(guest.view().lane(0).head().done), 0u);
  vm_->AddSlot(1, kAlias, kRamBytes, vm_->ram());
  EXPECT_STREQ(ToString(guest.CallAndWait(1)), "OK");
  EXPECT_EQ(LoadAcquire(guest.view().lane(0).head().done), 1u);
}

TEST_F(Lifecycle, TheModuleGoesWithAllVmsRegisteredAndTheirChannelsEnded) {
  // No daemon any more, but VMs that live on: the module must not wait for them.
  WindowGuest guest(*vm_, *vcpu_);
  {
    const auto channel = Connect(guest);
    ASSERT_TRUE(channel);
  }
  daemon_.reset();
  EXPECT_EQ(UnloadModule(), 0);
  EXPECT_EQ(guest.Hypercall(TMEM_HC_KICK).rax(), static_cast<std::uint64_t>(-1000));
  ASSERT_EQ(LoadModule(), 0);
  EXPECT_STREQ(ToString(guest.Kick(0)), "NOT_REGISTERED");
  daemon_ = std::make_unique<DaemonDouble>();
  EXPECT_TRUE(Connect(guest));
}

TEST_F(Lifecycle, NothingIsLeftBehind) {
  constexpr std::uint64_t kSlack = 2u << 20;  // what the kernel's own caches move
  constexpr int kRounds = 12;                 // of 4 MiB each
  vcpu_.reset();
  vm_.reset();
  daemon_.reset();
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Reload("");
      const DaemonDouble daemon;
      const Vm vm;
      Vcpu vcpu(vm);
      WindowGuest guest(vm, vcpu, *MakeGeometry(WindowOptions{}));
      guest.PrepareRegistration();
      EXPECT_STREQ(ToString(guest.Register()), "PENDING");
      const auto waiting = daemon.Next();
      ASSERT_TRUE(waiting);
      const auto channel = daemon.Accept(*waiting);
      ASSERT_TRUE(channel);
      channel->AnswerRegistration();
      EXPECT_STREQ(ToString(guest.RegisterAndWait()), "OK");
      EXPECT_GE(ReadCounters().at("channel_bytes"), 4u << 20);
      // In turn: the guest ends it, the VM does, the daemon does.
      const bool by_guest = i % 3 == 0;
      EXPECT_STREQ(by_guest ? ToString(guest.Do(TMEM_HC_UNREGISTER)) : "OK", "OK");
    }
    ASSERT_EQ(UnloadModule(), 0);
    ::sync();
    (void)::syscall(SYS_membarrier, 1, 0, 0);  // waits for what RCU frees later
  };
  rounds(3);
  const KernelMemory before = ReadKernelMemory();
  rounds(kRounds);
  KernelMemory after;
  const auto is_back = [&] {
    after = ReadKernelMemory();
    return after.vmalloc_bytes < before.vmalloc_bytes + kSlack &&
           after.unreclaimable_slab_bytes < before.unreclaimable_slab_bytes + kSlack;
  };
  EXPECT_TRUE(Eventually(is_back))
      << "vmalloc " << before.vmalloc_bytes << " to " << after.vmalloc_bytes << ", slab "
      << before.unreclaimable_slab_bytes << " to " << after.unreclaimable_slab_bytes;
  std::printf(
      "after %d rounds: vmalloc %lld KiB more, slab %lld KiB more\n", kRounds,
      static_cast<long long>(after.vmalloc_bytes - before.vmalloc_bytes) / 1024,
      static_cast<long long>(after.unreclaimable_slab_bytes - before.unreclaimable_slab_bytes) /
          1024);
}

}  // namespace
}  // namespace tmem
