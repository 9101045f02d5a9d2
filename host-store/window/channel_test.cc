// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/window/channel.h"

#include <gtest/gtest.h>

#include "host-store/window/channel_fixture.h"
#include "host-store/window/shared_memory_access.h"
#include "host-store/window/test_guest.h"

namespace tmem {
namespace {

TEST_F(ChannelTest, TheHostPageIsThereBeforeTheGuest) {
  const tmem_host_page& host = view().host_page();
  EXPECT_EQ(host.features_offered,
            TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL);
  EXPECT_EQ(host.max_pools, TMEM_MAX_POOLS);
  EXPECT_EQ(host.max_report_ranges, 0u);
  EXPECT_NE(host.epoch, 0u);
  EXPECT_EQ(host.register_answer, 0u);
  EXPECT_EQ(guest_.view().geometry().magic, TMEM_MAGIC);
}

TEST_F(ChannelTest, LanesAreIgnoredBeforeRegistration) {
  const std::uint64_t counter = guest_.Stage(0, tmem_desc{});
  guest_.Publish(0);
  EXPECT_FALSE(channel_->HasWork());
  EXPECT_EQ(channel_->Visit().completed, 0u);
  EXPECT_FALSE(guest_.IsDone(0, counter));
}

TEST_F(ChannelTest, RegistrationIsAnsweredAndTheGuestRung) {
  EXPECT_EQ(guest_.Register(), TMEM_STATUS_OK);
  EXPECT_EQ(bell_.rings, 1u);
  EXPECT_EQ(channel_->counters().registrations.value(), 1u);
  EXPECT_FALSE(channel_->HasWork());
}

// K4: version, features, reserved fields of the guest page.
TEST_F(ChannelTest, K4RegistrationIsChecked) {
  const auto register_with = [&](auto change) {
    tmem_guest_page& page = view().guest_page();
    page = tmem_guest_page{};
    page.boot_id[1] = 5;
    page.version_chosen = 1;
    page.features_chosen = TMEM_FEATURE_EPHEMERAL;
    change(page);
    page.register_request = ++request_;
    (void)channel_->Visit();
    EXPECT_EQ(view().host_page().register_answer, request_);
    return static_cast<tmem_status>(view().host_page().register_status);
  };
  EXPECT_EQ(register_with([](auto&) {}), TMEM_STATUS_OK);
  EXPECT_EQ(register_with([](auto& p) { p.version_chosen = 0; }), TMEM_STATUS_UNSUPPORTED);
  EXPECT_EQ(register_with([](auto& p) { p.version_chosen = 2; }), TMEM_STATUS_UNSUPPORTED);
  for (int bit = 3; bit < 64; ++bit) {
    EXPECT_EQ(register_with([&](auto& p) { p.features_chosen |= 1ull << bit; }),
              TMEM_STATUS_UNSUPPORTED)
        << bit;
  }
  EXPECT_EQ(register_with([](auto& p) { p.boot_id[1] = 0; }), TMEM_STATUS_BAD_FIELD);
  EXPECT_EQ(register_with([](auto& p) { p.zero0 = 1; }), TMEM_STATUS_BAD_FIELD);
  EXPECT_EQ(register_with([](auto& p) { p.zero1[2] = 1; }), TMEM_STATUS_BAD_FIELD);
  // A refused one leaves the lanes ignored.
  (void)guest_.Stage(0, tmem_desc{});
  guest_.Publish(0);
  EXPECT_EQ(channel_->Visit().completed, 0u);
  EXPECT_EQ(register_with([](auto&) {}), TMEM_STATUS_OK);
}

// K5: registering again destroys everything and starts all counters at 0.
TEST_F(ChannelTest, K5RegisteringAgainIsAReset) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const std::uint64_t persistent = guest_.CreatePool(TMEM_POOL_PERSISTENT);
  ASSERT_EQ(guest_.PutFilled({pool, 1, 1}, 7), TMEM_STATUS_OK);
  ASSERT_EQ(guest_.PutFilled({persistent, 1, 1}, 7), TMEM_STATUS_OK);
  Register();
  for (std::uint32_t lane = 0; lane < view().lane_count(); ++lane) {
    EXPECT_EQ(view().lane(lane).head().posted, 0u);
    EXPECT_EQ(view().lane(lane).head().done, 0u);
  }
  EXPECT_EQ(guest_.CreditsGranted(), 0u);
  TestPage page;
  EXPECT_EQ(guest_.Get({pool, 1, 1}, page), TMEM_STATUS_STALE_POOL);
  EXPECT_EQ(guest_.Get({persistent, 1, 1}, page), TMEM_STATUS_STALE_POOL);
  const std::uint64_t fresh = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  EXPECT_NE(fresh, pool);  // K3: never the same handle
  EXPECT_EQ(guest_.Get({fresh, 1, 1}, page), TMEM_STATUS_MISS);
}

TEST_F(ChannelTest, G1EphemeralGetsTakePersistentOnesLeave) {
  Register();
  const std::uint64_t ephemeral = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const std::uint64_t persistent = guest_.CreatePool(TMEM_POOL_PERSISTENT);
  const TestPage put = MakeTestPage(3, TestPageKind::kRandom);
  ASSERT_EQ(guest_.Put({ephemeral, 1, 1}, put), TMEM_STATUS_OK);
  ASSERT_EQ(guest_.Put({persistent, 1, 1}, put, 0xabcd), TMEM_STATUS_OK);
  TestPage page{};
  std::uint32_t tag = 0;
  EXPECT_EQ(guest_.Get({ephemeral, 1, 1}, page), TMEM_STATUS_OK);
  EXPECT_EQ(page, put);
  EXPECT_EQ(guest_.Get({ephemeral, 1, 1}, page), TMEM_STATUS_MISS);
  for (int i = 0; i < 2; ++i) {
    page = TestPage{};
    EXPECT_EQ(guest_.Get({persistent, 1, 1}, page, &tag), TMEM_STATUS_OK);
    EXPECT_EQ(page, put);
    EXPECT_EQ(tag, 0xabcdu);
  }
}

TEST_F(ChannelTest, FillWordsComeBackAsTheGuestChose) {
  Register(TMEM_FEATURE_EPHEMERAL);
  std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  EXPECT_EQ(guest_.PutFilled({pool, 1, 1}, 5), TMEM_STATUS_BAD_FIELD);
  TestPage same{};
  same.fill(std::byte{0x5a});
  ASSERT_EQ(guest_.Put({pool, 1, 1}, same), TMEM_STATUS_OK);
  // Without the feature the page is in the slot, whatever the store made of it.
  tmem_desc get = TestGuest::KeyDesc(TMEM_OP_GET, {pool, 1, 1});
  const std::uint32_t lane = guest_.LaneOf({pool, 1, 1});
  get.value = 9;
  const tmem_desc result = guest_.Do(lane, get);
  EXPECT_EQ(result.status, TMEM_STATUS_OK);
  EXPECT_EQ(result.flags, 0u);
  EXPECT_EQ(result.value, 9u);
  EXPECT_EQ(std::memcmp(view().lane(lane).Slot(9).data(), same.data(), kPageBytes), 0);

  Register();
  pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  ASSERT_EQ(guest_.PutFilled({pool, 1, 1}, 0x0102030405060708), TMEM_STATUS_OK);
  get.pool = pool;
  const tmem_desc filled = guest_.Do(guest_.LaneOf({pool, 1, 1}), get);
  EXPECT_EQ(filled.flags, TMEM_DESC_FILL);
  EXPECT_EQ(filled.value, 0x0102030405060708u);
}

// P2: whatever refuses a put, the older page under its key is gone.
TEST_F(ChannelTest, P2RefusedPutsLeaveNoOlderPage) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const TestKey key{pool, 4, 4};
  const std::uint32_t lane = guest_.LaneOf(key);
  const auto refused_as = [&](auto change) {
    EXPECT_EQ(guest_.PutFilled(key, 1), TMEM_STATUS_OK);
    tmem_desc put = TestGuest::KeyDesc(TMEM_OP_PUT, key);
    change(put);
    const auto status = static_cast<tmem_status>(guest_.Do(lane, put).status);
    TestPage page;
    EXPECT_EQ(guest_.Get(key, page), TMEM_STATUS_MISS);
    return status;
  };
  EXPECT_EQ(refused_as([&](auto& d) { d.value = 120; }), TMEM_STATUS_BAD_SLOT);
  EXPECT_EQ(refused_as([&](auto& d) { d.flags = 0x80; }), TMEM_STATUS_BAD_FIELD);
  EXPECT_EQ(refused_as([&](auto& d) { d.count = 3; }), TMEM_STATUS_BAD_FIELD);
  EXPECT_EQ(refused_as([&](auto& d) { d.tag = 3; }), TMEM_STATUS_BAD_FIELD);  // ephemeral
  EXPECT_EQ(refused_as([&](auto& d) { d.status = 1; }), TMEM_STATUS_BAD_FIELD);
}

