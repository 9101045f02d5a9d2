// SPDX-License-Identifier: GPL-2.0-only
// Reports by hypercall: the module drops what lies in files that are mapped shared, and nothing
// else; the daemon only counts.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "host-store/doorbell/unique_fd.h"
#include "tests/kvm/report_fixture.h"

namespace tmem {
namespace {

// More of a guest's memory, of a file, that reads as 0x5a.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    std::memset(memory_, 0x5a, bytes);
  }
  ~SharedMemory() { ::munmap(memory_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* begin() const { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
  std::size_t bytes_;
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
      {8 * kMib, 4096, 0, 0, 0},                    // good
      {~std::uint64_t{4095}, 8192, 0, 0, 0},        // around the address space
      {kRamBytes, 4096, 0, 0, 0},                   // no RAM
      {kRamBytes - 4096, 8192, 0, 0, 0},            // out of RAM
      {6 * kMib + 1, 4096, 0, 0, 0},                // not aligned
      {6 * kMib, 100, 0, 0, 0},                     // no pages
      {6 * kMib, 0, 0, 0, 0},                       // nothing
      {6 * kMib, 4096, 0, 0, 1},                    // a reserved field
      {kWindowAddress, 4096, 0, 0, 0},              // the window
      {kMib / 2, kMib + kMib / 2, 0, 0, 0},         // over the window
      {std::uint64_t{1} << 60, 4096, 0, 0, 0},      // no address at all
      {8 * kMib, std::uint64_t{1} << 51, 0, 0, 0},  // huge
      {8 * kMib, ~std::uint64_t{4095}, 0, 0, 0},    // all there is, and around
      {0, std::uint64_t{1} << 52, 0, 0, 0},         // all addresses
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

// R5: no address of a guest is another guest's memory.
TEST_F(Reports, AnotherGuestsMemoryIsOutOfReach) {
  ASSERT_NO_FATAL_FAILURE(Start());
  Vm other;
  std::memset(other.ram(), 0x5a, kRamBytes);
  const SharedMemory more(kMib);
  other.AddSlot(5, 64 * kMib, kMib, more.begin());
  const tmem_desc seen = Report({{8 * kMib, 2 * kMib, 0, 0, 0}, {64 * kMib, kMib, 0, 0, 0}});
  EXPECT_EQ(seen.value, 2 * kMib);
  EXPECT_EQ(Slot()[1].status, TMEM_STATUS_BAD_RANGE);
  EXPECT_EQ(At(8 * kMib), 0);
  EXPECT_EQ(other.ram()[8 * kMib], std::byte{0x5a});
  EXPECT_EQ(more.begin()[0], std::byte{0x5a});
  other.RemoveSlot(5, 64 * kMib);
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
  const SharedMemory memory(2 * kMib);
  vm_->AddSlot(5, 64 * kMib, 2 * kMib, memory.begin(), KVM_MEM_LOG_DIRTY_PAGES);
  EXPECT_EQ(Report({{64 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(memory.begin()[0], std::byte{0x5a});
  // It ends, as a migration that was given up does.
  vm_->RemoveSlot(5, 64 * kMib);
  vm_->AddSlot(5, 64 * kMib, 2 * kMib, memory.begin());
  EXPECT_EQ(Report({{64 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_OK);
  EXPECT_EQ(memory.begin()[0], std::byte{0});
  vm_->RemoveSlot(5, 64 * kMib);
}

// R6: where a postcopy fills the memory in.
TEST_F(Reports, MemoryUnderAUserfaultfdIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const SharedMemory memory(2 * kMib);
  const UniqueFd faults(
      static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
  ASSERT_TRUE(faults.valid());
  uffdio_api api{};
  api.api = UFFD_API;
  ASSERT_EQ(::ioctl(faults.get(), UFFDIO_API, &api), 0);
  uffdio_register all{};
  all.range = {reinterpret_cast<std::uintptr_t>(memory.begin()), 2 * kMib};
  all.mode = UFFDIO_REGISTER_MODE_MISSING;
  ASSERT_EQ(::ioctl(faults.get(), UFFDIO_REGISTER, &all), 0);
  vm_->AddSlot(5, 64 * kMib, 2 * kMib, memory.begin());
  EXPECT_EQ(Report({{64 * kMib, 2 * kMib, 0, 0, 0}}).tag, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(memory.begin()[0], std::byte{0x5a});
  ASSERT_EQ(::ioctl(faults.get(), UFFDIO_UNREGISTER, &all.range), 0);
  EXPECT_EQ(Report({{64 * kMib, 2 * kMib, 0, 0, 0}}).tag, TMEM_STATUS_OK);
  EXPECT_EQ(memory.begin()[0], std::byte{0});
  vm_->RemoveSlot(5, 64 * kMib);
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

// R4: a file that the VMM only shows its guest, as in the window of virtio-fs, in a slot that is
// not read-only as a whole. Punching a hole is writing.
TEST_F(Reports, MemoryThatTheGuestMayOnlyReadIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const SharedMemory memory(2 * kMib);
  ASSERT_EQ(::mprotect(memory.begin(), 2 * kMib, PROT_READ), 0);
  vm_->AddSlot(5, 64 * kMib, 2 * kMib, memory.begin());
  EXPECT_EQ(Report({{64 * kMib, 4096, 0, 0, 0}}).tag, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(memory.begin()[0], std::byte{0x5a});
  vm_->RemoveSlot(5, 64 * kMib);
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
