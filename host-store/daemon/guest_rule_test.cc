// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/daemon/guest_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tmem {
namespace {

using testing::HasSubstr;

Peer PeerWith(uid_t uid, const std::string& cgroup) {
  return {.doorbell = "hypercall", .pid = 1, .uid = uid, .cgroup = cgroup, .label = "web"};
}

std::string ErrorOf(const std::string& text) {
  const Result<GuestConfig> parsed = ParseGuest(text);
  EXPECT_FALSE(parsed.ok()) << text;
  return parsed.ok() ? "" : parsed.error().message;
}

TEST(GuestRule, MemoryIsASize) {
  EXPECT_EQ(ParseGuest("web,memory=512M").value().memory_bytes, 512u << 20);
  EXPECT_EQ(ParseGuest("web").value().memory_bytes, 0u);
  EXPECT_FALSE(ParseGuest("web,memory=0").ok());
  EXPECT_FALSE(ParseGuest("web,memory=lots").ok());
}

TEST(GuestRule, ReadsEveryOption) {
  const GuestConfig config =
      ParseGuest("web1,domain=shop,uid=64055,cgroup=/machine.slice/web1.scope,weight=7").value();
  EXPECT_EQ(config.guest.name, "web1");
  EXPECT_EQ(config.guest.domain, "shop");
  EXPECT_EQ(config.guest.weight, 7u);
  EXPECT_EQ(config.rule.uid, 64055u);
  EXPECT_EQ(config.rule.cgroup, "/machine.slice/web1.scope");
  const GuestConfig plain = ParseGuest("web1").value();
  EXPECT_FALSE(plain.rule.given());
  EXPECT_EQ(plain.guest.weight, 1u);
  EXPECT_EQ(plain.guest.domain, "");
  EXPECT_EQ(plain.ram.path, "");
  const RamConfig ram = ParseGuest("a,ram=/dev/shm/a,ram-layout=q35").value().ram;
  EXPECT_EQ(ram.path, "/dev/shm/a");
  EXPECT_EQ(ram.layout, RamLayout::kQ35);
  EXPECT_TRUE(plain.ram.reports);
  EXPECT_FALSE(plain.shrink);
  EXPECT_TRUE(ParseGuest("a,shrink=on").value().shrink);
  EXPECT_FALSE(ParseGuest("a,reports=off").value().ram.reports);
  EXPECT_EQ(ParseGuest("a,ram=/dev/shm/a").value().ram.layout, RamLayout::kPc);
  EXPECT_EQ(ParseGuest("a,uid=root").value().rule.uid, 0u);
  EXPECT_EQ(ParseGuest("a,cgroup=/x/").value().rule.cgroup, "/x");
  EXPECT_EQ(ParseGuest("a,cgroup=/").value().rule.cgroup, "/");
}

TEST(GuestRule, ErrorsSayWhatIsWrong) {
  EXPECT_THAT(ErrorOf("a,color=red"), HasSubstr("'color' is unknown"));
  EXPECT_THAT(ErrorOf("a,color=red"), HasSubstr("--guest a,color=red"));
  EXPECT_THAT(ErrorOf("a,uid"), HasSubstr("no value"));
  EXPECT_THAT(ErrorOf("a,uid="), HasSubstr("no value"));
  EXPECT_THAT(ErrorOf("a,"), HasSubstr("no value"));
  EXPECT_THAT(ErrorOf("a,uid=1,uid=2"), HasSubstr("given twice"));
  EXPECT_THAT(ErrorOf("a,uid=no-such-user-here"), HasSubstr("name of a user"));
  EXPECT_THAT(ErrorOf("a,uid=-1"), HasSubstr("name of a user"));
  EXPECT_THAT(ErrorOf("a,uid=4294967295"), HasSubstr("no user id"));
  EXPECT_THAT(ErrorOf("a,uid=99999999999999999999"), HasSubstr("uid="));
  EXPECT_THAT(ErrorOf("a,cgroup=machine.slice"), HasSubstr("/sys/fs/cgroup"));
  for (const char* path : {"//", "/a//b", "/a/../b", "/a/./b"}) {
    EXPECT_THAT(ErrorOf(std::string("a,cgroup=") + path), HasSubstr("/sys/fs/cgroup")) << path;
  }
  EXPECT_THAT(ErrorOf("a,ram=shm/a"), HasSubstr("absolute path"));
  EXPECT_THAT(ErrorOf("a,ram=/a,ram-layout=microvm"), HasSubstr("pc or q35"));
  EXPECT_THAT(ErrorOf("a,reports=1"), HasSubstr("on or off"));
  EXPECT_THAT(ErrorOf("a,shrink=yes"), HasSubstr("on or off"));
  EXPECT_THAT(ErrorOf("a,ram-layout=pc"), HasSubstr("without ram="));
  EXPECT_THAT(ErrorOf("a,cgroup=/" + std::string(300, 'x')), HasSubstr("longer"));
  for (const char* weight : {"0", "101", "1.5", "x", "-1", "1 "}) {
    EXPECT_THAT(ErrorOf(std::string("a,weight=") + weight), HasSubstr("1 to 100")) << weight;
  }
}

TEST(GuestRule, EverythingThatIsGivenMustHold) {
  const GuestRule both = ParseGuest("a,uid=7,cgroup=/m/a").value().rule;
  EXPECT_TRUE(both.Matches(PeerWith(7, "/m/a")));
  EXPECT_TRUE(both.Matches(PeerWith(7, "/m/a/b/c")));
  EXPECT_FALSE(both.Matches(PeerWith(8, "/m/a")));
  EXPECT_FALSE(both.Matches(PeerWith(7, "/m/ab")));
  EXPECT_FALSE(both.Matches(PeerWith(7, "/m")));
  EXPECT_FALSE(both.Matches(PeerWith(7, "")));
  const GuestRule uid = ParseGuest("a,uid=7").value().rule;
  EXPECT_TRUE(uid.Matches(PeerWith(7, "/anything")));
  EXPECT_FALSE(uid.Matches(PeerWith(0, "/anything"))) << "root is no exception";
  const GuestRule all = ParseGuest("a,cgroup=/").value().rule;
  EXPECT_TRUE(all.Matches(PeerWith(0, "/x")));
  EXPECT_TRUE(all.Matches(PeerWith(0, "/")));
  EXPECT_FALSE(all.Matches(PeerWith(0, ""))) << "an unknown cgroup is below nothing";
  EXPECT_FALSE(GuestRule().Matches(PeerWith(0, "/"))) << "no rule matches nobody";
}

TEST(GuestRule, ASocketIsForTheUidOfTheRuleOrForAll) {
  EXPECT_TRUE(GuestRule().AllowsUid(5));
  EXPECT_TRUE(ParseGuest("a,cgroup=/x").value().rule.AllowsUid(5));
  EXPECT_TRUE(ParseGuest("a,uid=5").value().rule.AllowsUid(5));
  EXPECT_FALSE(ParseGuest("a,uid=5").value().rule.AllowsUid(0));
}

}  // namespace
}  // namespace tmem
