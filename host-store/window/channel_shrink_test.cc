// SPDX-License-Identifier: GPL-2.0-only
// What the operator asks of a guest, through a channel.
#include <gtest/gtest.h>

#include "host-store/window/channel_fixture.h"

namespace tmem {
namespace {

using Phase = ShrinkRequests::Phase;

class ChannelShrink : public ChannelTest {
 protected:
  static constexpr std::uint64_t kFeatures =
      TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_SHRINK;

  ChannelShrink() {
    Reopen();
    EXPECT_EQ(guest_.Register(kFeatures), TMEM_STATUS_OK);
  }
  ~ChannelShrink() override { channel_.reset(); }

  void Reopen() {
    channel_.reset();
    tmem::ChannelOptions options;
    options.shrink = &requests_;
    channel_ = std::make_unique<Channel>(*store_, id_, view(), bell_, options);
  }
  tmem_desc Say(tmem_op op, std::uint64_t pages, std::uint32_t outcome) {
    tmem_desc desc{};
    desc.op = static_cast<tmem_u8>(op);
    desc.value = pages;
    desc.count = outcome;
    return guest_.Do(view().control_lane(), desc);
  }
  std::uint64_t target() const { return view().host_page().shrink_target_pages; }
  std::uint32_t drain() const { return view().host_page().drain; }

