// SPDX-License-Identifier: GPL-2.0-only
// Alarms of the event loop: when they ring, in which order, and beside what else it does.
#include "host-store/doorbell/event_loop.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "host-store/base/clock.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kS = 1000 * kMs;

class EventLoopAlarm : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
    ASSERT_TRUE(loop) << loop.error().message;
    loop_ = std::move(*loop);
  }

  void StopAfter(std::uint64_t ns) {
    loop_->SetAlarm(ns, [this] { loop_->Stop(); });
  }

  EventLoop::AlarmId Note(std::uint64_t after_ns, char letter) {
    return loop_->SetAlarm(after_ns, [this, letter] { rung_ += letter; });
  }

  std::unique_ptr<EventLoop> loop_;
  std::string rung_;
};

TEST_F(EventLoopAlarm, RingOnceInOrderOfTimeAndNeverEarly) {
  const std::uint64_t begin_ns = SteadyClock().NowNs();
  Note(20 * kMs, 'c');
  Note(10 * kMs, 'a');
  Note(10 * kMs, 'b');
  StopAfter(30 * kMs);
  loop_->Run();
  EXPECT_EQ(rung_, "abc");
  EXPECT_GE(SteadyClock().NowNs() - begin_ns, 30 * kMs);
}

TEST_F(EventLoopAlarm, ACancelledOneDoesNotRing) {
  const EventLoop::AlarmId other = Note(10 * kMs, 'x');
  loop_->SetAlarm(kMs, [this, other] { loop_->CancelAlarm(other); });
  StopAfter(20 * kMs);
  loop_->Run();
  EXPECT_EQ(rung_, "");
  loop_->CancelAlarm(other);
  loop_->CancelAlarm(EventLoop::AlarmId::kNone);
}

TEST_F(EventLoopAlarm, OneThatSetsItselfAgainLetsOthersHaveTheirTurn) {
  std::function<void()> again = [&] {
    rung_ += 'r';
    loop_->SetAlarm(0, again);
  };
  loop_->SetAlarm(0, again);
  Note(5 * kMs, 'x');
  StopAfter(10 * kMs);
  loop_->Run();
  EXPECT_GT(rung_.size(), 2u);
  EXPECT_NE(rung_.find('x'), std::string::npos);
}

TEST_F(EventLoopAlarm, ChoresGoOnMeanwhileAndDoNotHoldThemUp) {
  std::uint64_t pieces = 0;
  loop_->Begin([&pieces] {
    ++pieces;
    return true;
  });
  Note(5 * kMs, 'x');
  StopAfter(10 * kMs);
  loop_->Run();
  EXPECT_EQ(rung_, "x");
  EXPECT_GT(pieces, 2u);
}

TEST_F(EventLoopAlarm, StopsAtOnceWhileOneIsFarAway) {
  Note(3600 * kS, 'x');
  std::thread other([this] { loop_->Stop(); });
  loop_->Run();
  other.join();
  EXPECT_EQ(rung_, "");
}

}  // namespace
}  // namespace tmem
