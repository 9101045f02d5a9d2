// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/doorbell/eventfd_bell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <limits>

namespace tmem {
namespace {

TEST(EventfdBell, EachRingIsSeen) {
  const UniqueFd fd(::eventfd(0, EFD_NONBLOCK));
  EventfdBell bell(fd.get());
  for (int i = 0; i < 1000; ++i) {
    bell.Ring();
    eventfd_t rung = 0;
    ASSERT_EQ(::eventfd_read(fd.get(), &rung), 0) << i;
    ASSERT_EQ(rung, 1u);
  }
  for (int i = 0; i < 5; ++i) bell.Ring();
  eventfd_t rung = 0;
  ASSERT_EQ(::eventfd_read(fd.get(), &rung), 0);
  EXPECT_EQ(rung, 5u);
}

// The peer fills the counter and makes the shared file blocking: a write would now sleep for ever.
TEST(EventfdBell, AFullBlockingEventfdDoesNotStopTheHost) {
  const UniqueFd fd(::eventfd(0, EFD_NONBLOCK));
  EventfdBell bell(fd.get());
  if (!bell.never_blocks()) GTEST_SKIP() << "this kernel has no AIO (io_setup failed)";
  ASSERT_EQ(::eventfd_write(fd.get(), std::numeric_limits<std::uint64_t>::max() - 1), 0);
  ASSERT_EQ(::fcntl(fd.get(), F_SETFL, 0), 0);
  for (int i = 0; i < 100; ++i) bell.Ring();
  SUCCEED();
}

TEST(EventfdBell, RingsWhatItIsAimedAt) {
  const UniqueFd first(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const UniqueFd second(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  EventfdBell bell;
  bell.Ring();
  bell.Aim(first.get());
  bell.Ring();
  bell.Aim(second.get());
  bell.Ring();
  bell.Ring();
  bell.Aim(EventfdBell::kNoEventfd);
  bell.Ring();
  eventfd_t rung = 0;
  ASSERT_EQ(::eventfd_read(first.get(), &rung), 0);
  EXPECT_EQ(rung, 1u);
  ASSERT_EQ(::eventfd_read(second.get(), &rung), 0);
  EXPECT_EQ(rung, 2u);
}

TEST(EventfdBell, AClosedEventfdDoesNoHarm) {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK));
  EventfdBell bell(fd.get());
  fd.Close();
  bell.Ring();
  SUCCEED();
}

}  // namespace
}  // namespace tmem
