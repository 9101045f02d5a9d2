// SPDX-License-Identifier: GPL-2.0-only
// What all measurements of the store share: pages, clocks, medians, the floor, and a store to use.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/store/figure.h"
#include "bench/store/zram_peer.h"
#include "compress/lz4_codec.h"
#include "compress/page.h"
#include "compress/page_hash.h"
#include "host-store/store/store.h"

namespace tmem {

// CPU time of this thread: others' work and time stolen from this machine do not count.
uint64_t ThreadNs();
// For single operations, where reading the CPU time would take longer than they do.
uint64_t WallNs();

double Median(std::vector<double> values);
double Quantile(std::vector<double> values, double part);

// Page-aligned pages, as direct requests to a block device want them.
class PageArray {
 public:
  explicit PageArray(size_t pages);
  ~PageArray();
  PageArray(const PageArray&) = delete;
  PageArray& operator=(const PageArray&) = delete;

  size_t size() const { return pages_; }
  std::byte* data() const { return begin_; }
  PageBuffer operator[](size_t page) const {
    return PageBuffer(begin_ + page * kPageBytes, kPageBytes);
  }
  // Reads pages, so that they are in the cache.
  void Touch(size_t first, size_t count) const;

 private:
  const size_t pages_;
  std::byte* const begin_;
};

// The first pages of DIR/KIND.pages, as many as there are and at most `max_pages`. Ends the program
// when there is no such file.
std::unique_ptr<PageArray> LoadSample(const std::string& dir, const std::string& kind,
                                      size_t max_pages);

// The least that a put and a get can cost, by steps, on scratch of its own.
class Floor {
 public:
  Floor();
  // Copy, hash, LZ4; returns the coded length, or 0 if it does not fit and was copied raw.
  size_t Put(PageView page, std::byte* coded);
  // LZ4, verify, copy.
  void Get(const std::byte* coded, size_t length, PageBuffer out);
  // Verify, copy.
  void GetRaw(PageView page, PageBuffer out);
  // Copy, hash, decompress, compare.
  void Duplicate(PageView page, const std::byte* coded, size_t length);

 private:
  const PageHasher hasher_;
  Lz4Codec lz4_;
  alignas(64) std::array<std::byte, kPageBytes> landing_, decoded_;
  volatile uint64_t sink_ = 0;
};

// A store with one guest and one ephemeral pool.
class BenchStore {
 public:
  explicit BenchStore(uint64_t limit_bytes, uint64_t landing_bytes = 4 << 20);

  // 128 KiB in an object's block, 1 MiB in an object: as pages of files come.
  PageKey Key(uint64_t number, uint64_t space = 0) const {
    return {pool_, {{1 + number / kObjectPages, space, 0}}, number % kObjectPages};
  }
  void Put(uint64_t number, PageView page, uint64_t space = 0);
  void PutFilled(uint64_t number, uint64_t word, uint64_t space = 0);
  // False for a miss.
  bool Get(uint64_t number, PageBuffer out, uint64_t space = 0);
  void SettleAll();

  Store& store() { return *store_; }
  GuestId guest() const { return guest_; }
  PoolHandle pool() const { return pool_; }

  static constexpr uint64_t kObjectPages = 2560;  // a file of 10 MiB

 private:
  std::unique_ptr<Store> store_;
  GuestId guest_{};
  PoolHandle pool_{};
};

struct BenchContext {
  std::string samples_dir;
  ZramPeer* zram = nullptr;  // none here
  bool quick = false;
};

// page_figures.cc
void MeasurePages(const BenchContext& context, Figures& figures);
// density_figures.cc
void MeasureDensity(const BenchContext& context, Figures& figures);
void MeasureManyPages(const BenchContext& context, Figures& figures);
// scale_figures.cc
void MeasureScale(const BenchContext& context, Figures& figures);

}  // namespace tmem
