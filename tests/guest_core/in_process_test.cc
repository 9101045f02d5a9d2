// SPDX-License-Identifier: GPL-2.0-only
// The guest core against the real store in process, over both kinds of doorbells: random operations
// of two threads against what each of them knows, while the host is lost and found, ends epochs, or
// starts over.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/guest_core/core.h"
#include "tests/guest_core/live_guest.h"

namespace tmem {
namespace {

using Page = std::array<std::uint8_t, TMEM_PAGE_BYTES>;

constexpr std::uint64_t kIndices = 200;  // of each thread's object
constexpr std::uint64_t kSlots = 512;    // of each thread's part of the swap area
constexpr int kThreads = 2;
#ifdef TMEM_SANITIZED
constexpr int kSteps = 6'000;
#else
constexpr int kSteps = 40'000;
#endif

std::uint64_t Seed() {
  static const std::uint64_t seed = [] {
    const char* given = std::getenv("TMEM_SEED");
    return given ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  }();
  std::cout << "TMEM_SEED=" << seed << '\n';
  return seed;
}

// Compressible, incompressible or same-filled, by its seed.
Page MakePage(std::uint64_t seed) {
  Page page;
  std::mt19937_64 random(seed);
  std::uint64_t word = random();
  for (std::size_t at = 0; at < page.size(); at += sizeof word) {
    if (seed % 5 == 1 || (seed % 5 > 1 && at % 64 == 0)) word = random();
    std::memcpy(page.data() + at, &word, sizeof word);
  }
  return page;
}

// One thread's file and swap slots. Nobody else touches them, as page locks see to in a kernel.
class Actor {
 public:
  Actor(LiveGuest& guest, u32 pool, u32 area, std::uint64_t number, std::uint64_t seed)
      : guest_(guest), pool_(pool), area_(area), number_(number), random_(seed + number) {}

  bool errors_allowed = false;  // persistent pages may be lost (a reset), never wrong
  std::uint64_t hits = 0, loads = 0, load_errors = 0, stores = 0;

  void Run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFatalFailure(); ++step) Step();
  }

