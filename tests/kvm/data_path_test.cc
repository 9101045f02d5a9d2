// SPDX-License-Identifier: GPL-2.0-only
// What a hand-over moves, how long it waits, and what it never does, whoever is hostile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "abi/tmem_abi.h"
#include "compress/sample_pages.h"
#include "host-store/window/geometry.h"
#include "host-store/window/shared_memory_access.h"
#include "tests/kvm/child.h"
#include "tests/kvm/daemon_double.h"
#include "tests/kvm/kvm_fixture.h"
#include "tests/kvm/module.h"
#include "tests/kvm/serving_daemon.h"
#include "tests/kvm/vm.h"
#include "tests/kvm/window_guest.h"

namespace tmem {
namespace {

constexpr std::size_t kMaxPagesWrittenAnEntry = 60;

class DataPath : public KvmGuestTest {
 protected:
  // Puts `count` descriptors of `desc` into a lane of the guest's window and publishes them.
  static void Post(const WindowGuest& guest, std::uint32_t lane, const tmem_desc& desc,
                   std::uint64_t count = 1) {
    const LaneView& view = guest.view().lane(lane);
    const std::uint64_t posted = LoadRelaxed(view.head().posted);
    for (std::uint64_t i = 0; i < count; ++i) view.Entry(posted + i) = desc;
    StoreRelease(view.head().posted, tmem_u64{posted + count});
  }

