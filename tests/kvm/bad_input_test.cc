// SPDX-License-Identifier: GPL-2.0-only
// Rubbish from a guest: each kind has an error answer and a counter of its own, and harms nobody.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "abi/tmem_abi.h"
#include "tests/kvm/daemon_double.h"
#include "tests/kvm/kvm_fixture.h"
#include "tests/kvm/module.h"
#include "tests/kvm/vm.h"
#include "tests/kvm/window_guest.h"

namespace tmem {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHole = 512u << 20;       // no slot there
constexpr std::uint64_t kRomAddress = 64u << 20;  // readable only

// What moved among the counters of refusals.
Counters Refusals(const Counters& before) {
  Counters moved = Moved(before, ReadCounters());
  std::erase_if(moved, [](const auto& one) { return !one.first.starts_with("refused_"); });
  return moved;
}

struct Rubbish {
  const char* name;
  tmem_hypercall_answer answer;
  const char* reason;
  std::function<tmem_hypercall_answer(WindowGuest&)> attempt;
};

// A registration whose geometry, guest page or list the test has spoilt.
Rubbish Spoilt(const char* name, tmem_hypercall_answer answer, const char* reason,
               std::function<void(WindowGuest&)> spoil) {
  return {name, answer, reason, [spoil = std::move(spoil)](WindowGuest& guest) {
            guest.PrepareRegistration();
            spoil(guest);
            return guest.Register();
          }};
}

Rubbish BadGeometry(const char* name, std::function<void(tmem_geometry&)> spoil) {
  return Spoilt(
      name, TMEM_HC_BAD_ARGUMENT, "bad_argument",
      [spoil = std::move(spoil)](WindowGuest& guest) { spoil(guest.geometry_in_window()); });
}

Rubbish BadCall(const char* name, tmem_hypercall_answer answer, const char* reason,
                tmem_hypercall operation, std::uint64_t rcx, std::uint64_t rdx) {
  return {name, answer, reason, [=](WindowGuest& guest) { return guest.Do(operation, rcx, rdx); }};
}

std::vector<Rubbish> BadArguments() {
  const auto number = [](std::uint64_t value) { return static_cast<tmem_hypercall>(value); };
  const auto bad = [](const char* name, tmem_hypercall operation, std::uint64_t rcx,
                      std::uint64_t rdx) {
    return BadCall(name, TMEM_HC_BAD_ARGUMENT, "bad_argument", operation, rcx, rdx);
  };
  return {
      bad("operation 5", number(5), 0, 0),
      bad("operation 2^32 - 1", number(0xffffffff), 0, 0),
      bad("negotiation with arguments", TMEM_HC_NEGOTIATE, 1, 0),
      bad("list not on a page", TMEM_HC_REGISTER, kPageListAddress + 8, 64),
      bad("no pages", TMEM_HC_REGISTER, kPageListAddress, 0),
      BadCall("more pages than a window may have", TMEM_HC_BAD_ARGUMENT, "window_too_large",
              TMEM_HC_REGISTER, kPageListAddress, (16u << 20) / kPage + 1),
      BadCall("2^64 - 1 pages", TMEM_HC_BAD_ARGUMENT, "window_too_large", TMEM_HC_REGISTER,
              kPageListAddress, ~0ull),
      // Times 8 or 4096 it is 0.
      BadCall("2^61 pages", TMEM_HC_BAD_ARGUMENT, "window_too_large", TMEM_HC_REGISTER,
              kPageListAddress, 1ull << 61),
      BadCall("2^52 pages", TMEM_HC_BAD_ARGUMENT, "window_too_large", TMEM_HC_REGISTER,
              kPageListAddress, 1ull << 52),
      BadCall("list in no memory", TMEM_HC_BAD_ADDRESS, "bad_address", TMEM_HC_REGISTER, kHole, 64),
      BadCall("list at the end of memory", TMEM_HC_BAD_ADDRESS, "bad_address", TMEM_HC_REGISTER,
              kRamBytes, 64),
      BadCall("list at the end of all addresses", TMEM_HC_BAD_ADDRESS, "bad_address",
              TMEM_HC_REGISTER, ~0ull - kPage + 1, 64),
      BadCall("kick without a registration", TMEM_HC_NOT_REGISTERED, "not_registered", TMEM_HC_KICK,
              1, 0),
      BadCall("call without a registration", TMEM_HC_NOT_REGISTERED, "not_registered", TMEM_HC_CALL,
              1, 0),
      BadCall("unregister without a registration", TMEM_HC_NOT_REGISTERED, "not_registered",
              TMEM_HC_UNREGISTER, 0, 0),
  };
}

std::vector<Rubbish> BadPages() {
  const auto page = [](const char* name, std::uint64_t at, std::uint64_t address) {
    return Spoilt(name, TMEM_HC_BAD_ADDRESS, "bad_address",
                  [=](WindowGuest& guest) { guest.page_list()[at] = address; });
  };
  const auto overlap = [](const char* name, std::uint64_t at, std::uint64_t with) {
    return Spoilt(name, TMEM_HC_BAD_ARGUMENT, "overlap",
                  [=](WindowGuest& guest) { guest.page_list()[at] = guest.page_list()[with]; });
  };
  return {
      page("page not on a page", 5, kWindowAddress + 1),
      page("page in no memory", 5, kHole),
      page("last page in no memory", 63, kHole),
      page("page behind the end of memory", 0, kRamBytes),
      page("page at the end of all addresses", 7, ~0ull - kPage + 1),
      page("page with a bit above all addresses", 7, 1ull << 63 | kWindowAddress),
      page("page that is read-only", 9, kRomAddress),
      overlap("first page twice", 1, 0),
      overlap("a page twice, far apart", 63, 2),
  };
}

std::vector<Rubbish> BadHeaders() {
  using Geometry = tmem_geometry;
  const auto version = [](const char* name, std::uint32_t newest, std::uint32_t oldest) {
    return Spoilt(name, TMEM_HC_BAD_VERSION, "bad_version", [=](WindowGuest& guest) {
      guest.geometry_in_window().version = newest;
      guest.geometry_in_window().version_min = oldest;
    });
  };
  return {
      Spoilt("magic", TMEM_HC_BAD_VERSION, "bad_version",
             [](WindowGuest& guest) { guest.geometry_in_window().magic ^= 1; }),
      version("a later version only", 3, 2),
      version("version 0", 0, 0),
      version("versions the wrong way round", 1, 2),
      BadGeometry("window larger than its pages", [](Geometry& g) { g.window_bytes += kPage; }),
      BadGeometry("window of 2^64 - 4096 bytes", [](Geometry& g) { g.window_bytes = -kPage; }),
      BadGeometry("page size", [](Geometry& g) { g.page_bytes = 8192; }),
      BadGeometry("no lanes", [](Geometry& g) { g.key_lanes = 0; }),
      BadGeometry("3 lanes", [](Geometry& g) { g.key_lanes = 3; }),
      BadGeometry("64 lanes", [](Geometry& g) { g.key_lanes = 64; }),
      BadGeometry("8 descriptors", [](Geometry& g) { g.ring_entries = 8; }),
      BadGeometry("96 descriptors", [](Geometry& g) { g.ring_entries = 96; }),
      BadGeometry("2^31 descriptors", [](Geometry& g) { g.ring_entries = 1u << 31; }),
      BadGeometry("no slots", [](Geometry& g) { g.lane_slots = 0; }),
      BadGeometry("more slots than fit", [](Geometry& g) { g.lane_slots = 64; }),
      BadGeometry("2^32 - 1 slots", [](Geometry& g) { g.lane_slots = 0xffffffff; }),
      BadGeometry("17 control descriptors", [](Geometry& g) { g.control_ring_entries = 17; }),
      BadGeometry("no control slots", [](Geometry& g) { g.control_slots = 0; }),
  };
}

class BadInput : public KvmGuestTest {
 protected:
  void ExpectEachRefused(const std::vector<Rubbish>& inputs) {
    vm_->AddSlot(1, kRomAddress, 1u << 20, nullptr, KVM_MEM_READONLY);
    for (const Rubbish& input : inputs) {
      SCOPED_TRACE(input.name);
      constexpr std::uint64_t kTimes = 3;
      const Counters before = ReadCounters();
      for (std::uint64_t i = 0; i < kTimes; ++i) {
        WindowGuest guest(*vm_, *vcpu_);
        EXPECT_STREQ(ToString(input.attempt(guest)), ToString(input.answer));
      }
      EXPECT_EQ(Refusals(before), (Counters{{std::string("refused_") + input.reason, kTimes}}));
    }
    ExpectStillWorks();
  }