  // Everything is read once more.
  void ReadAll() {
    for (std::uint64_t index = 0; index < kIndices; index += TMEM_GET_MAX) {
      GetBatch(index, TMEM_GET_MAX);
    }
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) Load(slot);
  }

 private:
  void Step() {
    const std::uint64_t index = random_() % kIndices;
    const std::uint64_t slot = random_() % kSlots;
    switch (random_() % 20) {
      case 0: FlushRange(index, index + random_() % 20); break;
      case 1:
        if (random_() % 20 == 0) FlushRange(index, ~0ULL);
        break;
      case 2:
        if (random_() % 50 == 0) FlushObject();
        break;
      case 3:
      case 4: GetBatch(index, 1 + random_() % TMEM_GET_MAX); break;
      case 5:
      case 6: GetBatch(index, 1); break;
      case 7:
      case 8:
      case 9: Invalidate(slot, 1 + random_() % 40); break;
      case 10:
      case 11: Load(slot); break;
      case 12:
      case 13:
      case 14: StoreOne(slot); break;
      default: Put(index); break;
    }
  }

  tmem_key Key(std::uint64_t index) const { return {pool_, {number_, 1, 2}, index}; }

  void Put(std::uint64_t index) {
    const std::uint64_t seed = random_();
    const Page page = MakePage(seed);
    const tmem_key key = Key(index);
    tmem_put_page(guest_.client(), &key, page.data());
    file_[index] = seed;
    present_[index] = true;
  }

  void GetBatch(std::uint64_t first, std::uint64_t count) {
    count = std::min(count, kIndices - first);
    std::vector<Page> pages(count);
    std::vector<void*> pointers;
    for (Page& page : pages) pointers.push_back(page.data());
    const tmem_key key = Key(first);
    u64 found = 0;
    tmem_get_pages(guest_.client(), &key, static_cast<u32>(count), pointers.data(), &found);
    for (std::uint64_t i = 0; i < count; ++i) {
      if ((found >> i & 1) != 0) {
        ++hits;
        ASSERT_TRUE(present_[first + i]) << "found after a flush, a miss or a get";
        ASSERT_EQ(pages[i], MakePage(file_[first + i])) << "not the last put";
      }
      present_[first + i] = false;  // G1 and G2
    }
  }

  void FlushRange(std::uint64_t first, std::uint64_t last) {
    const tmem_key key = Key(first);
    tmem_flush_range(guest_.client(), &key, last);
    for (std::uint64_t i = first; i <= last && i < kIndices; ++i) present_[i] = false;
  }

  void FlushObject() {
    tmem_flush_object(guest_.client(), pool_, Key(0).object);
    present_.fill(false);
  }

  // Slots of both threads alternate by blocks, so that their ranges meet.
  u64 SlotOf(std::uint64_t slot) const { return (slot / 16 * kThreads + number_) * 16 + slot % 16; }

  void StoreOne(std::uint64_t slot) {
    const std::uint64_t seed = random_();
    const Page page = MakePage(seed);
    held_[slot] =
        tmem_swap_store(guest_.client(), area_, SlotOf(slot), page.data()) == TMEM_SWAP_KEPT;
    stores += held_[slot];
    swap_[slot] = seed;
  }

  void Load(std::uint64_t slot) {
    Page page;
    void* pages[1] = {page.data()};
    const u64 slots[1] = {SlotOf(slot)};
    tmem_swap_loaded results[1];
    tmem_swap_load(guest_.client(), area_, 1, slots, pages, results);
    ++loads;
    if (results[0] == TMEM_SWAP_HIT) {
      ASSERT_TRUE(held_[slot]);
      ASSERT_EQ(page, MakePage(swap_[slot]));
    } else if (held_[slot]) {
      ASSERT_EQ(results[0], TMEM_SWAP_ERROR) << "the device has old bytes";
      ASSERT_TRUE(errors_allowed) << "a promise was broken";
      ++load_errors;
    } else {
      ASSERT_EQ(results[0], TMEM_SWAP_DEVICE);
    }
  }

  void Invalidate(std::uint64_t slot, std::uint64_t count) {
    for (std::uint64_t i = slot; i < std::min(slot + count, kSlots); ++i) {
      tmem_swap_invalidate(guest_.client(), area_, SlotOf(i), 1);
      held_[i] = false;
    }
  }

  LiveGuest& guest_;
  const u32 pool_;
  const u32 area_;
  const std::uint64_t number_;
  std::mt19937_64 random_;
  std::array<std::uint64_t, kIndices> file_{};
  std::array<bool, kIndices> present_{};
  std::array<std::uint64_t, kSlots> swap_{};
  std::array<bool, kSlots> held_{};
};

class CoreAndStore : public ::testing::TestWithParam<DoorbellKind> {
 protected:
  void Start(std::uint64_t limit_bytes) {
    guest_ = std::make_unique<LiveGuest>(GetParam(), limit_bytes);
    const int pool = tmem_pool_create(guest_->client(), TMEM_POOL_EPHEMERAL);
    ASSERT_GE(pool, 0);
    ASSERT_EQ(tmem_swap_start(guest_->client(), TMEM_POOL_PERSISTENT), 0);
    ASSERT_EQ(tmem_swap_on(guest_->client(), 0, kThreads * kSlots), 0);
    const std::uint64_t seed = Seed();
    for (int i = 0; i < kThreads; ++i) {
      actors_.push_back(std::make_unique<Actor>(*guest_, static_cast<u32>(pool), 0u,
                                                static_cast<std::uint64_t>(i), seed));
    }
  }

  // Runs both threads; meanwhile calls `disturb` now and then.
  void Run(const std::function<void()>& disturb = {}) {
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (auto& actor : actors_) {
      threads.emplace_back([&] {
        actor->Run(kSteps);
        --running;
      });
    }
    while (running.load() != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (disturb) disturb();
    }
    for (std::thread& thread : threads) thread.join();
    for (auto& actor : actors_) actor->ReadAll();
  }

