// SPDX-License-Identifier: GPL-2.0-only
// The memory files alone, without the store, give back every key with its page: what a keeper will
// stand on. Written against records.h only.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <tuple>

#include "compress/page_codec.h"
#include "compress/page_hash.h"
#include "host-store/store/records.h"
#include "host-store/store/size_class.h"
#include "host-store/store/store_test_util.h"

namespace tmem {
namespace {

// A file seen by another process: mapped anew, read only, from its descriptor.
class MappedFile {
 public:
  explicit MappedFile(const Store::MemoryFileView& view) : stride_bytes_(view.stride_bytes) {
    struct stat status;
    EXPECT_EQ(fstat(view.fd, &status), 0);
    bytes_ = static_cast<uint64_t>(status.st_size);
    void* mapped = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, view.fd, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    begin_ = static_cast<const std::byte*>(mapped);
    fd_ = view.fd;
  }
  ~MappedFile() { munmap(const_cast<std::byte*>(begin_), bytes_); }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const FileHead& head() const { return *reinterpret_cast<const FileHead*>(begin_); }
  const std::byte* Chunk(uint64_t chunk) const { return begin_ + chunk * stride_bytes_; }
  template <typename Record>
  const Record& At(RecordNumber number) const {
    return *reinterpret_cast<const Record*>(begin_ + uint64_t{number} * kRecordGranuleBytes);
  }
  // Chunks that exist: the file is sparse, holes are not there.
  std::vector<uint64_t> Chunks() const {
    std::vector<uint64_t> chunks;
    off_t at = static_cast<off_t>(stride_bytes_);
    for (;;) {
      at = lseek(fd_, at, SEEK_DATA);
      if (at < 0) return chunks;
      chunks.push_back(static_cast<uint64_t>(at) / stride_bytes_);
      at = static_cast<off_t>((chunks.back() + 1) * stride_bytes_);
    }
  }

 private:
  uint64_t stride_bytes_;
  uint64_t bytes_ = 0;
  const std::byte* begin_ = nullptr;
  int fd_ = -1;
};

using RecoveredKey =
    std::tuple<uint32_t, uint64_t, uint64_t, uint64_t>;  // guest, pool, object, index
struct RecoveredPage {
  PageBytes bytes;
  uint32_t tag;
};

class Recovery {
 public:
  explicit Recovery(const std::vector<Store::MemoryFileView>& views) {
    for (const auto& view : views) files_[view.name] = std::make_unique<MappedFile>(view);
  }

  std::map<RecoveredKey, RecoveredPage> Pages() const {
    std::map<RecoveredKey, RecoveredPage> pages;
    for (const auto& [name, file] : files_) {
      EXPECT_EQ(file->head().magic, kFileMagic);
      if (file->head().kind != static_cast<uint32_t>(FileKind::kIndex)) continue;
      const std::string prefix = name.substr(0, name.size() - std::string("index").size());
      for (const uint64_t chunk : file->Chunks()) {
        const auto& header = *reinterpret_cast<const ChunkHeader*>(file->Chunk(chunk));
        if (header.type != static_cast<uint32_t>(RecordType::kBlock)) continue;
        const auto* block = reinterpret_cast<const BlockRecord*>(&header + 1);
        const size_t count = (kRecordChunkBytes - sizeof(header)) / sizeof(BlockRecord);
        for (size_t i = 0; i < count; ++i) {
          if (block[i].object != 0) RecoverBlock(*file, prefix, block[i], pages);
        }
      }
    }
    return pages;
  }

 private:
  void RecoverBlock(const MappedFile& index, const std::string& prefix, const BlockRecord& block,
                    std::map<RecoveredKey, RecoveredPage>& pages) const {
    const auto& object = index.At<ObjectRecord>(block.object);
    for (uint32_t i = 0; i < TMEM_LANE_BLOCK_PAGES; ++i) {
      if (block.keys[i] == 0) continue;
      const auto& key = index.At<KeyRecord>(block.keys[i]);
      const RecoveredKey name{object.guest, object.pool, object.id[0],
                              block.base << TMEM_LANE_BLOCK_SHIFT | i};
      pages[name] = {PageOf(prefix, key), key.tag};
    }
  }

