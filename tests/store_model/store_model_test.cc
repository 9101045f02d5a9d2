// SPDX-License-Identifier: GPL-2.0-only
// Millions of random operations by threads that share keys; each result held against its key's
// history, and the whole store against a recount.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "compress/sample_pages.h"
#include "host-store/base/mutex.h"
#include "host-store/store/store.h"
#include "tests/store_model/history.h"
#include "tests/store_model/page_content.h"

namespace tmem {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint32_t kThreads = 4;
constexpr uint32_t kGuests = 2;
constexpr uint32_t kPools = 2 * kGuests;  // one a kind and guest
constexpr uint32_t kObjects = 8;
constexpr uint32_t kIndices = 128;
constexpr uint32_t kKeysOfPool = kObjects * kIndices;
constexpr uint32_t kKeys = kPools * kKeysOfPool;
constexpr uint32_t kMaxIncarnations = 4096;
constexpr uint32_t kChecksPerRound = 4;
// 8 rounds of 4 threads: 2.1 million operations.
constexpr uint32_t kRounds = 8;
constexpr uint32_t kOpsOfThread = 66'000;

// Moments. Relaxed: the counter must not order the threads' other accesses, or the thread sanitizer
// would see no race; as a locked instruction it still tells what came before what.
class Moments {
 public:
  uint64_t Next() { return next_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> next_{1};
};

// Ranks 0 .. kKeys - 1, rank r with a weight of 1 / (r + 1)^0.9.
class Zipf {
 public:
  Zipf() {
    double sum = 0;
    for (uint32_t rank = 0; rank < kKeys; ++rank) {
      sum += 1.0 / std::pow(rank + 1, 0.9);
      cumulative_.push_back(sum);
    }
  }
  uint32_t Draw(std::mt19937_64& random) const {
    const double at = std::uniform_real_distribution<double>(0, cumulative_.back())(random);
    const auto found = std::lower_bound(cumulative_.begin(), cumulative_.end(), at);
    const auto rank = static_cast<uint32_t>(found - cumulative_.begin());
    return rank * 2654435761u % kKeys;  // odd: neighbours in rank lie apart
  }

 private:
  std::vector<double> cumulative_;
};

// One life of a pool: a new handle is a new pool, whose keys have a history of their own (K3).
struct Incarnation {
  PoolHandle handle{};
  std::atomic<uint64_t> dying{0};  // when its end was begun; 0: not
  std::atomic<uint64_t> dead{0};   // when that was done
};

struct WideRemoval {
  uint32_t incarnation;
  uint32_t first_key, last_key;  // of the pool, object by object
  LaneFilter filter;
  uint64_t begin, end;
};

struct Scenario {
  const char* name;
  uint64_t limit_bytes;
  uint64_t room_bytes;  // beside what an empty store takes; the rest of the limit is reserved
  uint64_t landing_bytes;
  const char* domain;  // of both guests; "": each its own
  bool settler;        // a thread of its own
};
constexpr Scenario kScenarios[] = {
    {"evicts all the time", 6 * kMiB, 1000 * kKiB, 64 * kKiB, "", true},
    {"16 shards, little room, shared domain", 64 * kMiB, 2500 * kKiB, 256 * kKiB, "tenant", true},
    {"one landing slot, shared domain", 8 * kMiB, 1300 * kKiB, 4 * kKiB, "tenant", false},
    {"room for all", 48 * kMiB, 30 * kMiB, 512 * kKiB, "", true},
};

class Round {
 public:
  Round(const Scenario& scenario, uint64_t seed, uint32_t ops_of_thread)
      : scenario_(scenario),
        seed_(seed),
        ops_of_thread_(ops_of_thread),
        contents_(seed),
        incarnations_(kMaxIncarnations),
        logs_(kThreads),
        barrier_(kThreads + 1) {}

  void Run() {
    Open();
    if (testing::Test::HasFatalFailure()) return;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) threads.emplace_back([this, i] { Work(i); });
    std::atomic<bool> stop{false};
    std::thread settler([&] {
      while (scenario_.settler && !stop.load()) {
        {
          MutexLock lock(settler_gate_);
          store_->Settle(32);
        }
        std::this_thread::yield();
      }
    });
    for (uint32_t i = 0; i < kChecksPerRound; ++i) {
      barrier_.arrive_and_wait();
      CheckWhole();
      barrier_.arrive_and_wait();
    }
    for (std::thread& thread : threads) thread.join();
    stop.store(true);
    settler.join();
    CheckHistories();
    CheckCleanEnd();
  }