  // The same until each of these was counted: a run may be over before it met what it is to meet.
  void RunUntilSeen(std::initializer_list<tmem_counter> counters,
                    const std::function<void()>& disturb) {
    constexpr int kMaxRuns = 50;
    const auto seen = [this](tmem_counter counter) { return guest_->Count(counter) != 0; };
    for (int run = 0;
         run == 0 || (run < kMaxRuns && !std::all_of(counters.begin(), counters.end(), seen));
         ++run) {
      Run(disturb);
    }
    for (const tmem_counter counter : counters) EXPECT_GT(guest_->Count(counter), 0u) << counter;
  }

  void ExpectGeneralHealth() {
    EXPECT_EQ(guest_->Count(TMEM_COUNT_unknown_statuses), 0u);
    EXPECT_EQ(guest_->Count(TMEM_COUNT_frontswap_tag_mismatches), 0u);
    for (auto& actor : actors_) {
      EXPECT_GT(actor->hits, 0u);
      EXPECT_GT(actor->stores, 0u);
    }
  }

  std::unique_ptr<LiveGuest> guest_;
  std::vector<std::unique_ptr<Actor>> actors_;
};

TEST_P(CoreAndStore, RandomOperationsOfTwoThreadsAgreeWithWhatEachKnows) {
  Start(64u << 20);
  Run();
  ExpectGeneralHealth();
  EXPECT_EQ(guest_->Count(TMEM_COUNT_resets), 0u);
  EXPECT_EQ(guest_->Count(TMEM_COUNT_insane_windows), 0u);
  EXPECT_EQ(guest_->Count(TMEM_COUNT_puts_refused_other), 0u);
  const GuestStatus status = guest_->store().StatusOf(guest_->channel().id());
  EXPECT_EQ(status.gets_corrupt, 0u);
}

TEST_P(CoreAndStore, WhenTheHostIsLostAndFoundAndEndsEpochs) {
  Start(64u << 20);
  std::mt19937_64 random(Seed());
  RunUntilSeen({TMEM_COUNT_epochs}, [&] {
    if (random() % 3 == 0) {
      guest_->store().EndEpoch();
    } else {
      guest_->channel().Pause();
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
      guest_->channel().Resume();
    }
  });
  ExpectGeneralHealth();
  EXPECT_EQ(guest_->Count(TMEM_COUNT_resets), 0u);
}

TEST_P(CoreAndStore, WhenTheGuestRegistersAgainPersistentPagesAreErrorsNeverWrong) {
  Start(64u << 20);
  for (auto& actor : actors_) actor->errors_allowed = true;
  RunUntilSeen({TMEM_COUNT_frontswap_lost},
               [&] { EXPECT_EQ(tmem_client_register(guest_->client()), 0); });
  ExpectGeneralHealth();
}

TEST_P(CoreAndStore, WhenTheStoreIsReplacedUnderTheWindowWhatItHadNotTakenIsReplayed) {
  Start(64u << 20);
  for (auto& actor : actors_) actor->errors_allowed = true;
  std::mt19937_64 random(Seed());
  RunUntilSeen({TMEM_COUNT_resets, TMEM_COUNT_frontswap_replayed, TMEM_COUNT_frontswap_lost}, [&] {
    // Some puts are published that nobody takes, and now and then a reset meets a replay.
    guest_->channel().Pause();
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 10));
    guest_->ReplaceHost(std::chrono::milliseconds(random() % 60));
    if (random() % 3 == 0) guest_->ReplaceHost(std::chrono::milliseconds(0));
  });
  ExpectGeneralHealth();
}

// One swap area, no other threads than the guest's own.
class InProcessRestart : public ::testing::TestWithParam<DoorbellKind> {
 protected:
  static constexpr std::uint64_t kOld = 100;      // slots 0.. of which the first host has taken all
  static constexpr std::uint64_t kFirstNew = 50;  // slots from here on are stored again, untaken
  static constexpr std::uint64_t kEnd = 200;      // the last of them is freed

