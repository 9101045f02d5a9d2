// SPDX-License-Identifier: GPL-2.0-only
// A micro-guest that reports free memory, and what became of its memory.
#ifndef TESTS_KVM_REPORT_FIXTURE_H_
#define TESTS_KVM_REPORT_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "host-store/window/shared_memory_access.h"
#include "tests/kvm/kvm_fixture.h"

namespace tmem {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kReportFeatures = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_REPORT;

// All memory from 4 MiB on reads as 0x5a until it is dropped.
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

  void Start(std::uint64_t features = kReportFeatures) {
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

}  // namespace tmem

#endif  // TESTS_KVM_REPORT_FIXTURE_H_
