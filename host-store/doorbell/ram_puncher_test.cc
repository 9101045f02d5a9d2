// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/doorbell/ram_puncher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

namespace tmem {
namespace {

constexpr std::uint64_t kMib = 1u << 20;

tmem_report_range Range(std::uint64_t address, std::uint64_t bytes) {
  return {address, bytes, 0, 0, 0};
}

class Plan : public testing::Test {
 protected:
  std::vector<PunchPiece> Make(std::uint64_t ram_bytes = 4096 * kMib) {
    return PlanPunches(ranges_, RamMap(RamLayout::kPc, ram_bytes), statuses_);
  }

  std::vector<tmem_report_range> ranges_;
  std::vector<tmem_status> statuses_;
};

// R2
TEST_F(Plan, NeighboursAreMergedWhateverTheirOrder) {
  ranges_ = {Range(6 * kMib, 2 * kMib), Range(2 * kMib, 2 * kMib), Range(4 * kMib, 2 * kMib),
             Range(10 * kMib, 2 * kMib)};
  const auto pieces = Make();
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].range.offset, 2 * kMib);
  EXPECT_EQ(pieces[0].range.bytes, 6 * kMib);
  EXPECT_EQ(pieces[0].ranges, (std::vector<std::size_t>{1, 2, 0}));
  EXPECT_EQ(pieces[1].range.offset, 10 * kMib);
}

TEST_F(Plan, NeighboursInTheFileThatAreNoneInTheGuest) {
  ranges_ = {Range(3072 * kMib - 2 * kMib, 2 * kMib), Range(4096 * kMib, 2 * kMib)};
  const auto pieces = Make();
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].range.bytes, 4 * kMib);
}

TEST_F(Plan, MergedPiecesAreBoundedAndRangesNeverSplit) {
  for (std::uint64_t i = 0; i < TMEM_MAX_REPORT_RANGES; ++i) {
    ranges_.push_back(Range((1 + i) * 4 * kMib, 4 * kMib));
  }
  ranges_.push_back(Range(1024 * kMib, 512 * kMib));
  std::uint64_t bytes = 0;
  for (const PunchPiece& piece : Make()) {
    EXPECT_TRUE(piece.range.bytes <= RamPuncher::kMaxPieceBytes || piece.ranges.size() == 1);
    EXPECT_EQ(piece.range.offset % (4 * kMib), 0u);
    bytes += piece.range.bytes;
  }
  EXPECT_EQ(bytes, std::uint64_t{TMEM_MAX_REPORT_RANGES} * 4 * kMib + 512 * kMib);
}

// A guest that reports all its memory as one range, and then registers anew, holds up the worker
// that other guests share for one system call at most.
TEST(FirstPunch, IsBoundedWhateverTheGuestReportsAsOne) {
  FileRange left{2 * kMib + 4096, 4096 * kMib};
  for (int parts = 0; left.bytes != 0; ++parts) {
    ASSERT_LT(parts, 200);
    const FileRange now = FirstPunch(left);
    EXPECT_EQ(now.offset, left.offset);
    ASSERT_GT(now.bytes, 0u);
    ASSERT_LE(now.bytes, std::min(left.bytes, RamPuncher::kMaxPieceBytes));
    left = {left.offset + now.bytes, left.bytes - now.bytes};
    EXPECT_TRUE(left.bytes == 0 || left.offset % (2 * kMib) == 0) << "R2";
  }
}

// R5
TEST_F(Plan, BadRangesFailAlone) {
  tmem_report_range reserved = Range(8 * kMib, 2 * kMib);
  reserved.zero1 = 1;
  ranges_ = {Range(2 * kMib, 2 * kMib), Range(~std::uint64_t{4095}, 8192), reserved,
             Range(2 * kMib, 2 * kMib), Range(3584 * kMib, 4096)};
  const auto pieces = Make();
  EXPECT_EQ(statuses_, (std::vector<tmem_status>{TMEM_STATUS_NONE, TMEM_STATUS_BAD_RANGE,
                                                 TMEM_STATUS_BAD_RANGE, TMEM_STATUS_NONE,
                                                 TMEM_STATUS_BAD_RANGE}));
  EXPECT_EQ(pieces.size(), 2u) << "the same twice is not merged";
}

TEST_F(Plan, OfNothingGoodIsEmpty) {
  ranges_ = {Range(0xa0000, 4096)};
  EXPECT_TRUE(Make().empty());
}