TEST_F(ChannelTest, AForeignLaneChangesNothing) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const TestKey key{pool, 4, 4};
  ASSERT_EQ(guest_.PutFilled(key, 1), TMEM_STATUS_OK);
  const std::uint32_t away = (guest_.LaneOf(key) + 1) % view().geometry().key_lanes;
  tmem_desc put = TestGuest::KeyDesc(TMEM_OP_PUT, key);
  put.value = 500;  // a bad slot too
  EXPECT_EQ(guest_.Do(away, put).status, TMEM_STATUS_BAD_LANE);
  EXPECT_EQ(guest_.Do(away, TestGuest::KeyDesc(TMEM_OP_GET, key)).status, TMEM_STATUS_BAD_LANE);
  tmem_desc flush = TestGuest::KeyDesc(TMEM_OP_FLUSH, key);
  flush.count = 1;
  EXPECT_EQ(guest_.Do(away, flush).value, 0u);  // F3
  TestPage page;
  EXPECT_EQ(guest_.Get(key, page), TMEM_STATUS_OK);
}

TEST_F(ChannelTest, F3EachLaneRemovesItsOwnKeys) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  constexpr std::uint64_t kPages = 1000;  // many 32-page blocks: keys in every lane
  for (std::uint64_t i = 0; i < kPages; ++i) {
    ASSERT_EQ(guest_.PutFilled({pool, 7, i}, i), TMEM_STATUS_OK);
  }
  std::uint64_t removed = 0;
  for (std::uint32_t lane = 0; lane < view().geometry().key_lanes; ++lane) {
    tmem_desc flush = TestGuest::KeyDesc(TMEM_OP_FLUSH_OBJECT, {pool, 7, 0});
    const tmem_desc result = guest_.Do(lane, flush);
    EXPECT_EQ(result.status, TMEM_STATUS_OK);
    std::uint64_t expected = 0;
    for (std::uint64_t i = 0; i < kPages; ++i) expected += guest_.LaneOf({pool, 7, i}) == lane;
    EXPECT_EQ(result.value, expected);
    removed += result.value;
  }
  EXPECT_EQ(removed, kPages);
}