  const std::map<std::string, uint64_t>& totals() const { return totals_; }

 private:
  struct Log {
    std::vector<Event> events;
    std::vector<WideRemoval> removals;
    std::map<std::string, uint64_t> counts;
  };

  // ---- set-up and ends ------------------------------------------------------------------------

  void Open() {
    auto store = Store::Create({.limit_bytes = scenario_.limit_bytes,
                                .pool_min_bytes = scenario_.room_bytes,
                                .landing_bytes = scenario_.landing_bytes,
                                .overhead_bytes = 0,
                                .seed = seed_,
                                .max_guests = 4});
    ASSERT_TRUE(store.ok()) << store.error().Describe();
    store_ = std::move(store).value();
    for (uint32_t g = 0; g < kGuests; ++g) {
      auto guest = store_->AddGuest({"guest" + std::to_string(g), scenario_.domain});
      ASSERT_TRUE(guest.ok()) << guest.error().Describe();
      guests_[g] = guest.value();
    }
    const uint64_t used = store_->Status().used_bytes;
    ASSERT_TRUE(store_->Reserve(scenario_.limit_bytes - scenario_.room_bytes - used).ok());
    used_when_empty_ = store_->Status().used_bytes;
    for (uint32_t pool = 0; pool < kPools; ++pool) NewIncarnation(pool);
  }

  static KeyKind KindOf(uint32_t pool) {
    return pool % 2 == 0 ? KeyKind::kEphemeral : KeyKind::kPersistent;
  }
  GuestId GuestOf(uint32_t pool) const { return guests_[pool / 2]; }

  void NewIncarnation(uint32_t pool) {
    const auto made = store_->CreatePool(GuestOf(pool), KindOf(pool) == KeyKind::kEphemeral
                                                            ? PoolKind::kEphemeral
                                                            : PoolKind::kPersistent);
    ASSERT_EQ(made.outcome, Outcome::kOk);
    const uint32_t number = next_incarnation_.fetch_add(1);
    ASSERT_LT(number, kMaxIncarnations);
    incarnations_[number].handle = made.pool;
    pool_of_[number] = pool;
    current_[pool].store(number);
  }

  void CheckWhole() {
    MutexLock lock(settler_gate_);
    const Result<void> checked = store_->CheckInvariants();
    EXPECT_TRUE(checked.ok()) << checked.error().Describe();
  }

  void CheckCleanEnd() {
    for (const GuestId guest : guests_) store_->ResetGuest(guest);
    while (store_->Settle(1000) != 0) {
    }
    CheckWhole();
    const StoreStatus status = store_->Status();
    EXPECT_EQ(status.pages, 0u);
    // One empty chunk an arena may be kept: three in each shard, two in each page set.
    const uint64_t kept = (uint64_t{16} * 3 * 2 + uint64_t{4} * kGuests) * 17 * kKiB;
    EXPECT_LE(status.used_bytes, used_when_empty_ + kept);
    for (const GuestId guest : guests_) store_->RemoveGuest(guest);
    CheckWhole();
  }

  // ---- operations -----------------------------------------------------------------------------

  struct Target {
    uint32_t pool;
    uint32_t incarnation;
    uint32_t key;  // of the pool
    PageKey page_key;
  };

  static ObjectId ObjectOf(uint32_t key) { return {{1 + key / kIndices, 0, 7}}; }
  // Objects 4 to 7 are huge and sparse, so that their pages lie in blocks of their own.
  static uint64_t IndexOf(uint32_t key) {
    const uint64_t index = key % kIndices;
    return key / kIndices < kObjects / 2 ? index : index << 40;
  }

  Target Choose(std::mt19937_64& random) {
    const uint32_t number = zipf_.Draw(random);
    Target target{};
    target.pool = number / kKeysOfPool;
    target.key = number % kKeysOfPool;
    target.incarnation = current_[target.pool].load();
    target.page_key = {incarnations_[target.incarnation].handle, ObjectOf(target.key),
                       IndexOf(target.key)};
    return target;
  }

