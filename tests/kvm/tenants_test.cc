// SPDX-License-Identifier: GPL-2.0-only
// Guests of several tenants under one real tmemd: who is who, what they share, and what they cannot
// do to each other.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/doorbell/test_directory.h"
#include "host-store/window/geometry.h"
#include "tests/daemon/daemon_process.h"
#include "tests/kvm/child.h"
#include "tests/kvm/kvm_fixture.h"
#include "tests/kvm/vm.h"
#include "tests/kvm/window_guest.h"

namespace tmem {
namespace {

constexpr uid_t kAlice = 2001;
constexpr uid_t kBob = 2002;
constexpr uid_t kCarol = 2003;
constexpr uid_t kNobodyKnown = 2009;

// In a VMM's process: its VM, and the user it belongs to from then on.
class Tenant {
 public:
  explicit Tenant(uid_t uid, const char* name = "vmm") {
    if (::prctl(PR_SET_NAME, name) != 0 || ::setresuid(uid, uid, uid) != 0) {
      throw std::system_error(errno, std::generic_category(), "becoming a tenant");
    }
  }

  // What the registration is answered.
  std::string Join() {
    window_.ForgetSpeaker();
    window_.PrepareRegistration();
    return ToString(window_.RegisterAndWait());
  }
  TestGuest& speaker() { return window_.speaker(); }

  // A pool in which puts go; a persistent one waits for its first credits.
  std::uint64_t CreatePool(tmem_pool_kind kind) {
    const std::uint64_t pool = speaker().CreatePool(kind);
    for (int i = 0; kind == TMEM_POOL_PERSISTENT && speaker().CreditsGranted() == 0 && i < 2000;
         ++i) {
      (void)window_.Kick(0);
      ::usleep(1000);
    }
    return pool;
  }

  // Puts pages 0 .. count-1 of an object, many a call; the content follows from `seed`.
  void PutMany(std::uint64_t pool, std::uint64_t object, std::uint64_t count, std::uint64_t seed) {
    for (std::uint64_t i = 0; i < count; ++i) {
      (void)speaker().StagePut({pool, object, i}, PageOf(seed, i), 0);
    }
    for (std::uint32_t lane = 0; lane < window_.view().lane_count(); ++lane) {
      speaker().Publish(lane);
    }
  }

  // How many of them come back as they were put; any other bytes fail the test.
  std::uint64_t GetMany(std::uint64_t pool, std::uint64_t object, std::uint64_t count,
                        std::uint64_t seed) {
    std::uint64_t right = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      TestPage page;
      if (speaker().Get({pool, object, i}, page) != TMEM_STATUS_OK) continue;
      EXPECT_EQ(page, PageOf(seed, i));
      ++right;
    }
    return right;
  }

 private:
  static TestPage PageOf(std::uint64_t seed, std::uint64_t i) {
    return MakeTestPage(seed + i, TestPageKind::kRandom);
  }

  Vm vm_;
  Vcpu vcpu_{vm_};
  WindowGuest window_{vm_, vcpu_, *MakeGeometry(*WindowOptionsFor(1u << 20))};
};

class Tenants : public KvmModuleTest {
 protected:
  void StartDaemon(const std::vector<std::string>& guests, const std::string& limit = "64M") {
    std::vector<std::string> options = {"--memory-limit", limit, "--kvm-tmem",  "required",
                                        "--window",       "1M",  "--log-level", "error"};
    for (const std::string& guest : guests) options.insert(options.end(), {"--guest", guest});
    daemon_ = std::make_unique<DaemonProcess>(directory_.path(), options);
    ASSERT_TRUE(daemon_->answers());
  }

  void TearDown() override {
    daemon_.reset();
    KvmModuleTest::TearDown();
  }

  // Once all that was put is where it stays.
  nlohmann::json SettledPool() const {
    nlohmann::json pool;
    EXPECT_TRUE(Eventually([&] {
      pool = daemon_->Status().at("pool");
      return pool.at("landed") == 0;
    }));
    return pool;
  }

  std::uint64_t RefusedForNoRule() const {
    return daemon_->Status().at("hypercall").at("refused").at("no_rule");
  }
  bool IsConnected(const std::string& guest) const {
    return daemon_->StatusOfGuest(guest).at("connected");
  }

