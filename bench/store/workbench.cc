// SPDX-License-Identifier: GPL-2.0-only
// What all measurements of the store share.
#include "bench/store/workbench.h"

#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "compress/page_codec.h"
#include "host-store/estimate/memory_image.h"

namespace tmem {
namespace {

constexpr uint64_t kAnyKey = 1;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "store_figures: %s\n", what.c_str());
  std::exit(1);
}

uint64_t NsOf(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

uint64_t ThreadNs() {
  return NsOf(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t WallNs() {
  return NsOf(CLOCK_MONOTONIC);
}

double Quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double Median(std::vector<double> values) {
  return Quantile(std::move(values), 0.5);
}

PageArray::PageArray(size_t pages)
    : pages_(pages),
      begin_(static_cast<std::byte*>(::mmap(nullptr, pages * kPageBytes, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))) {
  if (begin_ == MAP_FAILED) Die("no memory for pages");
}

PageArray::~PageArray() {
  ::munmap(begin_, pages_ * kPageBytes);
}

void PageArray::Touch(size_t first, size_t count) const {
  constexpr size_t kLineBytes = 64;
  uint64_t sum = 0;
  for (size_t at = first * kPageBytes; at < (first + count) * kPageBytes; at += kLineBytes) {
    sum += static_cast<uint64_t>(begin_[at]);
  }
  asm volatile("" : : "r"(sum) : "memory");
}

std::unique_ptr<PageArray> LoadSample(const std::string& dir, const std::string& kind,
                                      size_t max_pages) {
  const auto image = MemoryImage::Open(dir + "/" + kind + ".pages", MemoryImage::Reading::kRaw);
  if (!image) Die(image.error().message);
  auto pages = std::make_unique<PageArray>(std::min<size_t>((*image)->pages(), max_pages));
  size_t at = 0;
  const auto read = (*image)->ForEachPage([&](PageView page) {
    if (at == pages->size()) return;
    std::memcpy((*pages)[at++].data(), page.data(), kPageBytes);
  });
  if (!read) Die(read.error().message);
  return pages;
}

Floor::Floor() : hasher_(std::as_bytes(std::span(&kAnyKey, 1))) {}

size_t Floor::Put(PageView page, std::byte* coded) {
  std::memcpy(landing_.data(), page.data(), kPageBytes);
  sink_ = hasher_.Hash(PageView(landing_)).low;
  const CompressOutcome outcome =
      lz4_.Compress(PageView(landing_), std::span(coded, kMaxCompressedBytes));
  if (!outcome.fits()) std::memcpy(coded, landing_.data(), kPageBytes);
  return outcome.bytes();
}

void Floor::Get(const std::byte* coded, size_t length, PageBuffer out) {
  const auto outcome = Lz4Codec::Decompress(std::span(coded, length), PageBuffer(decoded_));
  if (outcome != DecompressOutcome::kPage) Die("the floor's page came out altered");
  sink_ = hasher_.Hash(PageView(decoded_)).low;
  std::memcpy(out.data(), decoded_.data(), kPageBytes);
}

void Floor::GetRaw(PageView page, PageBuffer out) {
  sink_ = hasher_.Hash(page).low;
  std::memcpy(out.data(), page.data(), kPageBytes);
}

void Floor::Duplicate(PageView page, const std::byte* coded, size_t length) {
  std::memcpy(landing_.data(), page.data(), kPageBytes);
  sink_ = hasher_.Hash(PageView(landing_)).low;
  const auto outcome = Lz4Codec::Decompress(std::span(coded, length), PageBuffer(decoded_));
  if (outcome != DecompressOutcome::kPage ||
      std::memcmp(landing_.data(), decoded_.data(), kPageBytes) != 0) {
    Die("the floor's duplicate differs");
  }
}

BenchStore::BenchStore(uint64_t limit_bytes, uint64_t landing_bytes) {
  auto store = Store::Create({.limit_bytes = limit_bytes,
                              .pool_min_bytes = 0,
                              .landing_bytes = landing_bytes,
                              .overhead_bytes = 0,
                              .seed = 1});
  if (!store) Die(store.error().Describe());
  store_ = std::move(store).value();
  guest_ = store_->AddGuest({.name = "guest", .domain = ""}).value();
  pool_ = store_->CreatePool(guest_, PoolKind::kEphemeral).pool;
}

void BenchStore::Put(uint64_t number, PageView page, uint64_t space) {
  if (store_->Put(guest_, Key(number, space), page, 0) != Outcome::kOk) Die("a put was refused");
}

void BenchStore::PutFilled(uint64_t number, uint64_t word, uint64_t space) {
  if (store_->PutFilled(guest_, Key(number, space), word, 0) != Outcome::kOk) {
    Die("a put was refused");
  }
}

bool BenchStore::Get(uint64_t number, PageBuffer out, uint64_t space) {
  return store_->Get(guest_, Key(number, space), out).outcome == Outcome::kOk;
}

void BenchStore::SettleAll() {
  while (store_->Settle(1024) != 0) {
  }
}

}  // namespace tmem