  void Record(Log& log, const Target& target, Event::Kind kind, uint32_t value, uint64_t begin,
              uint64_t end) {
    log.events.push_back(
        {uint64_t{target.incarnation} * kKeysOfPool + target.key, begin, end, value, kind});
  }

  // Whether an operation that found no pool may have done so; and that none found a dead one.
  void CheckPoolOutcome(const Target& target, Outcome outcome, uint64_t begin, uint64_t end) {
    const Incarnation& incarnation = incarnations_[target.incarnation];
    const uint64_t dying = incarnation.dying.load();
    const uint64_t dead = incarnation.dead.load();
    if (outcome == Outcome::kStalePool || outcome == Outcome::kBadPool) {
      EXPECT_TRUE(dying != 0 && dying < end) << "a live pool was not found (K3)";
    } else {
      EXPECT_TRUE(dead == 0 || begin < dead) << "a dead pool was found (K3, K5)";
    }
  }

  void Put(Log& log, std::mt19937_64& random, uint32_t value) {
    const Target target = Choose(random);
    alignas(64) std::array<std::byte, kPageBytes> page;
    const bool filled = PageContents::IsFilled(value) && random() % 2 == 0;
    if (!filled) contents_.Make(value, PageBuffer(page));
    const uint64_t begin = moments_.Next();
    const Outcome outcome =
        filled ? store_->PutFilled(GuestOf(target.pool), target.page_key,
                                   PageContents::FillWord(value), value)
               : store_->Put(GuestOf(target.pool), target.page_key, PageView(page), value);
    const uint64_t end = moments_.Next();
    CheckPoolOutcome(target, outcome, begin, end);
    const bool persistent = KindOf(target.pool) == KeyKind::kPersistent;
    switch (outcome) {
      case Outcome::kOk:
        Record(log, target, Event::Kind::kPut, value, begin, end);
        ++log.counts[persistent ? "persistent put" : "ephemeral put"];
        break;
      case Outcome::kNoSpace:
        EXPECT_FALSE(persistent) << "a put with a credit was refused (P3)";
        [[fallthrough]];
      case Outcome::kNoCredit:
      case Outcome::kFrozen:
        EXPECT_TRUE(persistent || outcome != Outcome::kNoCredit);
        Record(log, target, Event::Kind::kRemove, 0, begin, end);
        ++log.counts["refused put"];
        break;
      case Outcome::kStalePool:
      case Outcome::kBadPool: ++log.counts["stale pool"]; break;
      default: ADD_FAILURE() << "a put's outcome is " << static_cast<int>(outcome);
    }
  }

  void Get(Log& log, std::mt19937_64& random) {
    const Target target = Choose(random);
    alignas(64) std::array<std::byte, kPageBytes> out;
    out.fill(std::byte{0x5a});
    const uint64_t begin = moments_.Next();
    const GetResult result = store_->Get(GuestOf(target.pool), target.page_key, PageBuffer(out));
    const uint64_t end = moments_.Next();
    CheckPoolOutcome(target, result.outcome, begin, end);
    if (result.outcome == Outcome::kOk) {
      alignas(64) std::array<std::byte, kPageBytes> expected;
      contents_.Make(result.tag, PageBuffer(expected));
      if (result.filled) FillPage(result.fill_word, PageBuffer(out));
      EXPECT_EQ(std::memcmp(out.data(), expected.data(), kPageBytes), 0)
          << "wrong bytes for value " << result.tag << " (G3)";
      Record(log, target, Event::Kind::kHit, result.tag, begin, end);
      ++log.counts["hit"];
    } else if (result.outcome == Outcome::kMiss) {
      Record(log, target, Event::Kind::kMiss, 0, begin, end);
      ++log.counts["miss"];
    } else {
      EXPECT_TRUE(result.outcome == Outcome::kStalePool || result.outcome == Outcome::kBadPool)
          << "a get's outcome is " << static_cast<int>(result.outcome);
      ++log.counts["stale pool"];
    }
  }

