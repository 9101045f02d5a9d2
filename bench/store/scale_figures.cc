// SPDX-License-Identifier: GPL-2.0-only
// How the store does with two workers, and beside a long flush.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bench/store/workbench.h"

namespace tmem {
namespace {

using Bound = Figure::Bound;

constexpr size_t kBatchPages = 32;
constexpr uint64_t kRoundNs = 100'000'000;
constexpr LaneFilter kAllLanes{0, 1};

// What one worker does over and over: puts, compresses, gets half of it back, flushes the rest.
class MixedWork {
 public:
  MixedWork(Store& store, GuestId guest, PoolHandle pool, uint64_t object, const PageArray& pages)
      : store_(store), guest_(guest), pool_(pool), object_(object), pages_(pages), out_(1) {}

  // Until `end_ns`; returns the pages put.
  uint64_t Run(uint64_t end_ns) {
    uint64_t pages = 0;
    while (WallNs() < end_ns) {
      for (size_t i = 0; i < kBatchPages; ++i) {
        (void)store_.Put(guest_, Key(i), PageView(pages_[(at_ + i) % pages_.size()]), 0);
      }
      store_.SettleOf(guest_, kBatchPages);
      for (size_t i = 0; i < kBatchPages / 2; ++i) (void)store_.Get(guest_, Key(i), out_[0]);
      store_.Flush(guest_, pool_, Object(), {at_, kBatchPages}, kAllLanes);
      at_ += kBatchPages;
      pages += kBatchPages;
    }
    return pages;
  }

 private:
  ObjectId Object() const { return {{object_, 0, 0}}; }
  PageKey Key(size_t i) const { return {pool_, Object(), at_ + i}; }

  Store& store_;
  const GuestId guest_;
  const PoolHandle pool_;
  const uint64_t object_;
  const PageArray& pages_;
  const PageArray out_;
  uint64_t at_ = 0;
};

struct Member {
  GuestId guest;
  PoolHandle pool;
};

Member AddMember(Store& store, const std::string& name) {
  const GuestId guest = store.AddGuest({.name = name, .domain = ""}).value();
  return {guest, store.CreatePool(guest, PoolKind::kEphemeral).pool};
}

void MeasureTwoWorkers(const BenchContext& context, const char* kind, Member first, Member second,
                       Store& store, Figures& figures) {
  const auto pages = LoadSample(context.samples_dir, "text", 4096);
  MixedWork one(store, first.guest, first.pool, 1, *pages);
  MixedWork two(store, second.guest, second.pool, 2, *pages);
  std::vector<double> ratios;
  for (int round = 0; round < (context.quick ? 5 : 25); ++round) {
    const uint64_t alone = one.Run(WallNs() + kRoundNs);
    std::atomic<uint64_t> beside{0};
    const uint64_t end_ns = WallNs() + kRoundNs;
    std::thread other([&] { beside = two.Run(end_ns); });
    const uint64_t together = one.Run(end_ns);
    other.join();
    ratios.push_back(static_cast<double>(together + beside.load()) / static_cast<double>(alone));
  }
  figures.push_back({.name = "two workers, by one",
                     .page_kind = kind,
                     .value = Median(std::move(ratios)),
                     .unit = "x",
                     .bound = Bound::kAtLeast,
                     .target = 1.8,
                     .detail_unit = {},
                     .ours = {},
                     .floor = {},
                     .peer = {}});
}

// p99 of gets by the wall clock, until `stop` or for `count` of them.
double GetP99(Store& store, Member member, const PageArray& pages, const std::atomic<bool>& stop,
              size_t count) {
  const PageArray out(1);
  std::vector<double> times;
  for (uint64_t at = 0; times.size() < count && !stop.load(); at += kBatchPages) {
    for (uint64_t i = at; i < at + kBatchPages; ++i) {
      (void)store.Put(member.guest, {member.pool, {{7, 0, 0}}, i},
                      PageView(pages[i % pages.size()]), 0);
    }
    store.SettleOf(member.guest, kBatchPages);
    for (uint64_t i = at; i < at + kBatchPages; ++i) {
      const uint64_t begin_ns = WallNs();
      (void)store.Get(member.guest, {member.pool, {{7, 0, 0}}, i}, out[0]);
      times.push_back(static_cast<double>(WallNs() - begin_ns));
    }
  }
  return Quantile(std::move(times), 0.99);
}

// An object of a million pages goes while another guest gets pages.
void MeasureBesideFlush(const BenchContext& context, Figures& figures) {
  const uint64_t object_pages = context.quick ? 100'000 : 1'000'000;
  auto store = Store::Create({.limit_bytes = uint64_t{2} << 30,
                              .pool_min_bytes = 0,
                              .landing_bytes = 4 << 20,
                              .overhead_bytes = 0,
                              .seed = 1})
                   .value();
  const Member flusher = AddMember(*store, "flusher");
  const Member getter = AddMember(*store, "getter");
  const auto pages = LoadSample(context.samples_dir, "text", 4096);
  const PageArray page(1);
  std::memset(page[0].data(), 0, kPageBytes);
  for (uint64_t i = 1; i <= object_pages; ++i) {
    std::memcpy(page[0].data() + 128, &i, sizeof(i));
    (void)store->Put(flusher.guest, {flusher.pool, {{1, 0, 0}}, i}, PageView(page[0]), 0);
    if (i % kBatchPages == 0) store->SettleOf(flusher.guest, kBatchPages);
  }
  const std::atomic<bool> never{false};
  const double alone_ns = GetP99(*store, getter, *pages, never, 20'000);
  std::atomic<bool> done{false};
  std::thread flush([&] {
    store->FlushObject(flusher.guest, flusher.pool, {{1, 0, 0}}, kAllLanes);
    done = true;
  });
  const double beside_ns = GetP99(*store, getter, *pages, done, SIZE_MAX);
  flush.join();
  figures.push_back({.name = "p99 of gets beside a flush, by without",
                     .page_kind = context.quick ? "100,000 pages" : "1 million pages",
                     .value = beside_ns / alone_ns,
                     .unit = "x",
                     .bound = Bound::kAtMost,
                     .target = 2,
                     .detail_unit = "ns",
                     .ours = beside_ns,
                     .floor = alone_ns,
                     .peer = {}});
}

}  // namespace

void MeasureScale(const BenchContext& context, Figures& figures) {
  BenchStore bench(256 << 20);
  const Member first{bench.guest(), bench.pool()};
  const Member second = AddMember(bench.store(), "second");
  MeasureTwoWorkers(context, "two guests", first, second, bench.store(), figures);
  MeasureTwoWorkers(context, "one guest", first, first, bench.store(), figures);
  MeasureBesideFlush(context, figures);
}

}  // namespace tmem