TEST_F(ChannelTest, K3AnEndedPoolFailsAlone) {
  Register();
  const std::uint64_t first = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const std::uint64_t second = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  ASSERT_EQ(guest_.PutFilled({first, 1, 1}, 1), TMEM_STATUS_OK);
  ASSERT_EQ(guest_.PutFilled({second, 1, 1}, 2), TMEM_STATUS_OK);
  tmem_desc destroy{};
  destroy.op = TMEM_OP_POOL_DESTROY;
  destroy.pool = first;
  const tmem_desc result = guest_.Do(view().control_lane(), destroy);
  EXPECT_EQ(result.status, TMEM_STATUS_OK);
  EXPECT_EQ(result.value, 1u);
  TestPage page;
  EXPECT_EQ(guest_.Get({first, 1, 1}, page), TMEM_STATUS_STALE_POOL);
  EXPECT_EQ(guest_.Get({second, 1, 1}, page), TMEM_STATUS_OK);
  EXPECT_EQ(guest_.Do(view().control_lane(), destroy).status, TMEM_STATUS_STALE_POOL);
  EXPECT_EQ(guest_.Get({9999, 1, 1}, page), TMEM_STATUS_BAD_POOL);
}

TEST_F(ChannelTest, K4PoolsAreBounded) {
  Register();
  for (std::uint32_t i = 0; i < TMEM_MAX_POOLS; ++i) {
    EXPECT_NE(guest_.CreatePool(TMEM_POOL_EPHEMERAL), 0u) << i;
  }
  tmem_desc create{};
  create.op = TMEM_OP_POOL_CREATE;
  create.value = TMEM_POOL_EPHEMERAL;
  EXPECT_EQ(guest_.Do(view().control_lane(), create).status, TMEM_STATUS_TOO_MANY);
}

