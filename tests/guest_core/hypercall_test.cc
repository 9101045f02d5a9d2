// SPDX-License-Identifier: GPL-2.0-only
// The guest core over hypercalls: how many there are, and what it makes of each answer. A double of
// the host's module copies between the guest's window and that of a host that does as told.
#include <chrono>
#include <functional>
#include <thread>

#include "tests/guest_core/client_fixture.h"
#include "tests/guest_core/copying_doorbell.h"

namespace tmem {
namespace {

class Hypercall : public SwapFixture {
 protected:
  static constexpr std::uint64_t kProbeNs = 30 * TMEM_NS_PER_MS;

  void SetUp() override {
    options_.key_lanes = 8;
    options_.ring_entries = 256;
    options_.lane_slots = 120;
  }

  // A daemon that knows nothing of the guest takes over.
  void StartHost() {
    host_ = std::make_unique<FakeHost>(options_);
    doorbell_->Accept({host_->window(), [this] { host_->Ring(); }});
  }

  // Connects without registering.
  void Attach() {
    host_ = std::make_unique<FakeHost>(options_);
    doorbell_ = std::make_unique<CopyingDoorbell>(host_->header().geometry);
    tmem_client_options options{};
    options.ops = &kOps;
    options.context = this;
    options.table_keys = 4096;
    options.get_timeout_ns = kTimeoutNs;
    options.load_timeout_ns = kTimeoutNs;
    options.probe_ns = kProbeNs;
    client_ = std::make_unique<tmem_client>();
    ASSERT_EQ(
        tmem_client_create(client_.get(), &options, doorbell_->window(), doorbell_->window_bytes()),
        0);
  }

  void Start() {
    ASSERT_NO_FATAL_FAILURE(Attach());
    StartHost();
    ASSERT_EQ(tmem_client_register(client_.get()), 0);
  }

  void StartWithPool() {
    ASSERT_NO_FATAL_FAILURE(Start());
    const int pool = tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL);
    ASSERT_GE(pool, 0);
    pool_ = static_cast<u32>(pool);
    Interrupt();
    tmem_client_work(client_.get());
  }

  // Credits are granted by the host and seen with the next hypercall.
  void StartWithSwap(std::uint64_t credits) {
    ASSERT_NO_FATAL_FAILURE(Start());
    ASSERT_EQ(tmem_swap_start(client_.get(), TMEM_POOL_PERSISTENT), 0);
    ASSERT_EQ(tmem_swap_on(client_.get(), kArea, 1000), 0);
    host_->Grant(credits);
    Wait(kRefreshNs);
  }

  static void Wait(std::uint64_t ns) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<std::int64_t>(ns)));
  }

  // As the interrupt that a put raises does, once the put's locks are gone.
  void Interrupt() {
    if (soon_ == 0) return;
    soon_ = 0;
    tmem_client_kick_soon(client_.get());
  }

  // Time passes: the timer runs, and the worker if it is wanted.
  void Later() {
    tmem_client_kick_later(client_.get());
    if (client_->wants_work != 0) tmem_client_work(client_.get());
  }

  std::uint64_t Hypercalls() const {
    const CopyingDoorbell::Counts counts = doorbell_->counts();
    return counts.registers + counts.kicks + counts.calls;
  }

  // Pages that a get of `number` from `first` on found; each must be right.
  std::uint64_t GetMany(std::uint64_t first, std::uint32_t number) {
    std::vector<Page> pages(number);
    std::vector<void*> pointers;
    for (Page& page : pages) pointers.push_back(page.data());
    u64 hits = 0;
    const tmem_key key = Key(first);
    const u32 found = tmem_get_pages(client_.get(), &key, number, pointers.data(), &hits);
    for (std::uint32_t i = 0; i < number; ++i) {
      if ((hits >> i & 1) != 0) {
        EXPECT_EQ(pages[i], MakePage(first + i));
      }
    }
    return found;
  }

  static constexpr std::uint64_t kRefreshNs = 2 * TMEM_NS_PER_MS;

  FakeHostOptions options_;
  std::unique_ptr<CopyingDoorbell> doorbell_;
  std::function<void(tmem_hypercall)> before_answer_;

 private:
  static Hypercall* Self(void* context) { return static_cast<Hypercall*>(context); }
  static u32 EnterHost(void* context, tmem_hypercall operation, u64 lanes) {
    Hypercall* self = Self(context);
    EXPECT_TRUE(self->ringing_allowed_) << "a put or a flush must not enter the host";
    const u32 answer = self->doorbell_->Enter(operation, lanes);
    if (self->before_answer_) {
      const auto before_answer = std::move(self->before_answer_);
      self->before_answer_ = nullptr;
      before_answer(operation);
      return TMEM_HC_GONE;
    }
    return answer;
  }

  static void KickSoon(void* context) { ++Self(context)->soon_; }
  static void KickLater(void* context) { ++Self(context)->later_; }
  static void CopyPage(void* to, const void* from) { std::memcpy(to, from, TMEM_PAGE_BYTES); }

  static constexpr tmem_client_ops kOps = {
      .ring = nullptr,
      .hypercall = EnterHost,
      .kick_soon = KickSoon,
      .kick_later = KickLater,
      .shrink_soon = nullptr,
      .copy_page = CopyPage,
  };
};

