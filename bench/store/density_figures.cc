// SPDX-License-Identifier: GPL-2.0-only
// What pages take: after random replacement, after most were freed, and records at many pages.
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/store/workbench.h"

namespace tmem {
namespace {

using Bound = Figure::Bound;

constexpr size_t kRounds = 3;
// Of the sample, so many eighths are held at a time; the others replace them.
constexpr size_t kHeldEighths = 5;
constexpr double kAllowedMetadataBytes = 64;

uint64_t BytesHeld(BenchStore& store) {
  const StoreStatus status = store.store().Status();
  return status.slab_bytes + status.metadata_bytes;
}

// Keys 0 .. held-1, each with a page of its own of the sample; half of them replaced in each round.
// The peer gets the same pages under the same numbers.
class Replacement {
 public:
  Replacement(const BenchContext& context, const std::string& kind)
      : zram_(context.zram),
        pages_(LoadSample(context.samples_dir, kind, SIZE_MAX)),
        page_of_(pages_->size()),
        held_(pages_->size() * kHeldEighths / 8),
        store_(uint64_t{2} << 30) {
    std::iota(page_of_.begin(), page_of_.end(), 0);
    empty_bytes_ = BytesHeld(store_);
    if (zram_ != nullptr) zram_->Discard();
    for (size_t key = 0; key < held_; ++key) Put(key);
    store_.SettleAll();
  }

  void Run() {
    std::vector<size_t> keys(held_);
    std::iota(keys.begin(), keys.end(), 0);
    for (size_t round = 0; round < kRounds; ++round) {
      std::shuffle(keys.begin(), keys.end(), random_);
      for (size_t i = 0; i < held_ / 2; ++i) {
        const size_t other = held_ + random_() % (pages_->size() - held_);
        std::swap(page_of_[keys[i]], page_of_[other]);
        Put(keys[i]);
      }
      store_.SettleAll();
    }
  }
  // Of a random nine tenths; what is not given back within 10 s counts as kept.
  double FreedPart() {
    const uint64_t before_bytes = HeldBytes();
    std::vector<size_t> keys(held_);
    std::iota(keys.begin(), keys.end(), 0);
    std::shuffle(keys.begin(), keys.end(), random_);
    for (size_t i = 0; i < held_ / 10 * 9; ++i) {
      const PageKey key = store_.Key(keys[i]);
      store_.store().Flush(store_.guest(), key.pool, key.object, {key.index, 1}, {0, 1});
    }
    return 1 - static_cast<double>(HeldBytes()) / static_cast<double>(before_bytes);
  }

  uint64_t HeldBytes() { return BytesHeld(store_) - empty_bytes_; }
  uint64_t PeerBytes() const { return zram_->mem_used_bytes(); }
  uint64_t StoredBytes() { return store_.store().StatusOf(store_.guest()).stored_bytes; }
  size_t held() const { return held_; }

 private:
  void Put(size_t key) {
    const PageBuffer page = (*pages_)[page_of_[key]];
    store_.Put(key, PageView(page));
    if (key % 32 == 0) store_.SettleAll();
    if (zram_ != nullptr) zram_->Write(key * kPageBytes, page.data(), kPageBytes);
  }

