// SPDX-License-Identifier: GPL-2.0-only
// Reports by hypercall: the module drops what lies in files that are mapped shared, and nothing
// else; the daemon only counts.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>
#include <optional>
#include <vector>

#include "host-store/window/shared_memory_access.h"
#include "tests/kvm/kvm_fixture.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kFeatures = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_REPORT;

class Reports : public KvmGuestTest {
 protected:
  void SetUp() override {
    KvmGuestTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    guest_.emplace(*vm_, *vcpu_);
    control_ = guest_->view().control_lane();
    // All of it is there from the start, so that only what is dropped changes Allocated().
    for (std::uint64_t at = 0; at < 4 * kMib; at += 4096) {
      auto* byte = reinterpret_cast<volatile unsigned char*>(vm_->ram() + at);
      *byte = *byte;
    }
    std::memset(vm_->ram() + 4 * kMib, 0x5a, kRamBytes - 4 * kMib);
  }
  void TearDown() override {
    channel_.reset();
    guest_.reset();
    KvmGuestTest::TearDown();
  }

  void Start(std::uint64_t features = kFeatures) {
    channel_ = Connect(*guest_, features);
    ASSERT_TRUE(channel_);
  }

  tmem_report_range* Slot() {
    return reinterpret_cast<tmem_report_range*>(guest_->view().lane(control_).Slot(0).data());
  }

  // Posts a report and calls until the module has passed it on. What the daemon sees of it.
  tmem_desc Report(const std::vector<tmem_report_range>& ranges,
                   std::uint32_t state = TMEM_REPORT_POSTED) {
    const LaneView& lane = guest_->view().lane(control_);
    std::memcpy(Slot(), ranges.data(), ranges.size() * sizeof ranges[0]);
    const std::uint64_t at = LoadRelaxed(lane.head().posted);
    tmem_desc desc{};
    desc.op = TMEM_OP_REPORT;
    desc.state = state;
    desc.count = static_cast<tmem_u32>(ranges.size());
    lane.Entry(at) = desc;
    StoreRelease(lane.head().posted, tmem_u64{at + 1});
    calls_ = 0;
    while (channel_->Waiting(control_) == 0 && calls_ < 1000) {
      ++calls_;
      EXPECT_STREQ(ToString(guest_->CallOnce(1u << control_)), "PENDING");
    }
    EXPECT_EQ(channel_->Waiting(control_), 1u);
    const tmem_desc seen = channel_->view().lane(control_).Entry(at);
    channel_->TakeAndAnswer(control_, static_cast<tmem_status>(seen.tag), seen.value);
    channel_->Notify();
    EXPECT_STREQ(ToString(guest_->CallAndWait(1u << control_)), "OK");
    EXPECT_EQ(lane.Entry(at).status, seen.tag);
    EXPECT_EQ(lane.Entry(at).value, seen.value);
    return seen;
  }
  std::uint32_t StateNow() {
    const LaneView& lane = guest_->view().lane(control_);
    return lane.Entry(LoadRelaxed(lane.head().posted) - 1).state;
  }