// ---- how many -----------------------------------------------------------------------------------

TEST_F(Hypercall, PutsAreHandedOverBy32) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  const std::uint64_t before = Hypercalls();
  for (std::uint64_t i = 0; i < 3200; ++i) {
    ringing_allowed_ = false;
    Put(i, i, 1 + i / 1000);
    ringing_allowed_ = true;
    Interrupt();
  }
  EXPECT_EQ(Hypercalls() - before, 100u);
  EXPECT_EQ(Count(TMEM_COUNT_doorbells_put), 100u);
  EXPECT_EQ(Count(TMEM_COUNT_puts_dropped_no_slot), 0u) << "what is done comes back in time";
  EXPECT_EQ(host_->pages(), 3200u);
  EXPECT_EQ(doorbell_->counts().pages_in, 3200u);
}

// A few pages in each of many lanes are one hand-over, not one a lane.
TEST_F(Hypercall, PutsOfAllLanesShareAHypercall) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  const std::uint64_t before = Hypercalls();
  for (std::uint64_t i = 0; i < 320; ++i) {
    Put(i * TMEM_LANE_BLOCK_PAGES, i);
    Interrupt();
  }
  EXPECT_EQ(Hypercalls() - before, 10u);
}

TEST_F(Hypercall, AFewPutsWaitForTheTimer) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  const std::uint64_t before = Hypercalls();
  for (std::uint64_t i = 0; i < 10; ++i) Put(i, i);
  EXPECT_EQ(soon_, 0);
  EXPECT_GE(later_, 1);
  EXPECT_EQ(Hypercalls(), before);
  Later();
  EXPECT_EQ(Hypercalls() - before, 1u);
  EXPECT_EQ(host_->pages(), 10u);
}

TEST_F(Hypercall, AReadAheadWindowIsOneCall) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  for (std::uint64_t i = 0; i < 1024; ++i) {
    Put(i, i);
    Interrupt();
  }
  Later();
  const std::uint64_t before = Hypercalls();
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < 1024; i += 32) found += GetMany(i, 32);
  EXPECT_EQ(found, 1024u);
  EXPECT_EQ(Hypercalls() - before, 32u);
  EXPECT_EQ(doorbell_->counts().kicks, 32u) << "only those of the puts";
}

TEST_F(Hypercall, KeysNeverPutCostNothing) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  const std::uint64_t before = Hypercalls();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(Get(i, i), Got::kMiss);
    FlushRange(i, i);
  }
  FlushObject();
  Later();
  EXPECT_EQ(Hypercalls(), before);
}

TEST_F(Hypercall, WhatIsStagedIsGotBackWithoutAHypercall) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  const std::uint64_t before = Hypercalls();
  for (std::uint64_t i = 0; i < 20; ++i) Put(i, i);
  EXPECT_EQ(GetMany(0, 20), 20u);
  EXPECT_EQ(Hypercalls(), before);
}

// ---- answers ------------------------------------------------------------------------------------