  static std::uint64_t DoneOf(const WindowGuest& guest, std::uint32_t lane) {
    return LoadAcquire(guest.view().lane(lane).head().done);
  }
};

TEST_F(DataPath, ARegistrationWaitsForTheDaemonAndSaysWhoItIs) {
  WindowGuest guest(*vm_, *vcpu_);
  guest.PrepareRegistration();
  guest.view().lane(1).head().done = 77;  // from a life before
  EXPECT_FALSE(daemon_->IsReadable());
  EXPECT_STREQ(ToString(guest.Register()), "PENDING");
  EXPECT_STREQ(ToString(guest.Register()), "PENDING");
  EXPECT_TRUE(daemon_->IsReadable());
  const auto waiting = daemon_->Next();
  ASSERT_TRUE(waiting);
  EXPECT_FALSE(daemon_->Next()) << "the same registration again is not another one";
  EXPECT_EQ(waiting->uid, ::geteuid());
  EXPECT_EQ(waiting->tgid, ::getpid());
  EXPECT_EQ(waiting->window_bytes, guest.view().geometry().window_bytes);
  EXPECT_EQ(waiting->cgroup[0], '/');
  EXPECT_EQ(std::string(waiting->label, ::strnlen(waiting->label, sizeof waiting->label)),
            "kvm_test");
  const auto channel = daemon_->Accept(*waiting);
  ASSERT_TRUE(channel);
  EXPECT_EQ(
      std::memcmp(&channel->view().geometry(), &guest.view().geometry(), sizeof(tmem_geometry)), 0);
  EXPECT_EQ(std::memcmp(&channel->view().guest_page(), &guest.view().guest_page(),
                        sizeof(tmem_guest_page)),
            0);
  EXPECT_STREQ(ToString(guest.Register()), "PENDING");
  channel->view().host_page().awake = 1;
  channel->AnswerRegistration();
  EXPECT_STREQ(ToString(guest.RegisterAndWait()), "OK");
  const tmem_host_page& host = guest.view().host_page();
  EXPECT_EQ(host.register_answer, guest.view().guest_page().register_request);
  EXPECT_EQ(host.register_status, std::uint32_t{TMEM_STATUS_OK});
  EXPECT_EQ(host.max_pools, channel->view().host_page().max_pools);
  EXPECT_EQ(host.awake, 0u) << "a guest must always ring";
  EXPECT_EQ(DoneOf(guest, 1), 0u);
}

TEST_F(DataPath, RandomPagesComeBackAsTheyWerePut) {
  const std::uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  WindowGuest guest(*vm_, *vcpu_);
  ServingDaemon serving(*daemon_);
  TestGuest& speaker = guest.speaker();
  ASSERT_EQ(speaker.Register(), TMEM_STATUS_OK);
  const std::uint64_t pool = speaker.CreatePool(TMEM_POOL_EPHEMERAL);
  ASSERT_NE(pool, 0u);
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> model;  // key to seed of page
  const Counters before = ReadCounters();
  std::uint64_t puts = 0;
  std::uint64_t hits = 0;
  for (int step = 0; step < 1500; ++step) {
    const TestKey key = {pool, 1 + random() % 3, random() % 80};
    const auto at = std::make_pair(key.object, key.index);
    const std::uint64_t choice = random() % 8;
    if (choice < 4) {
      const std::uint64_t page_seed = random();
      ASSERT_EQ(speaker.Put(key, MakeTestPage(page_seed, TestPageKind::kRandom)), TMEM_STATUS_OK);
      model[at] = page_seed;
      ++puts;
    } else if (choice < 7) {
      TestPage page;
      const tmem_status status = speaker.Get(key, page);
      const auto found = model.find(at);
      ASSERT_EQ(status, found == model.end() ? TMEM_STATUS_MISS : TMEM_STATUS_OK);
      if (found == model.end()) continue;
      ASSERT_EQ(page, MakeTestPage(found->second, TestPageKind::kRandom)) << "in step " << step;
      model.erase(found);
      ++hits;
    } else {
      ASSERT_EQ(speaker.Flush(key, 8), TMEM_STATUS_OK);
      for (std::uint64_t i = 0; i < 8; ++i) model.erase({key.object, key.index + i});
    }
  }
  const Counters moved = Moved(before, ReadCounters());
  EXPECT_EQ(moved.at("pages_in"), puts);
  EXPECT_EQ(moved.at("pages_out"), hits);
  EXPECT_EQ(moved.at("descs_in"), moved.at("descs_out"));
  EXPECT_EQ(guest.last_answer(), TMEM_HC_OK);
}

TEST_F(DataPath, ACallIsPendingAfterAboutAMillisecond) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  Post(guest, 0, {}, 3);
  const Counters before = ReadCounters();
  std::vector<double> waits_ms;
  for (int i = 0; i < 31; ++i) {
    (void)vcpu_->TakeLongestRun();
    ASSERT_STREQ(ToString(guest.CallOnce(1)), "PENDING");
    waits_ms.push_back(std::chrono::duration<double, std::milli>(vcpu_->TakeLongestRun()).count());
  }
  EXPECT_EQ(Moved(before, ReadCounters()).at("pendings"), 31u);
  std::sort(waits_ms.begin(), waits_ms.end());
  std::printf("a call that is not answered took %.2f ms (median), %.2f to %.2f\n", waits_ms[15],
              waits_ms.front(), waits_ms.back());
  EXPECT_GE(waits_ms[15], 0.5);
  EXPECT_LE(waits_ms[15], 5.0);  // exits and wake-ups are slow in the lab
  EXPECT_EQ(DoneOf(guest, 0), 0u);

  EXPECT_EQ(channel->Serve(), 3u);
  EXPECT_STREQ(ToString(guest.CallOnce(1)), "OK");
  EXPECT_EQ(DoneOf(guest, 0), 3u);
}

TEST_F(DataPath, AKickRingsOnlyADaemonThatSleeps) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  (void)channel->WasKicked();
  Post(guest, 0, {});
  EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
  EXPECT_TRUE(channel->WasKicked());
  channel->view().host_page().awake = 1;
  Post(guest, 0, {});
  Post(guest, 1, {});
  EXPECT_STREQ(ToString(guest.Kick(3)), "OK");
  EXPECT_FALSE(channel->WasKicked());
  EXPECT_EQ(channel->Waiting(0), 2u);
  EXPECT_EQ(channel->Waiting(1), 1u);
}

