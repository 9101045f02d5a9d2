// SPDX-License-Identifier: GPL-2.0-only
// Guests by rule, over a double of the device; the device itself is tested in the lab.
#include "host-store/daemon/hypercall_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "host-store/daemon/ivshmem_listener.h"
#include "host-store/daemon/test_kvm_tmem.h"
#include "host-store/doorbell/test_directory.h"
#include "host-store/doorbell/test_ivshmem_client.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

// The loop runs in the test's thread, a worker in its own.
class HypercallListenerTest : public testing::Test {
 protected:
  HypercallListenerTest()
      : loop_(EventLoop::Create().value()),
        store_(Store::Create({.limit_bytes = 64 * kMiB,
                              .pool_min_bytes = 24 * kMiB,
                              .landing_bytes = 0,
                              .overhead_bytes = 0,
                              .seed = 1,
                              .max_guests = 8})
                   .value()),
        worker_(Worker::Start(*store_, clock_, {.poll_ns = 0, .stream_poll_ns = 0}).value()) {}
  ~HypercallListenerTest() override { listener_.reset(); }

  GuestPort& AddPort(const std::string& text) {
    const GuestConfig config = ParseGuest(text).value();
    ports_.push_back(std::make_unique<GuestPort>(
        *loop_, *store_, clock_,
        GuestPortOptions{.guest = config.guest, .window_bytes = 4 * kMiB, .channel = {}},
        [this]() -> Worker& { return *worker_; }));
    places_.push_back({config.rule, ports_.back().get()});
    return *ports_.back();
  }
  void Listen() {
    listener_ = HypercallListener::Create(
                    *loop_, clock_,
                    {.places = places_,
                     .max_window_bytes = 4 * kMiB,
                     .open = [this] { return module_.Open(); },
                     .on_pool_limit = [this](std::uint64_t bytes) { limits_.push_back(bytes); }},
                    nullptr)
                    .value();
  }
  // What is ready is handled, and chores get some turns.
  void Spin(int turns = 20) {
    loop_->Begin([this, left = turns]() mutable {
      if (--left <= 0) loop_->Stop();
      return left > 0;
    });
    loop_->Run();
  }
  bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 20'000; ++i) {
      if (condition()) return true;
      Spin();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  kvm_tmem_guest Come(std::uint64_t vm, std::uint32_t uid, const std::string& cgroup,
                      std::uint64_t window_bytes = 4 * kMiB) {
    const kvm_tmem_guest guest = module_.Register(vm, uid, cgroup, window_bytes);
    Spin();
    return guest;
  }
  static bool Gone(const GuestPort& port) {
    return !port.connected() && !port.Status()["leaving"].get<bool>();
  }
  std::uint64_t Refused(const char* reason) const {
    return listener_->Status().at("refused").at(reason).get<std::uint64_t>();
  }

  SteadyClock clock_;
  TestKvmTmem module_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Worker> worker_;
  std::vector<std::unique_ptr<GuestPort>> ports_;
  std::vector<HypercallListener::Place> places_;
  std::vector<std::uint64_t> limits_;
  std::unique_ptr<HypercallListener> listener_;
};

TEST_F(HypercallListenerTest, ServesAGuestThatARuleMatches) {
  GuestPort& port = AddPort("web,uid=77,cgroup=/machine/web");
  Listen();
  const kvm_tmem_guest vm = Come(1, 77, "/machine/web/vcpu0");
  ASSERT_TRUE(port.connected());
  TestGuest guest = module_.Side(vm);
  ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = guest.CreatePool(TMEM_POOL_EPHEMERAL);
  const TestPage page = MakeTestPage(3, TestPageKind::kRandom);
  ASSERT_EQ(guest.Put({pool, 1, 2}, page), TMEM_STATUS_OK);
  TestPage got;
  ASSERT_EQ(guest.Get({pool, 1, 2}, got), TMEM_STATUS_OK);
  EXPECT_EQ(got, page);
  EXPECT_GT(module_.rings(vm), 0u) << "the answer to its registration";
  const nlohmann::json status = port.Status();
  EXPECT_EQ(status["doorbell"], "hypercall");
  EXPECT_EQ(status["uid"], 77);
  EXPECT_EQ(status["pid"], 1001);
  EXPECT_EQ(status["cgroup"], "/machine/web/vcpu0");
  EXPECT_EQ(status["label"], "vmm");
  EXPECT_EQ(status["window_bytes"], 4 * kMiB);
  EXPECT_EQ(listener_->Status()["state"], "open");
  EXPECT_EQ(listener_->Status()["connected"], 1);

  module_.HangUp(vm);
  EXPECT_TRUE(Eventually([&] { return Gone(port); }));
  EXPECT_EQ(store_->Status().pages, 0u);
  EXPECT_EQ(port.Status()["counters"]["puts_ok"], 1);
}

