// SPDX-License-Identifier: GPL-2.0-only
// Samples: files, processes, and what is written of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "bench/samples/sample_sources.h"
#include "bench/samples/sample_writer.h"
#include "compress/sample_pages.h"
#include "host-store/doorbell/test_directory.h"
#include "host-store/estimate/memory_image.h"

namespace tmem {
namespace {

std::string Text(PageView page) {
  return {reinterpret_cast<const char*>(page.data()), page.size()};
}

class SamplesTest : public testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    std::string path = directory_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  PageSink Collect() {
    return [this](PageView page) {
      pages_.push_back(Text(page));
      return pages_.size() < wanted_;
    };
  }

  TestDirectory directory_;
  std::vector<std::string> pages_;
  size_t wanted_ = 1000;
};

TEST_F(SamplesTest, TextIsUnpackedJoinedAndFreeOfZeroes) {
  const std::string a(3000, 'a'), b(3000, 'b');
  const std::string packed = Write("b", b);
  ASSERT_EQ(std::system(("gzip " + packed).c_str()), 0);
  const std::string zeroes = Write("c", std::string(2 * kPageBytes, '\0'));
  ASSERT_TRUE(ReadTextFiles({Write("a", a), packed + ".gz", zeroes}, Collect()).ok());
  ASSERT_EQ(pages_.size(), 1u);
  EXPECT_EQ(pages_[0], a + b.substr(0, kPageBytes - a.size()));
}

TEST_F(SamplesTest, BinariesAreElfFilesOnly) {
  const std::string elf =
      "\x7f"
      "ELF" +
      std::string(2 * kPageBytes, 'x');
  ReadElfFiles({Write("text", std::string(kPageBytes, 't')), Write("elf", elf)}, Collect());
  ASSERT_EQ(pages_.size(), 2u);
  EXPECT_EQ(pages_[0] + pages_[1], elf.substr(0, 2 * kPageBytes));
}

TEST_F(SamplesTest, FilesComeInAnOrderOfTheSeedAndNoLinks) {
  for (const char* name : {"a", "b", "c", "d", "e"}) Write(name, "x");
  std::filesystem::create_symlink(directory_.path() + "/a", directory_.path() + "/link");
  const auto files = FilesBelow({directory_.path(), directory_.path() + "/missing"}, 7);
  EXPECT_EQ(files.size(), 5u);
  EXPECT_EQ(files, FilesBelow({directory_.path()}, 7));
  EXPECT_NE(files, FilesBelow({directory_.path()}, 8));
}

TEST_F(SamplesTest, HeapHasWhatAProcessWrote) {
  const std::string mark = "a mark of this very test";
  std::vector<char> held(16 * kPageBytes);
  for (size_t i = 0; i < held.size(); i += kPageBytes) {
    std::memcpy(held.data() + i, mark.data(), mark.size());
  }
  wanted_ = SIZE_MAX;
  const auto read = ReadHeapOf(::getpid(), Collect());
  if (!read) GTEST_SKIP() << "memory of processes may not be read here: " << read.error().message;
  size_t marked = 0;
  for (const std::string& page : pages_) marked += page.find(mark) != std::string::npos ? 1 : 0;
  EXPECT_GE(marked, 15u);
}

TEST_F(SamplesTest, HeapOfAProgramThatWasStarted) {
  wanted_ = 3;
  const auto read = ReadHeapOfProgram({"sh", "-c", "echo ready; read -r _"}, Collect());
  if (!read) GTEST_SKIP() << "memory of processes may not be read here: " << read.error().message;
  EXPECT_EQ(pages_.size(), 3u);
  EXPECT_FALSE(ReadHeapOfProgram({"sh", "-c", "exit 0"}, Collect()).ok());
  EXPECT_FALSE(ReadHeapOfProgram({"/missing/program"}, Collect()).ok());
}

TEST_F(SamplesTest, WriterTakesDistinctPagesAsWanted) {
  const std::string path = directory_.path() + "/out.pages";
  SampleWriter writer(path, 2, SampleWriter::Take::kDistinct);
  const PageBytes text = MakeSamplePage(PageKind::kText, 1);
  EXPECT_TRUE(writer.Add(MakeSamplePage(PageKind::kZero, 0)));
  EXPECT_TRUE(writer.Add(text));
  EXPECT_TRUE(writer.Add(text));
  EXPECT_FALSE(writer.Add(MakeSamplePage(PageKind::kHeap, 1)));
  EXPECT_FALSE(writer.Add(MakeSamplePage(PageKind::kHeap, 2)));
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(writer.pages_left_out(), 2u);
  const auto image = MemoryImage::Open(path);
  ASSERT_TRUE(image.ok());
  EXPECT_EQ((*image)->pages(), 2u);
}

TEST_F(SamplesTest, WriterSaysWhatIsMissing) {
  EXPECT_FALSE(
      SampleWriter(directory_.path() + "/none.pages", 2, SampleWriter::Take::kAll).Finish().ok());
  EXPECT_FALSE(SampleWriter("/missing/dir/x.pages", 2, SampleWriter::Take::kAll).Finish().ok());
}

}  // namespace
}  // namespace tmem
