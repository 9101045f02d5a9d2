// SPDX-License-Identifier: GPL-2.0-only
// Everything at once, in an order given by the seed: VMMs of two vCPUs that register, hand over and
// die, a daemon that accepts, lies and goes, and the module unloaded in between.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "abi/tmem_abi.h"
#include "compress/sample_pages.h"
#include "host-store/window/shared_memory_access.h"
#include "tests/kvm/child.h"
#include "tests/kvm/daemon_double.h"
#include "tests/kvm/kvm_fixture.h"
#include "tests/kvm/vm.h"
#include "tests/kvm/window_guest.h"

namespace tmem {
namespace {

constexpr std::size_t kVmms = 3;
constexpr std::size_t kMostChannels = 6;

std::chrono::seconds Duration() {
  const char* value = std::getenv("TMEM_LONG");
  return std::chrono::seconds(value != nullptr && std::string(value) == "1" ? 120 : 10);
}

// One vCPU of a guest that may do anything, and its hypercalls.
void Misbehave(const WindowGuest& guest, Vcpu& vcpu, std::uint64_t seed, int calls) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < calls; ++i) {
    const auto lane = static_cast<std::uint32_t>(random() % guest.view().lane_count());
    const LaneView& view = guest.view().lane(lane);
    const std::uint64_t choice = random() % 32;
    Call call{TMEM_HYPERCALL_DEFAULT, TMEM_HC_CALL, random() % 8, 0, 0};
    if (choice < 6) call.rbx = TMEM_HC_KICK;
    if (choice == 6) call = {TMEM_HYPERCALL_DEFAULT, TMEM_HC_UNREGISTER, 0, 0, 0};
    if (choice >= 7 && choice < 12) {
      if (choice == 7) StoreRelaxed(guest.view().guest_page().register_request, tmem_u64{random()});
      call = {TMEM_HYPERCALL_DEFAULT, TMEM_HC_REGISTER, kPageListAddress, guest.pages(), 0};
    }
    if (choice == 12) StoreRelaxed(view.head().posted, tmem_u64{random() % 200});
    if (choice == 13) call.rcx = random();
    if (choice > 13) {
      const std::uint64_t posted = LoadRelaxed(view.head().posted);
      tmem_desc& entry = view.Entry(posted);
      entry.op = static_cast<tmem_u8>(random() % 6);
      entry.value = random() % (view.slots() + 1);
      StoreRelaxed(view.head().posted, tmem_u64{posted + random() % 4});
    }
    (void)vcpu.Make(call);
  }
}

// VMs of two vCPUs, one after the other, for as long as it lives.
void BeVmm(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  while (true) {
    const Vm vm;
    Vcpu first(vm, 0);
    Vcpu second(vm, 1);
    WindowGuest guest(vm, first);
    guest.PrepareRegistration();
    const int calls = static_cast<int>(20 + random() % 200);
    std::thread other([&, other_seed = random()] { Misbehave(guest, second, other_seed, calls); });
    Misbehave(guest, first, random(), calls);
    other.join();
  }
}

// The daemon's side, one random step at a time.
class Daemon {
 public:
  explicit Daemon(std::uint64_t seed) : random_(seed) {}

  void Step() {
    if (!device_) {
      if (IsModuleLoaded()) device_ = std::make_unique<DaemonDouble>();
      return;
    }
    if (const auto waiting = device_->Next()) Meet(*waiting);
    for (auto& channel : channels_) Touch(*channel);
    std::erase_if(channels_, [this](const auto& channel) {
      return (channel->HasHungUp() && random_() % 4 != 0) || random_() % 400 == 0;
    });
    if (random_() % 1000 == 0) CloseAll();
  }

  void CloseAll() {
    device_.reset();
    if (random_() % 2 == 0) channels_.clear();  // else they go later
  }
  void Forget() {
    device_.reset();
    channels_.clear();
  }
  bool holds_module() const { return device_ != nullptr || !channels_.empty(); }
  const std::map<std::string, int>& done() const { return done_; }

 private:
  void Meet(const kvm_tmem_guest& guest) {
    const std::uint64_t choice = random_() % 16;
    if (choice == 0) {
      ++done_["refused"];
      (void)device_->Refuse(guest.channel);
    } else if (choice > 1 && channels_.size() < kMostChannels) {
      if (auto channel = device_->Accept(guest)) {
        ++done_["accepted"];
        channels_.push_back(std::move(channel));
      }
    }
  }

  void Touch(DoubleChannel& channel) {
    const std::uint64_t choice = random_() % 64;
    if (choice < 16) channel.AnswerRegistration();
    if (choice >= 16 && choice < 48) {
      // A guest's counters may be anything.
      for (std::uint32_t lane = 0; lane < channel.view().lane_count(); ++lane) {
        if (channel.Waiting(lane) > channel.view().lane(lane).ring_entries()) return;
      }
      done_["served"] += static_cast<int>(channel.Serve());
      channel.Notify();
    }
    if (choice == 48) (void)channel.Slots();
    if (choice == 49) {
      tmem_lane_head& head = channel.view().lane(0).head();
      StoreRelaxed(head.done, tmem_u64{random_() % 300});
      ++done_["lied"];
    }
    if (choice == 50) channel.view().host_page().register_status = TMEM_STATUS_UNSUPPORTED;
    if (choice == 51) StoreRelaxed(channel.view().host_page().awake, tmem_u32{1});
  }

  std::mt19937_64 random_;
  std::unique_ptr<DaemonDouble> device_;
  std::vector<std::unique_ptr<DoubleChannel>> channels_;
  std::map<std::string, int> done_;
};

class Stress : public KvmModuleTest {};

TEST_F(Stress, EverythingAtOnceLeavesNothing) {
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  Daemon daemon(random());
  std::vector<std::unique_ptr<Child>> vmms;
  int killed = 0;
  int unloaded = 0;
  const auto end = std::chrono::steady_clock::now() + Duration();
  while (std::chrono::steady_clock::now() < end) {
    if (vmms.size() < kVmms) {
      vmms.push_back(std::make_unique<Child>([&daemon, vmm_seed = random()](Child& self) {
        daemon.Forget();  // what the fork has copied
        self.Say();
        BeVmm(vmm_seed);
      }));
      // Until then the device would be busy for a daemon that comes back.
      ASSERT_TRUE(vmms.back()->AwaitSaid());
    }
    if (random() % 80 == 0) {
      const std::size_t victim = random() % vmms.size();
      EXPECT_EQ(vmms[victim]->Kill(), 128 + SIGKILL) << "it had ended by itself";
      vmms.erase(vmms.begin() + static_cast<std::ptrdiff_t>(victim));
      ++killed;
    }
    if (random() % 150 == 0) {
      if (random() % 2 == 0) daemon.Forget();
      const bool held = daemon.holds_module();
      const int error = UnloadModule();
      EXPECT_TRUE(error != 0 || !held) << "unloaded under an open device";
      if (error == 0) {
        ++unloaded;
        EXPECT_EQ(LoadModule(), 0);
      }
    }
    daemon.Step();
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  vmms.clear();
  daemon.Forget();
  for (const auto& [what, count] : daemon.done()) std::printf("%d %s\n", count, what.c_str());
  std::printf("%d VMMs killed, module unloaded %d times under load\n", killed, unloaded);
  EXPECT_GT(daemon.done().at("accepted"), 5);
  EXPECT_GT(daemon.done().at("served"), 20);
  EXPECT_GT(killed, 0);
}

}  // namespace
}  // namespace tmem