  TestDirectory directory_;
  std::unique_ptr<DaemonProcess> daemon_;
};

// A VMM that joins, puts the same pages as all others, and stays until told.
std::unique_ptr<Child> StartPutter(uid_t uid, std::uint64_t pages) {
  return std::make_unique<Child>([=](Child& self) {
    Tenant tenant(uid);
    ASSERT_EQ(tenant.Join(), "OK");
    const std::uint64_t pool = tenant.CreatePool(TMEM_POOL_EPHEMERAL);
    tenant.PutMany(pool, 7, pages, 1000);
    self.Say();
    self.Await();
    EXPECT_EQ(tenant.GetMany(pool, 7, pages, 1000), pages);
  });
}

TEST_F(Tenants, EqualPagesAreStoredOnceInADomainAndAgainInAnother) {
  constexpr std::uint64_t kPages = 200;
  StartDaemon({"alice,uid=2001,domain=blue", "bob,uid=2002,domain=blue", "carol,uid=2003"});
  const auto alice = StartPutter(kAlice, kPages);
  ASSERT_TRUE(alice->AwaitSaid());
  const nlohmann::json one = SettledPool();
  EXPECT_EQ(one.at("pages"), kPages);
  EXPECT_EQ(one.at("duplicates"), 0);

  const auto bob = StartPutter(kBob, kPages);
  ASSERT_TRUE(bob->AwaitSaid());
  const nlohmann::json two = SettledPool();
  EXPECT_EQ(two.at("pages"), 2 * kPages);
  EXPECT_EQ(two.at("duplicates"), kPages);

  const auto carol = StartPutter(kCarol, kPages);
  ASSERT_TRUE(carol->AwaitSaid());
  const nlohmann::json three = SettledPool();
  EXPECT_EQ(three.at("pages"), 3 * kPages);
  EXPECT_EQ(three.at("duplicates"), kPages) << "shared with another tenant";
  EXPECT_EQ(three.at("saved_by_dedup_bytes"), two.at("saved_by_dedup_bytes"));

  for (const auto& guest : {"alice", "bob", "carol"}) {
    EXPECT_EQ(daemon_->StatusOfGuest(guest).at("ephemeral_pages"), kPages) << guest;
  }
  for (Child* child : {alice.get(), bob.get(), carol.get()}) {
    child->GoOn();
    EXPECT_EQ(child->Wait(), 0);
  }
}

TEST_F(Tenants, APoolOfAnotherCannotBeNamedReadOrFlushed) {
  constexpr std::uint64_t kPages = 40;
  StartDaemon({"alice,uid=2001,domain=blue", "bob,uid=2002,domain=blue"});
  const auto alice = StartPutter(kAlice, kPages);
  ASSERT_TRUE(alice->AwaitSaid());
  ASSERT_TRUE(IsConnected("alice"));

  Child bob([=](Child&) {
    Tenant tenant(kBob);
    ASSERT_EQ(tenant.Join(), "OK");
    TestGuest& speaker = tenant.speaker();
    const auto expect_none = [&](std::uint64_t pool, bool owns) {
      TestPage page;
      for (std::uint64_t index = 0; index < 8; ++index) {
        const tmem_status got = speaker.Get({pool, 7, index}, page);
        EXPECT_TRUE(owns ? got == TMEM_STATUS_MISS : got >= TMEM_STATUS_BAD_POOL) << got;
      }
      const tmem_status put = speaker.Put({pool, 7, 0}, page);
      EXPECT_TRUE(owns || put >= TMEM_STATUS_BAD_POOL) << put;
      const tmem_status flushed = speaker.Flush({pool, 7, 0}, 1u << 20);
      EXPECT_TRUE(owns || flushed >= TMEM_STATUS_BAD_POOL) << flushed;
      for (const tmem_op op : {TMEM_OP_FLUSH_POOL, TMEM_OP_POOL_DESTROY}) {
        tmem_desc desc{};
        desc.op = static_cast<tmem_u8>(op);
        desc.pool = pool;
        const std::uint32_t lane = op == TMEM_OP_POOL_DESTROY ? speaker.view().control_lane() : 0;
        const tmem_desc result = speaker.Do(lane, desc);
        EXPECT_TRUE(owns || result.status >= TMEM_STATUS_BAD_POOL) << result.status;
      }
    };
    // Alice's handle is among these: generations and numbers count up.
    for (std::uint64_t generation = 1; generation < 4; ++generation) {
      for (std::uint64_t id = 0; id < 4; ++id) expect_none(generation << 32 | id, false);
    }
    // And now with a pool of his own, whose handle may well be the same.
    expect_none(tenant.CreatePool(TMEM_POOL_EPHEMERAL), true);
  });
  EXPECT_EQ(bob.Wait(), 0);
  EXPECT_EQ(daemon_->StatusOfGuest("alice").at("ephemeral_pages"), kPages);
  alice->GoOn();
  EXPECT_EQ(alice->Wait(), 0);
}

TEST_F(Tenants, OneThatFloodsThePoolTakesNothingFromAnother) {
  constexpr std::uint64_t kPages = 60;
  constexpr std::uint64_t kFlood = 6000;  // of 4 KiB that do not compress: more than the limit
  StartDaemon({"alice,uid=2001", "bob,uid=2002"}, "24M");
  Child alice([=](Child& self) {
    Tenant tenant(kAlice);
    ASSERT_EQ(tenant.Join(), "OK");
    const std::uint64_t clean = tenant.CreatePool(TMEM_POOL_EPHEMERAL);
    const std::uint64_t swap = tenant.CreatePool(TMEM_POOL_PERSISTENT);
    ASSERT_GE(tenant.speaker().CreditsGranted(), kPages);
    tenant.PutMany(clean, 1, kPages, 10'000);
    tenant.PutMany(swap, 2, kPages, 20'000);
    self.Say();
    self.Await();
    EXPECT_EQ(tenant.GetMany(swap, 2, kPages, 20'000), kPages) << "of persistent pages";
    EXPECT_EQ(tenant.GetMany(clean, 1, kPages, 10'000), kPages) << "of ephemeral pages";
  });
  ASSERT_TRUE(alice.AwaitSaid());
  Child bob([=](Child&) {
    Tenant tenant(kBob);
    ASSERT_EQ(tenant.Join(), "OK");
    const std::uint64_t clean = tenant.CreatePool(TMEM_POOL_EPHEMERAL);
    const std::uint64_t swap = tenant.CreatePool(TMEM_POOL_PERSISTENT);
    tenant.PutMany(clean, 1, kFlood, 30'000);
    // With and beyond the credits he has.
    tenant.PutMany(swap, 1, kFlood / 2, 50'000);
    // And more pools than anybody needs.
    for (int i = 0; i < 70; ++i) (void)tenant.CreatePool(TMEM_POOL_EPHEMERAL);
  });
  EXPECT_EQ(bob.Wait(), 0);
  const nlohmann::json status = daemon_->Status();
  EXPECT_LE(status.at("used_bytes"), status.at("limit_bytes"));
  // It was a flood.
  const nlohmann::json counters = daemon_->StatusOfGuest("bob").at("counters");
  EXPECT_GT(counters.at("pages_evicted").get<int>() + counters.at("puts_no_space").get<int>(), 500);
  EXPECT_GT(counters.at("puts_no_credit"), 0);
  alice.GoOn();
  EXPECT_EQ(alice.Wait(), 0);
}

TEST_F(Tenants, AVmmThatTakesAnothersNameGainsNothing) {
  StartDaemon({"alice,uid=2001", "bob,uid=2002"});
  const auto alice = StartPutter(kAlice, 8);
  ASSERT_TRUE(alice->AwaitSaid());
  const std::uint64_t refused = RefusedForNoRule();
  // No rule for this user, whatever the VMM calls itself.
  for (const char* name : {"alice", "vmm", "qemu-alice"}) {
    Child stranger([=](Child&) {
      Tenant tenant(kNobodyKnown, name);
      EXPECT_EQ(tenant.Join(), "REFUSED");
      EXPECT_EQ(tenant.Join(), "REFUSED");
    });
    EXPECT_EQ(stranger.Wait(), 0) << name;
  }
  EXPECT_EQ(RefusedForNoRule(), refused + 6);
  // Bob who says that he is alice is bob.
  Child bob([](Child& self) {
    Tenant tenant(kBob, "alice");
    ASSERT_EQ(tenant.Join(), "OK");
    const std::uint64_t pool = tenant.CreatePool(TMEM_POOL_EPHEMERAL);
    EXPECT_EQ(tenant.GetMany(pool, 7, 8, 1000), 0u);
    self.Say();
    self.Await();
  });
  ASSERT_TRUE(bob.AwaitSaid());
  EXPECT_TRUE(IsConnected("bob"));
  EXPECT_EQ(daemon_->StatusOfGuest("bob").at("ephemeral_pages"), 0);
  // Another VM of Alice's has no place, and does not take hers.
  Child second([](Child&) {
    Tenant tenant(kAlice);
    EXPECT_EQ(tenant.Join(), "REFUSED");
  });
  EXPECT_EQ(second.Wait(), 0);
  bob.GoOn();
  EXPECT_EQ(bob.Wait(), 0);
  alice->GoOn();
  EXPECT_EQ(alice->Wait(), 0);
}

// A group in the unified hierarchy, empty and removed at the end.
class Cgroup {
 public:
  explicit Cgroup(const std::string& name) : path_("/sys/fs/cgroup/" + name) {
    std::filesystem::create_directory(path_);
  }
  ~Cgroup() { (void)::rmdir(path_.c_str()); }
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  bool Enter() const { return WriteText(path_ + "/cgroup.procs", std::to_string(::getpid())); }

 private:
  std::string path_;
};

TEST_F(Tenants, AControlGroupSaysWhichGuestItIs) {
  const Cgroup blue("tmem-test-blue");
  const Cgroup below("tmem-test-blue/vm1");
  const Cgroup alike("tmem-test-blue2");
  StartDaemon({"blue,cgroup=/tmem-test-blue", "both,uid=2001,cgroup=/tmem-test-blue2"});
  const auto join = [](uid_t uid, const Cgroup* group) {
    Child vmm([=](Child&) {
      if (group != nullptr) {
        ASSERT_TRUE(group->Enter());
      }
      Tenant tenant(uid);
      const std::string answer = tenant.Join();
      // Told by the exit code: 0 is OK.
      ::_exit(answer == "OK" ? 0 : answer == "REFUSED" ? 10 : 11);
    });
    return vmm.Wait();
  };
  EXPECT_EQ(join(kBob, &blue), 0);
  EXPECT_EQ(join(kAlice, &below), 0);
  EXPECT_EQ(join(kBob, &alike), 10) << "the group's name only begins the same, the user is another";
  EXPECT_EQ(join(kAlice, &alike), 0);
  EXPECT_EQ(join(kAlice, nullptr), 10) << "not in any of these groups";
}

TEST_F(Tenants, ADaemonThatIsReplacedLosesPagesButGivesNoWrongOnes) {
  constexpr std::uint64_t kPages = 20;
  StartDaemon({"alice,uid=2001"});
  Child alice([=](Child& self) {
    Tenant tenant(kAlice);
    ASSERT_EQ(tenant.Join(), "OK");
    const std::uint64_t pool = tenant.CreatePool(TMEM_POOL_EPHEMERAL);
    tenant.PutMany(pool, 1, kPages, 10'000);
    self.Say();
    self.Await();
    // The guest registers anew; its old handle is nobody's.
    std::string answer = "GONE";
    for (int i = 0; answer == "GONE" && i < 10'000; ++i) {
      answer = tenant.Join();
      ::usleep(1000);
    }
    ASSERT_EQ(answer, "OK");
    EXPECT_EQ(tenant.GetMany(pool, 1, kPages, 10'000), 0u);
    const std::uint64_t anew = tenant.CreatePool(TMEM_POOL_EPHEMERAL);
    ASSERT_NE(anew, 0u);
    EXPECT_EQ(tenant.GetMany(anew, 1, kPages, 10'000), 0u);
    tenant.PutMany(anew, 1, kPages, 90'000);
    EXPECT_EQ(tenant.GetMany(anew, 1, kPages, 90'000), kPages);
  });
  ASSERT_TRUE(alice.AwaitSaid());
  EXPECT_EQ(daemon_->Stop(SIGKILL), 128 + SIGKILL);
  StartDaemon({"alice,uid=2001"});
  alice.GoOn();
  EXPECT_EQ(alice.Wait(), 0);
}

}  // namespace
}  // namespace tmem