  PageBytes PageOf(const std::string& prefix, const KeyRecord& key) const {
    PageBytes bytes{};
    if (key.holder == HolderKind::kFilled) {
      FillPage(key.value, PageBuffer(bytes));
    } else if (key.holder == HolderKind::kLanded) {
      const std::byte* landing = files_.at("tmem-landing")->Chunk(1);
      std::memcpy(bytes.data(), landing + key.value * kPageBytes, kPageBytes);
    } else {
      Decode(*files_.at(prefix + "1-pages"), *files_.at(prefix + "1-slabs"),
             static_cast<RecordNumber>(key.value), bytes);
    }
    return bytes;
  }

  static void Decode(const MappedFile& records, const MappedFile& slabs, RecordNumber number,
                     PageBytes& bytes) {
    const auto& page = records.At<PageRecord>(number);
    const auto& slab = records.At<SlabRecord>(page.slab);
    const std::byte* coded =
        slabs.Chunk(slab.chunk) + size_t{page.slot} * kSizeClassTable[slab.size_class].slot_bytes;
    PageCodec codec;
    EXPECT_EQ(codec.Decompress(CodecOf(page), std::span(coded, LengthOf(page)), PageBuffer(bytes)),
              DecompressOutcome::kPage);
    const PageHash hash = PageHasher(records.head().hash_key).Hash(PageView(bytes));
    EXPECT_EQ(hash.low, page.hash_low);
    EXPECT_EQ(static_cast<uint32_t>(hash.high), page.hash_high);
  }

  std::map<std::string, std::unique_ptr<MappedFile>> files_;
};

using StoreRecovery = StoreTest;

TEST_F(StoreRecovery, EveryKeyIsFoundInTheFilesAlone) {
  store_->TopUpCredits(guest_, 1000);
  std::map<RecoveredKey, RecoveredPage> expected;
  for (const PoolHandle pool : {ephemeral_, persistent_}) {
    for (uint64_t i = 0; i < 600; ++i) {
      const uint64_t object = i % 5;
      const uint64_t index = i % 2 == 0 ? i : i << 30;
      PageBytes page = MakePage(i % 500, i % 3 == 0 ? Fill::kRandom : Fill::kCompressible);
      if (i % 10 == 0) page.fill(static_cast<std::byte>(i));
      const auto tag = static_cast<uint32_t>(i);
      ASSERT_EQ(store_->Put(guest_, Key(pool, index, object), PageView(page), tag), Outcome::kOk);
      expected[{static_cast<uint32_t>(guest_), static_cast<uint64_t>(pool), object, index}] = {page,
                                                                                               tag};
      if (i == 550) SettleAll();
      if (i % 7 == 0) {
        store_->Flush(guest_, pool, Key(pool, index, object).object, {index, 1}, kAllLanes);
        expected.erase({static_cast<uint32_t>(guest_), static_cast<uint64_t>(pool), object, index});
      }
    }
  }
  ASSERT_GT(store_->Status().landed, 0u);
  ASSERT_GT(store_->Status().duplicates, 0u);
  ASSERT_GT(store_->Status().same_filled, 0u);
  ASSERT_GT(store_->Status().raw, 0u);

  const auto recovered = Recovery(store_->MemoryFiles()).Pages();
  EXPECT_EQ(recovered.size(), expected.size());
  for (const auto& [key, page] : expected) {
    const auto found = recovered.find(key);
    ASSERT_NE(found, recovered.end());
    EXPECT_EQ(found->second.bytes, page.bytes);
    EXPECT_EQ(found->second.tag, page.tag);
  }
}

}  // namespace
}  // namespace tmem
