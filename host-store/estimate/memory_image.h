// SPDX-License-Identifier: GPL-2.0-only
// The pages of a file that holds memory: a raw image, or an ELF core file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compress/page.h"
#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// Raw: the whole file is pages, as QEMU's `pmemsave`, a RAM file or a memfd has them. Core: the
// bytes that the file has of its PT_LOAD segments, as `dump-guest-memory`, `gcore` and the kernel
// write them, those of several segments once; memory that a segment names but the file does not
// have is `absent`.
//
// Thread rule: one thread. Cost: the file is read once, in pieces of 1 MiB.
class MemoryImage {
 public:
  enum class Format : uint8_t { kRaw, kCore };
  // kRaw: the file is pages, whatever it begins with, such as a page of an ELF file.
  enum class Reading : uint8_t { kRecognise, kRaw };

  // Errors: cannot be opened or read; empty, no whole number of pages; an ELF file that is no
  // 64-bit little-endian core file, or one cut off; a format that holds memory in another way
  // (kdump, QEMU's saved states).
  static Result<std::unique_ptr<MemoryImage>> Open(const std::string& path,
                                                   Reading reading = Reading::kRecognise);

  Format format() const { return format_; }
  uint64_t pages() const { return pages_; }
  uint64_t absent_pages() const { return absent_pages_; }

  // Calls visit(page) for each page in the file's order; a segment's last page is filled up with
  // zeroes. Errors: the file became shorter, or cannot be read.
  Result<void> ForEachPage(const std::function<void(PageView)>& visit);

 private:
  struct Extent {
    uint64_t offset;
    uint64_t bytes;
  };

  MemoryImage(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> Recognise(uint64_t file_bytes);
  Result<uint64_t> FileBytes() const;
  Result<void> AddRaw(uint64_t file_bytes);
  Result<void> AddCore(uint64_t file_bytes);
  void MergeExtents();
  Result<void> ReadAt(uint64_t offset, std::byte* to, uint64_t bytes) const;
  Result<void> VisitExtent(const Extent& extent, const std::function<void(PageView)>& visit);
  Error Bad(const std::string& what) const { return {ErrorCode::kCorrupt, path_ + ": " + what}; }

  const std::string path_;
  const UniqueFd file_;
  Format format_ = Format::kRaw;
  uint64_t pages_ = 0;
  uint64_t absent_pages_ = 0;
  std::vector<Extent> extents_;
  std::vector<std::byte> buffer_;
};

}  // namespace tmem