// Its guest would call until its own deadline, and each call finds nothing new to ring for.
TEST_F(DataPath, ADaemonThatSleepsWithAwakeSetIsRungAgain) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  tmem_host_page& host = channel->view().host_page();
  StoreRelaxed(host.awake, tmem_u32{1});
  (void)channel->WasKicked();
  Post(guest, 0, {});
  EXPECT_STREQ(ToString(guest.CallOnce(1)), "PENDING");
  EXPECT_FALSE(channel->WasKicked());
  for (tmem_u64 heartbeat = 1; heartbeat <= 20; ++heartbeat) {
    StoreRelaxed(host.heartbeat, heartbeat);
    EXPECT_STREQ(ToString(guest.CallOnce(1)), "PENDING");
    EXPECT_FALSE(channel->WasKicked()) << "it is there, only slow";
  }
  EXPECT_TRUE(
      Eventually([&] { return guest.CallOnce(1) == TMEM_HC_PENDING && channel->WasKicked(); }));
  EXPECT_TRUE(Eventually([&] { return guest.Kick(1) == TMEM_HC_OK && channel->WasKicked(); }));
  EXPECT_EQ(channel->Serve(), 1u);
  EXPECT_STREQ(ToString(guest.CallOnce(1)), "OK");
  (void)channel->WasKicked();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
  EXPECT_FALSE(channel->WasKicked()) << "it owes nothing";
}

TEST_F(DataPath, OnlyTheLanesThatWereNamedAreHandedOver) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  for (std::uint32_t lane = 0; lane < 3; ++lane) Post(guest, lane, {}, lane + 1);
  EXPECT_STREQ(ToString(guest.Kick(0b101)), "OK");
  EXPECT_EQ(channel->Waiting(0), 1u);
  EXPECT_EQ(channel->Waiting(1), 0u);
  EXPECT_EQ(channel->Waiting(2), 3u);
}

TEST_F(DataPath, NoticesComeWithAKickOfNoLane) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  tmem_host_page& host = channel->view().host_page();
  StoreRelaxed(host.credits_granted, tmem_u64{512});
  StoreRelaxed(host.shrink_target_pages, tmem_u64{99});
  StoreRelaxed(host.awake, tmem_u32{1});
  EXPECT_EQ(guest.view().host_page().credits_granted, 0u);
  EXPECT_STREQ(ToString(guest.Kick(0)), "OK");
  EXPECT_EQ(guest.view().host_page().credits_granted, 512u);
  EXPECT_EQ(guest.view().host_page().shrink_target_pages, 99u);
  EXPECT_EQ(guest.view().host_page().awake, 0u);
}