  std::uint64_t Allocated() const {
    struct stat status {};
    EXPECT_EQ(::fstat(vm_->memory_fd(), &status), 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  int At(std::uint64_t address) const { return static_cast<unsigned char>(vm_->ram()[address]); }

  std::optional<WindowGuest> guest_;
  std::unique_ptr<DoubleChannel> channel_;
  std::uint32_t control_ = 0;
  int calls_ = 0;
};

TEST_F(Reports, DroppedMemoryIsTheHostsAndReadsAsZero) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::uint64_t before = Allocated();
  const tmem_desc seen = Report({{10 * kMib, 4 * kMib, 0, 0, 0}, {4 * kMib + 4096, 8192, 0, 0, 0}});
  EXPECT_EQ(seen.state, TMEM_REPORT_ANSWERED);
  EXPECT_EQ(seen.tag, TMEM_STATUS_OK);
  EXPECT_EQ(seen.value, 4 * kMib + 8192);
  EXPECT_EQ(StateNow(), TMEM_REPORT_ANSWERED);
  EXPECT_EQ(Slot()[0].status, TMEM_STATUS_OK);
  EXPECT_EQ(Slot()[1].status, TMEM_STATUS_OK);
  EXPECT_EQ(before - Allocated(), 4 * kMib + 8192);
  EXPECT_EQ(At(4 * kMib + 4095), 0x5a);
  EXPECT_EQ(At(4 * kMib + 4096), 0);
  EXPECT_EQ(At(4 * kMib + 12288), 0x5a);
  EXPECT_EQ(At(10 * kMib - 1), 0x5a);
  EXPECT_EQ(At(10 * kMib), 0);
  EXPECT_EQ(At(14 * kMib - 1), 0);
  EXPECT_EQ(At(14 * kMib), 0x5a);
}

// R2
TEST_F(Reports, ManySmallNeighboursInAnyOrder) {
  ASSERT_NO_FATAL_FAILURE(Start());
  std::vector<tmem_report_range> ranges;
  for (std::uint64_t i = 0; i < TMEM_MAX_REPORT_RANGES; ++i) {
    ranges.push_back({5 * kMib + (i * 37 % TMEM_MAX_REPORT_RANGES) * 32768, 32768, 0, 0, 0});
  }
  const std::uint64_t before = Allocated();
  EXPECT_EQ(Report(ranges).value, 4 * kMib);
  EXPECT_EQ(before - Allocated(), 4 * kMib);
  for (std::uint64_t i = 0; i < ranges.size(); ++i) EXPECT_EQ(Slot()[i].status, TMEM_STATUS_OK);
}

// R5
TEST_F(Reports, BadRangesFailAlone) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::vector<tmem_report_range> ranges = {
      {8 * kMib, 4096, 0, 0, 0},                // good
      {~std::uint64_t{4095}, 8192, 0, 0, 0},    // around the address space
      {kRamBytes, 4096, 0, 0, 0},               // no RAM
      {kRamBytes - 4096, 8192, 0, 0, 0},        // out of RAM
      {6 * kMib + 1, 4096, 0, 0, 0},            // not aligned
      {6 * kMib, 100, 0, 0, 0},                 // no pages
      {6 * kMib, 0, 0, 0, 0},                   // nothing
      {6 * kMib, 4096, 0, 0, 1},                // a reserved field
      {kWindowAddress, 4096, 0, 0, 0},          // the window
      {kMib / 2, kMib + kMib / 2, 0, 0, 0},     // over the window
      {std::uint64_t{1} << 60, 4096, 0, 0, 0},  // no address at all
  };
  const std::uint64_t before = Allocated();
  const tmem_desc seen = Report(ranges);
  EXPECT_EQ(seen.value, 4096u);
  EXPECT_EQ(Slot()[0].status, TMEM_STATUS_OK);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_EQ(Slot()[i].status, TMEM_STATUS_BAD_RANGE) << i;
  }
  EXPECT_EQ(before - Allocated(), 4096u);
}

// R1
TEST_F(Reports, WithdrawnIsNotDropped) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const std::uint64_t before = Allocated();
  const tmem_desc seen = Report({{8 * kMib, 4096, 0, 0, 0}}, TMEM_REPORT_WITHDRAWN);
  EXPECT_EQ(seen.tag, TMEM_STATUS_NOT_TAKEN);
  EXPECT_EQ(Allocated(), before);
  EXPECT_EQ(At(8 * kMib), 0x5a);
}

TEST_F(Reports, NotChosenIsNotDropped) {
  ASSERT_NO_FATAL_FAILURE(Start(TMEM_FEATURE_EPHEMERAL));
  EXPECT_EQ(Report({{8 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_UNSUPPORTED);
  EXPECT_EQ(At(8 * kMib), 0x5a);
}

// R6: at every report, not at the registration.
TEST_F(Reports, LockedMemoryIsRefusedWhileItIs) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(::mlock(vm_->ram() + 8 * kMib, 4096), 0);
  EXPECT_EQ(Report({{10 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(Slot()[0].status, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(At(10 * kMib), 0x5a);
  ASSERT_EQ(::munlock(vm_->ram() + 8 * kMib, 4096), 0);
  EXPECT_EQ(Report({{10 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_OK);
  EXPECT_EQ(At(10 * kMib), 0);
}

// R6
TEST_F(Reports, MemoryWhoseWritesAreLoggedIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  vm_->AddSlot(5, 64 * kMib, 2 * kMib, nullptr, KVM_MEM_LOG_DIRTY_PAGES);
  EXPECT_EQ(Report({{64 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_INHIBITED);
}

// R4
TEST_F(Reports, PrivateMemoryIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  void* const memory =
      ::mmap(nullptr, 2 * kMib, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 0x5a, 2 * kMib);
  vm_->AddSlot(5, 64 * kMib, 2 * kMib, static_cast<std::byte*>(memory));
  EXPECT_EQ(Report({{64 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(*static_cast<unsigned char*>(memory), 0x5a);
  vm_->RemoveSlot(5, 64 * kMib);
  ::munmap(memory, 2 * kMib);
}

TEST_F(Reports, ARomIsNoRam) {
  ASSERT_NO_FATAL_FAILURE(Start());
  vm_->AddSlot(5, 64 * kMib, 2 * kMib, nullptr, KVM_MEM_READONLY);
  EXPECT_EQ(Report({{64 * kMib, 4096, 0, 0, 0}}).value, 0u);
  EXPECT_EQ(Slot()[0].status, TMEM_STATUS_BAD_RANGE);
}

// A channel that ended in the middle of a report leaves nothing behind that drops more.
TEST_F(Reports, ARegistrationEndsWhatWasReported) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(Report({{8 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_OK);
  channel_.reset();
  EXPECT_STREQ(ToString(guest_->CallOnce(1u << control_)), "GONE");
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(Report({{10 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_OK);
}

}  // namespace
}  // namespace tmem