  ZramPeer* const zram_;
  const std::unique_ptr<PageArray> pages_;
  std::vector<size_t> page_of_;  // by key; behind the keys: pages not held
  const size_t held_;
  BenchStore store_;
  uint64_t empty_bytes_ = 0;
  std::mt19937_64 random_{1};
};

void MeasureReplacement(const BenchContext& context, const std::string& kind, Figures& figures) {
  Replacement replacement(context, kind);
  replacement.Run();
  const auto held = static_cast<double>(replacement.HeldBytes());
  const auto stored = static_cast<double>(replacement.StoredBytes());
  const auto pages = static_cast<double>(replacement.held());
  Figure density{.name = "bytes held, by stored + 64 a page",
                 .page_kind = kind,
                 .value = held / (stored + kAllowedMetadataBytes * pages),
                 .unit = "x",
                 .bound = Bound::kAtMost,
                 .target = 1.05,
                 .detail_unit = "bytes/page",
                 .ours = held / pages,
                 .floor = stored / pages,
                 .peer = {}};
  if (context.zram != nullptr) {
    const auto peer = static_cast<double>(replacement.PeerBytes());
    density.peer = peer / pages;
    figures.push_back(density);
    density.name = "zram's memory, by ours";
    density.value = peer / held;
    density.bound = Bound::kAtLeast;
    density.target = 1.04;
  }
  figures.push_back(density);
  figures.push_back({.name = "memory back after 90 % freed at random",
                     .page_kind = kind,
                     .value = 100 * replacement.FreedPart(),
                     .unit = "%",
                     .bound = Bound::kAtLeast,
                     .target = 75,
                     .detail_unit = {},
                     .ours = {},
                     .floor = {},
                     .peer = {}});
}

// A page that no other number gives, and that compresses to next to nothing.
void StampedPage(uint64_t number, PageBuffer page) {
  std::memset(page.data(), 0, page.size());
  const uint64_t stamp = number * 0x9e3779b97f4a7c15u + 1;
  std::memcpy(page.data() + 64, &stamp, sizeof(stamp));
}

Figure Metadata(const char* kind, double bytes, double target) {
  return {.name = "metadata",
          .page_kind = kind,
          .value = bytes,
          .unit = "bytes/page",
          .bound = Bound::kAtMost,
          .target = target,
          .detail_unit = {},
          .ours = {},
          .floor = {},
          .peer = {}};
}

// Of keys that were never put: half in objects that exist, half in objects that do not.
double MissNs(BenchStore& store, uint64_t pages) {
  const PageArray out(1);
  std::mt19937_64 random(1);
  constexpr size_t kMisses = 4096;
  std::vector<uint64_t> numbers(kMisses);
  std::vector<double> times;
  for (int round = 0; round < 100; ++round) {
    for (uint64_t& number : numbers) number = random() % pages;
    const uint64_t begin_ns = ThreadNs();
    for (size_t i = 0; i < kMisses; ++i) {
      const uint64_t absent_space = 9;
      if (i % 2 == 0) {
        store.Get(numbers[i], out[0], absent_space);
      } else {
        PageKey key = store.Key(numbers[i]);
        key.index += BenchStore::kObjectPages;
        (void)store.store().Get(store.guest(), key, out[0]);
      }
    }
    times.push_back(static_cast<double>(ThreadNs() - begin_ns) / kMisses);
  }
  return Median(std::move(times));
}

}  // namespace

void MeasureDensity(const BenchContext& context, Figures& figures) {
  for (const char* kind : {"text", "binaries", "heap"}) {
    MeasureReplacement(context, kind, figures);
  }
}

void MeasureManyPages(const BenchContext& context, Figures& figures) {
  const uint64_t pages = context.quick ? 1'000'000 : 10'000'000;
  BenchStore store(uint64_t{8} << 30);
  const PageArray page(1);
  const auto put_all = [&](uint64_t space) {
    for (uint64_t i = 0; i < pages; ++i) {
      StampedPage(i, page[0]);
      store.Put(i, PageView(page[0]), space);
      if (i % 32 == 0) store.SettleAll();
    }
    store.SettleAll();
  };
  const auto a_page = [&](uint64_t now, uint64_t before) {
    return static_cast<double>(now - before) / static_cast<double>(pages);
  };
  const StoreStatus empty = store.store().Status();
  put_all(0);
  const StoreStatus unique = store.store().Status();
  figures.push_back({.name = "miss",
                     .page_kind = context.quick ? "1 million held" : "10 million held",
                     .value = MissNs(store, pages),
                     .unit = "ns",
                     .bound = Bound::kAtMost,
                     .target = 150,
                     .detail_unit = {},
                     .ours = {},
                     .floor = {},
                     .peer = {}});
  put_all(1);
  const StoreStatus shared = store.store().Status();
  figures.push_back(Metadata("unique", a_page(unique.metadata_bytes, empty.metadata_bytes), 64));
  Figure part = Metadata("unique: index", a_page(unique.index_bytes, empty.index_bytes), 0);
  part.bound = Bound::kNone;
  figures.push_back(part);
  figures.push_back(
      Metadata("duplicate", a_page(shared.metadata_bytes, unique.metadata_bytes), 40));
}

}  // namespace tmem
