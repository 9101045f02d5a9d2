// SPDX-License-Identifier: GPL-2.0-only
// Faults on purpose: with each one on, its rule is seen broken; with it off, kept.
#include <set>
#include <string>

#include "tests/guest_core/client_fixture.h"

extern "C" {
#include "guest-shims/tmem/core/fault.h"
}

namespace tmem {
namespace {

class Faults : public SwapFixture {
 public:
  // Each plays the shortest story in which the fault shows, and says whether it has.
  bool DroppedPutKeepsOld() {
    ConnectSwap(TMEM_POOL_PERSISTENT, 1);
    EXPECT_TRUE(Store(1, 1));
    EXPECT_FALSE(Store(1, 2)) << "there is no second credit";
    const bool swap = Load(1, 1) != Loaded::kDevice;
    return swap && OldPageBehindADroppedPut();
  }

  bool StaleStagedPut() {
    ConnectWithPool();
    Put(1, 1);
    FlushRange(1, 1);
    return Get(1, 1) != Got::kMiss;
  }

  bool ObjectFlushOneLane() {
    ConnectWithPool({.key_lanes = 4});
    for (std::uint64_t i = 0; i < 20; ++i) Put(i * 32, i);
    Kick();
    FlushObject();
    bool found = false;
    for (std::uint64_t i = 0; i < 20; ++i) found |= Get(i * 32, i) != Got::kMiss;
    return found;
  }

  bool AreaFlushLate() {
    ConnectSwap(TMEM_POOL_PERSISTENT);
    EXPECT_TRUE(Store(500, 1));
    tmem_swap_off(client_.get(), kArea);
    EXPECT_EQ(tmem_swap_on(client_.get(), kArea, 1000), 0);
    const std::uint64_t pages = std::uint64_t{2} * TMEM_FAULT_LATE_STORES;
    for (std::uint64_t i = 0; i < pages; ++i) {
      EXPECT_TRUE(Store(i, i));
      if (i % 8 == 0) Kick();
    }
    bool lost = false;
    for (std::uint64_t i = 0; i < pages; ++i) {
      lost |= Load(i, i) != Loaded::kRight;
    }
    return lost;
  }

  bool GetOtherPool() {
    ConnectWithPool();
    const u32 first = pool_;
    const int second = tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL);
    EXPECT_GE(second, 0);
    bool wrong = false;
    for (std::uint64_t i = 0; i < 20; ++i) {  // one of them has the same lane in both
      pool_ = first;
      Put(i * 32, i);
      pool_ = static_cast<u32>(second);
      Put(i * 32, 1000 + i);
      Kick();
      wrong |= Get(i * 32, 1000 + i) == Got::kWrong;
    }
    return wrong;
  }

  bool LanePerCpu() {
    ConnectWithPool();
    Put(1, 1);
    Kick();
    tmem_fault_on_cpu = 1;
    FlushRange(1, 1);
    Kick();
    tmem_fault_on_cpu = 0;
    return Get(1, 1) != Got::kMiss;
  }

  bool TableForgetsCollision() {
    ConnectWithPool({.key_lanes = 2}, 512);
    for (std::uint64_t i = 0; i < 300; ++i) PutAndKick(i);
    for (std::uint64_t i = 0; i < 300; ++i) FlushRange(i, i);
    for (std::uint64_t i = 300; i < 600; ++i) PutAndKick(i);
    bool found = false;
    for (std::uint64_t i = 0; i < 300; ++i) found |= Get(i, i) != Got::kMiss;
    return found;
  }

  bool LateCompletionReuse() {
    ConnectWithPool({.key_lanes = 1});
    Put(1, 1);
    Kick();
    tmem_inject.late_gets = 1;
    EXPECT_EQ(Get(1, 1), Got::kMiss) << "it gave up";
    tmem_inject.late_gets = 0;
    Put(2, 2);
    Kick();
    return Get(2, 2) == Got::kWrong;
  }

  bool ThpOneBit() {
    ConnectSwap(TMEM_POOL_PERSISTENT);
    for (std::uint64_t i = 8; i < 16; ++i) EXPECT_TRUE(Store(i, i));
    tmem_fault_forget_tail(client_.get(), kArea, 8, 8);
    EXPECT_EQ(Load(8, 8), Loaded::kRight);
    return Load(9, 9) == Loaded::kDevice;
  }

