// SPDX-License-Identifier: GPL-2.0-only
// Records, the table over them, and slabs: the parts that live in memory files.
#include "host-store/store/record_arena.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "compress/sample_pages.h"
#include "host-store/store/chain_table.h"
#include "host-store/store/slab_heap.h"

namespace tmem {
namespace {

class RecordsTest : public testing::Test {
 protected:
  std::unique_ptr<MemoryFile> MakeFile(size_t stride_bytes) {
    auto file = MemoryFile::Create({.name = "test",
                                    .stride_bytes = stride_bytes,
                                    .max_chunks = 4096,
                                    .account = Account::kMetadata,
                                    .chunk_claim = Claim::kEphemeral,
                                    .budget = &budget_,
                                    .faults = nullptr});
    EXPECT_TRUE(file.ok());
    return std::move(file).value();
  }
  RecordNumber Allocate(RecordArena& arena) {
    if (arena.free_records() == 0) {
      arena.AddChunk(file_->Allocate(kRecordChunkBytes, Claim::kEphemeral));
    }
    return arena.Allocate();
  }

  Budget budget_{{.limit_bytes = 64 << 20, .pool_min_bytes = 0, .worst_case_bytes = 1}};
  std::unique_ptr<MemoryFile> file_ = MakeFile(kRecordChunkBytes);
};

TEST_F(RecordsTest, AnArenaGivesZeroedRecordsAndReturnsEmptyChunks) {
  const uint64_t empty = budget_.used_bytes();
  RecordArena arena(*file_, RecordType::kBlock, sizeof(BlockRecord));
  const size_t per_chunk = RecordArena::RecordsPerChunk(sizeof(BlockRecord));
  std::set<RecordNumber> records;
  for (size_t i = 0; i < 3 * per_chunk; ++i) {
    const RecordNumber record = Allocate(arena);
    EXPECT_TRUE(records.insert(record).second);
    auto& block = RecordAt<BlockRecord>(*file_, record);
    EXPECT_EQ(block.object, 0u);
    EXPECT_EQ(block.keys.back(), 0u);
    std::memset(&block, 0xff, sizeof(block));
  }
  EXPECT_EQ(arena.chunks(), 3u);
  ChunkList emptied;
  for (const RecordNumber record : records) arena.Free(record, emptied);
  emptied.FreeAll(*file_, kRecordChunkBytes);
  EXPECT_EQ(arena.chunks(), 1u) << "one is kept";
  EXPECT_EQ(RecordAt<BlockRecord>(*file_, Allocate(arena)).base, 0u);
  ChunkList rest;
  arena.Trim(rest);
  EXPECT_TRUE(rest.empty()) << "in use";
  arena.Free(*records.begin(), rest);
  arena.Trim(rest);
  rest.FreeAll(*file_, kRecordChunkBytes);
  EXPECT_EQ(budget_.used_bytes(), empty);
}

struct BlockTraits {
  MemoryFile* file;
  RecordNumber& Next(RecordNumber record) const {
    return RecordAt<BlockRecord>(*file, record).hash_next;
  }
  uint64_t Hash(RecordNumber record) const {
    return tmem_mix(1, RecordAt<BlockRecord>(*file, record).base);
  }
};

// Random inserts and erases against std::map, growing far beyond the inline buckets and back.
TEST_F(RecordsTest, ATableFindsWhatAMapFinds) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  const uint64_t empty = budget_.used_bytes();
  RecordArena arena(*file_, RecordType::kBlock, sizeof(BlockRecord));
  ChainTable<BlockTraits> table(*file_, {file_.get()}, 100'000);
  std::map<uint64_t, RecordNumber> model;
  ChunkList records;
  ChunkList segments;
  size_t most_segments = 0;
  for (int step = 0; step < 200'000; ++step) {
    const bool growing = step / 50'000 % 2 == 0;
    const uint64_t base = random() % 20'000;
    const auto found = table.Find(tmem_mix(1, base), [&](RecordNumber record) {
      return RecordAt<BlockRecord>(*file_, record).base == base;
    });
    const auto expected = model.find(base);
    ASSERT_EQ(found, expected == model.end() ? 0 : expected->second) << "seed " << seed;
    if (found == 0 && (growing || random() % 8 == 0)) {
      const RecordNumber record = Allocate(arena);
      RecordAt<BlockRecord>(*file_, record).base = base;
      table.Insert(tmem_mix(1, base), record);
      model[base] = record;
      // Sometimes there is no memory for a segment, and it must work all the same.
      if (table.WantsSegment() && random() % 4 == 0) {
        table.AddSegment(file_->Allocate(kPageBytes, Claim::kEphemeral));
      }
    } else if (found != 0 && !growing) {
      table.Erase(tmem_mix(1, base), found, segments);
      arena.Free(found, records);
      model.erase(base);
    }
    most_segments = std::max(most_segments, table.segments());
    segments.FreeAll(*file_, kPageBytes);
    records.FreeAll(*file_, kRecordChunkBytes);
  }
  EXPECT_GT(most_segments, 4u);
  EXPECT_EQ(table.records(), model.size());
  for (const auto& [base, record] : model) {
    table.Erase(tmem_mix(1, base), record, segments);
    arena.Free(record, records);
  }
  arena.Trim(records);
  segments.FreeAll(*file_, kPageBytes);
  records.FreeAll(*file_, kRecordChunkBytes);
  EXPECT_EQ(table.segments(), 0u);
  EXPECT_EQ(budget_.used_bytes(), empty) << "an empty table holds no memory";
}

TEST(SizeClass, EveryLengthFitsAndLittleIsLost) {
  for (size_t bytes = 1; bytes <= kPageBytes; ++bytes) {
    const size_t size_class = ClassFor(bytes);
    ASSERT_LT(size_class, kSizeClasses);
    ASSERT_GE(SlotBytes(size_class), bytes);
    ASSERT_LT(SlotBytes(size_class) - bytes, kSlotStepBytes);
  }
  for (const SizeClass& size : kSizeClassTable) {
    const uint32_t left = size.slab_bytes - size.slots * size.slot_bytes;
    // The worst are slots of 3,648 bytes: 8 pages hold 8 of them, and not quite 9.
    EXPECT_LE(left * 100, size.slab_bytes * 11) << "slots of " << size.slot_bytes;
    EXPECT_LE(size.slab_bytes, kSlabStrideBytes);
  }
  EXPECT_EQ(ClassFor(kPageBytes), kRawClass);
}

TEST_F(RecordsTest, SlabsServeFullestFirstAndGoWhenEmpty) {
  auto slab_file = MakeFile(kSlabStrideBytes);
  SlabHeap heap(*file_, *slab_file);
  heap.records().AddChunk(file_->Allocate(kRecordChunkBytes, Claim::kEphemeral));
  const size_t size_class = ClassFor(1024);
  const SizeClass size = kSizeClassTable[size_class];
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(heap.AddSlab(size_class, slab_file->Allocate(size.slab_bytes, Claim::kEphemeral)));
  }
  std::vector<SlabSlot> slots;
  std::set<std::byte*> begins;
  while (heap.HasFreeSlot(size_class)) {
    slots.push_back(*heap.Allocate(size_class));
    begins.insert(SlabHeap::SlotBegin(*file_, *slab_file, slots.back()));
  }
  EXPECT_EQ(slots.size(), 2 * size.slots);
  EXPECT_EQ(begins.size(), slots.size());
  for (uint32_t i = 0; i < size.slots; ++i) {
    EXPECT_EQ(slots[i].slab, slots[0].slab) << "the second slab is begun when the first is full";
  }
  ChunkList emptied;
  EXPECT_EQ(heap.Free(slots[0], emptied).bytes, 0u);
  for (uint32_t i = 1; i < size.slots; ++i)
    EXPECT_EQ(heap.Free(slots[size.slots + i], emptied).bytes, 0u);
  EXPECT_EQ(heap.Allocate(size_class)->slab, slots[0].slab) << "the fuller one";
  EXPECT_EQ(heap.Free(slots[size.slots], emptied).bytes, size.slab_bytes);
}

}  // namespace
}  // namespace tmem