// The dirty ring of KVM has room for 64 pages an entry.
TEST_F(DataPath, AnEntryWritesABoundedNumberOfGuestPages) {
  const WindowOptions usual;
  WindowGuest guest(*vm_, *vcpu_, *MakeGeometry(usual));
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  constexpr std::uint64_t kGets = 100;
  const LaneView& lane = guest.view().lane(0);
  const LaneView& host_lane = channel->view().lane(0);
  for (std::uint32_t i = 0; i < kGets; ++i) {
    tmem_desc desc{};
    desc.op = TMEM_OP_GET;
    desc.value = i;
    Post(guest, 0, desc);
  }
  // What does not fit into a millisecond comes with the next entry.
  for (int i = 0; channel->Waiting(0) < kGets && i < 100; ++i) (void)guest.Kick(1);
  ASSERT_EQ(channel->Waiting(0), kGets);
  for (std::uint32_t i = 0; i < kGets; ++i) {
    const TestPage page = MakeTestPage(i, TestPageKind::kRandom);
    std::memcpy(host_lane.Slot(i).data(), page.data(), kPageBytes);
    (void)channel->TakeAndAnswer(0, TMEM_STATUS_OK, i);
  }
  std::vector<std::byte> before(vm_->ram(), vm_->ram() + kRamBytes);
  std::uint64_t done = 0;
  for (int entries = 0; done < kGets && entries < 10; ++entries) {
    // A kick leaves what is over; a call says that something is.
    const tmem_hypercall_answer answer = entries == 0 ? guest.Kick(1) : guest.CallOnce(1);
    std::size_t written = 0;
    for (std::uint64_t at = 0; at < kRamBytes; at += kPageBytes) {
      written += std::memcmp(before.data() + at, vm_->ram() + at, kPageBytes) != 0;
    }
    EXPECT_LE(written, kMaxPagesWrittenAnEntry);
    EXPECT_GT(written, 10u);
    before.assign(vm_->ram(), vm_->ram() + kRamBytes);
    done = DoneOf(guest, 0);
    if (entries > 0) {
      EXPECT_STREQ(ToString(answer), done < kGets ? "PENDING" : "OK");
    }
  }
  ASSERT_EQ(done, kGets);
  for (std::uint32_t i = 0; i < kGets; ++i) {
    EXPECT_EQ(lane.Entry(i).status, TMEM_STATUS_OK);
    const TestPage page = MakeTestPage(i, TestPageKind::kRandom);
    EXPECT_EQ(std::memcmp(lane.Slot(i).data(), page.data(), kPageBytes), 0) << "slot " << i;
  }
}

// A slot that the guest made up reaches the daemon as it is, and nothing is read from there.
TEST_F(DataPath, ASlotThatDoesNotExistIsTheDaemonsToRefuse) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  tmem_desc desc{};
  desc.op = TMEM_OP_PUT;
  const Counters before = ReadCounters();
  for (const std::uint64_t slot :
       {std::uint64_t{24}, std::uint64_t{1} << 20, std::uint64_t{1} << 52, ~std::uint64_t{0}}) {
    desc.value = slot;
    Post(guest, 0, desc);
    desc.op = desc.op == TMEM_OP_PUT ? TMEM_OP_GET : TMEM_OP_PUT;
  }
  EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
  EXPECT_EQ(channel->view().lane(0).Entry(3).value, ~std::uint64_t{0});
  // A daemon that takes them for hits does not make the module write beside the window.
  const std::vector<std::byte> ram(vm_->ram(), vm_->ram() + kWindowAddress);
  for (std::uint64_t i = 0; i < 4; ++i) {
    (void)channel->TakeAndAnswer(0, TMEM_STATUS_OK, channel->view().lane(0).Entry(i).value);
  }
  (void)guest.CallAndWait(1);
  EXPECT_EQ(std::memcmp(ram.data(), vm_->ram(), kWindowAddress), 0);
  const Counters moved = Moved(before, ReadCounters());
  EXPECT_EQ(moved.count("pages_in") + moved.count("pages_out"), 0u);
}

// The daemon works on the channel's copy of a payload, without one of its own.
TEST_F(DataPath, ASlotInFlightIsNotTakenAgain) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  const auto payload = guest.view().lane(0).Slot(3);
  const auto copy = channel->view().lane(0).Slot(3);
  tmem_desc put{};
  put.op = TMEM_OP_PUT;
  put.value = 3;
  tmem_desc get = put;
  get.op = TMEM_OP_GET;
  std::memset(payload.data(), 1, kPageBytes);
  Post(guest, 0, put);
  EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
  std::memset(payload.data(), 2, kPageBytes);
  Post(guest, 0, put);
  Post(guest, 0, get);
  EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
  EXPECT_EQ(copy[0], std::byte{1}) << "a second put went over the first one's page";
  EXPECT_EQ(channel->view().lane(0).Entry(1).value, ~std::uint64_t{0});
  EXPECT_EQ(channel->view().lane(0).Entry(2).value, ~std::uint64_t{0});

  (void)channel->TakeAndAnswer(0, TMEM_STATUS_OK);
  (void)channel->TakeAndAnswer(0, TMEM_STATUS_BAD_SLOT);
  (void)channel->TakeAndAnswer(0, TMEM_STATUS_OK);  // a hit, of no slot
  EXPECT_STREQ(ToString(guest.CallAndWait(1)), "OK");
  EXPECT_EQ(payload[0], std::byte{2});
  Post(guest, 0, put);
  EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
  EXPECT_EQ(channel->view().lane(0).Entry(3).value, 3u) << "it is free when its put is done";
  EXPECT_EQ(copy[0], std::byte{2});
}

