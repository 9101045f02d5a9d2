// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/doorbell/guest_ram.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "host-store/doorbell/unique_fd.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kGib = 1u << 30;

std::uint64_t OffsetOf(const RamMap& map, std::uint64_t address, std::uint64_t bytes = 4096) {
  const auto place = map.Locate(address, bytes);
  return place ? place->offset : ~std::uint64_t{0};
}

TEST(RamMap, SmallMachinesLieBelowFourGib) {
  const RamMap map(RamLayout::kPc, 512 * kMib);
  EXPECT_EQ(OffsetOf(map, 0), 0u);
  EXPECT_EQ(OffsetOf(map, 512 * kMib - 4096), 512 * kMib - 4096);
  EXPECT_FALSE(map.Locate(512 * kMib, 4096));
  EXPECT_FALSE(map.Locate(4 * kGib, 4096));
}

TEST(RamMap, LargeMachinesAreSplit) {
  const RamMap pc(RamLayout::kPc, 4 * kGib);
  EXPECT_EQ(OffsetOf(pc, 3 * kGib - 4096), 3 * kGib - 4096);
  EXPECT_FALSE(pc.Locate(3 * kGib, 4096));
  EXPECT_EQ(OffsetOf(pc, 4 * kGib), 3 * kGib);
  EXPECT_EQ(OffsetOf(pc, 5 * kGib - 4096), 4 * kGib - 4096);
  EXPECT_FALSE(pc.Locate(5 * kGib, 4096));
  const RamMap q35(RamLayout::kQ35, 4 * kGib);
  EXPECT_EQ(OffsetOf(q35, 2 * kGib - 4096), 2 * kGib - 4096);
  EXPECT_FALSE(q35.Locate(2 * kGib, 4096));
  EXPECT_EQ(OffsetOf(q35, 4 * kGib), 2 * kGib);
}

TEST(RamMap, TheSplitComesWhereTheMachineHasIt) {
  EXPECT_EQ(RamMap(RamLayout::kPc, 3584 * kMib - 4096).below_4g_bytes(), 3584 * kMib - 4096);
  EXPECT_EQ(RamMap(RamLayout::kPc, 3584 * kMib).below_4g_bytes(), 3072 * kMib);
  EXPECT_EQ(RamMap(RamLayout::kQ35, 2816 * kMib - 4096).below_4g_bytes(), 2816 * kMib - 4096);
  EXPECT_EQ(RamMap(RamLayout::kQ35, 2816 * kMib).below_4g_bytes(), 2048 * kMib);
}

// R5
TEST(RamMap, RefusesWhatIsNoRam) {
  const RamMap map(RamLayout::kPc, 4 * kGib);
  EXPECT_FALSE(map.Locate(4096, 0));
  EXPECT_FALSE(map.Locate(4096, 100));
  EXPECT_FALSE(map.Locate(4097, 4096));
  EXPECT_FALSE(map.Locate(3 * kGib - 4096, 8192)) << "into the hole";
  EXPECT_FALSE(map.Locate(0, 5 * kGib)) << "across the hole";
  EXPECT_FALSE(map.Locate(4 * kGib - 4096, 8192)) << "out of the hole";
  EXPECT_FALSE(map.Locate(4 * kGib, kGib + 4096)) << "past the end";
  EXPECT_FALSE(map.Locate(~std::uint64_t{4095}, 8192)) << "around the address space";
  EXPECT_FALSE(map.Locate(~std::uint64_t{4095}, 4096)) << "to its end";
  EXPECT_FALSE(map.Locate(4096, ~std::uint64_t{4095})) << "around the address space";
  EXPECT_FALSE(map.Locate(0xa0000, 4096)) << "display memory";
  EXPECT_FALSE(map.Locate(0x9f000, 8192)) << "into display memory";
  EXPECT_FALSE(map.Locate(0xff000, 8192)) << "out of the BIOS";
  EXPECT_EQ(OffsetOf(map, 0x9f000), 0x9f000u);
  EXPECT_EQ(OffsetOf(map, 0x100000), 0x100000u);
}

// This process plays the VMM.
class MayDrop : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 4 * kMib;

  MayDrop() : file_(::memfd_create("ram", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), kBytes), 0);
    EXPECT_EQ(::fstat(file_.get(), &status_), 0);
  }
  ~MayDrop() override {
    if (memory_ != MAP_FAILED) ::munmap(memory_, kBytes);
  }

  void Map(int flags, std::size_t bytes = kBytes, int access = PROT_READ | PROT_WRITE) {
    memory_ = ::mmap(nullptr, bytes, access, flags, file_.get(), 0);
    ASSERT_NE(memory_, MAP_FAILED);
  }
  std::string Why() const {
    const Result<void> may = CheckMayDrop(::getpid(), status_);
    return may ? "" : may.error().message;
  }

  UniqueFd file_;
  struct stat status_ {};
  void* memory_ = MAP_FAILED;
};

TEST_F(MayDrop, SharedRamMayBeDropped) {
  Map(MAP_SHARED);
  EXPECT_EQ(Why(), "");
}

// R4
TEST_F(MayDrop, PrivateRamMayNot) {
  Map(MAP_PRIVATE);
  EXPECT_EQ(Why(), "its RAM is mapped privately (share=off)");
}

// R6
TEST_F(MayDrop, AFileThatIsNotMappedAnyMoreMayNot) {
  EXPECT_EQ(Why(), "its process does not map the RAM file, shared and writable");
}

TEST_F(MayDrop, AFileMappedInPartMayNot) {
  Map(MAP_SHARED, kBytes / 2);
  EXPECT_EQ(Why(), "its process does not map the RAM file, shared and writable");
  ::munmap(memory_, kBytes / 2);
  memory_ = MAP_FAILED;
}

// A tenant who may rename its RAM file can put anybody's file there, and map it as far as it may.
TEST_F(MayDrop, AFileThatItsProcessMayOnlyReadMayNot) {
  Map(MAP_SHARED, kBytes, PROT_READ);
  EXPECT_EQ(Why(), "its process does not map the RAM file, shared and writable");
}

TEST_F(MayDrop, LockedRamMayNot) {
  Map(MAP_SHARED);
  // Not by mlock(), which sanitizers make do nothing.
  if (::syscall(SYS_mlock, memory_, 4096) != 0) GTEST_SKIP() << "this process may not lock memory";
  EXPECT_EQ(Why(), "its process has locked memory");
}

TEST_F(MayDrop, RamUnderUserfaultfdMayNot) {
  Map(MAP_SHARED);
  const UniqueFd faults(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (!faults.valid()) GTEST_SKIP() << "this process may not have a userfaultfd";
  EXPECT_EQ(Why(), "it has a userfaultfd");
}

TEST_F(MayDrop, AProcessThatIsGoneMayNot) {
  const Result<void> may = CheckMayDrop(0x3ffffff0, status_);
  ASSERT_FALSE(may);
  EXPECT_EQ(may.error().message, "its process cannot be looked at");
}

}  // namespace
}  // namespace tmem
