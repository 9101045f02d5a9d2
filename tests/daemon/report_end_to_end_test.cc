// SPDX-License-Identifier: GPL-2.0-only
// Reports over ivshmem to a real tmemd: this process plays the VMM and its hostile guest.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "host-store/doorbell/test_directory.h"
#include "host-store/doorbell/test_ivshmem_client.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/window/test_guest.h"
#include "tests/daemon/daemon_process.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMib = 1u << 20;
constexpr std::uint64_t kGib = 1u << 30;
constexpr std::uint64_t kRamBytes = 16 * kMib;

// A file in memory that reads as 0x5a, mapped by this process.
class RamFile {
 public:
  explicit RamFile(int flags = MAP_SHARED) {
    std::string name = "/dev/shm/tmem-test-XXXXXX";
    file_ = UniqueFd(::mkstemp(name.data()));
    path_ = name;
    EXPECT_TRUE(file_.valid());
    EXPECT_EQ(::ftruncate(file_.get(), kRamBytes), 0);
    const std::vector<char> page(4096, 0x5a);
    for (std::uint64_t at = 0; at < kRamBytes; at += page.size()) {
      EXPECT_EQ(::pwrite(file_.get(), page.data(), page.size(), static_cast<off_t>(at)), 4096);
    }
    memory_ = ::mmap(nullptr, kRamBytes, PROT_READ | PROT_WRITE, flags, file_.get(), 0);
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~RamFile() {
    Unmap();
    ::unlink(path_.c_str());
  }
  RamFile(const RamFile&) = delete;
  RamFile& operator=(const RamFile&) = delete;

  void Unmap() {
    if (memory_ != nullptr) ::munmap(memory_, kRamBytes);
    memory_ = nullptr;
  }
  void* memory() const { return memory_; }
  const std::string& path() const { return path_; }
  int At(std::uint64_t offset) const {
    unsigned char byte = 0;
    EXPECT_EQ(::pread(file_.get(), &byte, 1, static_cast<off_t>(offset)), 1);
    return byte;
  }
  std::uint64_t Allocated() const {
    struct stat status {};
    EXPECT_EQ(::fstat(file_.get(), &status), 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }

 private:
  UniqueFd file_;
  std::string path_;
  void* memory_ = nullptr;
};

class ReportEndToEnd : public testing::Test {
 protected:
  void Start(const std::string& ram) {
    daemon_ = std::make_unique<DaemonProcess>(
        directory_.path(),
        std::vector<std::string>{"--memory-limit", "64M", "--guest", "a,ram=" + ram});
    ASSERT_TRUE(daemon_->answers());
    client_ = std::make_unique<TestIvshmemClient>(
        TestIvshmemClient::Connect(directory_.path() + "/a.sock").value());
    guest_ = std::make_unique<TestGuest>(client_->window(), [this] { client_->Kick(); });
    ASSERT_EQ(guest_->Register(TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_REPORT), TMEM_STATUS_OK);
  }

  tmem_desc Report(const std::vector<tmem_report_range>& ranges) {
    const std::uint32_t control = guest_->view().control_lane();
    auto* slot = guest_->view().lane(control).Slot(0).data();
    std::memcpy(slot, ranges.data(), ranges.size() * sizeof ranges[0]);
    tmem_desc desc{};
    desc.op = TMEM_OP_REPORT;
    desc.state = TMEM_REPORT_POSTED;
    desc.count = static_cast<tmem_u32>(ranges.size());
    const tmem_desc answer = guest_->Do(control, desc);
    answered_.resize(ranges.size());
    std::memcpy(answered_.data(), slot, ranges.size() * sizeof ranges[0]);
    return answer;
  }

  TestDirectory directory_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<TestIvshmemClient> client_;
  std::unique_ptr<TestGuest> guest_;
  std::vector<tmem_report_range> answered_;
};

// R5
TEST_F(ReportEndToEnd, HostileRangesFailAloneAndDropNothing) {
  const RamFile ram;
  ASSERT_NO_FATAL_FAILURE(Start(ram.path()));
  const std::vector<tmem_report_range> ranges = {
      {8 * kMib, 2 * kMib, 0, 0, 0},                // good
      {~std::uint64_t{4095}, 8192, 0, 0, 0},        // around the address space
      {4096, ~std::uint64_t{4095}, 0, 0, 0},        // the same, from below
      {8 * kMib, std::uint64_t{1} << 51, 0, 0, 0},  // huge
      {0, std::uint64_t{1} << 63, 0, 0, 0},         // huge
      {kRamBytes, 4096, 0, 0, 0},                   // no RAM
      {kRamBytes - 4096, 8192, 0, 0, 0},            // out of RAM
      {4 * kGib, 4096, 0, 0, 0},                    // where a machine with more RAM has some
      {4 * kGib - 4096, 8192, 0, 0, 0},             // and across it
      {0xa0000, 4096, 0, 0, 0},                     // devices
      {4 * kMib + 1, 4096, 0, 0, 0},                // not aligned
      {4 * kMib, 100, 0, 0, 0},                     // no pages
      {4 * kMib, 0, 0, 0, 0},                       // nothing
      {4 * kMib, 4096, 0, 0, 1},                    // a reserved field
  };
  const std::uint64_t before = ram.Allocated();
  const tmem_desc answer = Report(ranges);
  EXPECT_EQ(answer.status, TMEM_STATUS_OK);
  EXPECT_EQ(answer.value, 2 * kMib);
  EXPECT_EQ(answered_[0].status, TMEM_STATUS_OK);
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    EXPECT_EQ(answered_[i].status, TMEM_STATUS_BAD_RANGE) << i;
  }
  EXPECT_EQ(before - ram.Allocated(), 2 * kMib);
  EXPECT_EQ(ram.At(8 * kMib), 0);
  EXPECT_EQ(ram.At(4 * kMib), 0x5a);
  EXPECT_EQ(ram.At(kRamBytes - 1), 0x5a);
}

// R5: a file that the VMM at the other end of the socket does not map is another guest's.
TEST_F(ReportEndToEnd, AnotherGuestsRamIsRefused) {
  RamFile other;
  other.Unmap();
  ASSERT_NO_FATAL_FAILURE(Start(other.path()));
  const std::uint64_t before = other.Allocated();
  EXPECT_EQ(Report({{8 * kMib, 2 * kMib, 0, 0, 0}}).status, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(other.Allocated(), before);
}

// R4
TEST_F(ReportEndToEnd, PrivateRamIsRefused) {
  const RamFile ram(MAP_PRIVATE);
  ASSERT_NO_FATAL_FAILURE(Start(ram.path()));
  const std::uint64_t before = ram.Allocated();
  EXPECT_EQ(Report({{8 * kMib, 2 * kMib, 0, 0, 0}}).status, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(ram.Allocated(), before);
}

// R6: at each report.
TEST_F(ReportEndToEnd, LockedRamIsRefusedWhileItIs) {
  const RamFile ram;
  ASSERT_NO_FATAL_FAILURE(Start(ram.path()));
  EXPECT_EQ(Report({{8 * kMib, 4096, 0, 0, 0}}).status, TMEM_STATUS_OK);
  // Not by mlock(), which sanitizers make do nothing.
  if (::syscall(SYS_mlock, ram.memory(), 4096) != 0) {
    GTEST_SKIP() << "this process may not lock memory";
  }
  const std::uint64_t before = ram.Allocated();
  EXPECT_EQ(Report({{10 * kMib, 4096, 0, 0, 0}}).status, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(ram.Allocated(), before);
  ASSERT_EQ(::syscall(SYS_munlock, ram.memory(), 4096), 0);
  EXPECT_EQ(Report({{10 * kMib, 4096, 0, 0, 0}}).status, TMEM_STATUS_OK);
  EXPECT_EQ(ram.At(10 * kMib), 0);
}

}  // namespace
}  // namespace tmem
