// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/estimate/memory_image.h"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "compress/sample_pages.h"
#include "host-store/doorbell/test_directory.h"

namespace tmem {
namespace {

using testing::HasSubstr;

// A core file with these segments: bytes in the file, bytes in memory.
struct Segment {
  std::string bytes;
  uint64_t memory_bytes;
};

std::string MakeCore(const std::vector<Segment>& segments) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_CORE;
  header.e_phoff = sizeof(header);
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = static_cast<Elf64_Half>(segments.size() + 1);
  std::string file(reinterpret_cast<const char*>(&header), sizeof(header));
  const Elf64_Phdr note{.p_type = PT_NOTE,
                        .p_flags = 0,
                        .p_offset = 0,
                        .p_vaddr = 0,
                        .p_paddr = 0,
                        .p_filesz = 8,
                        .p_memsz = 8,
                        .p_align = 0};
  file.append(reinterpret_cast<const char*>(&note), sizeof(note));
  uint64_t offset = sizeof(header) + (segments.size() + 1) * sizeof(Elf64_Phdr);
  for (const Segment& segment : segments) {
    Elf64_Phdr load{};
    load.p_type = PT_LOAD;
    load.p_offset = offset;
    load.p_filesz = segment.bytes.size();
    load.p_memsz = segment.memory_bytes;
    file.append(reinterpret_cast<const char*>(&load), sizeof(load));
    offset += segment.bytes.size();
  }
  for (const Segment& segment : segments) file += segment.bytes;
  return file;
}

std::string Bytes(const PageBytes& page) {
  return {reinterpret_cast<const char*>(page.data()), page.size()};
}

class MemoryImageTest : public testing::Test {
 protected:
  std::string Write(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }
  std::string ErrorOf(const std::string& bytes) {
    const auto image = MemoryImage::Open(Write(bytes));
    return image.ok() ? "none" : image.error().message;
  }
  // All pages of the file, as one string.
  std::string Read(MemoryImage& image) {
    std::string all;
    const auto read = image.ForEachPage([&](PageView page) {
      all.append(reinterpret_cast<const char*>(page.data()), page.size());
    });
    EXPECT_TRUE(read.ok());
    return all;
  }

  TestDirectory directory_;
  const std::string path_ = directory_.path() + "/image";
  const std::string text_ = Bytes(MakeSamplePage(PageKind::kText, 1));
  const std::string heap_ = Bytes(MakeSamplePage(PageKind::kHeap, 2));
};

TEST_F(MemoryImageTest, ReadsRawPagesInOrderAcrossPieces) {
  std::string bytes;
  for (uint64_t i = 0; i < 600; ++i) bytes += Bytes(MakeSamplePage(PageKind::kRandom, i));
  auto image = MemoryImage::Open(Write(bytes));
  ASSERT_TRUE(image.ok()) << image.error().Describe();
  EXPECT_EQ((*image)->format(), MemoryImage::Format::kRaw);
  EXPECT_EQ((*image)->pages(), 600u);
  EXPECT_EQ(Read(**image), bytes);
  EXPECT_EQ(Read(**image), bytes) << "a second time";
}

TEST_F(MemoryImageTest, ReadsTheSegmentsOfACoreFile) {
  const std::string half = text_.substr(0, 100);
  auto image = MemoryImage::Open(Write(
      MakeCore({{text_ + heap_, 2 * kPageBytes}, {"", 5 * kPageBytes}, {half, 2 * kPageBytes}})));
  ASSERT_TRUE(image.ok()) << image.error().Describe();
  EXPECT_EQ((*image)->format(), MemoryImage::Format::kCore);
  EXPECT_EQ((*image)->pages(), 3u);
  EXPECT_EQ((*image)->absent_pages(), 6u);
  EXPECT_EQ(Read(**image), text_ + heap_ + half + std::string(kPageBytes - 100, '\0'));
}

TEST_F(MemoryImageTest, RefusesWhatHoldsNoPages) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf(text_ + "x"), HasSubstr("4097 bytes are no whole number"));
  EXPECT_THAT(ErrorOf(MakeCore({})), HasSubstr("without memory"));
  const auto missing = MemoryImage::Open(directory_.path() + "/missing");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("No such file"));
  EXPECT_FALSE(MemoryImage::Open(directory_.path()).ok());
}

TEST_F(MemoryImageTest, RefusesOtherFormatsByName) {
  EXPECT_THAT(ErrorOf("KDUMP   " + text_), HasSubstr("compressed kdump"));
  EXPECT_THAT(ErrorOf("makedumpfile" + text_), HasSubstr("flattened"));
  EXPECT_THAT(ErrorOf("QEVM" + text_), HasSubstr("saved state of QEMU"));
}