// Results are in ring order and each belongs to its descriptor.
TEST_F(ChannelTest, CompletionsAreInOrder) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const std::uint32_t lane = guest_.LaneOf({pool, 1, 0});
  std::vector<std::uint64_t> counters;
  for (std::uint64_t i = 0; i < 32; ++i) {  // one block, one lane: put, get, get
    tmem_desc put = TestGuest::KeyDesc(TMEM_OP_PUT, {pool, 1, i});
    put.flags = TMEM_DESC_FILL;
    put.value = i;
    counters.push_back(guest_.Stage(lane, put));
    (void)guest_.Stage(lane, TestGuest::KeyDesc(TMEM_OP_GET, {pool, 1, i}));
    (void)guest_.Stage(lane, TestGuest::KeyDesc(TMEM_OP_GET, {pool, 1, i}));
  }
  guest_.Publish(lane);
  ASSERT_TRUE(guest_.WaitDone(lane, counters.back() + 2));
  for (std::uint64_t i = 0; i < 32; ++i) {
    EXPECT_EQ(guest_.Result(lane, counters[i]).status, TMEM_STATUS_OK);
    EXPECT_EQ(guest_.Result(lane, counters[i] + 1).value, i);
    EXPECT_EQ(guest_.Result(lane, counters[i] + 2).status, TMEM_STATUS_MISS);
  }
}

TEST_F(ChannelTest, RingsWrapManyTimes) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const TestKey key{pool, 1, 0};
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ASSERT_EQ(guest_.PutFilled(key, i), TMEM_STATUS_OK);
    TestPage page;
    ASSERT_EQ(guest_.Get(key, page), TMEM_STATUS_OK);
    std::uint64_t word = 0;
    std::memcpy(&word, page.data(), sizeof word);
    ASSERT_EQ(word, i);
  }
  EXPECT_GT(guest_.posted(guest_.LaneOf(key)), 10 * 256u);
}

TEST_F(ChannelTest, AFullRingIsTakenInBoundedVisits) {
  Register();
  for (std::uint32_t lane = 0; lane < view().lane_count(); ++lane) {
    for (std::uint32_t i = 0; i < view().lane(lane).ring_entries(); ++i) {
      (void)guest_.Stage(lane, tmem_desc{});
    }
    StoreRelease(view().lane(lane).head().posted, tmem_u64{guest_.posted(lane)});
  }
  std::uint64_t completed = 0;
  while (channel_->HasWork()) {
    const Channel::Visited visited = channel_->Visit();
    EXPECT_LE(visited.units, Channel::kMaxVisitUnits);
    ASSERT_GT(visited.completed, 0u);
    completed += visited.completed;
  }
  EXPECT_EQ(completed, 8 * 256 + 64u);
}

// F3: a flush that takes several visits removes what came before it in its lane, and nothing else.
TEST_F(ChannelTest, APutBehindALongFlushStays) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const TestKey key{pool, 1, 0};
  const std::uint32_t lane = guest_.LaneOf(key);
  for (std::uint64_t i = 0; i < 4096; ++i) {
    ASSERT_EQ(store_->PutFilled(id_, {PoolHandle{pool}, {{1, 0, 0}}, i}, i, 0), Outcome::kOk);
  }
  visit_on_kick_ = false;
  const std::uint64_t flush = guest_.Stage(lane, TestGuest::KeyDesc(TMEM_OP_FLUSH_OBJECT, key));
  tmem_desc put = TestGuest::KeyDesc(TMEM_OP_PUT, key);
  put.flags = TMEM_DESC_FILL;
  put.value = 77;
  (void)guest_.Stage(lane, put);
  StoreRelease(view().lane(lane).head().posted, tmem_u64{guest_.posted(lane)});
  int visits = 0;
  while (channel_->HasWork()) {
    EXPECT_LE(channel_->Visit().units, Channel::kMaxVisitUnits);
    ++visits;
  }
  EXPECT_GT(visits, 10);
  visit_on_kick_ = true;
  EXPECT_GT(guest_.Result(lane, flush).value, 200u);
  TestPage page;
  ASSERT_EQ(guest_.Get(key, page), TMEM_STATUS_OK);
  std::uint64_t word = 0;
  std::memcpy(&word, page.data(), sizeof word);
  EXPECT_EQ(word, 77u);
  // Other lanes' keys are for their own flushes.
  EXPECT_GT(store_->StatusOf(id_).ephemeral_pages, 3000u);
}