TEST_F(Hypercall, PendingIsAskedAgain) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  Put(1, 1);
  Later();
  doorbell_->PendNext(3);
  EXPECT_EQ(Get(1, 1), Got::kRight);
  EXPECT_EQ(Count(TMEM_COUNT_hypercalls_pending), 3u);
  EXPECT_EQ(Count(TMEM_COUNT_timeouts), 0u);
}

TEST_F(Hypercall, ARegistrationThatIsPendingIsAskedAgain) {
  options_.features |= TMEM_FEATURE_REPORT;  // all that a guest asks for, so that it asks once
  ASSERT_NO_FATAL_FAILURE(Attach());
  StartHost();
  doorbell_->PendNext(5);
  EXPECT_EQ(tmem_client_register(client_.get()), 0);
  EXPECT_EQ(doorbell_->counts().registers, 6u);
}

TEST_F(Hypercall, AHostThatStaysPendingIsAMissAndItsLateAnswerHarmsNobody) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  for (std::uint64_t i = 0; i < 8; ++i) Put(i, i);
  Later();
  host_->Stop();
  const std::uint64_t before_ns = tmem_now_ns();
  EXPECT_EQ(GetMany(0, 8), 0u);
  EXPECT_GE(tmem_now_ns() - before_ns, kTimeoutNs);
  EXPECT_EQ(Count(TMEM_COUNT_timeouts), 1u);
  EXPECT_EQ(tmem_client_quarantined(client_.get()), 8u);
  EXPECT_EQ(Get(1, 1), Got::kMiss) << "the breaker is open: nobody waits";
  host_->Start();
  host_->Ring();
  Wait(kRefreshNs);
  tmem_client_work(client_.get());  // the probe; brings back what was late
  Later();
  EXPECT_EQ(tmem_client_quarantined(client_.get()), 0u);
  EXPECT_EQ(Count(TMEM_COUNT_late_completions), 8u);
  Put(9, 9);
  Later();
  EXPECT_EQ(Get(9, 9), Got::kRight) << "a heartbeat has closed the breaker";
}

// One hypercall writes 60 pages of the guest at most, and what is late comes first.
TEST_F(Hypercall, WhatOneHypercallCannotBringBackComesWithTheNext) {
  options_.key_lanes = 1;
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  for (std::uint64_t i = 0; i < 80; ++i) {
    Put(i, i);
    Interrupt();
  }
  Later();
  host_->Stop();
  EXPECT_EQ(GetMany(0, 32), 0u);
  host_->Start();
  client_->breakers[TMEM_KIND_EPHEMERAL].open = 0;
  EXPECT_EQ(GetMany(40, 32), 32u);
  EXPECT_EQ(Count(TMEM_COUNT_late_completions), 32u);
  EXPECT_GE(Count(TMEM_COUNT_hypercalls_pending), 1u);
}

TEST_F(Hypercall, ADaemonThatIsGoneIsKnownAtOnceAndTheNextOneIsFound) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  Put(1, 1);
  Later();
  doorbell_->End();
  const std::uint64_t before_ns = tmem_now_ns();
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  EXPECT_LT(tmem_now_ns() - before_ns, kTimeoutNs) << "nobody waits for a channel that is closed";
  EXPECT_EQ(Count(TMEM_COUNT_channels_lost), 1u);
  EXPECT_EQ(Count(TMEM_COUNT_timeouts), 0u);
  // As long as there is none, one probe at a time.
  const std::uint64_t registers = doorbell_->counts().registers;
  for (int i = 0; i < 100; ++i) {
    EXPECT_GT(tmem_client_work(client_.get()), 0u);
    EXPECT_EQ(Get(1, 1), Got::kMiss);
    Put(2, 2);
  }
  EXPECT_LE(doorbell_->counts().registers - registers, 2u);
  StartHost();
  Wait(kProbeNs);
  tmem_client_work(client_.get());
  EXPECT_EQ(Count(TMEM_COUNT_resets), 1u);
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  Put(3, 3);
  Later();
  EXPECT_EQ(Get(3, 3), Got::kRight);
}

