// SPDX-License-Identifier: GPL-2.0-only
// What the host wants back: how a guest follows it, step by step.
#include <algorithm>
#include <deque>
#include <functional>
#include <map>

#include "tests/guest_core/client_fixture.h"

namespace tmem {
namespace {

// A driver without a kernel: cache is a number, pages come home into a map.
class ShrinkRules : public SwapFixture {
 protected:
  static constexpr std::uint64_t kFeatures =
      TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL | TMEM_FEATURE_SHRINK;

  void Start(std::uint64_t features = kFeatures) {
    shrink_ = true;
    ConnectSwap(TMEM_POOL_PERSISTENT, 1000, {.features = features});
    // The host's side of the two operations, as a channel has it.
    host_->intercept = [this](const tmem_desc& desc) -> std::uint16_t {
      if (desc.op == TMEM_OP_SHRUNK) {
        said_.push_back({desc.value, desc.count});
        tmem_u64& target = host_->header().host.shrink_target_pages;
        target = desc.count != 0 ? 0 : target - std::min(target, desc.value);
      }
      if (desc.op == TMEM_OP_DRAINED) said_.push_back({desc.value, desc.count});
      return 0;
    };
  }

  void Ask(std::uint64_t pages) {
    host_->header().host.shrink_target_pages = pages;
    Notice();
  }
  void AskDrain(std::uint32_t number) {
    host_->header().host.credits_target = 0;
    host_->header().host.drain = number;
    Notice();
  }
  void Notice() {
    if (tmem_client_interrupt(client_.get())) tmem_client_work(client_.get());
  }

  // Until the guest has nothing to do any more; returns the steps that took.
  int Work(int most = 10'000) {
    for (int steps = 1; steps <= most; ++steps) {
      if (tmem_shrink_work(client_.get(), &kShrinkOps, this) == 0) return steps;
    }
    ADD_FAILURE() << "no end after " << most << " steps";
    return most;
  }

  const tmem_shrink_ops* Ops() const { return &kShrinkOps; }

  struct Said {
    std::uint64_t pages;
    std::uint32_t outcome;
    bool operator==(const Said&) const = default;
  };
  std::uint64_t SaidPages() const {
    std::uint64_t pages = 0;
    for (const Said& said : said_) pages += said.pages;
    return pages;
  }

  std::uint64_t cache_ = 0;
  std::map<std::uint64_t, Page> home_;
  std::deque<int> errors_;  // of the next pages to come home
  int slots_freed_ = 0;
  std::vector<Said> said_;
  std::function<void()> between_;

 private:
  static ShrinkRules* Self(void* context) { return static_cast<ShrinkRules*>(context); }
  static u64 Reclaim(void* context, u64 pages) {
    ShrinkRules* self = Self(context);
    EXPECT_LE(pages, TMEM_SHRINK_STEP_PAGES);
    if (self->between_) self->between_();
    const std::uint64_t given = std::min<std::uint64_t>(self->cache_, pages);
    self->cache_ -= given;
    return given;
  }
  static int BringHome(void* context, u32 area, u64 slot) {
    ShrinkRules* self = Self(context);
    EXPECT_EQ(area, kArea);
    if (!self->errors_.empty()) {
      const int error = self->errors_.front();
      self->errors_.pop_front();
      if (error != 0) return error;
    }
    self->home_[slot] = self->LoadPage(slot);
    self->Invalidate(slot);
    return 0;
  }
  static void FreeSlots(void* context) { ++Self(context)->slots_freed_; }

