// SPDX-License-Identifier: GPL-2.0-only
// Reports in a channel: who wins the compare-and-swap, and what waits for whom (R1).
#include <gtest/gtest.h>

#include <utility>

#include "host-store/window/channel_fixture.h"

namespace tmem {
namespace {

// Answers when the test says.
class SteppedSink final : public ReportSink {
 public:
  void Begin(std::vector<tmem_report_range> taken) override {
    EXPECT_FALSE(busy_) << "one at a time";
    busy_ = true;
    ranges = std::move(taken);
    ++begun;
  }
  bool Ready() const override { return ready_; }
  Outcome Take() override {
    EXPECT_TRUE(ready_);
    ready_ = busy_ = false;
    return {TMEM_STATUS_OK, dropped_bytes_, 0,
            std::vector<tmem_status>(ranges.size(), TMEM_STATUS_OK)};
  }
  void Cancel() override {
    ready_ = busy_ = false;
    ++cancelled;
  }

  void Answer(std::uint64_t dropped_bytes) {
    dropped_bytes_ = dropped_bytes;
    ready_ = true;
  }

  std::vector<tmem_report_range> ranges;
  int begun = 0;
  int cancelled = 0;

 private:
  bool busy_ = false;
  bool ready_ = false;
  std::uint64_t dropped_bytes_ = 0;
};

class ChannelReport : public ChannelTest {
 protected:
  static constexpr std::uint64_t kFeatures = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_REPORT;

  ChannelReport() {
    channel_.reset();
    tmem::ChannelOptions options;
    options.reports = &sink_;
    channel_ = std::make_unique<Channel>(*store_, id_, view(), bell_, options);
    EXPECT_EQ(guest_.Register(kFeatures), TMEM_STATUS_OK);
    control_ = view().control_lane();
  }
  ~ChannelReport() override { channel_.reset(); }

  tmem_report_range* Slot() {
    return reinterpret_cast<tmem_report_range*>(view().lane(control_).Slot(3).data());
  }
  tmem_desc& Entry(std::uint64_t at) { return view().lane(control_).Entry(at); }

  std::uint64_t StageReport(std::uint32_t state = TMEM_REPORT_POSTED) {
    Slot()[0] = {0x200000, 0x200000, 0, 0, 0};
    Slot()[1] = {0x600000, 0x400000, 0, 0, 0};
    tmem_desc desc{};
    desc.op = TMEM_OP_REPORT;
    desc.state = state;
    desc.count = 2;
    desc.value = 3;
    return guest_.Stage(control_, desc);
  }