  bool FailedLoadReadsDevice() {
    ConnectSwap(TMEM_POOL_PERSISTENT);
    EXPECT_TRUE(Store(1, 1));
    tmem_inject.fail_loads = 1;
    return Load(1, 1) == Loaded::kDevice;
  }

  bool HandleWithoutGeneration() {
    ConnectWithPool();
    Put(1, 1);
    Kick();
    tmem_pool_destroy(client_.get(), pool_);
    EXPECT_EQ(tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL), static_cast<int>(pool_));
    return Get(1, 1) != Got::kMiss;
  }

 protected:
  void TearDown() override {
    tmem_fault_now = TMEM_FAULT_NONE;
    tmem_fault_on_cpu = 0;
    tmem_inject = {};
  }

 private:
  void PutAndKick(std::uint64_t index) {
    Put(index, index);
    Kick();
  }

  bool OldPageBehindADroppedPut() {
    ConnectWithPool({.key_lanes = 1});
    Put(1, 1);
    Kick();
    host_->Stop();
    for (std::uint64_t i = 100; Count(TMEM_COUNT_puts_dropped_no_slot) == 0; ++i) Put(i, i);
    Put(1, 2);
    host_->Start();
    Kick();
    return Get(1, 2) == Got::kWrong;
  }
};

struct Story {
  u32 fault;
  bool (Faults::*shows)();
};

// The three that are missing break the kernel's hooks, not the core.
const std::vector<Story> kStories = {
    {TMEM_FAULT_DROPPED_PUT_KEEPS_OLD, &Faults::DroppedPutKeepsOld},
    {TMEM_FAULT_STALE_STAGED_PUT, &Faults::StaleStagedPut},
    {TMEM_FAULT_OBJECT_FLUSH_ONE_LANE, &Faults::ObjectFlushOneLane},
    {TMEM_FAULT_AREA_FLUSH_LATE, &Faults::AreaFlushLate},
    {TMEM_FAULT_GET_OTHER_POOL, &Faults::GetOtherPool},
    {TMEM_FAULT_LANE_PER_CPU, &Faults::LanePerCpu},
    {TMEM_FAULT_TABLE_FORGETS_COLLISION, &Faults::TableForgetsCollision},
    {TMEM_FAULT_LATE_COMPLETION_REUSE, &Faults::LateCompletionReuse},
    {TMEM_FAULT_THP_ONE_BIT, &Faults::ThpOneBit},
    {TMEM_FAULT_FAILED_LOAD_READS_DEVICE, &Faults::FailedLoadReadsDevice},
    {TMEM_FAULT_HANDLE_WITHOUT_GENERATION, &Faults::HandleWithoutGeneration},
};

class EachFault : public Faults, public ::testing::WithParamInterface<Story> {};

TEST_P(EachFault, OffTheRuleIsKept) {
  EXPECT_FALSE((this->*GetParam().shows)());
}

TEST_P(EachFault, OnTheRuleIsSeenBroken) {
  tmem_fault_now = GetParam().fault;
  EXPECT_TRUE((this->*GetParam().shows)());
}

std::string NameOfFault(const ::testing::TestParamInfo<Story>& info) {
  std::string name = tmem_fault_name(info.param.fault);
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Core, EachFault, ::testing::ValuesIn(kStories), NameOfFault);

TEST(FaultNames, AreDifferentAndNothingElseIsOne) {
  std::set<std::string> names;
  for (u32 fault = 0; fault < TMEM_FAULT_END; ++fault) {
    EXPECT_EQ(tmem_fault_of_name(tmem_fault_name(fault)), static_cast<int>(fault));
    names.insert(tmem_fault_name(fault));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(TMEM_FAULT_END));
  EXPECT_EQ(tmem_fault_of_name(""), TMEM_FAULT_NONE);
  EXPECT_EQ(tmem_fault_of_name("dropped-put"), -EINVAL);
}

}  // namespace
}  // namespace tmem
