// SPDX-License-Identifier: GPL-2.0-only
// Whose turn it is, counted in units of work and not in time.
#include "host-store/doorbell/service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "host-store/window/geometry.h"
#include "host-store/window/shared_memory_access.h"
#include "host-store/window/test_guest.h"

namespace tmem {
namespace {

struct SilentBell final : GuestBell {
  void Ring() override {}
};

// A guest whose channel is visited by nobody but the service under test.
class Side {
 public:
  Side(Store& store, Service& service, const std::string& name, std::uint32_t weight)
      : memory_(Allocate(), &std::free),
        channel_(store, store.AddGuest({.name = name, .domain = ""}).value(),
                 WindowView(memory_.get(), MakeGeometry(WindowOptions()).value()), bell_,
                 ChannelOptions()),
        guest_(memory_.get(), [this, &service] {
          if (serve_on_kick_) Drain(service);
        }) {
    service.Add(channel_, weight, {});
    EXPECT_EQ(guest_.Register(), TMEM_STATUS_OK);
    pool_ = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
    EXPECT_NE(pool_, 0u);
    serve_on_kick_ = false;
  }

  static void Drain(Service& service) {
    while (service.Next().did != Service::Did::kNothing) {
    }
  }

  TestKey Key(std::uint64_t object, std::uint64_t index) const { return {pool_, object, index}; }
  PageKey StoreKey(std::uint64_t object, std::uint64_t index) const {
    return {PoolHandle{pool_}, {{object, 0, 0}}, index};
  }

  // Hands over without a ring.
  std::uint64_t Post(std::uint32_t lane, const tmem_desc& desc) {
    const std::uint64_t counter = guest_.Stage(lane, desc);
    Publish(lane);
    return counter;
  }
  void Publish(std::uint32_t lane) {
    StoreRelease(guest_.view().lane(lane).head().posted, tmem_u64{guest_.posted(lane)});
  }
  std::uint64_t PostGet(const TestKey& key) {
    return Post(guest_.LaneOf(key), TestGuest::KeyDesc(TMEM_OP_GET, key));
  }
  bool IsDone(const TestKey& key, std::uint64_t counter) const {
    return guest_.IsDone(guest_.LaneOf(key), counter);
  }
  void PostPuts(std::uint64_t object, std::uint64_t pages) {
    for (std::uint64_t i = 0; i < pages; ++i) {
      const TestKey key = Key(object, i);
      (void)guest_.StagePut(key, MakeTestPage(i + 7919 * object, TestPageKind::kCompressible), 0);
      Publish(guest_.LaneOf(key));
    }
  }
  // As many descriptors as the rings take.
  void Flood(tmem_op op) {
    for (std::uint32_t lane = 0; lane < guest_.view().control_lane(); ++lane) {
      const LaneView& view = guest_.view().lane(lane);
      tmem_desc desc{};
      if (op != TMEM_OP_NOP) desc = TestGuest::KeyDesc(op, Key(1, lane));
      while (guest_.posted(lane) - LoadAcquire(view.head().done) < view.ring_entries()) {
        (void)guest_.Stage(lane, desc);
      }
      Publish(lane);
    }
  }

  Channel& channel() { return channel_; }
  TestGuest& guest() { return guest_; }

 private:
  static std::byte* Allocate() {
    const std::size_t bytes = WindowOptions().window_bytes;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(TMEM_PAGE_BYTES, bytes));
    std::memset(memory, 0, bytes);
    return memory;
  }

  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  SilentBell bell_;
  Channel channel_;
  TestGuest guest_;
  std::uint64_t pool_ = 0;
  bool serve_on_kick_ = true;
};

class ServiceTest : public testing::Test {
 protected:
  ServiceTest() : store_(Store::Create(Options()).value()), service_(*store_) {}

  static StoreOptions Options() {
    StoreOptions options{};
    options.limit_bytes = 512u << 20;
    options.landing_bytes = 512 * kPageBytes;
    options.seed = 1;
    return options;
  }

  // Serves until the get is done; returns the units that went to others meanwhile.
  WorkUnits UnitsOfOthersUntilDone(Side& side, const TestKey& key, std::uint64_t counter) {
    WorkUnits others = 0;
    while (!side.IsDone(key, counter)) {
      const Service::Step step = service_.Next();
      EXPECT_NE(step.did, Service::Did::kNothing);
      if (step.did == Service::Did::kNothing) break;
      EXPECT_LE(step.units, Service::kMaxStepUnits);
      if (step.channel != &side.channel()) others += step.units;
    }
    return others;
  }