// What a VMM can choose, its name, is a label: only uid and cgroup say who it is.
TEST_F(HypercallListenerTest, WithoutARuleAGuestIsRefusedAndCounted) {
  GuestPort& port = AddPort("web,uid=77,cgroup=/machine/web");
  AddPort("socket-only");
  Listen();
  const kvm_tmem_guest others[] = {
      module_.Register(1, 78, "/machine/web"),
      module_.Register(2, 77, "/machine/webs"),
      module_.Register(3, 77, "/machine"),
      module_.Register(4, 77, ""),
  };
  kvm_tmem_guest pretender = others[0];
  pretender.channel = 100;
  std::memcpy(pretender.label, "web", 4);
  module_.Register(pretender);
  Spin();
  EXPECT_EQ(module_.refused().size(), 5u);
  EXPECT_EQ(Refused("no_rule"), 5u);
  EXPECT_EQ(listener_->refused(), 5u);
  EXPECT_FALSE(port.connected());
}

TEST_F(HypercallListenerTest, TwoGuestsOfOneRuleTakeThePortsThatAreFree) {
  GuestPort& a = AddPort("a,uid=77,domain=d");
  GuestPort& b = AddPort("b,uid=77,domain=d");
  Listen();
  const kvm_tmem_guest first = Come(1, 77, "/x");
  const kvm_tmem_guest second = Come(2, 77, "/x");
  EXPECT_TRUE(a.connected());
  EXPECT_TRUE(b.connected());
  const kvm_tmem_guest third = Come(3, 77, "/x");
  EXPECT_EQ(module_.refused(), std::vector<std::uint64_t>{third.channel});
  EXPECT_EQ(Refused("busy"), 1u);
  // The first VM ends and another one is there before its end was looked at.
  module_.HangUp(first);
  const kvm_tmem_guest fourth = Come(4, 77, "/x");
  EXPECT_TRUE(module_.serves(fourth));
  EXPECT_TRUE(module_.serves(second));
  EXPECT_EQ(a.Status()["pid"], 1004);
  EXPECT_EQ(listener_->refused(), 1u);
}

// A reboot: the module has ended the old channel, which is not seen yet, or not even ended.
TEST_F(HypercallListenerTest, AVmThatRegistersAnewKeepsItsPlaceAndEndsItsOldChannel) {
  GuestPort& a = AddPort("a,uid=77");
  GuestPort& b = AddPort("b,uid=77");
  Listen();
  const kvm_tmem_guest first = Come(1, 77, "/x");
  const kvm_tmem_guest other = Come(2, 77, "/x");
  ASSERT_TRUE(b.connected());
  for (int round = 0; round < 10; ++round) {
    TestGuest guest = module_.Side(other);
    ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
    const kvm_tmem_guest again = Come(1, 77, "/x");
    EXPECT_TRUE(module_.serves(again));
    EXPECT_EQ(a.Status()["connections"], round + 2);
    TestGuest rebooted = module_.Side(again);
    ASSERT_EQ(rebooted.Register(), TMEM_STATUS_OK);
  }
  EXPECT_FALSE(module_.serves(first));
  EXPECT_EQ(b.Status()["connections"], 1);
  EXPECT_EQ(listener_->refused(), 0u);
}