TEST_F(DataPath, CountersThatWentBackEndTheChannel) {
  struct Roll {
    const char* name;
    void (*roll)(tmem_lane_head&);
  };
  const Roll rolls[] = {
      {"posted went back", [](tmem_lane_head& head) { head.posted = 3; }},
      {"posted ahead of the ring", [](tmem_lane_head& head) { head.posted = 4 + 65; }},
      {"posted at its end", [](tmem_lane_head& head) { head.posted = ~0ull; }},
      {"done went back", [](tmem_lane_head& head) { head.done = 3; }},
      {"done ahead", [](tmem_lane_head& head) { head.done = 5; }},
  };
  WindowGuest guest(*vm_, *vcpu_);
  for (const Roll& roll : rolls) {
    SCOPED_TRACE(roll.name);
    const auto channel = Connect(guest);
    ASSERT_TRUE(channel);
    Post(guest, 0, {}, 4);
    EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
    EXPECT_EQ(channel->Serve(), 4u);
    EXPECT_STREQ(ToString(guest.CallAndWait(1)), "OK");
    const Counters before = ReadCounters();
    roll.roll(guest.view().lane(0).head());
    EXPECT_STREQ(ToString(guest.Kick(1)), "GONE");
    EXPECT_TRUE(channel->HasHungUp());
    EXPECT_EQ(channel->Waiting(0), 0u) << "something was handed over all the same";
    EXPECT_EQ(Moved(before, ReadCounters()).at("torn_down"), 1u);
    EXPECT_STREQ(ToString(guest.Kick(1)), "GONE") << "until it registers anew";
  }
}

TEST_F(DataPath, ADaemonThatCompletesWhatWasNotPostedEndsTheChannel) {
  WindowGuest guest(*vm_, *vcpu_);
  for (const std::uint64_t done : {2u, 66u, 1000u}) {
    const auto channel = Connect(guest);
    ASSERT_TRUE(channel);
    Post(guest, 0, {});
    EXPECT_STREQ(ToString(guest.Kick(1)), "OK");
    StoreRelease(channel->view().lane(0).head().done, tmem_u64{done});
    EXPECT_STREQ(ToString(guest.CallOnce(1)), "GONE");
    EXPECT_LE(DoneOf(guest, 0), 1u);
  }
}

