// SPDX-License-Identifier: GPL-2.0-only
// Reports of free memory: nothing is given back to the guest while the host may still drop it (R1).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "guest-shims/tmem/core/fault.h"
#include "tests/guest_core/client_fixture.h"

namespace tmem {
namespace {

class Report : public ClientFixture {
 protected:
  Report() {
    FakeHostOptions options;
    options.control_slots = 4;
    options.features |= TMEM_FEATURE_REPORT;
    Connect(options);
    ranges_ = {{0x200000, 0x200000, 0, 0, 0}, {0x600000, 0x400000, 0, 0, 0}};
  }

  int Do() { return tmem_report(client_.get(), ranges_.data(), static_cast<u32>(ranges_.size())); }
  tmem_desc& Entry(std::uint64_t at) {
    auto* lane = reinterpret_cast<std::uint8_t*>(&host_->head(2));
    return reinterpret_cast<tmem_desc*>(lane + TMEM_PAGE_BYTES)[at % TMEM_MIN_RING_ENTRIES];
  }
  tmem_report_range* RangesOf(const tmem_desc& desc) {
    auto* lane = reinterpret_cast<std::uint8_t*>(&host_->head(2));
    return reinterpret_cast<tmem_report_range*>(lane + tmem_slots_offset(TMEM_MIN_RING_ENTRIES) +
                                                desc.value * TMEM_PAGE_BYTES);
  }
  void Answer(tmem_desc& desc) {
    desc.state = TMEM_REPORT_ANSWERED;
    for (u32 at = 0; at < desc.count; ++at) RangesOf(desc)[at].status = TMEM_STATUS_OK;
  }
  std::uint32_t StateNow(std::uint64_t at) {
    return __atomic_load_n(&Entry(at).state, __ATOMIC_ACQUIRE);
  }

  // A report in a thread of its own, whose host is stopped and has taken it or not.
  class InThread {
   public:
    InThread(Report& test, bool taken) : test_(test) {
      test_.host_->Stop();
      const std::uint64_t at = test_.host_->head(2).posted;
      thread_ = std::thread([this] {
        outcome_ = test_.Do();
        returned_.store(true, std::memory_order_release);
      });
      while (test_.StateNow(at) != TMEM_REPORT_POSTED) std::this_thread::yield();
      if (taken) __atomic_store_n(&test_.Entry(at).state, TMEM_REPORT_TAKEN, __ATOMIC_RELEASE);
    }
    ~InThread() {
      if (thread_.joinable()) thread_.join();
    }
    bool ReturnsWithin(std::chrono::milliseconds wait) {
      const auto deadline = std::chrono::steady_clock::now() + wait;
      while (!Returned() && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return Returned();
    }
    int Outcome() {
      thread_.join();
      return outcome_;
    }

   private:
    bool Returned() const { return returned_.load(std::memory_order_acquire); }

    Report& test_;
    std::thread thread_;
    std::atomic<bool> returned_{false};
    int outcome_ = 0;
  };