  static constexpr tmem_shrink_ops kShrinkOps = {
      .step_pages = TMEM_SHRINK_STEP_PAGES,
      .reclaim = Reclaim,
      .bring_home = BringHome,
      .free_slots = FreeSlots,
  };
};

TEST_F(ShrinkRules, S3_IsNotChosenUnlessThisGuestWantsIt) {
  Connect({.features = kFeatures});
  EXPECT_EQ(host_->header().guest.features_chosen & TMEM_FEATURE_SHRINK, 0u);
  host_->header().host.shrink_target_pages = 100;
  host_->header().host.drain = 1;
  EXPECT_FALSE(tmem_client_interrupt(client_.get()));
  tmem_client_work(client_.get());
  EXPECT_EQ(shrinks_, 0);
  Start();
  EXPECT_NE(host_->header().guest.features_chosen & TMEM_FEATURE_SHRINK, 0u);
}

TEST_F(ShrinkRules, AHostThatDoesNotOfferItIsNotObeyed) {
  Start(kFeatures & ~TMEM_FEATURE_SHRINK);
  cache_ = 1000;
  Ask(100);
  EXPECT_EQ(shrinks_, 0);
  EXPECT_EQ(Work(), 1);
  EXPECT_EQ(cache_, 1000u);
}

TEST_F(ShrinkRules, S1_GivesWhatIsAskedInStepsAndTellsEach) {
  Start();
  cache_ = 5000;
  Ask(1200);
  EXPECT_EQ(shrinks_, 1) << "asked once";
  Notice();
  EXPECT_EQ(shrinks_, 1) << "it is at it";
  Work();
  EXPECT_EQ(said_, (std::vector<Said>{{512, 0}, {512, 0}, {176, 0}}));
  EXPECT_EQ(cache_, 3800u);
  EXPECT_EQ(Count(TMEM_COUNT_shrunk_pages), 1200u);
  Ask(1);
  EXPECT_EQ(shrinks_, 2) << "and again for the next wish";
}

TEST_F(ShrinkRules, S1_AHugeTargetEndsWithTheCache) {
  Start();
  cache_ = 700;
  Ask(UINT64_MAX);
  Work();
  EXPECT_EQ(SaidPages(), 700u);
  EXPECT_EQ(said_.back().outcome, static_cast<std::uint32_t>(TMEM_SHRINK_NOTHING_LEFT));
  EXPECT_EQ(Count(TMEM_COUNT_shrinks_short), 1u);
}

TEST_F(ShrinkRules, S1_ATargetThatChangesMidwayIsFollowedFromThere) {
  Start();
  cache_ = 50'000;
  int steps = 0;
  between_ = [&] {
    if (++steps == 3) host_->header().host.shrink_target_pages = 600;
  };
  Ask(20'000);
  Work();
  EXPECT_EQ(SaidPages(), 2 * 512u + 512 + 88);
  steps = 0;
  said_.clear();
  between_ = [&] {
    if (++steps == 2) host_->header().host.shrink_target_pages = 0;
  };
  Ask(20'000);
  Work();
  EXPECT_EQ(SaidPages(), 2 * 512u) << "the step under way is still told";
}

TEST_F(ShrinkRules, S1_ARegistrationMidwayEndsItAndNothingOfItIsToldToTheNext) {
  Start();
  cache_ = 50'000;
  int steps = 0;
  between_ = [&] {
    if (++steps == 2) {
      host_->Reset();
      host_->header().host.shrink_target_pages = 0;
    }
  };
  Ask(20'000);
  Work();
  EXPECT_EQ(SaidPages(), 512u);
  tmem_client_work(client_.get());
  Work();
  EXPECT_EQ(SaidPages(), 512u);
}

TEST_F(ShrinkRules, AHostThatIsGoneIsNotWorkedFor) {
  Start();
  cache_ = 50'000;
  Ask(20'000);
  host_->Stop();
  for (int i = 0; i < 2; ++i) {
    EXPECT_GE(tmem_shrink_work(client_.get(), Ops(), this), TMEM_NS_PER_MS);
  }
  const std::uint64_t left = cache_;
  host_->Start();
  Work();
  EXPECT_LE(50'000 - left, 2 * TMEM_SHRINK_STEP_PAGES);
  EXPECT_EQ(cache_, 30'000u);
}

TEST_F(ShrinkRules, S2_EveryPromisedPageComesHomeAndTheHostHoldsNone) {
  Start();
  for (std::uint64_t slot = 0; slot < 300; ++slot) ASSERT_TRUE(Store(slot * 3, slot));
  Kick();
  AskDrain(1);
  EXPECT_EQ(tmem_credit_available(&client_->credit), 0u);
  EXPECT_FALSE(Store(1, 1)) << "no new ones";
  Work();
  EXPECT_EQ(host_->pages(), 0u);
  ASSERT_EQ(home_.size(), 300u);
  for (const auto& [slot, page] : home_) EXPECT_EQ(page, MakePage(slot / 3));
  EXPECT_EQ(SaidPages(), 300u);
  EXPECT_EQ(said_.back().outcome, static_cast<std::uint32_t>(TMEM_SHRINK_NOTHING_LEFT));
  const std::size_t said = said_.size();
  Notice();
  EXPECT_EQ(Work(), 1) << "it has ended, whatever the host leaves there";
  EXPECT_EQ(said_.size(), said);
  AskDrain(2);
  Work();
  EXPECT_EQ(said_.size(), said + 1) << "another number is another wish";
}

TEST_F(ShrinkRules, S2_WithoutMemoryItStopsAndSaysSo) {
  Start();
  for (std::uint64_t slot = 0; slot < 10; ++slot) ASSERT_TRUE(Store(slot, slot));
  errors_ = {0, 0, -ENOMEM, 0, -ENOMEM, -ENOMEM, -ENOMEM, -ENOMEM, -ENOMEM};
  AskDrain(1);
  Work();
  EXPECT_EQ(said_.back().outcome, static_cast<std::uint32_t>(TMEM_SHRINK_NO_MEMORY));
  EXPECT_EQ(SaidPages(), 3u);
  EXPECT_EQ(host_->pages(), 7u) << "the rest is where it was";
  for (std::uint64_t slot = 3; slot < 10; ++slot) EXPECT_EQ(Load(slot, slot), Loaded::kRight);
  errors_.clear();
  AskDrain(2);
  Work();
  EXPECT_EQ(host_->pages(), 0u);
  EXPECT_EQ(said_.back().outcome, static_cast<std::uint32_t>(TMEM_SHRINK_NOTHING_LEFT));
}

TEST_F(ShrinkRules, S2_WhatCannotBeReadIsSaidAndWhatChangedIsLookedAtAgain) {
  Start();
  for (std::uint64_t slot = 0; slot < 4; ++slot) ASSERT_TRUE(Store(slot, slot));
  errors_ = {-EAGAIN, -ENOENT, 0, 0};
  AskDrain(1);
  Work();
  EXPECT_EQ(home_.size(), 4u);
  EXPECT_GE(slots_freed_, 1);
  EXPECT_EQ(said_.back().outcome, static_cast<std::uint32_t>(TMEM_SHRINK_NOTHING_LEFT));

  host_->Grant(1000);
  host_->header().host.credits_target = 1000;
  ASSERT_TRUE(Store(9, 9));
  errors_ = {-EIO, -EIO, -EIO, -EIO};
  AskDrain(2);
  Work();
  EXPECT_EQ(said_.back().outcome, static_cast<std::uint32_t>(TMEM_SHRINK_UNREADABLE));
  EXPECT_GE(Count(TMEM_COUNT_drain_errors), 2u);
}

TEST_F(ShrinkRules, S2_APageStoredWhileTheDrainLooksComesHomeToo) {
  Start();
  ASSERT_TRUE(Store(1, 1));
  // Its credit was taken before the host asked: it is let in late.
  AskDrain(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(tmem_shrink_work(client_.get(), Ops(), this), 0u);
  }
  host_->Grant(1);
  host_->header().host.credits_target = 1;
  ASSERT_TRUE(Store(0, 2));
  host_->header().host.credits_target = 0;
  Work();
  EXPECT_EQ(home_.size(), 2u);
  EXPECT_EQ(host_->pages(), 0u);
}

TEST_F(ShrinkRules, S2_WrittenThroughPagesAreNoPromises) {
  shrink_ = true;
  ConnectSwap(TMEM_POOL_EPHEMERAL, 0, {.features = kFeatures});
  ASSERT_TRUE(Store(1, 1));
  said_.clear();
  host_->intercept = [this](const tmem_desc& desc) -> std::uint16_t {
    if (desc.op == TMEM_OP_DRAINED) said_.push_back({desc.value, desc.count});
    return 0;
  };
  AskDrain(1);
  Work();
  EXPECT_EQ(said_, (std::vector<Said>{{0, TMEM_SHRINK_NOTHING_LEFT}}));
  EXPECT_EQ(Load(1, 1), Loaded::kRight);
}

}  // namespace
}  // namespace tmem