TEST_F(MemoryImageTest, RefusesElfFilesThatAreNoCoreOfThisMachine) {
  const std::string core = MakeCore({{text_, kPageBytes}});
  std::string program = core;
  program[offsetof(Elf64_Ehdr, e_type)] = ET_EXEC;
  EXPECT_THAT(ErrorOf(program), HasSubstr("program and no core file"));
  const std::string whole = program.substr(0, kPageBytes);  // as a page of memory it will do
  EXPECT_TRUE(MemoryImage::Open(Write(whole), MemoryImage::Reading::kRaw).ok());
  std::string small = core;
  small[EI_CLASS] = ELFCLASS32;
  EXPECT_THAT(ErrorOf(small), HasSubstr("not of a 64-bit"));
}

TEST_F(MemoryImageTest, RefusesACoreFileCutOffAnywhere) {
  const std::string core = MakeCore({{text_ + heap_, 2 * kPageBytes}});
  for (const size_t bytes : {size_t{20}, sizeof(Elf64_Ehdr) + 10, core.size() - 1}) {
    EXPECT_NE(ErrorOf(core.substr(0, bytes)), "none") << bytes << " bytes of it";
  }
  EXPECT_THAT(ErrorOf(core.substr(0, core.size() - 1)), HasSubstr("cut off"));
  std::string far = core;  // an offset that overflows with the size
  const uint64_t offset = UINT64_MAX - 10;
  std::memcpy(&far[sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + offsetof(Elf64_Phdr, p_offset)],
              &offset, sizeof(offset));
  EXPECT_THAT(ErrorOf(far), HasSubstr("cut off"));
}

// One field of the segment at `number` of a file that MakeCore() made.
void SetField(std::string& core, size_t number, size_t field, uint64_t value) {
  const size_t at = sizeof(Elf64_Ehdr) + (number + 1) * sizeof(Elf64_Phdr) + field;
  std::memcpy(&core[at], &value, sizeof(value));
}

// As dump-guest-memory -p writes memory that is mapped twice.
TEST_F(MemoryImageTest, CountsBytesThatAreInSeveralSegmentsOnce) {
  std::string core = MakeCore({{text_ + heap_, 2 * kPageBytes}, {heap_, kPageBytes}});
  const size_t first = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
  SetField(core, 1, offsetof(Elf64_Phdr, p_offset), first + kPageBytes);
  auto image = MemoryImage::Open(Write(core));
  ASSERT_TRUE(image.ok()) << image.error().Describe();
  EXPECT_EQ((*image)->pages(), 2u);
  EXPECT_EQ(Read(**image), text_ + heap_);
}

TEST_F(MemoryImageTest, AFileOfSegmentsThatAreAllOfItIsReadOnce) {
  constexpr size_t kSegments = 60'000;
  std::string core = MakeCore(std::vector<Segment>(kSegments, Segment{"", 0}));
  const uint64_t bytes = core.size() / kPageBytes * kPageBytes;
  for (size_t i = 0; i < kSegments; ++i) {
    SetField(core, i, offsetof(Elf64_Phdr, p_offset), 0);
    SetField(core, i, offsetof(Elf64_Phdr, p_filesz), bytes);
    SetField(core, i, offsetof(Elf64_Phdr, p_memsz), bytes);
  }
  const auto image = MemoryImage::Open(Write(core));
  ASSERT_TRUE(image.ok()) << image.error().Describe();
  EXPECT_EQ((*image)->pages(), bytes / kPageBytes);
}

TEST_F(MemoryImageTest, RefusesMoreMemoryThanThereCanBe) {
  std::string core = MakeCore({{text_, kPageBytes}});
  for (const uint64_t bytes : {UINT64_MAX, UINT64_MAX - kPageBytes, (uint64_t{1} << 52) + 1}) {
    SetField(core, 0, offsetof(Elf64_Phdr, p_memsz), bytes);
    EXPECT_THAT(ErrorOf(core), HasSubstr("more memory than there can be")) << bytes;
  }
}

TEST_F(MemoryImageTest, SaysThatAFileBecameShorter) {
  auto image = MemoryImage::Open(Write(text_ + heap_));
  ASSERT_TRUE(image.ok());
  Write(text_);
  const auto read = (*image)->ForEachPage([](PageView) {});
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("ends before byte 8192"));
}

}  // namespace
}  // namespace tmem