  std::vector<tmem_report_range> ranges_;
};

constexpr auto kLongEnough = std::chrono::seconds(60);
// Longer than a guest waits for a host to begin.
constexpr auto kTooLong = std::chrono::milliseconds(600);

TEST_F(Report, IsOneDescriptorWithAllRanges) {
  host_->intercept = [this](const tmem_desc& desc) -> std::uint16_t {
    if (desc.op != TMEM_OP_REPORT) return 0;
    EXPECT_EQ(desc.state, TMEM_REPORT_POSTED);
    EXPECT_EQ(desc.count, 2u);
    EXPECT_EQ(RangesOf(desc)[1].address, 0x600000u);
    EXPECT_EQ(RangesOf(desc)[1].bytes, 0x400000u);
    RangesOf(desc)[0].status = TMEM_STATUS_BAD_RANGE;
    RangesOf(desc)[1].status = TMEM_STATUS_OK;
    return TMEM_STATUS_OK;
  };
  EXPECT_EQ(Do(), 0);
  EXPECT_EQ(host_->executed(TMEM_OP_REPORT), 1u);
  EXPECT_EQ(ranges_[0].status, TMEM_STATUS_BAD_RANGE);
  EXPECT_EQ(ranges_[1].status, TMEM_STATUS_OK);
  EXPECT_EQ(Count(TMEM_COUNT_reports), 1u);
  EXPECT_EQ(Count(TMEM_COUNT_report_ranges), 1u);
  EXPECT_EQ(Count(TMEM_COUNT_report_ranges_refused), 1u);
  EXPECT_EQ(Count(TMEM_COUNT_report_bytes), 0x400000u);
}

TEST_F(Report, SlotsComeBack) {
  for (int i = 0; i < 40; ++i) EXPECT_EQ(Do(), 0);
  EXPECT_EQ(host_->executed(TMEM_OP_REPORT), 40u);
}

TEST_F(Report, IsNotMadeUnlessTheHostTakesReports) {
  Connect();
  EXPECT_FALSE(tmem_may_report(client_.get()));
  EXPECT_EQ(Do(), -EOPNOTSUPP);
  EXPECT_EQ(host_->executed(TMEM_OP_REPORT), 0u);
}

TEST_F(Report, IsRefusedAsAWhole) {
  host_->intercept = [](const tmem_desc& desc) -> std::uint16_t {
    return desc.op == TMEM_OP_REPORT ? TMEM_STATUS_INHIBITED : 0;
  };
  EXPECT_EQ(Do(), -EPERM);
  EXPECT_EQ(Count(TMEM_COUNT_reports_refused), 1u);
  EXPECT_EQ(Count(TMEM_COUNT_report_bytes), 0u);
}

// R1: POSTED -> WITHDRAWN.
TEST_F(Report, IsWithdrawnIfTheHostDoesNotBegin) {
  host_->Stop();
  const std::uint64_t at = host_->head(2).posted;
  EXPECT_EQ(Do(), -ETIMEDOUT);
  EXPECT_EQ(StateNow(at), TMEM_REPORT_WITHDRAWN);
  EXPECT_EQ(Count(TMEM_COUNT_reports_withdrawn), 1u);
}

TEST_F(Report, NextOneWaitsUntilTheHostHasPassedTheWithdrawnOne) {
  host_->Stop();
  EXPECT_EQ(Do(), -ETIMEDOUT);
  EXPECT_EQ(Do(), -EBUSY);
  host_->Start();
  host_->Process();
  EXPECT_EQ(Do(), 0);
}

// R1: no time-out once it is taken.
TEST_F(Report, TakenIsWaitedForUntilItIsAnswered) {
  InThread report(*this, true);
  EXPECT_FALSE(report.ReturnsWithin(kTooLong));
  Answer(Entry(host_->head(2).posted - 1));
  host_->Process();
  ASSERT_TRUE(report.ReturnsWithin(kLongEnough));
  EXPECT_EQ(report.Outcome(), 0);
  EXPECT_EQ(Count(TMEM_COUNT_reports_withdrawn), 0u);
}

// The guest lets go of its lanes when it begins to register; the host may be at work until it
// answers.
TEST_F(Report, TakenIsNotOverWhenTheChannelOnlySeemsLost) {
  InThread report(*this, true);
  // Impossible counters: the client stops using the window and asks for registration.
  __atomic_store_n(&host_->head(0).done, 1000, __ATOMIC_RELEASE);
  Kick();
  tmem_client_work(client_.get());  // in vain, the host is stopped
  EXPECT_FALSE(report.ReturnsWithin(kTooLong));
  host_->Start();
  client_->register_failed_ns = 0;
  tmem_client_work(client_.get());
  ASSERT_TRUE(report.ReturnsWithin(kLongEnough));
  EXPECT_EQ(report.Outcome(), -ECONNRESET);
  EXPECT_EQ(Count(TMEM_COUNT_reports_torn_down), 1u);
  EXPECT_EQ(Do(), 0);
}

TEST_F(Report, TakenIsOverWhenTheHostHasResetTheChannel) {
  InThread report(*this, true);
  EXPECT_FALSE(report.ReturnsWithin(kTooLong));
  host_->Reset();
  ASSERT_TRUE(report.ReturnsWithin(kLongEnough));
  EXPECT_EQ(report.Outcome(), -ECONNRESET);
  host_->Start();
  Settle();
  EXPECT_EQ(Do(), 0);
}

TEST_F(Report, PostedIsWithdrawnWhenTheChannelIsLost) {
  InThread report(*this, false);
  __atomic_store_n(&host_->head(0).done, 1000, __ATOMIC_RELEASE);
  Kick();
  ASSERT_TRUE(report.ReturnsWithin(kLongEnough));
  EXPECT_EQ(report.Outcome(), -ETIMEDOUT);
}

// What the lab's stress is to find, found here: the host drops after the report has returned.
TEST_F(Report, FaultReturnsBeforeTheHostHasAnswered) {
  tmem_fault_now = TMEM_FAULT_REPORT_RETURNS_EARLY;
  host_->Stop();
  const std::uint64_t at = host_->head(2).posted;
  EXPECT_EQ(Do(), -ETIMEDOUT);
  EXPECT_EQ(StateNow(at), TMEM_REPORT_POSTED) << "the host can still take it";
  host_->Start();
  EXPECT_EQ(host_->executed(TMEM_OP_REPORT), 0u);
  EXPECT_EQ(Do(), -ETIMEDOUT);
  tmem_fault_now = TMEM_FAULT_NONE;
  EXPECT_EQ(host_->executed(TMEM_OP_REPORT), 1u) << "the first one, when the second came";
}

}  // namespace
}  // namespace tmem
