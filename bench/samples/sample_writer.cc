// SPDX-License-Identifier: GPL-2.0-only
// One sample of pages, in a file.
#include "bench/samples/sample_writer.h"

#include <span>

#include "compress/same_filled.h"

namespace tmem {
namespace {
constexpr uint64_t kAnyKey = 1;
}

SampleWriter::SampleWriter(std::string path, uint64_t pages_wanted, Take take)
    : path_(std::move(path)),
      pages_wanted_(pages_wanted),
      take_(take),
      hasher_(std::as_bytes(std::span(&kAnyKey, 1))),
      file_(path_, std::ios::binary | std::ios::trunc) {}

bool SampleWriter::Add(PageView page) {
  if (pages_ == pages_wanted_) return false;
  if (take_ == Take::kDistinct &&
      (SameFilledWord(page) || !seen_.insert(hasher_.Hash(page)).second)) {
    ++pages_left_out_;
    return true;
  }
  file_.write(reinterpret_cast<const char*>(page.data()), kPageBytes);
  return ++pages_ != pages_wanted_;
}

Result<void> SampleWriter::Finish() {
  file_.close();
  if (!file_) return Error{ErrorCode::kSystem, "cannot write " + path_};
  if (pages_ == 0) return Error{ErrorCode::kNotFound, "found no page for " + path_};
  return Ok();
}

}  // namespace tmem