  ShrinkRequests requests_;
};

TEST_F(ChannelShrink, IsOfferedOnlyWhereItIsConfigured) {
  EXPECT_NE(view().host_page().features_offered & TMEM_FEATURE_SHRINK, 0u);
  channel_ = std::make_unique<Channel>(*store_, id_, view(), bell_, tmem::ChannelOptions());
  EXPECT_EQ(view().host_page().features_offered & TMEM_FEATURE_SHRINK, 0u);
  EXPECT_EQ(guest_.Register(kFeatures), TMEM_STATUS_UNSUPPORTED);
  EXPECT_EQ(guest_.Register(TMEM_FEATURE_EPHEMERAL), TMEM_STATUS_OK);
  EXPECT_EQ(Say(TMEM_OP_SHRUNK, 1, 0).status, TMEM_STATUS_UNSUPPORTED);
}

TEST_F(ChannelShrink, AskingIsWorkAndRingsTheGuest) {
  EXPECT_FALSE(channel_->HasWork());
  const std::uint64_t rings = bell_.rings;
  requests_.AskShrink(1000);
  ASSERT_TRUE(channel_->HasWork());
  EXPECT_EQ(channel_->Look(), Channel::Work::kPlain);
  Kick();
  EXPECT_EQ(target(), 1000u);
  EXPECT_EQ(bell_.rings, rings + 1);
  EXPECT_FALSE(channel_->HasWork());
}

TEST_F(ChannelShrink, S1_WhatIsLeftIsTheHostsCount) {
  requests_.AskShrink(1000);
  Kick();
  const tmem_desc first = Say(TMEM_OP_SHRUNK, 300, TMEM_SHRINK_CONTINUES);
  EXPECT_EQ(first.status, TMEM_STATUS_OK);
  EXPECT_EQ(first.value, 700u);
  EXPECT_EQ(target(), 700u);
  EXPECT_EQ(requests_.status().shrink.phase, Phase::kWorking);
  // What the guest writes there changes nothing.
  view().host_page().shrink_target_pages = 5;
  EXPECT_EQ(Say(TMEM_OP_SHRUNK, 100, TMEM_SHRINK_CONTINUES).value, 600u);
  EXPECT_EQ(target(), 600u);
  EXPECT_EQ(Say(TMEM_OP_SHRUNK, UINT64_MAX, TMEM_SHRINK_CONTINUES).value, 0u);
  EXPECT_EQ(requests_.status().shrink.phase, Phase::kDone);
  EXPECT_EQ(requests_.status().shrink.done_pages, UINT64_MAX);
}

TEST_F(ChannelShrink, S1_AGuestWithNoMoreToGiveEndsIt) {
  requests_.AskShrink(UINT64_MAX);
  Kick();
  EXPECT_EQ(target(), UINT64_MAX);
  EXPECT_EQ(Say(TMEM_OP_SHRUNK, 10, TMEM_SHRINK_NOTHING_LEFT).value, 0u);
  EXPECT_EQ(target(), 0u);
  EXPECT_EQ(requests_.status().shrink.phase, Phase::kNothingLeft);
}

TEST_F(ChannelShrink, S1_AnotherTargetReplacesTheOneBefore) {
  requests_.AskShrink(1000);
  Kick();
  requests_.AskShrink(50);
  Kick();
  EXPECT_EQ(target(), 50u);
  EXPECT_EQ(Say(TMEM_OP_SHRUNK, 20, TMEM_SHRINK_CONTINUES).value, 30u);
  requests_.AskShrink(0);
  Kick();
  EXPECT_EQ(target(), 0u);
  EXPECT_EQ(requests_.status().shrink.phase, Phase::kCancelled);
  EXPECT_EQ(Say(TMEM_OP_SHRUNK, 20, TMEM_SHRINK_CONTINUES).value, 0u);
}

TEST_F(ChannelShrink, S1_ARegistrationEndsAShrink) {
  requests_.AskShrink(1000);
  Kick();
  ASSERT_EQ(guest_.Register(kFeatures), TMEM_STATUS_OK);
  EXPECT_EQ(target(), 0u);
  EXPECT_EQ(requests_.status().shrink.phase, Phase::kOver);
  EXPECT_TRUE(requests_.status().taken);
  ASSERT_EQ(guest_.Register(TMEM_FEATURE_EPHEMERAL), TMEM_STATUS_OK);
  EXPECT_FALSE(requests_.status().taken);
}

TEST_F(ChannelShrink, S2_ADrainTakesCreditsBackUntilItIsEnded) {
  const std::uint64_t pool = guest_.CreatePool(TMEM_POOL_PERSISTENT);
  const TestPage page = MakeTestPage(1, TestPageKind::kCompressible);
  ASSERT_EQ(guest_.Put({pool, 1, 1}, page, 7), TMEM_STATUS_OK);
  const std::uint64_t granted = guest_.CreditsGranted();
  requests_.AskDrain();
  Kick();
  EXPECT_EQ(view().host_page().credits_target, 0u);
  const std::uint32_t number = drain();
  EXPECT_NE(number, 0u);
  tmem_desc back{};
  back.op = TMEM_OP_CREDIT_RETURN;
  back.value = granted - 1;
  EXPECT_EQ(guest_.Do(view().control_lane(), back).value, granted - 1);
  EXPECT_EQ(guest_.Put({pool, 1, 2}, page, 7), TMEM_STATUS_NO_CREDIT);
  EXPECT_EQ(Say(TMEM_OP_DRAINED, 0, TMEM_SHRINK_CONTINUES).value, 1u) << "held";
  ASSERT_EQ(guest_.Flush({pool, 1, 1}, 1), TMEM_STATUS_OK);
  EXPECT_EQ(Say(TMEM_OP_DRAINED, 1, TMEM_SHRINK_NOTHING_LEFT).value, 0u);
  EXPECT_EQ(requests_.status().drain.phase, Phase::kDone);
  EXPECT_EQ(requests_.status().drain.done_pages, 1u);
  EXPECT_EQ(drain(), number) << "stays asked";
  EXPECT_EQ(guest_.CreditsGranted(), granted);

  requests_.EndDrain();
  Kick();
  EXPECT_EQ(drain(), 0u);
  EXPECT_GT(view().host_page().credits_target, 0u);
  EXPECT_GT(guest_.CreditsGranted(), granted);
  EXPECT_EQ(guest_.Put({pool, 1, 2}, page, 7), TMEM_STATUS_OK);
}

TEST_F(ChannelShrink, S2_ADrainOutlivesRegistrationsAndChannels) {
  requests_.AskDrain();
  Kick();
  const std::uint32_t number = drain();
  EXPECT_EQ(Say(TMEM_OP_DRAINED, 0, TMEM_SHRINK_NO_MEMORY).status, TMEM_STATUS_OK);
  EXPECT_EQ(requests_.status().drain.phase, Phase::kNoMemory);
  requests_.AskDrain();
  Kick();
  EXPECT_NE(drain(), number) << "the guest is to try again";
  Reopen();
  EXPECT_EQ(drain(), 0u) << "nobody is registered";
  EXPECT_FALSE(requests_.status().taken);
  ASSERT_EQ(guest_.Register(kFeatures), TMEM_STATUS_OK);
  EXPECT_NE(drain(), 0u);
  EXPECT_EQ(view().host_page().credits_target, 0u);
  ASSERT_NE(guest_.CreatePool(TMEM_POOL_PERSISTENT), 0u);
  EXPECT_EQ(guest_.CreditsGranted(), 0u);
  // A guest that does not know of it gets no credits either.
  ASSERT_EQ(guest_.Register(TMEM_FEATURE_PERSISTENT), TMEM_STATUS_OK);
  ASSERT_NE(guest_.CreatePool(TMEM_POOL_PERSISTENT), 0u);
  EXPECT_EQ(drain(), 0u);
  EXPECT_EQ(guest_.CreditsGranted(), 0u);
}

TEST_F(ChannelShrink, S2_AFreezeEndsAfterADrainAndADrainAfterAFreeze) {
  requests_.AskDrain();
  Kick();
  channel_->Freeze();
  channel_->Thaw();
  EXPECT_EQ(view().host_page().credits_target, 0u);
  channel_->Freeze();
  requests_.EndDrain();
  Kick();
  EXPECT_EQ(view().host_page().credits_target, 0u);
  channel_->Thaw();
  EXPECT_GT(view().host_page().credits_target, 0u);
}

}  // namespace
}  // namespace tmem