  // Everything that is handed over, and no compression.
  void Land() {
    while (service_.HasWork()) (void)service_.Next();
  }

  std::unique_ptr<Store> store_;
  Service service_;
};

TEST_F(ServiceTest, AQuietGuestsGetWaitsForOneStepOfAFloodOnly) {
  Side hog(*store_, service_, "hog", 1);
  Side quiet(*store_, service_, "quiet", 1);
  for (const tmem_op op : {TMEM_OP_NOP, TMEM_OP_GET, TMEM_OP_FLUSH_OBJECT}) {
    for (std::uint64_t i = 0; i < 50; ++i) {
      hog.Flood(op);
      const TestKey key = quiet.Key(1, i);
      const std::uint64_t counter = quiet.PostGet(key);
      EXPECT_LE(UnitsOfOthersUntilDone(quiet, key, counter), Service::kMaxStepUnits) << int{op};
    }
  }
}

// Compression is the largest part of a put's cost, and it is in nobody's way.
TEST_F(ServiceTest, AGetWaitsForOnePageOfCompressionAtMost) {
  Side hog(*store_, service_, "hog", 1);
  Side quiet(*store_, service_, "quiet", 1);
  hog.PostPuts(1, 100);
  Land();
  EXPECT_GT(store_->landed_of(hog.channel().guest()), 50u);
  const TestKey key = quiet.Key(1, 1);
  const std::uint64_t counter = quiet.PostGet(key);
  EXPECT_LE(UnitsOfOthersUntilDone(quiet, key, counter), kSettledPageUnits);
}

TEST_F(ServiceTest, AGuestsOwnGetsComeBeforeItsPuts) {
  Side side(*store_, service_, "a", 1);
  Side::Drain(service_);
  const TestKey key = side.Key(1, 0);
  const std::uint32_t lane = side.guest().LaneOf(key);
  for (std::uint32_t other = 0; other < side.guest().view().control_lane(); ++other) {
    if (other == lane) continue;
    for (int i = 0; i < 200; ++i) (void)side.guest().Stage(other, tmem_desc{});
    side.Publish(other);
  }
  const std::uint64_t counter = side.PostGet(key);
  (void)service_.Next();
  EXPECT_TRUE(side.IsDone(key, counter));
}

TEST_F(ServiceTest, SharesOfWorkGoByWeight) {
  Side one(*store_, service_, "one", 1);
  Side two(*store_, service_, "two", 2);
  std::array<WorkUnits, 2> units{};
  while (units[0] + units[1] < 300'000) {
    one.Flood(TMEM_OP_NOP);
    two.Flood(TMEM_OP_NOP);
    const Service::Step step = service_.Next();
    units[step.channel == &one.channel() ? 0 : 1] += step.units;
  }
  const double ratio = static_cast<double>(units[1]) / static_cast<double>(units[0]);
  EXPECT_NEAR(ratio, 2.0, 0.05);
}

// Of equal weight, though one asks for dear work and the other for cheap.
TEST_F(ServiceTest, SharesAreOfWorkAndNotOfOperations) {
  Side cheap(*store_, service_, "cheap", 1);
  Side dear(*store_, service_, "dear", 1);
  std::array<WorkUnits, 2> units{};
  for (std::uint64_t round = 0; units[0] + units[1] < 300'000; ++round) {
    cheap.Flood(TMEM_OP_NOP);
    if (store_->landed_of(dear.channel().guest()) < 100) {
      dear.PostPuts(round % 8, 64);
    }
    const Service::Step step = service_.Next();
    units[step.channel == &cheap.channel() ? 0 : 1] += step.units;
  }
  EXPECT_NEAR(static_cast<double>(units[1]) / static_cast<double>(units[0]), 1.0, 0.05);
}

TEST_F(ServiceTest, CompressionIsPaidByTheGuestThatPut) {
  Side puts(*store_, service_, "puts", 1);
  Side gets(*store_, service_, "gets", 1);
  puts.PostPuts(1, 60);
  for (std::uint64_t i = 0; i < 60; ++i) (void)gets.PostGet(gets.Key(1, i));
  Side::Drain(service_);
  EXPECT_EQ(puts.channel().counters().settle_units.value(), 60 * kSettledPageUnits);
  EXPECT_EQ(gets.channel().counters().settle_units.value(), 0u);
  EXPECT_GE(puts.channel().counters().work_units.value(), 60 * kLandedPageUnits);
  EXPECT_EQ(store_->Status().landed, 0u);
}

// A guest that lands without end fills its part of the landing buffer; then it has its own pages
// compressed, and others still find room.
TEST_F(ServiceTest, AFloodOfPutsLeavesRoomToLand) {
  Side hog(*store_, service_, "hog", 1);
  Side quiet(*store_, service_, "quiet", 1);
  for (std::uint64_t object = 1; object <= 20; ++object) {
    hog.PostPuts(object, 60);
    Land();
  }
  const std::uint32_t landed = store_->landed_of(hog.channel().guest());
  EXPECT_GT(landed, 300u);
  EXPECT_LE(landed, 512u * 2 / 3 + 1);
  EXPECT_TRUE(store_->MustSettle(hog.channel().guest()));
  EXPECT_FALSE(store_->MustSettle(quiet.channel().guest()));
  quiet.PostPuts(1, 60);
  Land();
  EXPECT_EQ(store_->landed_of(quiet.channel().guest()), 60u);
}

// An object of a million pages goes in pieces, whether flushed, with its pool, or with its guest's
// registration; all the while another guest waits for one step at most.
class HugeFlushTest : public ServiceTest, public testing::WithParamInterface<tmem_op> {};

TEST_P(HugeFlushTest, DelaysNobody) {
#ifdef TMEM_SANITIZED
  constexpr std::uint64_t kPages = 50'000;
#else
  constexpr std::uint64_t kPages = 1'000'000;
#endif
  Side huge(*store_, service_, "huge", 1);
  Side quiet(*store_, service_, "quiet", 1);
  const GuestId id = huge.channel().guest();
  for (std::uint64_t i = 0; i < kPages; ++i) {
    ASSERT_EQ(store_->PutFilled(id, huge.StoreKey(9, i), i, 0), Outcome::kOk);
  }
  const tmem_op op = GetParam();
  const std::uint32_t control = huge.guest().view().control_lane();
  std::uint64_t flushes = 0;
  if (op == TMEM_OP_NOP) {
    (void)huge.guest().RequestRegistration(TMEM_FEATURE_EPHEMERAL);
  } else if (op == TMEM_OP_POOL_DESTROY) {
    tmem_desc desc{};
    desc.op = op;
    desc.pool = huge.Key(9, 0).pool;
    (void)huge.Post(control, desc);
  } else {
    for (std::uint32_t lane = 0; lane < control; ++lane) {
      tmem_desc desc = TestGuest::KeyDesc(op, huge.Key(9, 0));
      if (op == TMEM_OP_FLUSH) desc.count = UINT32_MAX;
      flushes = huge.Post(lane, desc);
    }
  }
  std::uint64_t gets = 0;
  WorkUnits most = 0;
  while (store_->StatusOf(id).ephemeral_pages != 0) {
    const TestKey key = quiet.Key(1, ++gets);
    most = std::max(most, UnitsOfOthersUntilDone(quiet, key, quiet.PostGet(key)));
    (void)service_.Next();
  }
  EXPECT_LE(most, Service::kMaxStepUnits);
  EXPECT_GT(gets, kPages / 64);
  Side::Drain(service_);
  if (op == TMEM_OP_FLUSH || op == TMEM_OP_FLUSH_OBJECT) {
    std::uint64_t pages = 0;
    for (std::uint32_t lane = 0; lane < control; ++lane) {
      pages += huge.guest().Result(lane, flushes).value;
    }
    EXPECT_EQ(pages, kPages);
  }
  EXPECT_TRUE(store_->CheckInvariants());
}

INSTANTIATE_TEST_SUITE_P(AllWays, HugeFlushTest,
                         testing::Values(TMEM_OP_FLUSH, TMEM_OP_FLUSH_OBJECT, TMEM_OP_POOL_DESTROY,
                                         TMEM_OP_NOP),
                         [](const auto& test) {
                           switch (test.param) {
                             case TMEM_OP_FLUSH: return "Range";
                             case TMEM_OP_FLUSH_OBJECT: return "Object";
                             case TMEM_OP_POOL_DESTROY: return "Pool";
                             default: return "Registration";
                           }
                         });

}  // namespace
}  // namespace tmem