TEST_F(DataPath, AWindowThatChangesDuringTheCallHarmsNobody) {
  const std::uint64_t seed = TestSeed();
  constexpr int kCalls = 400;
  WindowGuest guest(*vm_, *vcpu_);
  ServingDaemon serving(*daemon_);
  const std::vector<std::byte> below(vm_->ram() + kFirstFree, vm_->ram() + kWindowAddress);
  std::atomic<bool> stop = false;
  std::thread hostile([&] {
    std::mt19937_64 random(seed);
    while (!stop) {
      for (int i = 0; i < 64; ++i) {
        const auto lane = static_cast<std::uint32_t>(random() % guest.view().lane_count());
        const LaneView& view = guest.view().lane(lane);
        tmem_desc& entry = view.Entry(random());
        const std::uint64_t choice = random() % 16;
        if (choice < 6) StoreRelaxed(entry.value, tmem_u64{random() >> random() % 64});
        if (choice == 6) StoreRelaxed(entry.op, static_cast<tmem_u8>(random() % 6));
        if (choice == 7) StoreRelaxed(entry.flags, static_cast<tmem_u8>(random()));
        if (choice == 8 && i == 0) StoreRelaxed(view.head().posted, tmem_u64{random() % 100});
        if (choice == 9 && i == 0) StoreRelaxed(view.head().done, tmem_u64{random() % 100});
        if (choice == 10) StoreRelaxed(guest.geometry_in_window().ring_entries, tmem_u32(random()));
        if (choice == 11) StoreRelaxed(guest.geometry_in_window().key_lanes, tmem_u32(random()));
        if (choice > 11) std::memset(view.Slot(0).data(), static_cast<int>(random()), kPageBytes);
      }
      std::this_thread::yield();
    }
  });
  std::map<std::string, int> answers;
  bool registers = true;
  for (int i = 0; i < kCalls; ++i) {
    // One that has lost its channel registers anew at once, or there would be nothing to harm.
    if (registers) {
      guest.view().PublishGeometry();
      guest.PrepareRegistration();
      ++answers[ToString(guest.Register())];
    }
    for (std::uint32_t lane = 0; lane < 3; ++lane) Post(guest, lane, {}, 1 + lane);
    const tmem_hypercall_answer answer = i % 2 == 0 ? guest.Kick(7) : guest.CallOnce(7);
    registers = answer == TMEM_HC_GONE || answer == TMEM_HC_NOT_REGISTERED;
    ++answers[ToString(answer)];
  }
  stop = true;
  hostile.join();
  for (const auto& [answer, count] : answers) std::printf("%d times %s\n", count, answer.c_str());
  EXPECT_GT(answers["OK"], kCalls / 20);
  // Nothing outside of the window was written.
  EXPECT_EQ(std::memcmp(below.data(), vm_->ram() + kFirstFree, below.size()), 0);
  // And it goes on once the guest behaves.
  guest.view().PublishGeometry();
  guest.PrepareRegistration();
  EXPECT_STREQ(ToString(guest.RegisterAndWait()), "OK");
  Post(guest, 0, {});
  EXPECT_STREQ(ToString(guest.CallAndWait(1)), "OK");
}

TEST_F(DataPath, TheDaemonSeesTheMemorySlots) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  const auto slots = channel->Slots();
  ASSERT_TRUE(slots);
  ASSERT_EQ(slots->size(), 1u);
  EXPECT_EQ(slots->front().guest_address, 0u);
  EXPECT_EQ(slots->front().bytes, kRamBytes);
  vm_->AddSlot(3, 128u << 20, 2u << 20, nullptr, KVM_MEM_READONLY);
  const auto more = channel->Slots();
  ASSERT_TRUE(more);
  ASSERT_EQ(more->size(), 2u);
  const auto added = std::max_element(more->begin(), more->end(), [](const auto& a, const auto& b) {
    return a.guest_address < b.guest_address;
  });
  EXPECT_EQ(added->guest_address, 128u << 20);
  EXPECT_EQ(added->bytes, 2u << 20);
  EXPECT_EQ(added->flags, std::uint32_t{KVM_MEM_READONLY});
  EXPECT_STREQ(ToString(guest.Do(TMEM_HC_UNREGISTER)), "OK");
  EXPECT_FALSE(channel->Slots()) << "a channel that has ended shows no guest";
}