// A guest that waits copies one page out while the next is unpacked.
TEST_F(ChannelTest, GetsAreDoneOneByOne) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const TestKey key{pool, 1, 0};
  const std::uint32_t lane = guest_.LaneOf(key);
  for (std::uint64_t i = 0; i < 3; ++i) {
    (void)guest_.Stage(lane, TestGuest::KeyDesc(TMEM_OP_GET, {pool, 1, i}));
  }
  StoreRelease(view().lane(lane).head().posted, tmem_u64{guest_.posted(lane)});
  const std::uint64_t done = view().lane(lane).head().done;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    (void)channel_->Visit(1);
    EXPECT_EQ(view().lane(lane).head().done, done + i);
  }
}

TEST_F(ChannelTest, CreditsComeWithThePersistentPoolAndAreCounted) {
  Register();
  EXPECT_EQ(guest_.CreditsGranted(), 0u);
  EXPECT_EQ(view().host_page().credits_target, 2048u);
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_PERSISTENT);
  EXPECT_EQ(guest_.CreditsGranted(), 2048u);
  EXPECT_FALSE(channel_->CreditsLow());
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(guest_.PutFilled({pool, 1, i}, i), TMEM_STATUS_OK);
  }
  EXPECT_EQ(guest_.CreditsGranted(), 2058u);
  tmem_desc back{};
  back.op = TMEM_OP_CREDIT_RETURN;
  back.value = 48;
  EXPECT_EQ(guest_.Do(view().control_lane(), back).value, 48u);
  EXPECT_EQ(guest_.CreditsGranted(), 2058 + 48u);  // and filled up again
}

TEST_F(ChannelTest, ANewEpochOfTheStoreIsPublished) {
  Register();
  const std::uint64_t before = view().host_page().epoch;
  store_->EndEpoch();
  (void)guest_.Do(0, tmem_desc{});
  EXPECT_NE(view().host_page().epoch, before);
}

TEST_F(ChannelTest, AwakeAndHeartbeatTellWhetherToRing) {
  Register();
  const std::uint64_t heartbeat = view().host_page().heartbeat;
  channel_->Wake();
  EXPECT_EQ(view().host_page().awake, 1u);
  EXPECT_GT(view().host_page().heartbeat, heartbeat);
  kicks_ = 0;
  (void)guest_.Stage(0, tmem_desc{});
  guest_.Publish(0);
  EXPECT_EQ(kicks_, 0u);  // suppressed
  EXPECT_TRUE(channel_->HasWork());
  channel_->PrepareSleep();
  EXPECT_EQ(view().host_page().awake, 0u);
  (void)guest_.Stage(0, tmem_desc{});
  guest_.Publish(0);
  EXPECT_EQ(kicks_, 1u);
}

TEST_F(ChannelTest, AWaitingGuestIsRungOnceAVisitAndNoOther) {
  Register();
  bell_.rings = 0;
  (void)guest_.Do(0, tmem_desc{});
  EXPECT_EQ(bell_.rings, 0u);
  StoreRelaxed(view().lane(0).head().guest_waits, tmem_u32{1});
  StoreRelaxed(view().lane(1).head().guest_waits, tmem_u32{1});
  (void)guest_.Do(3, tmem_desc{});
  EXPECT_EQ(bell_.rings, 0u);  // waits for other lanes
  for (const std::uint32_t lane : {0u, 1u}) {
    (void)guest_.Stage(lane, tmem_desc{});
    StoreRelease(view().lane(lane).head().posted, tmem_u64{guest_.posted(lane)});
  }
  (void)channel_->Visit();
  EXPECT_EQ(bell_.rings, 1u);
}

TEST_F(ChannelTest, EachOutcomeHasItsCounter) {
  Register();
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  TestPage page;
  (void)guest_.PutFilled({pool, 1, 1}, 1);
  (void)guest_.Get({pool, 1, 1}, page);
  (void)guest_.Get({pool, 1, 1}, page);
  tmem_desc unknown{};
  unknown.op = 200;
  (void)guest_.Do(0, unknown);
  const auto count = [&](std::uint8_t op, std::uint16_t status) {
    return channel_->counters().operations[OpPosition(op)][StatusPosition(status)].value();
  };
  EXPECT_EQ(count(TMEM_OP_POOL_CREATE, TMEM_STATUS_OK), 1u);
  EXPECT_EQ(count(TMEM_OP_PUT, TMEM_STATUS_OK), 1u);
  EXPECT_EQ(count(TMEM_OP_GET, TMEM_STATUS_OK), 1u);
  EXPECT_EQ(count(TMEM_OP_GET, TMEM_STATUS_MISS), 1u);
  EXPECT_EQ(count(200, TMEM_STATUS_BAD_OP), 1u);
}

}  // namespace
}  // namespace tmem