  // After all that the same guest registers, and what it asks is answered.
  void ExpectStillWorks() {
    WindowGuest guest(*vm_, *vcpu_);
    const auto channel = Connect(guest);
    ASSERT_TRUE(channel);
    guest.view().lane(0).Entry(0) = {};
    guest.view().lane(0).head().posted = 1;
    EXPECT_EQ(guest.Kick(1), TMEM_HC_OK);
    EXPECT_EQ(channel->Serve(), 1u);
    EXPECT_EQ(guest.CallAndWait(1), TMEM_HC_OK);
    EXPECT_EQ(guest.view().lane(0).Entry(0).status, TMEM_STATUS_OK);
    EXPECT_EQ(guest.Do(TMEM_HC_UNREGISTER), TMEM_HC_OK);
    EXPECT_TRUE(channel->HasHungUp());
  }
};

TEST_F(BadInput, BadArgumentsAreRefusedAndCounted) {
  ExpectEachRefused(BadArguments());
}
TEST_F(BadInput, BadPagesAreRefusedAndCounted) {
  ExpectEachRefused(BadPages());
}
TEST_F(BadInput, BadHeadersAreRefusedAndCounted) {
  ExpectEachRefused(BadHeaders());
}

TEST_F(BadInput, LanesThatDoNotExistAreRefused) {
  WindowGuest guest(*vm_, *vcpu_);
  const auto channel = Connect(guest);
  ASSERT_TRUE(channel);
  const std::uint64_t beyond = guest.all_lanes() + 1;
  const Counters before = ReadCounters();
  for (const tmem_hypercall operation : {TMEM_HC_KICK, TMEM_HC_CALL}) {
    for (const std::uint64_t lanes :
         {beyond, beyond | 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
      EXPECT_STREQ(ToString(guest.Do(operation, lanes)), "BAD_ARGUMENT");
    }
    EXPECT_STREQ(ToString(guest.Do(operation, 1, 1)), "BAD_ARGUMENT");
  }
  EXPECT_EQ(Refusals(before), (Counters{{"refused_bad_argument", 10}}));
  // The registration is as it was.
  EXPECT_EQ(guest.Kick(0), TMEM_HC_OK);
  EXPECT_FALSE(channel->HasHungUp());
}

TEST_F(BadInput, MoreGuestsThanAllowedAreRefused) {
  ASSERT_TRUE(WriteText("/sys/module/kvm_tmem/parameters/max_guests", "2"));
  EXPECT_EQ(daemon_->Info().max_guests, 2u);
  struct OneGuest {
    Vm vm;
    Vcpu vcpu{vm};
    WindowGuest window{vm, vcpu};
  };
  std::vector<std::unique_ptr<OneGuest>> guests;
  std::vector<std::unique_ptr<DoubleChannel>> channels;
  for (int i = 0; i < 2; ++i) {
    guests.push_back(std::make_unique<OneGuest>());
    channels.push_back(Connect(guests.back()->window));
    ASSERT_TRUE(channels.back());
  }
  const Counters before = ReadCounters();
  for (int i = 0; i < 3; ++i) {
    OneGuest more;
    more.window.PrepareRegistration();
    EXPECT_STREQ(ToString(more.window.Register()), "REFUSED");
  }
  EXPECT_EQ(Refusals(before), (Counters{{"refused_too_many_guests", 3}}));
  EXPECT_FALSE(daemon_->Next());
  // One that is counted may register again; when it has gone there is room.
  channels.front() = Connect(guests.front()->window);
  EXPECT_TRUE(channels.front());
  guests.pop_back();
  guests.push_back(std::make_unique<OneGuest>());
  EXPECT_TRUE(Connect(guests.back()->window));
}

TEST_F(BadInput, TooLargeAWindowIsWhatTheParameterSays) {
  ASSERT_TRUE(WriteText("/sys/module/kvm_tmem/parameters/max_window_kb", "128"));
  EXPECT_EQ(daemon_->Info().max_window_bytes, 128u << 10);
  WindowGuest guest(*vm_, *vcpu_);  // 256 KiB
  guest.PrepareRegistration();
  const Counters before = ReadCounters();
  EXPECT_STREQ(ToString(guest.Register()), "BAD_ARGUMENT");
  EXPECT_EQ(Refusals(before), (Counters{{"refused_window_too_large", 1}}));
}

TEST_F(BadInput, WithoutADaemonTheGuestIsTold) {
  daemon_.reset();
  WindowGuest guest(*vm_, *vcpu_);
  guest.PrepareRegistration();
  const Counters before = ReadCounters();
  EXPECT_STREQ(ToString(guest.Register()), "GONE");
  EXPECT_EQ(Refusals(before), (Counters{{"refused_no_daemon", 1}}));
}

TEST_F(BadInput, WhatTheDaemonRefusesIsRefused) {
  WindowGuest guest(*vm_, *vcpu_);
  guest.PrepareRegistration();
  const Counters before = ReadCounters();
  ASSERT_EQ(guest.Register(), TMEM_HC_PENDING);
  const auto waiting = daemon_->Next();
  ASSERT_TRUE(waiting);
  EXPECT_EQ(daemon_->Refuse(waiting->channel), 0);
  EXPECT_STREQ(ToString(guest.RegisterAndWait()), "REFUSED");
  EXPECT_EQ(Refusals(before), (Counters{{"refused_daemon", 1}}));
  EXPECT_FALSE(daemon_->Accept(*waiting));
  EXPECT_NE(daemon_->Refuse(12345), 0);
}

}  // namespace
}  // namespace tmem