TEST_F(DataPath, TheDaemonsMistakesAreErrors) {
  WindowGuest guest(*vm_, *vcpu_);
  guest.PrepareRegistration();
  ASSERT_STREQ(ToString(guest.Register()), "PENDING");
  const auto waiting = daemon_->Next();
  ASSERT_TRUE(waiting);
  const auto accept = [&](std::uint64_t channel, int kick_fd, std::uint32_t zero) {
    kvm_tmem_accept argument{};
    argument.channel = channel;
    argument.kick_fd = kick_fd;
    argument.zero = zero;
    return ::ioctl(daemon_->fd(), KVM_TMEM_ACCEPT, &argument) < 0 ? errno : 0;
  };
  const UniqueFd eventfd(::eventfd(0, EFD_CLOEXEC));
  EXPECT_EQ(accept(waiting->channel, -1, 0), EBADF);
  EXPECT_EQ(accept(waiting->channel, daemon_->fd(), 0), EINVAL);
  EXPECT_EQ(accept(waiting->channel, eventfd.get(), 1), EINVAL);
  EXPECT_EQ(accept(waiting->channel + 1, eventfd.get(), 0), ENOENT);
  EXPECT_EQ(::ioctl(daemon_->fd(), _IO(KVM_TMEM_IOC, 99)), -1);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(::ioctl(daemon_->fd(), KVM_TMEM_ACCEPT, 8), -1);
  EXPECT_EQ(errno, EFAULT);
  // None of it was taken for the answer.
  const auto channel = daemon_->Accept(*waiting);
  ASSERT_TRUE(channel);
  EXPECT_EQ(accept(waiting->channel, eventfd.get(), 0), ENOENT) << "accepted twice";
  EXPECT_EQ(daemon_->Refuse(waiting->channel), ENOENT) << "refused once accepted";
  const auto map = [&](std::size_t bytes, int flags, off_t offset) {
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, channel->fd(), offset);
    if (memory == MAP_FAILED) return errno;
    ::munmap(memory, bytes);
    return 0;
  };
  const std::size_t window = waiting->window_bytes;
  EXPECT_EQ(map(window, MAP_PRIVATE, 0), EINVAL);
  EXPECT_NE(map(window + kPageBytes, MAP_SHARED, 0), 0);
  EXPECT_NE(map(kPageBytes, MAP_SHARED, static_cast<off_t>(window)), 0);
  EXPECT_NE(map(window, MAP_SHARED, kPageBytes), 0);
  EXPECT_EQ(map(window, MAP_SHARED, 0), 0);
}

TEST_F(DataPath, OnlyRootIsTheDaemon) {
  Child other([](Child&) {
    EXPECT_EQ(::setresuid(65534, 65534, 65534), 0);
    EXPECT_EQ(::open(KVM_TMEM_DEVICE_PATH, O_RDWR | O_CLOEXEC), -1);
    EXPECT_EQ(errno, EACCES);
  });
  EXPECT_EQ(other.Wait(), 0);
}

TEST_F(DataPath, OneDaemonAtATime) {
  EXPECT_THROW(DaemonDouble(), std::system_error);
  daemon_.reset();
  EXPECT_NO_THROW(DaemonDouble());
}

TEST_F(DataPath, TheLimitIsWhatTheParameterSays) {
  daemon_.reset();
  Reload("pool_limit_mb=64 max_guests=3 max_window_kb=8192 hypercall=0x746d6570");
  daemon_ = std::make_unique<DaemonDouble>();
  const kvm_tmem_info info = daemon_->Info();
  EXPECT_EQ(info.version, KVM_TMEM_DEVICE_VERSION);
  EXPECT_EQ(info.pool_limit_bytes, 64u << 20);
  EXPECT_EQ(info.max_guests, 3u);
  EXPECT_EQ(info.max_window_bytes, 8u << 20);
  EXPECT_EQ(info.hypercall, 0x746d6570u);
  EXPECT_EQ(vcpu_->Make({0x746d6570, TMEM_HC_NEGOTIATE, 0, 0, 0}).rax(),
            TMEM_HC_MAGIC | TMEM_ABI_VERSION);
  EXPECT_EQ(vcpu_->Make({TMEM_HYPERCALL_DEFAULT, TMEM_HC_NEGOTIATE, 0, 0, 0}).rax(),
            static_cast<std::uint64_t>(-1000));
  ASSERT_TRUE(WriteText("/sys/module/kvm_tmem/parameters/pool_limit_mb", "32"));
  EXPECT_EQ(daemon_->Info().pool_limit_bytes, 32u << 20);
  daemon_.reset();
  Reload("");
}

}  // namespace
}  // namespace tmem
