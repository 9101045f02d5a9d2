// SPDX-License-Identifier: GPL-2.0-only
// What a rolled-back or hostile guest may do to a channel.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "host-store/window/channel_fixture.h"
#include "host-store/window/shared_memory_access.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TMEM_UNDER_TSAN 1
#endif
#endif

namespace tmem {
namespace {

std::uint64_t Seed() {
  const char* text = std::getenv("TMEM_SEED");
  const std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 0) : 20240611;
  std::printf("seed: TMEM_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

class HostileGuest : public ChannelTest {
 protected:
  // After this everything the guest had must be gone and it must register anew.
  void ExpectReset(std::uint64_t pool) {
    const std::uint64_t resets = view().host_page().resets;
    const std::uint64_t epoch = view().host_page().epoch;
    ASSERT_TRUE(channel_->HasWork());
    EXPECT_EQ(channel_->Visit().event, Channel::Event::kReset);
    EXPECT_EQ(view().host_page().resets, resets + 1);
    EXPECT_NE(view().host_page().epoch, epoch);
    // The memory of its pools goes in later visits; but it is not reset again and again.
    for (int visits = 0; visits < 100 && channel_->HasWork(); ++visits) {
      EXPECT_EQ(channel_->Visit().event, Channel::Event::kNone);
    }
    EXPECT_FALSE(channel_->HasWork());
    EXPECT_EQ(store_->StatusOf(id_).ephemeral_pages, 0u);
    Register();
    TestPage page;
    EXPECT_EQ(guest_.Get({pool, 1, 1}, page), TMEM_STATUS_STALE_POOL);
  }
};

// X3: each side's counters, in each direction, in every lane.
TEST_F(HostileGuest, X3CountersAlteredByEitherSideResetTheChannel) {
  Register();
  for (std::uint32_t lane = 0; lane < view().lane_count(); ++lane) {
    const std::uint64_t entries = view().lane(lane).ring_entries();
    for (const std::uint64_t by : {std::uint64_t{0} - 1, entries + 1, std::uint64_t{1} << 63}) {
      const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
      ASSERT_EQ(guest_.PutFilled({pool, 1, 1}, 1), TMEM_STATUS_OK);
      (void)guest_.Do(lane, tmem_desc{});
      tmem_lane_head& head = view().lane(lane).head();
      StoreRelaxed(head.posted, tmem_u64{head.posted + by});
      ExpectReset(pool);
    }
    for (const std::uint64_t by : {std::uint64_t{0} - 1, std::uint64_t{1}}) {
      const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
      (void)guest_.Do(lane, tmem_desc{});
      tmem_lane_head& head = view().lane(lane).head();
      StoreRelaxed(head.done, tmem_u64{head.done + by});
      ExpectReset(pool);
    }
  }
}

// M4: a guest rolled back by loadvm brings its old window with it.
TEST_F(HostileGuest, M4ARolledBackWindowIsNoticed) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const std::vector<std::byte> saved(memory_.get(), memory_.get() + WindowOptions().window_bytes);
  ASSERT_EQ(guest_.PutFilled({pool, 1, 1}, 1), TMEM_STATUS_OK);
  std::memcpy(memory_.get(), saved.data(), saved.size());
  ExpectReset(pool);
}

TEST_F(HostileGuest, AFullButLegalRingIsNoReset) {
  Register();
  for (int i = 0; i < 256; ++i) (void)guest_.Stage(2, tmem_desc{});
  guest_.Publish(2);
  EXPECT_EQ(channel_->counters().resets.value(), 0u);
  EXPECT_TRUE(guest_.WaitDone(2, 255));
}

// Nothing that a guest writes into header or lanes is read as geometry.
TEST_F(HostileGuest, GeometryIsNeverReadBack) {
  Register();
  auto* header = reinterpret_cast<tmem_header*>(memory_.get());
  std::memset(&header->geometry, 0xff, sizeof header->geometry);
  EXPECT_EQ(guest_.Do(0, tmem_desc{}).status, TMEM_STATUS_OK);
  EXPECT_EQ(guest_.Do(view().control_lane(), tmem_desc{}).status, TMEM_STATUS_OK);
}

// Random bytes everywhere, also between two visits: no crash, no other guest's page, no hang.
TEST_F(HostileGuest, RandomWindowsDoNoHarm) {
  std::mt19937_64 random(Seed());
  const GuestId other = store_->AddGuest({.name = "other", .domain = ""}).value();
  const PoolHandle pool = store_->CreatePool(other, PoolKind::kEphemeral).pool;
  const PageKey key{pool, {{1, 2, 3}}, 4};
  ASSERT_EQ(store_->PutFilled(other, key, 42, 0), Outcome::kOk);
  auto* words = reinterpret_cast<std::uint64_t*>(memory_.get());
  for (int round = 0; round < 300; ++round) {
    if (round % 4 == 0) (void)guest_.Register();
    for (std::uint32_t lane = 0; lane < view().lane_count(); ++lane) {
      const LaneView& ring = view().lane(lane);
      for (std::uint32_t i = 0; i < ring.ring_entries(); ++i) {
        tmem_desc& desc = ring.Entry(i);
        for (std::size_t at = 0; at < sizeof desc / 8; ++at) {
          const std::uint64_t word = random() >> (random() % 64);
          std::memcpy(reinterpret_cast<std::byte*>(&desc) + 8 * at, &word, sizeof word);
        }
        desc.op = static_cast<tmem_u8>(random() % 21);
        if (random() % 2 == 0) desc.status = 0;
      }
      if (channel_->HasWork()) continue;
      StoreRelease(ring.head().posted, tmem_u64{ring.head().done + random() % 17});
    }
    if (round % 5 == 0) words[random() % 512] = random();
    for (int visits = 0; visits < 20 && channel_->HasWork(); ++visits) (void)channel_->Visit();
  }
  std::array<std::byte, kPageBytes> out{};
  const GetResult got = store_->Get(other, key, PageBuffer(out));
  EXPECT_EQ(got.outcome, Outcome::kOk);
  EXPECT_EQ(got.fill_word, 42u);
}

// TOCTOU: the guest rewrites descriptors and payloads while the host works on them. Whatever the
// host stored must be one page that verifies: a get never answers CORRUPT and never crashes.
TEST_F(HostileGuest, PayloadsChangedUnderTheHostsHandsStayConsistent) {
#ifdef TMEM_UNDER_TSAN
  GTEST_SKIP() << "the hostile guest races on purpose; runs without ThreadSanitizer";
#endif
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_PERSISTENT);
  const TestKey key{pool, 1, 1};
  const std::uint32_t lane = guest_.LaneOf(key);
  std::atomic<bool> stop{false};
  std::thread scribbler([&] {
    std::mt19937_64 random(Seed());
    while (!stop.load()) {
      for (std::uint32_t slot = 0; slot < 8; ++slot) {
        auto* word =
            reinterpret_cast<std::uint64_t*>(view().lane(lane).Slot(slot).data()) + random() % 512;
        __atomic_store_n(word, random(), __ATOMIC_RELAXED);
      }
    }
  });
  for (int round = 0; round < 3000; ++round) {
    tmem_desc put = TestGuest::KeyDesc(TMEM_OP_PUT, key);
    put.value = static_cast<std::uint64_t>(round % 8);
    ASSERT_EQ(guest_.Do(lane, put).status, TMEM_STATUS_OK) << round;
    if (round % 3 == 0) (void)store_->Settle(1000);
    tmem_desc get = TestGuest::KeyDesc(TMEM_OP_GET, key);
    get.value = 100;
    ASSERT_EQ(guest_.Do(lane, get).status, TMEM_STATUS_OK) << round;
  }
  stop = true;
  scribbler.join();
}

TEST_F(HostileGuest, DescriptorsChangedUnderTheHostsHandsDoNoHarm) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const std::uint32_t lane = guest_.LaneOf({pool, 1, 1});
  std::atomic<bool> stop{false};
  std::thread scribbler([&] {
    std::mt19937_64 random(Seed());
    while (!stop.load()) {
      auto& desc = view().lane(lane).Entry(random() % 256);
      __atomic_store_n(&desc.value, random() % 3 == 0 ? random() : random() % 120,
                       __ATOMIC_RELAXED);
      __atomic_store_n(&desc.op, static_cast<tmem_u8>(random() % 8), __ATOMIC_RELAXED);
      __atomic_store_n(&desc.index, random() % 64, __ATOMIC_RELAXED);
    }
  });
  std::uint64_t posted = guest_.posted(lane);
  for (int round = 0; round < 2000; ++round) {
    posted += 16;
    StoreRelease(view().lane(lane).head().posted, tmem_u64{posted});
    while (channel_->HasWork()) (void)channel_->Visit();
  }
  stop = true;
  scribbler.join();
  EXPECT_EQ(channel_->counters().resets.value(), 0u);
}

// A guest that rings, registers and misbehaves without end gets bounded work each time.
TEST_F(HostileGuest, RegistrationStormsAreBounded) {
  for (int i = 0; i < 1000; ++i) {
    (void)guest_.RequestRegistration(TMEM_FEATURE_EPHEMERAL);
    EXPECT_FALSE(channel_->HasWork());
  }
  EXPECT_EQ(channel_->counters().registrations.value(), 1000u);
}

}  // namespace
}  // namespace tmem
