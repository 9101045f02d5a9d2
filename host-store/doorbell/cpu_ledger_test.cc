// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/doorbell/cpu_ledger.h"

#include <gtest/gtest.h>

namespace tmem {
namespace {

using Kind = CpuLedger::Kind;

TEST(CpuLedger, SpreadsCpuTimeInProportion) {
  ChannelCounters a;
  ChannelCounters b;
  CpuLedger ledger;
  ledger.Note(a, Kind::kVisit, 100);
  ledger.Note(b, Kind::kSettle, 200);
  ledger.Note(a, Kind::kPoll, 100);
  ledger.Close(200);  // half of the time the thread did not run
  EXPECT_EQ(a.cpu_ns.value(), 100u);
  EXPECT_EQ(a.poll_cpu_ns.value(), 50u);
  EXPECT_EQ(a.settle_cpu_ns.value(), 0u);
  EXPECT_EQ(b.cpu_ns.value(), 100u);
  EXPECT_EQ(b.settle_cpu_ns.value(), 100u);
}

TEST(CpuLedger, ClosingStartsAnew) {
  ChannelCounters a;
  CpuLedger ledger;
  ledger.Note(a, Kind::kVisit, 10);
  ledger.Close(10);
  ledger.Close(1000);  // nothing was done for anybody
  EXPECT_EQ(a.cpu_ns.value(), 10u);
  ledger.Note(a, Kind::kSettle, 5);
  ledger.Close(5);
  EXPECT_EQ(a.cpu_ns.value(), 15u);
}

TEST(CpuLedger, WhoIsRemovedIsNotWrittenAnyMore) {
  ChannelCounters a;
  ChannelCounters b;
  CpuLedger ledger;
  ledger.Note(a, Kind::kVisit, 10);
  ledger.Note(b, Kind::kVisit, 10);
  ledger.Remove(a);
  ledger.Close(20);
  EXPECT_EQ(a.cpu_ns.value(), 0u);
  EXPECT_EQ(b.cpu_ns.value(), 20u);
}

}  // namespace
}  // namespace tmem
