// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/ctl/shrink_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tmem {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr std::uint64_t kSecond = 1'000'000'000;

json Shrink(const char* state, std::uint64_t done_bytes) {
  return {{"connected", true},
          {"shrink", {{"state", state}, {"asked_bytes", 4u << 20}, {"done_bytes", done_bytes}}}};
}

json Drain(const char* state, std::uint64_t done_bytes, std::uint64_t persistent_pages) {
  return {{"connected", true},
          {"persistent_pages", persistent_pages},
          {"drain", {{"on", true}, {"state", state}, {"done_bytes", done_bytes}}}};
}

TEST(ShrinkWatch, WaitsWhileTheGuestMovesAndThenSaysWhatCameOfIt) {
  ShrinkWatch watch(ShrinkWatch::Task::kShrink, 10 * kSecond);
  EXPECT_FALSE(watch.Look(Shrink("asked", 0), 1 * kSecond));
  EXPECT_FALSE(watch.Look(Shrink("working", 1u << 20), 10 * kSecond));
  EXPECT_FALSE(watch.Look(Shrink("working", 1u << 20), 19 * kSecond)) << "it moved at 10";
  const auto verdict = watch.Look(Shrink("done", 4u << 20), 19 * kSecond);
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(verdict->done);
  EXPECT_THAT(verdict->text, HasSubstr("4.0 MiB of 4.0 MiB"));
}

TEST(ShrinkWatch, AGuestThatNeverAnswersIsGivenUp) {
  ShrinkWatch watch(ShrinkWatch::Task::kShrink, 10 * kSecond);
  EXPECT_FALSE(watch.Look(Shrink("asked", 0), 1 * kSecond));
  const auto verdict = watch.Look(Shrink("asked", 0), 11 * kSecond);
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(verdict->done);
  EXPECT_THAT(verdict->text, HasSubstr("nothing for 10 s"));
}

TEST(ShrinkWatch, ADrainIsDoneWhenNothingIsHeldAnyMore) {
  ShrinkWatch watch(ShrinkWatch::Task::kDrain, 10 * kSecond);
  EXPECT_FALSE(watch.Look(Drain("working", 1u << 20, 256), 1 * kSecond));
  EXPECT_FALSE(watch.Look(Drain("done", 2u << 20, 3), 2 * kSecond)) << "flushes are on their way";
  const auto verdict = watch.Look(Drain("done", 2u << 20, 0), 3 * kSecond);
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(verdict->done);
  EXPECT_THAT(verdict->text, HasSubstr("2.0 MiB home, 0 B still here"));
}

// It says that pages go home, and puts others.
TEST(ShrinkWatch, AGuestThatOnlySaysSoIsGivenUp) {
  ShrinkWatch watch(ShrinkWatch::Task::kDrain, 10 * kSecond);
  EXPECT_FALSE(watch.Look(Drain("working", 0, 200), 1 * kSecond));
  std::uint64_t now_ns = 1 * kSecond;
  std::uint64_t done_bytes = 0;
  std::optional<ShrinkWatch::Verdict> verdict;
  while (!verdict && now_ns < 60 * kSecond) {
    now_ns += kSecond;
    done_bytes += 1u << 20;
    verdict = watch.Look(Drain("working", done_bytes, 200 + now_ns / kSecond % 2), now_ns);
  }
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(verdict->done);
  EXPECT_EQ(now_ns, 11 * kSecond);
}

TEST(ShrinkWatch, SaysWhyItStopped) {
  const auto text = [](const json& guest) {
    ShrinkWatch watch(
        guest.contains("drain") ? ShrinkWatch::Task::kDrain : ShrinkWatch::Task::kShrink, kSecond);
    const auto verdict = watch.Look(guest, kSecond);
    EXPECT_TRUE(verdict);
    return verdict ? (verdict->done ? "+" : "-") + verdict->text : "";
  };
  EXPECT_THAT(text(Shrink("nothing_left", 4096)), HasSubstr("no more to give"));
  EXPECT_EQ(text(Shrink("nothing_left", 4096))[0], '+');
  EXPECT_THAT(text(Shrink("over", 0)), HasSubstr("registered anew"));
  EXPECT_THAT(text(Shrink("cancelled", 0)), HasSubstr("taken back"));
  EXPECT_THAT(text(Drain("no_memory", 4096, 9)), HasSubstr("no room"));
  EXPECT_EQ(text(Drain("no_memory", 4096, 9))[0], '-');
  EXPECT_THAT(text(Drain("unreadable", 4096, 9)), HasSubstr("cannot read"));
  EXPECT_THAT(text({{"connected", false}}), HasSubstr("gone"));
  EXPECT_THAT(text({{"connected", true}, {"shrink", 7}}), HasSubstr("does not know"));
}

}  // namespace
}  // namespace tmem
