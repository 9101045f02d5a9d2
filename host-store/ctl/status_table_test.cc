// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/ctl/status_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tmem {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(StatusTable, ShowsUnitsAndOneRowAGuest) {
  const auto status = nlohmann::json::parse(R"({
    "limit_bytes": 67108864, "pool_min_bytes": 33554432, "used_bytes": 14680064,
    "pool": {"pages": 256, "same_filled": 56, "duplicates": 0, "compressed": 200, "raw": 0},
    "guests": [
      {"name": "vm1", "domain": "blue", "connected": true, "ephemeral_pages": 256,
       "persistent_pages": 0, "credits": 2048, "counters": {"puts_ok": 300, "gets_hit": 44}},
      {"name": "vm2", "domain": "", "connected": false}
    ]})");
  const std::string table = StatusTable(status);
  EXPECT_THAT(table, HasSubstr("14.0 MiB of 64.0 MiB used"));
  EXPECT_THAT(table, HasSubstr("256 (1.0 MiB of guest memory): 56 same-filled"));
  EXPECT_THAT(table, ContainsRegex("vm1 +blue +yes +1.0 MiB +0 B +2048 +300 +44"));
  EXPECT_THAT(table, ContainsRegex("vm2 +- +no"));
}

TEST(StatusTable, ShowsWhoCameByRule) {
  const auto status = nlohmann::json::parse(R"({
    "limit_bytes": 67108864, "pool_limit_bytes": 67108864, "refused_guests": 3,
    "hypercall": {"state": "open"},
    "guests": [
      {"name": "vm1", "connected": true, "doorbell": "hypercall", "uid": 77, "pid": 4711,
       "label": "qemu", "cgroup": "/machine/vm1"},
      {"name": "vm2", "connected": true, "doorbell": "ivshmem", "uid": 78, "pid": 4712},
      {"name": "vm3", "connected": false, "leaving": true, "doorbell": ""}
    ]})");
  const std::string table = StatusTable(status);
  EXPECT_THAT(table, HasSubstr("module   allows 64.0 MiB"));
  EXPECT_THAT(table, HasSubstr("hypercall doorbell: open, 3 guests refused"));
  EXPECT_THAT(table, ContainsRegex("vm1 +- +hypercall"));
  EXPECT_THAT(table, ContainsRegex("vm2 +- +ivshmem"));
  EXPECT_THAT(table, ContainsRegex("vm3 +- +leaving"));
  EXPECT_THAT(table, ContainsRegex("vm1 +77 +4711 +qemu +/machine/vm1"));
}

TEST(StatusTable, ShowsTheBudgetAndHowGuestsAreSeen) {
  const auto status = nlohmann::json::parse(R"({
    "limit_bytes": 67108864, "used_bytes": 33554432,
    "budget": {"budget_bytes": 268435456, "guests_bytes": 134217728, "reserve_bytes": 16777216,
               "times_over": 2, "worst_over_bytes": 4194304, "times_pressed": 5},
    "guests": [{"name": "vm1", "connected": true, "resident_bytes": 134217728,
                "resident_from": "cgroup"}]})");
  const std::string table = StatusTable(status);
  EXPECT_THAT(table, HasSubstr("budget   160.0 MiB of 256.0 MiB: 128.0 MiB guests, 16.0 MiB kept"));
  EXPECT_THAT(table,
              HasSubstr("over it 2 times, at most by 4.0 MiB; host short of memory 5 times"));
  EXPECT_THAT(table, ContainsRegex("vm1 .* 128.0 MiB +cgroup"));
}

TEST(StatusTable, ShowsWhatWasAskedOfGuests) {
  const auto status = nlohmann::json::parse(R"({"guests": [
      {"name": "vm1", "persistent_pages": 256,
       "shrink": {"taken": true, "state": "working", "asked_bytes": 4194304,
                  "done_bytes": 1048576, "left_bytes": 3145728},
       "drain": {"on": true, "state": "asked", "done_bytes": 0}},
      {"name": "vm2", "shrink": {"state": "none"}, "drain": {"on": false, "state": "none"}}]})");
  const std::string table = StatusTable(status);
  EXPECT_THAT(table, HasSubstr("vm1: shrink working, 1.0 MiB of 4.0 MiB given up, 3.0 MiB still"));
  EXPECT_THAT(table, HasSubstr("vm1: drain asked, 0 B home, 1.0 MiB still here, puts no more"));
  EXPECT_THAT(table, Not(HasSubstr("vm2: ")));
}

TEST(StatusTable, TakesAnythingWithoutFalling) {
  for (const char* text : {"{}", R"({"guests": [{}]})", R"({"used_bytes": "x", "pool": {}})",
                           R"({"hypercall": 3, "guests": [{"doorbell": 7, "leaving": false}]})",
                           R"({"guests": [{"shrink": 7, "drain": {"state": 7}}]})",
                           R"({"budget": {}, "guests": [{"resident_bytes": "x"}]})"}) {
    EXPECT_FALSE(StatusTable(nlohmann::json::parse(text)).empty()) << text;
  }
}

}  // namespace
}  // namespace tmem
