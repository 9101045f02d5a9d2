// SPDX-License-Identifier: GPL-2.0-only
// An estimate for people, and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "host-store/estimate/memory_image.h"
#include "host-store/estimate/pool_estimate.h"

namespace tmem {

std::string EstimateText(const MemoryImage& image, const PoolEstimate& estimate);

// Keys: format ("raw", "core"), pages, absent_pages, zero_pages, same_filled_pages,
// duplicate_pages; codecs: {lz4, zstd: {dedup, no_dedup: {stored_bytes, held_bytes,
// metadata_bytes, raw_pages}}}.
nlohmann::json EstimateJson(const MemoryImage& image, const PoolEstimate& estimate);

}  // namespace tmem
