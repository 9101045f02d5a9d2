// SPDX-License-Identifier: GPL-2.0-only
// Lays out an estimate.
#include "host-store/estimate/estimate_text.h"

#include <cstdio>

#include "host-store/daemon/size_text.h"

namespace tmem {
namespace {

using Sharing = PoolEstimate::Sharing;

const char* FormatName(MemoryImage::Format format) {
  return format == MemoryImage::Format::kCore ? "core" : "raw";
}

std::string CountOf(uint64_t pages, uint64_t all) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%llu (%.1f %%)", static_cast<unsigned long long>(pages),
                all == 0 ? 0.0 : 100.0 * static_cast<double>(pages) / static_cast<double>(all));
  return text.data();
}

std::string Row(const char* name, const PoolEstimateOf& held, uint64_t image_bytes) {
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "%-16s %12s %12s %12s %7.2fx\n", name,
                FormatSize(held.stored_bytes).c_str(), FormatSize(held.metadata_bytes).c_str(),
                FormatSize(held.held_bytes).c_str(),
                held.held_bytes == 0
                    ? 0.0
                    : static_cast<double>(image_bytes) / static_cast<double>(held.held_bytes));
  return text.data();
}

nlohmann::json JsonOf(const PoolEstimateOf& held) {
  return {{"stored_bytes", held.stored_bytes},
          {"held_bytes", held.held_bytes},
          {"metadata_bytes", held.metadata_bytes},
          {"raw_pages", held.raw_pages}};
}

}  // namespace

std::string EstimateText(const MemoryImage& image, const PoolEstimate& estimate) {
  const uint64_t pages = estimate.pages();
  const uint64_t bytes = pages * kPageBytes;
  std::string text = std::string("format       ") + FormatName(image.format()) + "\n";
  text += "pages        " + std::to_string(pages) + " (" + FormatSize(bytes) + ")\n";
  if (image.absent_pages() != 0) {
    text += "not in file  " + std::to_string(image.absent_pages()) + " more\n";
  }
  text += "same-filled  " + CountOf(estimate.same_filled_pages(), pages) + ", of them zero " +
          CountOf(estimate.zero_pages(), pages) + "\n";
  text += "duplicates   " + CountOf(estimate.duplicate_pages(), pages) + "\n";
  text += "raw          " + CountOf(estimate.Of(Codec::kLz4, Sharing::kDedup).raw_pages, pages) +
          " that LZ4 does not take\n\n";
  text += "the pool would hold    coded      records          all   density\n";
  text += Row("lz4, dedup", estimate.Of(Codec::kLz4, Sharing::kDedup), bytes);
  text += Row("lz4, no dedup", estimate.Of(Codec::kLz4, Sharing::kNone), bytes);
  text += Row("zstd, dedup", estimate.Of(Codec::kZstd, Sharing::kDedup), bytes);
  text += Row("zstd, no dedup", estimate.Of(Codec::kZstd, Sharing::kNone), bytes);
  return text;
}

nlohmann::json EstimateJson(const MemoryImage& image, const PoolEstimate& estimate) {
  nlohmann::json codecs;
  for (const Codec codec : {Codec::kLz4, Codec::kZstd}) {
    codecs[ToString(codec)] = {{"dedup", JsonOf(estimate.Of(codec, Sharing::kDedup))},
                               {"no_dedup", JsonOf(estimate.Of(codec, Sharing::kNone))}};
  }
  return {{"format", FormatName(image.format())},
          {"pages", estimate.pages()},
          {"absent_pages", image.absent_pages()},
          {"zero_pages", estimate.zero_pages()},
          {"same_filled_pages", estimate.same_filled_pages()},
          {"duplicate_pages", estimate.duplicate_pages()},
          {"codecs", codecs}};
}

}  // namespace tmem
