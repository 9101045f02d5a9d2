// SPDX-License-Identifier: GPL-2.0-only
// What each step of compress/ costs, as a ratio to copying the same page in the same run.
//
// Pages are read in turn from a set larger than the caches (cold, as a guest's pages are). The
// counter `vs_copy` is time over the time of the copy; `ratio` is page size over stored size.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "compress/page_codec.h"
#include "compress/page_hash.h"
#include "compress/same_filled.h"
#include "compress/sample_pages.h"

namespace tmem {
namespace {

// 32 MiB: well above the last-level cache that one core of the test machine sees.
constexpr std::size_t kPages = 8192;
// Pages that differ; making 32 MiB of each kind would take longer than measuring.
constexpr std::size_t kDistinctPages = 512;

const std::vector<PageBytes>& PagesOf(PageKind kind) {
  static std::vector<PageBytes> pages;
  static int made_kind = -1;
  if (made_kind == static_cast<int>(kind)) return pages;
  made_kind = static_cast<int>(kind);
  pages.resize(kPages);
  for (std::size_t i = 0; i < kPages; ++i) {
    pages[i] = i < kDistinctPages ? MakeSamplePage(kind, i) : pages[i % kDistinctPages];
  }
  return pages;
}

// Nanoseconds to copy one of `pages`, the floor of everything here.
double CopyNs(const std::vector<PageBytes>& pages) {
  static PageBytes dest;
  const auto start = std::chrono::steady_clock::now();
  for (const PageBytes& page : pages) {
    std::memcpy(dest.data(), page.data(), kPageBytes);
    benchmark::DoNotOptimize(dest.data());
    benchmark::ClobberMemory();
  }
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(pages.size());
}

template <typename Step>
void Run(benchmark::State& state, PageKind kind, Step step) {
  const std::vector<PageBytes>& pages = PagesOf(kind);
  std::size_t next = 0;
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    step(next);
    next = next + 1 == kPages ? 0 : next + 1;
  }
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  const double step_ns = elapsed.count() / static_cast<double>(state.iterations());
  state.counters["vs_copy"] = step_ns / CopyNs(pages);
}

void Copy(benchmark::State& state, PageKind kind) {
  const std::vector<PageBytes>& pages = PagesOf(kind);
  PageBytes dest;
  Run(state, kind, [&](std::size_t i) {
    std::memcpy(dest.data(), pages[i].data(), kPageBytes);
    benchmark::DoNotOptimize(dest.data());
    benchmark::ClobberMemory();
  });
}

void Hash(benchmark::State& state, PageKind kind) {
  const std::vector<PageBytes>& pages = PagesOf(kind);
  const std::uint64_t key = 1;
  const PageHasher hasher(std::as_bytes(std::span(&key, 1)));
  Run(state, kind, [&](std::size_t i) { benchmark::DoNotOptimize(hasher.Hash(pages[i])); });
}

using SameFilledWay = std::optional<std::uint64_t> (*)(PageView);

void SameFilled(benchmark::State& state, PageKind kind, SameFilledWay way) {
  if (way == &internal::SameFilledWordAvx2 && !internal::CpuHasAvx2()) {
    state.SkipWithError("this CPU has no AVX2");
    return;
  }
  const std::vector<PageBytes>& pages = PagesOf(kind);
  Run(state, kind, [&](std::size_t i) { benchmark::DoNotOptimize(way(pages[i])); });
}

void Compress(benchmark::State& state, PageKind kind, Codec number) {
  const std::vector<PageBytes>& pages = PagesOf(kind);
  PageCodec codec;
  std::vector<std::byte> dest(kMaxCompressedBytes);
  std::size_t stored_bytes = 0;
  std::size_t count = 0;
  Run(state, kind, [&](std::size_t i) {
    const CompressOutcome outcome = codec.Compress(number, pages[i], dest);
    stored_bytes += outcome.fits() ? outcome.bytes() : kPageBytes;
    ++count;
  });
  state.counters["ratio"] =
      static_cast<double>(count * kPageBytes) / static_cast<double>(stored_bytes);
}

void Decompress(benchmark::State& state, PageKind kind, Codec number) {
  const std::vector<PageBytes>& pages = PagesOf(kind);
  PageCodec codec;
  std::vector<std::vector<std::byte>> stored(kPages);
  std::vector<std::byte> dest(2 * kPageBytes);
  for (std::size_t i = 0; i < kPages; ++i) {
    const CompressOutcome outcome = codec.Compress(number, pages[i], dest);
    stored[i].assign(dest.begin(), dest.begin() + static_cast<std::ptrdiff_t>(outcome.bytes()));
  }
  PageBytes back;
  Run(state, kind, [&](std::size_t i) {
    if (codec.Decompress(number, stored[i], back) != DecompressOutcome::kPage) std::abort();
    benchmark::ClobberMemory();
  });
}

void RegisterOfKind(PageKind kind) {
  const std::string suffix = std::string("/") + ToString(kind);
  benchmark::RegisterBenchmark(("copy" + suffix).c_str(), Copy, kind);
  benchmark::RegisterBenchmark(("same_filled_avx2" + suffix).c_str(), SameFilled, kind,
                               &internal::SameFilledWordAvx2);
  benchmark::RegisterBenchmark(("same_filled_portable" + suffix).c_str(), SameFilled, kind,
                               &internal::SameFilledWordPortable);
  benchmark::RegisterBenchmark(("hash" + suffix).c_str(), Hash, kind);
  for (const Codec number : {Codec::kLz4, Codec::kZstd}) {
    const std::string name = ToString(number);
    benchmark::RegisterBenchmark((name + "_compress" + suffix).c_str(), Compress, kind, number);
    benchmark::RegisterBenchmark((name + "_decompress" + suffix).c_str(), Decompress, kind, number);
  }
}

const bool kRegistered = [] {
  for (const PageKind kind :
       {PageKind::kZero, PageKind::kText, PageKind::kHeap, PageKind::kRandom}) {
    RegisterOfKind(kind);
  }
  return true;
}();

}  // namespace
}  // namespace tmem