TEST_F(HypercallListenerTest, WindowsOfWeirdSizesAreRefused) {
  GuestPort& port = AddPort("a,uid=77");
  Listen();
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{4097}, 4 * kMiB + 4096,
                                    512 * kMiB, UINT64_MAX, std::uint64_t{1} << 63}) {
    (void)Come(bytes, 77, "/x", bytes);
    EXPECT_FALSE(port.connected()) << bytes;
  }
  EXPECT_EQ(Refused("window"), 6u);
  EXPECT_EQ(module_.refused().size(), 6u);
  EXPECT_TRUE(module_.serves(Come(1, 77, "/x", 1 * kMiB))) << "less than it may have";
  EXPECT_EQ(port.Status()["window_bytes"], 1 * kMiB);
}

TEST_F(HypercallListenerTest, AGeometryThatDoesNotFitTheChannelIsRefused) {
  GuestPort& port = AddPort("a,uid=77");
  Listen();
  const tmem_geometry usual = MakeGeometry(WindowOptions()).value();
  std::vector<tmem_geometry> wrong(6, usual);
  wrong[0].magic = 0;
  wrong[1].window_bytes = 8 * kMiB;
  wrong[2].lane_slots = 4096;
  wrong[3].key_lanes = 0;
  wrong[4].ring_entries = 1u << 31;
  wrong[5].version_min = 9;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    module_.geometry = wrong[i];
    const kvm_tmem_guest guest = Come(i, 77, "/x");
    EXPECT_FALSE(module_.serves(guest)) << i;
    EXPECT_FALSE(port.connected()) << i;
  }
  EXPECT_EQ(Refused("failed"), 6u);
  module_.geometry = usual;
  EXPECT_TRUE(module_.serves(Come(50, 77, "/x")));
}

// Names that somebody chose do not get at the log, the status or the rules.
TEST_F(HypercallListenerTest, TextThatDoesNotPrintOrEndIsHarmless) {
  GuestPort& port = AddPort("a,uid=77");
  GuestPort& fenced = AddPort("b,cgroup=/xxx");
  Listen();
  kvm_tmem_guest guest{};
  guest.channel = 1'000;
  guest.vm = 1;
  guest.uid = 77;
  guest.window_bytes = 4 * kMiB;
  std::memset(guest.cgroup, '\n', sizeof guest.cgroup);
  std::memset(guest.label, 0xff, sizeof guest.label);
  module_.Register(guest);
  Spin();
  ASSERT_TRUE(port.connected());
  EXPECT_EQ(port.Status()["label"], std::string(KVM_TMEM_LABEL_BYTES, '?'));
  EXPECT_EQ(port.Status()["cgroup"], "");
  EXPECT_FALSE(port.Status().dump().empty());
  // Cut off, so nobody knows whether it is below /xxx.
  std::memset(guest.cgroup, 'x', sizeof guest.cgroup);
  std::memcpy(guest.cgroup, "/xxx/", 5);
  guest.channel = 1'001;
  guest.vm = 2;
  module_.Register(guest);
  Spin();
  EXPECT_FALSE(fenced.connected());
}

// The VM ends while the worker is in its lanes.
TEST_F(HypercallListenerTest, AVmThatEndsWhileTheWorkerIsBusyLeavesNothing) {
  GuestPort& port = AddPort("a,uid=77");
  Listen();
  for (std::uint64_t round = 0; round < 20; ++round) {
    const kvm_tmem_guest vm = Come(round, 77, "/x");
    ASSERT_TRUE(port.connected());
    TestGuest guest = module_.Side(vm);
    ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
    const std::uint64_t pool = guest.CreatePool(TMEM_POOL_EPHEMERAL);
    for (std::uint64_t i = 0; i < 400; ++i) {
      (void)guest.StagePut({pool, 1, i * 32}, MakeTestPage(i, TestPageKind::kCompressible), 0);
    }
    for (std::uint32_t lane = 0; lane < 8; ++lane) guest.Publish(lane);
    module_.HangUp(vm);
    Spin();
    ASSERT_FALSE(port.connected());
  }
  EXPECT_TRUE(Eventually([&] { return Gone(port); }));
  EXPECT_EQ(store_->Status().pages, 0u);
  EXPECT_TRUE(store_->CheckInvariants().ok());
}