  void SetUp() override {
    ASSERT_EQ(tmem_swap_start(guest_.client(), TMEM_POOL_PERSISTENT), 0);
    ASSERT_EQ(tmem_swap_on(guest_.client(), 0, 1000), 0);
    for (std::uint64_t slot = 0; slot < kOld; ++slot) {
      while (!StorePage(slot, slot)) std::this_thread::yield();  // credits come with answers
    }
    for (std::uint64_t slot = 0; slot < kOld; ++slot) ASSERT_EQ(Load(slot, slot), TMEM_SWAP_HIT);
    guest_.channel().Pause();
    for (std::uint64_t slot = kFirstNew; slot < kEnd; ++slot) {
      ASSERT_TRUE(StorePage(slot, 1000 + slot));
    }
    for (std::uint64_t slot = 60; slot < 70; ++slot) ASSERT_TRUE(StorePage(slot, 2000 + slot));
    tmem_swap_invalidate(guest_.client(), 0, kEnd - 1, 1);
    tmem_client_kick(guest_.client(), TMEM_KICK_OTHER);
  }

  bool StorePage(std::uint64_t slot, std::uint64_t seed) {
    const Page page = MakePage(seed);
    return tmem_swap_store(guest_.client(), 0, slot, page.data()) == TMEM_SWAP_KEPT;
  }

  tmem_swap_loaded Load(std::uint64_t slot, std::uint64_t seed) {
    Page page;
    void* pages[1] = {page.data()};
    tmem_swap_loaded result;
    tmem_swap_load(guest_.client(), 0, 1, &slot, pages, &result);
    EXPECT_TRUE(result != TMEM_SWAP_HIT || page == MakePage(seed)) << slot;
    return result;
  }

  void ExpectOnlyTheTakenOnesAreLost() {
    const std::uint64_t untaken = kEnd - 1 - kFirstNew;
    while (guest_.Count(TMEM_COUNT_frontswap_replayed) < untaken) std::this_thread::yield();
    for (std::uint64_t slot = 0; slot < kFirstNew; ++slot) {
      EXPECT_EQ(Load(slot, slot), TMEM_SWAP_ERROR) << slot;
    }
    for (std::uint64_t slot = kFirstNew; slot < kEnd - 1; ++slot) {
      const bool twice = slot >= 60 && slot < 70;
      EXPECT_EQ(Load(slot, (twice ? 2000 : 1000) + slot), TMEM_SWAP_HIT) << slot;
    }
    EXPECT_EQ(Load(kEnd - 1, 0), TMEM_SWAP_DEVICE);
    EXPECT_EQ(guest_.Count(TMEM_COUNT_frontswap_replayed), untaken);
    EXPECT_EQ(guest_.Count(TMEM_COUNT_frontswap_lost), kEnd - 1) << "the replayed ones among them";
    EXPECT_EQ(guest_.store().StatusOf(guest_.channel().id()).persistent_pages, untaken);
  }

  LiveGuest guest_{GetParam(), 64u << 20};
};

TEST_P(InProcessRestart, ANewStoreOnTheSameWindowGetsWhatTheOldOneHadNotTakenInOrder) {
  guest_.ReplaceHost(std::chrono::milliseconds(100));
  ExpectOnlyTheTakenOnesAreLost();
}

TEST_P(InProcessRestart, M4_AWindowRestoredWithItsGuestOnAnotherHostIsNoticed) {
  guest_.RestoreOnNewHost();
  ExpectOnlyTheTakenOnesAreLost();
  EXPECT_GT(guest_.Count(TMEM_COUNT_resets), 0u);
}

std::string NameOf(const ::testing::TestParamInfo<DoorbellKind>& info) {
  return info.param == DoorbellKind::kMemory ? "Memory" : "Hypercall";
}
constexpr auto kKinds = {DoorbellKind::kMemory, DoorbellKind::kHypercall};
INSTANTIATE_TEST_SUITE_P(Over, CoreAndStore, ::testing::ValuesIn(kKinds), NameOf);
INSTANTIATE_TEST_SUITE_P(Over, InProcessRestart, ::testing::ValuesIn(kKinds), NameOf);

}  // namespace
}  // namespace tmem