// A file on tmpfs that this process, the VMM of these tests, maps.
class Puncher : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 16 * kMib;

  Puncher() : path_("/dev/shm/tmem-puncher-test-" + std::to_string(::getpid())) {
    file_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    EXPECT_TRUE(file_.valid());
    EXPECT_EQ(::ftruncate(file_.get(), kBytes), 0);
  }
  ~Puncher() override {
    puncher_.reset();
    if (memory_ != MAP_FAILED) ::munmap(memory_, bytes_);
    ::unlink(path_.c_str());
  }

  void Start(int flags = MAP_SHARED, std::size_t bytes = kBytes) {
    bytes_ = bytes;
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file_.get(), 0);
    ASSERT_NE(memory_, MAP_FAILED);
    std::memset(memory_, 0x5a, kBytes);
    puncher_ = std::make_unique<RamPuncher>(
        RamConfig{path_, RamLayout::kPc}, ::getpid(),
        RamPuncher::Handlers{.on_ready = [this] { ++readies_; },
                             .on_refused = [this](const std::string& why) { why_ = why; }});
  }

  ReportSink::Outcome Report(std::vector<tmem_report_range> ranges) {
    puncher_->Begin(std::move(ranges));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!puncher_->Ready() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(puncher_->Ready());
    return puncher_->Take();
  }

  std::uint64_t Allocated() const {
    struct stat status {};
    EXPECT_EQ(::fstat(file_.get(), &status), 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  int At(std::size_t offset) const { return static_cast<unsigned char*>(memory_)[offset]; }

  const std::string path_;
  UniqueFd file_;
  void* memory_ = MAP_FAILED;
  std::size_t bytes_ = 0;
  std::atomic<int> readies_{0};
  std::string why_;
  std::unique_ptr<RamPuncher> puncher_;
};

// R3
TEST_F(Puncher, DroppedMemoryIsTheHostsAndReadsAsZero) {
  Start();
  const std::uint64_t before = Allocated();
  const ReportSink::Outcome outcome =
      Report({Range(2 * kMib, 2 * kMib), Range(64 * kMib, 4096), Range(8 * kMib, 4 * kMib)});
  EXPECT_EQ(outcome.status, TMEM_STATUS_OK);
  EXPECT_EQ(outcome.dropped_bytes, 6 * kMib);
  EXPECT_EQ(outcome.ranges,
            (std::vector<tmem_status>{TMEM_STATUS_OK, TMEM_STATUS_BAD_RANGE, TMEM_STATUS_OK}));
  EXPECT_EQ(before - Allocated(), 6 * kMib);
  EXPECT_EQ(At(2 * kMib - 1), 0x5a);
  EXPECT_EQ(At(2 * kMib), 0);
  EXPECT_EQ(At(4 * kMib - 1), 0);
  EXPECT_EQ(At(4 * kMib), 0x5a);
  EXPECT_EQ(At(12 * kMib), 0x5a);
}

TEST_F(Puncher, ARangeLargerThanOneCallGoesWhole) {
  ASSERT_EQ(::ftruncate(file_.get(), 128 * kMib), 0);
  ASSERT_EQ(::fallocate(file_.get(), 0, 0, 128 * kMib), 0);
  Start(MAP_SHARED, 128 * kMib);
  const ReportSink::Outcome outcome = Report({Range(kMib, 100 * kMib)});
  EXPECT_EQ(outcome.dropped_bytes, 100 * kMib);
  EXPECT_EQ(outcome.ranges, (std::vector<tmem_status>{TMEM_STATUS_OK}));
  EXPECT_EQ(Allocated(), 28 * kMib);
}

TEST_F(Puncher, OneReportAfterTheOther) {
  Start();
  for (std::uint64_t i = 1; i < 8; ++i) {
    EXPECT_EQ(Report({Range(i * 2 * kMib, 2 * kMib)}).dropped_bytes, 2 * kMib);
  }
  EXPECT_EQ(Allocated(), 2 * kMib);
}

// R4
TEST_F(Puncher, PrivateRamIsRefusedAndNothingIsDropped) {
  Start(MAP_PRIVATE);
  ASSERT_EQ(::pwrite(file_.get(), "x", 1, 2 * kMib), 1);
  const std::uint64_t before = Allocated();
  const ReportSink::Outcome outcome = Report({Range(2 * kMib, 2 * kMib)});
  EXPECT_EQ(outcome.status, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(outcome.ranges, (std::vector<tmem_status>{TMEM_STATUS_INHIBITED}));
  EXPECT_EQ(outcome.dropped_bytes, 0u);
  EXPECT_EQ(Allocated(), before);
  EXPECT_EQ(why_, "its RAM is mapped privately (share=off)");
}

// R6: at every report, not at the first.
TEST_F(Puncher, RamThatIsLockedMeanwhileIsRefused) {
  Start();
  EXPECT_EQ(Report({Range(2 * kMib, 2 * kMib)}).status, TMEM_STATUS_OK);
  // Not by mlock(), which sanitizers make do nothing.
  if (::syscall(SYS_mlock, memory_, 4096) != 0) GTEST_SKIP() << "this process may not lock memory";
  EXPECT_EQ(Report({Range(4 * kMib, 2 * kMib)}).status, TMEM_STATUS_INHIBITED);
  EXPECT_EQ(At(4 * kMib), 0x5a);
  ASSERT_EQ(::syscall(SYS_munlock, memory_, 4096), 0);
  EXPECT_EQ(Report({Range(4 * kMib, 2 * kMib)}).status, TMEM_STATUS_OK);
}

TEST_F(Puncher, AFileThatIsNotThereIsRefusedUntilItIs) {
  Start();
  const std::string aside = path_ + ".aside";
  ASSERT_EQ(::rename(path_.c_str(), aside.c_str()), 0);
  EXPECT_EQ(Report({Range(2 * kMib, 2 * kMib)}).status, TMEM_STATUS_INHIBITED);
  ASSERT_EQ(::rename(aside.c_str(), path_.c_str()), 0);
  EXPECT_EQ(Report({Range(2 * kMib, 2 * kMib)}).status, TMEM_STATUS_OK);
}

// R1: after Cancel nothing is dropped, and nothing of it is answered later.
TEST_F(Puncher, CancelledReportsDropNothingLater) {
  Start();
  for (int round = 0; round < 20; ++round) {
    std::vector<tmem_report_range> ranges;
    for (std::uint64_t i = 0; i < 100; ++i)
      ranges.push_back(Range((2 + 2 * i) * 4096 + kMib, 4096));
    puncher_->Begin(std::move(ranges));
    puncher_->Cancel();
    EXPECT_FALSE(puncher_->Ready());
    std::memset(memory_, 0x11 + round, kBytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (std::size_t at = 0; at < kBytes; at += 4096) ASSERT_EQ(At(at), 0x11 + round) << at;
  }
  EXPECT_EQ(Report({Range(2 * kMib, 2 * kMib)}).status, TMEM_STATUS_OK);
}

}  // namespace
}  // namespace tmem