TEST_F(HypercallListenerTest, AGuestThatWaitsNoMoreIsNoHarm) {
  GuestPort& port = AddPort("a,uid=77");
  Listen();
  module_.stale = true;
  (void)Come(1, 77, "/x");
  EXPECT_FALSE(port.connected());
  EXPECT_EQ(Refused("failed"), 1u);
  module_.stale = false;
  EXPECT_TRUE(module_.serves(Come(1, 77, "/x")));
}

TEST_F(HypercallListenerTest, TheDeviceMayComeLaterAndGo) {
  GuestPort& port = AddPort("a,uid=77");
  module_.absent = "no device";
  Listen();
  EXPECT_THAT(listener_->Status()["state"].get<std::string>(), testing::HasSubstr("no device"));
  listener_->Tick();
  module_.absent.clear();
  listener_->Tick();
  EXPECT_EQ(listener_->Status()["state"], "open");
  const kvm_tmem_guest guest = Come(1, 77, "/x");
  EXPECT_TRUE(port.connected());
  module_.info_fails = true;
  listener_->Tick();
  EXPECT_FALSE(module_.is_open());
  EXPECT_FALSE(port.connected());
  EXPECT_FALSE(module_.serves(guest));
  EXPECT_EQ(listener_->pool_limit_bytes(), 0u);
  listener_->Tick();
  EXPECT_TRUE(module_.serves(Come(1, 77, "/x")));
}

TEST_F(HypercallListenerTest, ThePoolLimitIsAskedForAgainAndAgain) {
  AddPort("a,uid=77");
  module_.pool_limit_bytes = 40 * kMiB;
  Listen();
  listener_->Tick();
  module_.pool_limit_bytes = 30 * kMiB;
  listener_->Tick();
  EXPECT_EQ(limits_, (std::vector<std::uint64_t>{40 * kMiB, 40 * kMiB, 30 * kMiB}));
  EXPECT_EQ(listener_->Status()["pool_limit_bytes"], 30 * kMiB);
}

TEST_F(HypercallListenerTest, StoppingEndsTheChannelsAndTheDevice) {
  GuestPort& port = AddPort("a,uid=77");
  Listen();
  const kvm_tmem_guest guest = Come(1, 77, "/x");
  ASSERT_TRUE(module_.serves(guest));
  listener_.reset();
  EXPECT_FALSE(port.connected());
  EXPECT_FALSE(module_.serves(guest));
  EXPECT_FALSE(module_.is_open());
}

// ---- both doorbells ---------------------------------------------------------------------------