  SteppedSink sink_;
  std::uint32_t control_ = 0;
};

TEST_F(ChannelReport, IsOfferedWithASinkOnly) {
  EXPECT_NE(view().host_page().features_offered & TMEM_FEATURE_REPORT, 0u);
  EXPECT_EQ(view().host_page().max_report_ranges, TMEM_MAX_REPORT_RANGES);
  channel_ = std::make_unique<Channel>(*store_, id_, view(), bell_, tmem::ChannelOptions());
  EXPECT_EQ(view().host_page().features_offered & TMEM_FEATURE_REPORT, 0u);
  EXPECT_EQ(guest_.Register(kFeatures), TMEM_STATUS_UNSUPPORTED);
}

TEST_F(ChannelReport, IsTakenThenAnsweredWhenTheSinkIsDone) {
  const std::uint64_t at = StageReport();
  guest_.Publish(control_);
  ASSERT_EQ(sink_.begun, 1);
  ASSERT_EQ(sink_.ranges.size(), 2u);
  EXPECT_EQ(sink_.ranges[1].address, 0x600000u);
  EXPECT_EQ(Entry(at).state, TMEM_REPORT_TAKEN);
  EXPECT_FALSE(guest_.IsDone(control_, at));
  sink_.Answer(0x600000);
  Kick();
  ASSERT_TRUE(guest_.IsDone(control_, at));
  EXPECT_EQ(Entry(at).state, TMEM_REPORT_ANSWERED);
  EXPECT_EQ(guest_.Result(control_, at).status, TMEM_STATUS_OK);
  EXPECT_EQ(guest_.Result(control_, at).value, 0x600000u);
  EXPECT_EQ(Slot()[0].status, TMEM_STATUS_OK);
  EXPECT_EQ(Slot()[1].status, TMEM_STATUS_OK);
  EXPECT_EQ(channel_->counters().reported_bytes.value(), 0x600000u);
}

// A channel that polled for the sink would keep its worker from everything else.
TEST_F(ChannelReport, IsNoWorkWhileTheSinkHasIt) {
  StageReport();
  guest_.Publish(control_);
  EXPECT_FALSE(channel_->HasWork());
  EXPECT_EQ(channel_->Look(), Channel::Work::kNone);
  EXPECT_EQ(channel_->Visit().completed, 0u);
  sink_.Answer(1);
  EXPECT_TRUE(channel_->HasWork());
  EXPECT_NE(channel_->Look(), Channel::Work::kNone);
}

TEST_F(ChannelReport, KeepsOnlyTheControlLaneWaiting) {
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
  const TestPage page = MakeTestPage(1, TestPageKind::kRandom);
  StageReport();
  guest_.Publish(control_);
  TestPage got{};
  EXPECT_EQ(guest_.Put({pool, 1, 1}, page), TMEM_STATUS_OK);
  EXPECT_EQ(guest_.Get({pool, 1, 1}, got), TMEM_STATUS_OK);
  EXPECT_EQ(got, page);
  const std::uint64_t behind = guest_.Stage(control_, tmem_desc{});
  guest_.Publish(control_);
  EXPECT_FALSE(guest_.IsDone(control_, behind));
  sink_.Answer(1);
  Kick();
  EXPECT_TRUE(guest_.IsDone(control_, behind));
}

// R1
TEST_F(ChannelReport, WithdrawnBeforeItIsTakenIsNotDropped) {
  visit_on_kick_ = false;
  const std::uint64_t at = StageReport();
  guest_.Publish(control_);
  Entry(at).state = TMEM_REPORT_WITHDRAWN;
  visit_on_kick_ = true;
  Kick();
  EXPECT_EQ(sink_.begun, 0);
  ASSERT_TRUE(guest_.IsDone(control_, at));
  EXPECT_EQ(guest_.Result(control_, at).status, TMEM_STATUS_NOT_TAKEN);
  EXPECT_EQ(Entry(at).state, TMEM_REPORT_WITHDRAWN);
}

TEST_F(ChannelReport, OtherStatesAreRefused) {
  for (const std::uint32_t state : {0u, 2u, 4u, 77u}) {
    const std::uint64_t at = StageReport(state);
    guest_.Publish(control_);
    EXPECT_EQ(guest_.Result(control_, at).status, TMEM_STATUS_BAD_FIELD) << state;
  }
  EXPECT_EQ(sink_.begun, 0);
}

// R1: a guest that is registered again has its pages back.
TEST_F(ChannelReport, EndsWithTheRegistration) {
  StageReport();
  guest_.Publish(control_);
  EXPECT_EQ(guest_.Register(kFeatures), TMEM_STATUS_OK);
  EXPECT_EQ(sink_.cancelled, 1);
  const std::uint64_t at = StageReport();
  guest_.Publish(control_);
  EXPECT_EQ(sink_.begun, 2);
  sink_.Answer(5);
  Kick();
  EXPECT_EQ(guest_.Result(control_, at).value, 5u);
}

TEST_F(ChannelReport, EndsWithAResetOfTheChannel) {
  StageReport();
  guest_.Publish(control_);
  view().lane(control_).head().done = 17;
  Kick();
  EXPECT_EQ(sink_.cancelled, 1);
  EXPECT_EQ(channel_->counters().resets.value(), 1u);
}

TEST_F(ChannelReport, EndsWithTheChannel) {
  StageReport();
  guest_.Publish(control_);
  channel_.reset();
  EXPECT_EQ(sink_.cancelled, 1);
}

}  // namespace
}  // namespace tmem
