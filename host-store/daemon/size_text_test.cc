// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/daemon/size_text.h"

#include <gtest/gtest.h>

namespace tmem {
namespace {

TEST(SizeText, ReadsWhatPeopleWrite) {
  EXPECT_EQ(ParseSize("4096").value(), 4096u);
  EXPECT_EQ(ParseSize("4096B").value(), 4096u);
  EXPECT_EQ(ParseSize("64K").value(), 64u << 10);
  EXPECT_EQ(ParseSize("64k").value(), 64u << 10);
  EXPECT_EQ(ParseSize("64M").value(), 64u << 20);
  EXPECT_EQ(ParseSize("64MiB").value(), 64u << 20);
  EXPECT_EQ(ParseSize("1.5GiB").value(), 3u << 29);
  EXPECT_EQ(ParseSize("2T").value(), std::uint64_t{2} << 40);
}

TEST(SizeText, RefusesTheRest) {
  for (const char* text : {"", "M", "-1M", "64X", "64MB", "64 M", "64Mi B", "1e400", "nan", "inf",
                           "0x10", "99999999T"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(SizeText, PrintsOneDecimal) {
  EXPECT_EQ(FormatSize(12), "12 B");
  EXPECT_EQ(FormatSize(64u << 20), "64.0 MiB");
  EXPECT_EQ(FormatSize(1536), "1.5 KiB");
}

}  // namespace
}  // namespace tmem