  // A page, a range, an object or a pool, through one lane or all.
  void Flush(Log& log, std::mt19937_64& random) {
    const Target target = Choose(random);
    WideRemoval removal{target.incarnation, target.key, target.key, {0, 1}, 0, 0};
    const GuestId guest = GuestOf(target.pool);
    const uint64_t choice = random() % 1000;
    if (random() % 2 == 0) {
      const uint32_t key_lanes = 1u << (random() % 6);
      removal.filter = {static_cast<uint32_t>(random() % key_lanes), key_lanes};
    }
    Store::FlushOutcome outcome{};
    removal.begin = moments_.Next();
    if (choice < 990) {
      const uint32_t object_last = target.key | (kIndices - 1);
      if (choice > 800) {
        removal.last_key = std::min(object_last, target.key + static_cast<uint32_t>(random() % 64));
      }
      PageRange range{IndexOf(target.key), 1 + IndexOf(removal.last_key) - IndexOf(target.key)};
      if (choice > 970) {
        removal.last_key = object_last;
        range.count = UINT64_MAX;
      }
      outcome =
          store_->Flush(guest, target.page_key.pool, target.page_key.object, range, removal.filter);
    } else if (choice < 998) {
      removal.first_key = target.key & ~(kIndices - 1);
      removal.last_key = target.key | (kIndices - 1);
      outcome =
          store_->FlushObject(guest, target.page_key.pool, target.page_key.object, removal.filter);
    } else {
      removal.first_key = 0;
      removal.last_key = kKeysOfPool - 1;
      outcome = store_->FlushPool(guest, target.page_key.pool, removal.filter);
    }
    removal.end = moments_.Next();
    CheckPoolOutcome(target, outcome.outcome, removal.begin, removal.end);
    if (outcome.outcome == Outcome::kOk) log.removals.push_back(removal);
    ++log.counts["flush"];
  }

  void MarkDying(uint32_t incarnation, uint64_t begin) {
    incarnations_[incarnation].dying.store(begin);
  }
  void MarkDead(Log& log, uint32_t incarnation, uint64_t begin) {
    const uint64_t end = moments_.Next();
    incarnations_[incarnation].dead.store(end);
    log.removals.push_back({incarnation, 0, kKeysOfPool - 1, {0, 1}, begin, end});
  }

  // The end of a pool, of a guest's pools, or of all ephemeral ones; and their successors.
  void EndPools(Log& log, std::mt19937_64& random) {
    MutexLock lock(pools_being_replaced_);
    const auto pool = static_cast<uint32_t>(random() % kPools);
    const uint64_t choice = random() % 4;
    std::vector<uint32_t> ending;
    for (uint32_t other = 0; other < kPools; ++other) {
      const bool ends = choice == 0   ? GuestOf(other) == GuestOf(pool)
                        : choice == 1 ? KindOf(other) == KeyKind::kEphemeral
                                      : other == pool;
      if (ends) ending.push_back(other);
    }
    const uint64_t begin = moments_.Next();
    for (const uint32_t other : ending) MarkDying(current_[other].load(), begin);
    if (choice == 0) {
      store_->ResetGuest(GuestOf(pool));
    } else if (choice == 1) {
      store_->EndEpoch();
    } else {
      const PoolHandle handle = incarnations_[current_[pool].load()].handle;
      EXPECT_EQ(store_->DestroyPool(GuestOf(pool), handle).outcome, Outcome::kOk);
    }
    for (const uint32_t other : ending) MarkDead(log, current_[other].load(), begin);
    for (const uint32_t other : ending) NewIncarnation(other);
    ++log.counts["end of pools"];
  }

  void Work(uint32_t thread) {
    Log& log = logs_[thread];
    std::mt19937_64 random(seed_ * 31 + thread);
    const uint32_t ops_of_part = ops_of_thread_ / kChecksPerRound;
    for (uint32_t part = 0; part < kChecksPerRound; ++part) {
      for (uint32_t op = 0; op < ops_of_part; ++op) {
        const uint32_t value = (thread + 1) << 24 | (part * ops_of_part + op);
        Step(log, random, value);
      }
      barrier_.arrive_and_wait();
      barrier_.arrive_and_wait();
    }
  }

