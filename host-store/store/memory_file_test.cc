// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/store/memory_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

namespace tmem {
namespace {

class MemoryFileTest : public testing::Test {
 protected:
  void SetUp() override { Open(MemoryFile::Spares::kNone); }
  void Open(MemoryFile::Spares spares) {
    auto file = MemoryFile::Create({.name = "test",
                                    .stride_bytes = 4 * kPageBytes,
                                    .max_chunks = 100,
                                    .account = Account::kSlabs,
                                    .chunk_claim = Claim::kEphemeral,
                                    .budget = &budget_,
                                    .faults = &faults_,
                                    .spares = spares});
    ASSERT_TRUE(file.ok());
    file_ = std::move(file).value();
  }
  uint64_t HeldBytes() const {
    struct stat status;
    EXPECT_EQ(fstat(file_->fd(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }

  Budget budget_{{.limit_bytes = 1 << 20, .pool_min_bytes = 0, .worst_case_bytes = 1}};
  FaultPlan faults_;
  std::unique_ptr<MemoryFile> file_;
};

TEST_F(MemoryFileTest, ChunksAreChargedHeldAndGivenBack) {
  const uint64_t empty_charge = budget_.used_bytes();
  const uint64_t empty_held = HeldBytes();
  const ChunkNumber chunk = file_->Allocate(2 * kPageBytes, Claim::kEphemeral);
  ASSERT_NE(chunk, kNoChunk);
  EXPECT_EQ(budget_.used_bytes(), empty_charge + ChargedBytes(2 * kPageBytes));
  EXPECT_EQ(HeldBytes(), empty_held + 2 * kPageBytes);
  file_->Free(chunk, 2 * kPageBytes);
  EXPECT_EQ(budget_.used_bytes(), empty_charge);
  EXPECT_EQ(HeldBytes(), empty_held);
}

// Memory of one guest is never given to another unscrubbed.
TEST_F(MemoryFileTest, AChunkIsZeroWhenItComesAgain) {
  const ChunkNumber chunk = file_->Allocate(kPageBytes, Claim::kEphemeral);
  std::memset(file_->Chunk(chunk), 0xaa, kPageBytes);
  file_->Free(chunk, kPageBytes);
  const ChunkNumber again = file_->Allocate(kPageBytes, Claim::kEphemeral);
  ASSERT_EQ(again, chunk);
  for (size_t i = 0; i < kPageBytes; ++i) ASSERT_EQ(file_->Chunk(again)[i], std::byte{0});
}

TEST_F(MemoryFileTest, RefusesBeyondBudgetAndBounds) {
  std::vector<ChunkNumber> chunks;
  for (;;) {
    const ChunkNumber chunk = file_->Allocate(kPageBytes, Claim::kEphemeral);
    if (chunk == kNoChunk) break;
    chunks.push_back(chunk);
  }
  EXPECT_EQ(chunks.size(), 99u) << "all numbers but the head's";
  file_->Free(chunks[50], kPageBytes);
  EXPECT_EQ(file_->Allocate(kPageBytes, Claim::kEphemeral), chunks[50]);
}

TEST_F(MemoryFileTest, ARefusalOfTheKernelLeavesNothingBehind) {
  const uint64_t used = budget_.used_bytes();
  faults_.FailNth(FaultPlan::Point::kMemory, 1);
  EXPECT_EQ(file_->Allocate(kPageBytes, Claim::kEphemeral), kNoChunk);
  EXPECT_EQ(budget_.used_bytes(), used);
  faults_.FailNth(FaultPlan::Point::kMemory, 1);
  EXPECT_NE(file_->Allocate(kPageBytes, Claim::kPromised), kNoChunk) << "promised: tried again";
}

// Freed chunks, at most a 32nd of what is in use, wait resident and charged for the next one.
TEST_F(MemoryFileTest, SparesServeTheNextOfTheirSizeAndAreBounded) {
  Open(MemoryFile::Spares::kSome);
  const uint64_t empty_charge = budget_.used_bytes();
  std::vector<ChunkNumber> chunks;
  for (int i = 0; i < 68; ++i) chunks.push_back(file_->Allocate(kPageBytes, Claim::kEphemeral));
  const uint64_t full_charge = budget_.used_bytes();
  for (int i = 0; i < 2; ++i) file_->Free(chunks[static_cast<size_t>(i)], kPageBytes);
  EXPECT_EQ(file_->spare_bytes(), 2 * ChargedBytes(kPageBytes));
  EXPECT_EQ(budget_.used_bytes(), full_charge);
  EXPECT_EQ(file_->Allocate(kPageBytes, Claim::kEphemeral), chunks[1]) << "the last one freed";
  EXPECT_EQ(budget_.used_bytes(), full_charge);

  for (size_t i = 1; i < 30; ++i) file_->Free(chunks[i], kPageBytes);
  EXPECT_EQ(file_->spare_bytes(), ChargedBytes(kPageBytes)) << "38 in use";
  EXPECT_EQ(budget_.used_bytes(), empty_charge + 39 * ChargedBytes(kPageBytes));
  EXPECT_TRUE(file_->DropSpares());
  EXPECT_FALSE(file_->DropSpares());
  EXPECT_EQ(budget_.used_bytes(), empty_charge + 38 * ChargedBytes(kPageBytes));
  for (size_t i = 30; i < 68; ++i) file_->Free(chunks[i], kPageBytes);
  EXPECT_EQ(budget_.used_bytes(), empty_charge) << "an empty file has no spares";
}

}  // namespace
}  // namespace tmem