TEST_F(Hypercall, AGuestThatStartsBeforeItsHostIsServedLater) {
  ASSERT_NO_FATAL_FAILURE(Attach());
  EXPECT_EQ(tmem_client_register(client_.get()), -ENOTCONN);
  const int pool = tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL);
  ASSERT_GE(pool, 0);
  pool_ = static_cast<u32>(pool);
  Put(1, 1);
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  StartHost();
  tmem_client_work(client_.get());
  EXPECT_EQ(Count(TMEM_COUNT_resets), 0u) << "it is the first registration";
  Put(1, 1);
  Later();
  EXPECT_EQ(Get(1, 1), Got::kRight);
}

TEST_F(Hypercall, M4_AfterARestoreItRegistersAnewAndNothingIsWrong) {
  ASSERT_NO_FATAL_FAILURE(StartWithSwap(1000));
  const int files = tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL);
  ASSERT_GE(files, 0);
  pool_ = static_cast<u32>(files);
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(Store(i, i));
    Put(i, i);
  }
  Later();
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_EQ(Load(i, i), Loaded::kRight);
  for (std::uint64_t i = 10; i < 20; ++i) ASSERT_TRUE(Store(i, i));  // nobody has seen these
  doorbell_->Restore();
  StartHost();
  host_->intercept = [&](const tmem_desc& desc) -> std::uint16_t {
    if (desc.op == TMEM_OP_POOL_CREATE) host_->Grant(1000);
    return 0;
  };
  Later();  // learns that it is not registered
  EXPECT_EQ(Count(TMEM_COUNT_channels_lost), 1u);
  tmem_client_work(client_.get());
  Later();
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(Get(i, i), Got::kMiss) << i;
    EXPECT_EQ(Load(i, i), Loaded::kError) << i;
  }
  for (std::uint64_t i = 10; i < 20; ++i) EXPECT_EQ(Load(i, i), Loaded::kRight) << "replayed";
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_lost), 20u);
  EXPECT_EQ(Count(TMEM_COUNT_frontswap_replayed), 10u);
}

TEST_F(Hypercall, X3_CountersOfAnotherTimeEndTheChannel) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  Put(1, 1);
  Later();
  for (std::uint32_t lane = 0; lane < options_.key_lanes; ++lane) {
    doorbell_->guest_head(lane).posted = 0;  // a snapshot from before
    doorbell_->guest_head(lane).done = 0;
  }
  for (std::uint64_t i = 100; i < 400; i += 32) Put(i, i);
  Later();
  EXPECT_EQ(doorbell_->counts().torn_down + Count(TMEM_COUNT_insane_windows), 1u);
  tmem_client_work(client_.get());
  EXPECT_EQ(Count(TMEM_COUNT_resets), 1u);
  EXPECT_EQ(Get(1, 1), Got::kMiss);
  Put(2, 2);
  Later();
  EXPECT_EQ(Get(2, 2), Got::kRight);
}

// The worker had registered anew while a hypercall of before was on its way back: a second
// registration would have taken every page the first one had put.
TEST_F(Hypercall, AnAnswerFromBeforeARegistrationDoesNotEndIt) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  Put(1, 1);
  before_answer_ = [&](tmem_hypercall) { EXPECT_EQ(tmem_client_register(client_.get()), 0); };
  tmem_client_kick_later(client_.get());
  EXPECT_EQ(Count(TMEM_COUNT_channels_lost), 0u);
  EXPECT_NE(client_->ready, 0u);
  const std::uint64_t registers = doorbell_->counts().registers;
  Put(2, 2);
  Later();
  EXPECT_EQ(Get(2, 2), Got::kRight);
  EXPECT_EQ(doorbell_->counts().registers, registers);
}

TEST_F(Hypercall, AskedForMoreThanIsOfferedItRegistersWithWhatIs) {
  options_.features = TMEM_FEATURE_EPHEMERAL;
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  EXPECT_EQ(doorbell_->counts().registers, 2u);
  EXPECT_EQ(client_->window.features, TMEM_FEATURE_EPHEMERAL);
  Put(1, 1);
  Later();
  EXPECT_EQ(Get(1, 1), Got::kRight);
}

// ---- notices ------------------------------------------------------------------------------------