// A guest is one, whichever doorbell it comes by; and its socket too is only for its uid.
TEST_F(HypercallListenerTest, AGuestIsServedOverOneDoorbellAtATime) {
  const TestDirectory directory;
  const std::string mine = std::to_string(::getuid());
  GuestPort& port = AddPort("a,uid=" + mine);
  const auto socket = IvshmemListener::Create(*loop_, port,
                                              {.socket_path = directory.path() + "/a.sock",
                                               .window = WindowOptions(),
                                               .rule = places_[0].rule})
                          .value();
  Listen();
  const auto connect = [&] {
    std::optional<Result<TestIvshmemClient>> client;
    std::thread thread(
        [&] { client.emplace(TestIvshmemClient::Connect(directory.path() + "/a.sock")); });
    for (int i = 0; i < 200; ++i) {
      Spin(2);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    thread.join();
    return std::move(*client);
  };
  const kvm_tmem_guest vm = Come(1, ::getuid(), "/x");
  ASSERT_TRUE(module_.serves(vm));
  EXPECT_FALSE(connect().ok());
  EXPECT_TRUE(module_.serves(vm));
  module_.HangUp(vm);
  Spin();
  {
    const Result<TestIvshmemClient> client = connect();
    ASSERT_TRUE(client.ok());
    EXPECT_EQ(port.Status()["doorbell"], "ivshmem");
    EXPECT_EQ(port.Status()["uid"], ::getuid());
    EXPECT_FALSE(module_.serves(Come(2, ::getuid(), "/x")));
    EXPECT_EQ(Refused("busy"), 1u);
  }
  EXPECT_TRUE(Eventually([&] { return !port.connected(); }));
}

TEST_F(HypercallListenerTest, ASocketRefusesAnotherUidThanItsGuestsRuleNames) {
  const TestDirectory directory;
  GuestPort& port = AddPort("a,uid=" + std::to_string(::getuid() + 1));
  const auto socket = IvshmemListener::Create(*loop_, port,
                                              {.socket_path = directory.path() + "/a.sock",
                                               .window = WindowOptions(),
                                               .rule = places_[0].rule})
                          .value();
  bool connected = true;
  std::thread thread(
      [&] { connected = TestIvshmemClient::Connect(directory.path() + "/a.sock").ok(); });
  for (int i = 0; i < 200; ++i) {
    Spin(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  thread.join();
  EXPECT_FALSE(connected);
  EXPECT_FALSE(port.connected());
}

// ---- the end of a guest -----------------------------------------------------------------------

// The end of a guest with many pages keeps nobody waiting: it goes in pieces, and the guest may be
// back before the last of them, without its old pages.
TEST_F(HypercallListenerTest, TheEndOfABigGuestGoesInPieces) {
  GuestPort& port = AddPort("a,uid=77");
  Listen();
  kvm_tmem_guest vm = Come(1, 77, "/x");
  constexpr std::uint64_t kPages = 3'000;
  std::uint64_t pool = 0;
  {
    TestGuest guest = module_.Side(vm);
    ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
    pool = guest.CreatePool(TMEM_POOL_EPHEMERAL);
    for (std::uint64_t i = 0; i < kPages; ++i) {
      ASSERT_EQ(guest.PutFilled({pool, 1, i}, i), TMEM_STATUS_OK);
    }
  }
  module_.HangUp(vm);
  Spin(2);
  ASSERT_FALSE(port.connected());
  EXPECT_EQ(port.Status()["leaving"], true);
  EXPECT_GT(port.Status()["ephemeral_pages"], kPages / 2) << "a turn of the loop is short";
  vm = Come(2, 77, "/x");
  ASSERT_TRUE(port.connected());
  EXPECT_EQ(port.Status()["leaving"], false);
  TestGuest guest = module_.Side(vm);
  ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
  const std::uint64_t fresh = guest.CreatePool(TMEM_POOL_EPHEMERAL);
  TestPage page;
  EXPECT_EQ(guest.Get({pool, 1, 5}, page), TMEM_STATUS_STALE_POOL);
  EXPECT_EQ(guest.Get({fresh, 1, 5}, page), TMEM_STATUS_MISS);
  ASSERT_EQ(guest.PutFilled({fresh, 1, 5}, 9), TMEM_STATUS_OK);
  EXPECT_TRUE(Eventually([&] { return port.Status()["ephemeral_pages"] == 1; }));
  EXPECT_EQ(port.Status()["counters"]["puts_ok"], 1);
  module_.HangUp(vm);
  EXPECT_TRUE(Eventually([&] { return Gone(port); }));
  EXPECT_EQ(store_->Status().pages, 0u);
  EXPECT_TRUE(store_->Status().guests.empty());
}

// Who came back and never registered does not keep the pages of the one before.
TEST_F(HypercallListenerTest, PagesOfTheGuestBeforeGoAlsoIfTheNextOneDoesNothing) {
  GuestPort& port = AddPort("a,uid=77");
  Listen();
  const kvm_tmem_guest vm = Come(1, 77, "/x");
  TestGuest guest = module_.Side(vm);
  ASSERT_EQ(guest.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = guest.CreatePool(TMEM_POOL_EPHEMERAL);
  for (std::uint64_t i = 0; i < 3'000; ++i) {
    ASSERT_EQ(guest.PutFilled({pool, 1, i}, i), TMEM_STATUS_OK);
  }
  (void)module_.Register(1, 77, "/x");
  Spin(2);
  ASSERT_TRUE(port.connected());
  EXPECT_GT(store_->Status().pages, 1'000u);
  EXPECT_TRUE(Eventually([&] { return store_->Status().pages == 0; }));
  EXPECT_TRUE(port.connected());
}

}  // namespace
}  // namespace tmem
