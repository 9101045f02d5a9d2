// SPDX-License-Identifier: GPL-2.0-only
// Tells the formats apart, and reads their pages.
#include "host-store/estimate/memory_image.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace tmem {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;
// Of the largest guests that exist; more are rubbish in a header.
constexpr uint64_t kMaxSegments = 1 << 20;
// No physical address of x86-64 is above.
constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 52;

// What begins files that hold memory in ways of their own, and what to do about it.
struct OtherFormat {
  std::string_view magic;
  const char* what;
};
constexpr OtherFormat kOtherFormats[] = {
    {"KDUMP   ", "a compressed kdump; dump it as plain ELF (dump-guest-memory without -z)"},
    {"DISKDUMP", "a compressed diskdump; dump it as plain ELF"},
    {"makedumpfile", "a flattened dump; restore it with makedumpfile -R as plain ELF"},
    {"QEVM", "a saved state of QEMU; use dump-guest-memory or pmemsave"},
    {"QFI\xfb", "a qcow2 image; convert it to raw, if it holds memory at all"},
};

uint64_t PagesOf(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes;
}

}  // namespace

Result<std::unique_ptr<MemoryImage>> MemoryImage::Open(const std::string& path, Reading reading) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return SystemError("open " + path);
  std::unique_ptr<MemoryImage> image(new MemoryImage(path, std::move(file)));
  const Result<uint64_t> file_bytes = image->FileBytes();
  if (!file_bytes) return file_bytes.error();
  const Result<void> known =
      reading == Reading::kRaw ? image->AddRaw(*file_bytes) : image->Recognise(*file_bytes);
  if (!known) return known.error();
  image->buffer_.resize(kPieceBytes);
  return image;
}

Result<void> MemoryImage::ReadAt(uint64_t offset, std::byte* to, uint64_t bytes) const {
  while (bytes != 0) {
    const ssize_t read = ::pread(file_.get(), to, bytes, static_cast<off_t>(offset));
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return SystemError("read " + path_);
    if (read == 0) return Bad("ends before byte " + std::to_string(offset + bytes));
    offset += static_cast<uint64_t>(read);
    to += read;
    bytes -= static_cast<uint64_t>(read);
  }
  return Ok();
}

Result<uint64_t> MemoryImage::FileBytes() const {
  const off_t end = ::lseek(file_.get(), 0, SEEK_END);  // also the size of a block device
  if (end < 0) return SystemError("seek in " + path_);
  if (end == 0) return Bad("is empty");
  return static_cast<uint64_t>(end);
}

Result<void> MemoryImage::Recognise(uint64_t file_bytes) {
  std::array<char, 16> begin{};
  const auto begin_bytes = std::min<uint64_t>(file_bytes, begin.size());
  if (const Result<void> read = ReadAt(0, reinterpret_cast<std::byte*>(begin.data()), begin_bytes);
      !read) {
    return read.error();
  }
  const std::string_view magic(begin.data(), begin_bytes);
  for (const OtherFormat& other : kOtherFormats) {
    if (magic.starts_with(other.magic)) return Bad(std::string("is ") + other.what);
  }
  return magic.starts_with(ELFMAG) ? AddCore(file_bytes) : AddRaw(file_bytes);
}

Result<void> MemoryImage::AddRaw(uint64_t file_bytes) {
  if (file_bytes % kPageBytes != 0) {
    return Bad("is no memory image: its " + std::to_string(file_bytes) +
               " bytes are no whole number of 4096-byte pages");
  }
  extents_ = {{0, file_bytes}};
  pages_ = file_bytes / kPageBytes;
  return Ok();
}

Result<void> MemoryImage::AddCore(uint64_t file_bytes) {
  format_ = Format::kCore;
  Elf64_Ehdr header{};
  if (file_bytes < sizeof(header)) return Bad("is a core file cut off in its header");
  if (const auto read = ReadAt(0, reinterpret_cast<std::byte*>(&header), sizeof(header)); !read) {
    return read.error();
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    return Bad("is an ELF file, but not of a 64-bit little-endian machine");
  }
  if (header.e_type != ET_CORE) return Bad("is an ELF file, but a program and no core file");
  if (header.e_phentsize != sizeof(Elf64_Phdr)) return Bad("has segment headers of a strange size");
  uint64_t segments = header.e_phnum;
  if (segments == PN_XNUM) {  // more than fit: the first section header says how many
    Elf64_Shdr section{};
    const auto read =
        ReadAt(header.e_shoff, reinterpret_cast<std::byte*>(&section), sizeof(section));
    if (!read) return read.error();
    segments = section.sh_info;
  }
  if (segments > kMaxSegments) return Bad("names too many segments");
  if (segments > file_bytes / sizeof(Elf64_Phdr))
    return Bad("is a core file cut off in its header");
  std::vector<Elf64_Phdr> headers(segments);
  if (const auto read = ReadAt(header.e_phoff, reinterpret_cast<std::byte*>(headers.data()),
                               segments * sizeof(Elf64_Phdr));
      !read) {
    return read.error();
  }
  for (const Elf64_Phdr& segment : headers) {
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > file_bytes || segment.p_filesz > file_bytes - segment.p_offset) {
      return Bad("is a core file cut off: a segment ends behind its " + std::to_string(file_bytes) +
                 " bytes");
    }
    if (segment.p_memsz > kMaxMemoryBytes) return Bad("names more memory than there can be");
    if (segment.p_filesz != 0) extents_.push_back({segment.p_offset, segment.p_filesz});
    if (segment.p_memsz > segment.p_filesz) {
      absent_pages_ += PagesOf(segment.p_memsz) - PagesOf(segment.p_filesz);
    }
  }
  MergeExtents();
  for (const Extent& extent : extents_) pages_ += PagesOf(extent.bytes);
  if (pages_ == 0) return Bad("is a core file without memory in it");
  return Ok();
}

// In the file's order. Memory that is mapped at several addresses is in several segments, as of
// dump-guest-memory -p, but is one page; and a file of segments that are all of it each ends.
void MemoryImage::MergeExtents() {
  std::sort(extents_.begin(), extents_.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<Extent> merged;
  for (const Extent& extent : extents_) {
    if (merged.empty() || extent.offset >= merged.back().offset + merged.back().bytes) {
      merged.push_back(extent);
      continue;
    }
    Extent& before = merged.back();
    before.bytes = std::max(before.bytes, extent.offset + extent.bytes - before.offset);
  }
  extents_ = std::move(merged);
}

Result<void> MemoryImage::VisitExtent(const Extent& extent,
                                      const std::function<void(PageView)>& visit) {
  for (uint64_t at = 0; at < extent.bytes; at += kPieceBytes) {
    const uint64_t bytes = std::min(kPieceBytes, extent.bytes - at);
    const uint64_t padded_bytes = PagesOf(bytes) * kPageBytes;
    std::memset(buffer_.data() + bytes, 0, padded_bytes - bytes);
    if (const auto read = ReadAt(extent.offset + at, buffer_.data(), bytes); !read)
      return read.error();
    for (uint64_t page = 0; page < padded_bytes; page += kPageBytes) {
      visit(PageView(buffer_.data() + page, kPageBytes));
    }
  }
  return Ok();
}

Result<void> MemoryImage::ForEachPage(const std::function<void(PageView)>& visit) {
  for (const Extent& extent : extents_) {
    if (const auto visited = VisitExtent(extent, visit); !visited) return visited.error();
  }
  return Ok();
}

}  // namespace tmem