TEST_F(Hypercall, CreditsAreLookedForWhenThereAreNoneButNotAllTheTime) {
  ASSERT_NO_FATAL_FAILURE(StartWithSwap(0));
  EXPECT_FALSE(Store(1, 1));
  host_->Grant(10);
  Wait(kRefreshNs);
  EXPECT_TRUE(Store(1, 1)) << "one hypercall, and the credits are there";
  for (std::uint64_t i = 2; i <= 10; ++i) EXPECT_TRUE(Store(i, i));
  const std::uint64_t before = Hypercalls();
  const std::uint64_t before_ns = tmem_now_ns();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(Store(11, 11));
  EXPECT_LE(Hypercalls() - before, (tmem_now_ns() - before_ns) / TMEM_NS_PER_MS + 1);
}

TEST_F(Hypercall, AnIdleGuestLooksOnceASecond) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  tmem_client_work(client_.get());
  host_->EndEpoch();
  const std::uint64_t before = Hypercalls();
  EXPECT_EQ(tmem_client_work(client_.get()), TMEM_REFRESH_NS);
  EXPECT_EQ(Hypercalls(), before);
  client_->entered_ns -= TMEM_REFRESH_NS;
  EXPECT_GT(tmem_client_work(client_.get()), 0u);
  EXPECT_EQ(Hypercalls() - before, 1u);
  EXPECT_NE(client_->wants_work, 0u) << "the epoch has ended";
  tmem_client_work(client_.get());
  EXPECT_EQ(Count(TMEM_COUNT_epochs), 1u);
}

// Else a guest that does nothing any more never finds out that its host has gone.
TEST_F(Hypercall, AGuestWithItsFirstPoolBeginsToLook) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(tmem_client_work(client_.get()), 0u) << "without a pool there is nothing to look for";
  ASSERT_EQ(tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL), 0);
  EXPECT_NE(client_->wants_work, 0u);
  EXPECT_EQ(tmem_client_work(client_.get()), TMEM_REFRESH_NS);
}

TEST_F(Hypercall, X2_CreditsThatAreWantedBackAreReturned) {
  ASSERT_NO_FATAL_FAILURE(StartWithSwap(100));
  EXPECT_TRUE(Store(1, 1));
  host_->header().host.credits_target = 0;
  Later();
  tmem_client_work(client_.get());
  EXPECT_EQ(Count(TMEM_COUNT_credits_returned), 99u);
}

// What the host has done of the last batch comes back although nothing more is put.
TEST_F(Hypercall, TheLastPutsAreAcknowledgedToo) {
  ASSERT_NO_FATAL_FAILURE(StartWithSwap(100));
  EXPECT_TRUE(Store(1, 1));
  Later();
  client_->entered_ns -= TMEM_REFRESH_NS;
  tmem_client_work(client_.get());
  tmem_client_work(client_.get());
  for (std::uint32_t at = 0; at < client_->key_lanes; ++at) {
    EXPECT_EQ(client_->lanes[at].reaped, client_->lanes[at].posted);
  }
}

// ---- between two registrations ------------------------------------------------------------------

// A task that publishes late, after its calls were let go of, left its old descriptors to the next
// registration.
TEST_F(Hypercall, NothingIsPublishedBetweenTwoRegistrations) {
  ASSERT_NO_FATAL_FAILURE(StartWithPool());
  tmem_lane& lane = client_->lanes[0];
  const tmem_desc desc{};
  const tmem_record record{.call = nullptr,
                           .index = 0,
                           .value = 0,
                           .table_key = TMEM_TABLE_NONE,
                           .tag = 0,
                           .slot = TMEM_NO_SLOT,
                           .op = TMEM_OP_NOP,
                           .area = 0,
                           .flags = 0,
                           .persistent = false,
                           .quarantined = false};
  tmem_lane_stage(&lane, &desc, &record);
  tmem_lane_abort(&lane);
  const std::uint64_t posted = lane.head->posted;
  EXPECT_FALSE(tmem_lane_publish(&lane));
  EXPECT_EQ(lane.head->posted, posted);
  tmem_lane_reset(&lane);
  tmem_lane_stage(&lane, &desc, &record);
  EXPECT_TRUE(tmem_lane_publish(&lane));
  EXPECT_EQ(lane.head->posted, 1u);
}

}  // namespace
}  // namespace tmem