  void Step(Log& log, std::mt19937_64& random, uint32_t value) {
    const uint64_t choice = random() % 10000;
    const GuestId guest = guests_[random() % kGuests];
    if (choice < 4800) {
      Put(log, random, value);
    } else if (choice < 8900) {
      Get(log, random);
    } else if (choice < 9700) {
      Flush(log, random);
    } else if (choice < 9800) {
      store_->Settle(4);
    } else if (choice < 9950) {
      store_->TopUpCredits(guest, 300);
    } else if (choice < 9955) {
      store_->ReturnCredits(guest, random() % 100);
    } else if (choice < 9960) {
      store_->SetAdmission(guest, Store::Admission::kFrozen);
      for (uint32_t i = 0; i < 5; ++i) Get(log, random);
      store_->SetAdmission(guest, Store::Admission::kOpen);
    } else if (choice < 9962) {
      EndPools(log, random);
    } else if (choice < 9970) {
      if (store_->Reserve(64 * kKiB).ok()) store_->Unreserve(64 * kKiB);
    } else {
      (void)store_->Status();
    }
    // What must hold after every step, whatever the other threads do; the rest is recounted when
    // they pause.
    EXPECT_LE(store_->used_bytes(), scenario_.limit_bytes);
  }

  // ---- histories ------------------------------------------------------------------------------

  void CheckHistories() {
    const uint32_t incarnations = next_incarnation_.load();
    std::vector<std::vector<Event>> histories(uint64_t{incarnations} * kKeysOfPool);
    for (const Log& log : logs_) {
      for (const Event& event : log.events) histories[event.key].push_back(event);
      for (const WideRemoval& removal : log.removals) AddRemovals(removal, histories);
      for (const auto& [name, count] : log.counts) totals_[name] += count;
    }
    for (const GuestId guest : guests_) {
      totals_["evicted page"] += store_->StatusOf(guest).pages_evicted;
    }
    int faults = 0;
    for (uint64_t key = 0; key < histories.size() && faults < 10; ++key) {
      const uint32_t pool = pool_of_[key / kKeysOfPool];
      const auto fault = CheckKeyHistory(KindOf(pool), histories[key]);
      if (!fault) continue;
      ++faults;
      ADD_FAILURE() << "pool " << pool << " key " << key << ": " << *fault;
    }
  }

  void AddRemovals(const WideRemoval& removal, std::vector<std::vector<Event>>& histories) const {
    const auto handle = static_cast<uint64_t>(incarnations_[removal.incarnation].handle);
    for (uint32_t key = removal.first_key; key <= removal.last_key; ++key) {
      const ObjectId object = ObjectOf(key);
      if (tmem_lane_of(handle, object.words.data(), IndexOf(key), removal.filter.key_lanes) !=
          removal.filter.lane) {
        continue;
      }
      const uint64_t number = uint64_t{removal.incarnation} * kKeysOfPool + key;
      histories[number].push_back({number, removal.begin, removal.end, 0, Event::Kind::kRemove});
    }
  }

  const Scenario scenario_;
  const uint64_t seed_;
  const uint32_t ops_of_thread_;
  const PageContents contents_;
  const Zipf zipf_;
  Moments moments_;
  std::unique_ptr<Store> store_;
  std::array<GuestId, kGuests> guests_{};
  uint64_t used_when_empty_ = 0;
  Mutex settler_gate_;
  Mutex pools_being_replaced_;
  std::vector<Incarnation> incarnations_;
  std::array<uint32_t, kMaxIncarnations> pool_of_{};
  std::atomic<uint32_t> next_incarnation_{0};
  std::array<std::atomic<uint32_t>, kPools> current_{};
  std::vector<Log> logs_;
  std::barrier<> barrier_;
  std::map<std::string, uint64_t> totals_;
};

TEST(StoreModel, EveryResultIsLegal) {
  const uint64_t seed = TestSeed();
  const uint32_t rounds = std::getenv("TMEM_LONG") != nullptr ? 5 * kRounds : kRounds;
  std::map<std::string, uint64_t> totals;
  for (uint32_t i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
    const Scenario& scenario = kScenarios[i % std::size(kScenarios)];
    SCOPED_TRACE(scenario.name);
    auto round = std::make_unique<Round>(scenario, seed + i, kOpsOfThread);
    round->Run();
    for (const auto& [name, count] : round->totals()) totals[name] += count;
  }
  for (const auto& [name, count] : totals) std::printf("%12" PRIu64 " %s\n", count, name.c_str());
  // A test that never gets there proves nothing.
  for (const char* name : {"ephemeral put", "persistent put", "refused put", "hit", "miss",
                           "evicted page", "flush", "end of pools", "stale pool"}) {
    EXPECT_GT(totals[name], 0u) << name;
  }
}

}  // namespace
}  // namespace tmem
