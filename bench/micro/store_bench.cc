// SPDX-License-Identifier: GPL-2.0-only
// What one page costs in the store: landing, settling, getting, missing; for each kind of page.
//
// Times are CPU time of this thread, as other programs may run beside it. Puts go to one persistent
// pool on credits, so nothing is evicted; each batch is landed, settled, got and flushed, and only
// the named step is timed.
#include <benchmark/benchmark.h>

#include <time.h>

#include <memory>
#include <string>
#include <vector>

#include "compress/sample_pages.h"
#include "host-store/store/store.h"

namespace tmem {
namespace {

constexpr size_t kBatch = 1024;
constexpr LaneFilter kAllLanes{0, 1};

enum class Step { kLand, kSettle, kGetLanded, kGetStored, kFlush };

class Bench {
 public:
  explicit Bench(PageKind kind) {
    store_ = Store::Create({.limit_bytes = 256 << 20,
                            .pool_min_bytes = 64 << 20,
                            .landing_bytes = kBatch * kPageBytes,
                            .overhead_bytes = 0,
                            .seed = 1})
                 .value();
    guest_ = store_->AddGuest({"guest", ""}).value();
    pool_ = store_->CreatePool(guest_, PoolKind::kPersistent).pool;
    for (size_t i = 0; i < kBatch; ++i) pages_.push_back(MakeSamplePage(kind, i));
  }

  void RunBatch(benchmark::State& state, Step timed) {
    store_->TopUpCredits(guest_, kBatch);
    PageBytes out;
    const auto get_all = [&] {
      for (size_t i = 0; i < kBatch; ++i) {
        benchmark::DoNotOptimize(store_->Get(guest_, Key(i), PageBuffer(out)));
      }
    };
    Time(state, timed == Step::kLand, [&] {
      for (size_t i = 0; i < kBatch; ++i) {
        benchmark::DoNotOptimize(store_->Put(guest_, Key(i), PageView(pages_[i]), 0));
      }
    });
    if (timed == Step::kGetLanded) Time(state, true, get_all);
    Time(state, timed == Step::kSettle, [&] { store_->Settle(kBatch); });
    if (timed == Step::kGetStored) Time(state, true, get_all);
    Time(state, timed == Step::kFlush, [&] { store_->FlushPool(guest_, pool_, kAllLanes); });
  }

  void Miss(size_t i) {
    PageBytes out;
    benchmark::DoNotOptimize(store_->Get(guest_, Key(i), PageBuffer(out)));
  }

 private:
  PageKey Key(size_t i) const { return {pool_, {{1 + i / 256, 0, 0}}, i % 256}; }

  static double ThreadCpuSeconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }
  template <typename Work>
  static void Time(benchmark::State& state, bool timed, Work work) {
    const double begin = ThreadCpuSeconds();
    work();
    if (timed) state.SetIterationTime((ThreadCpuSeconds() - begin) / kBatch);
  }

  std::unique_ptr<Store> store_;
  GuestId guest_{};
  PoolHandle pool_{};
  std::vector<PageBytes> pages_;
};

void RunStep(benchmark::State& state, PageKind kind, Step step) {
  Bench bench(kind);
  // One iteration is a batch; its time is that of one page.
  for (auto _ : state) bench.RunBatch(state, step);
}

void RunMiss(benchmark::State& state) {
  Bench bench(PageKind::kText);
  size_t i = 0;
  for (auto _ : state) bench.Miss(++i);
}

int RegisterAll() {
  constexpr std::pair<Step, const char*> kSteps[] = {{Step::kLand, "land"},
                                                     {Step::kSettle, "settle"},
                                                     {Step::kGetLanded, "get_landed"},
                                                     {Step::kGetStored, "get_stored"},
                                                     {Step::kFlush, "flush"}};
  for (const PageKind kind :
       {PageKind::kZero, PageKind::kText, PageKind::kHeap, PageKind::kRandom}) {
    for (const auto& [step, name] : kSteps) {
      benchmark::RegisterBenchmark((std::string(name) + "/" + ToString(kind)).c_str(), RunStep,
                                   kind, step)
          ->UseManualTime()
          ->Iterations(100);
    }
  }
  benchmark::RegisterBenchmark("miss", RunMiss);
  return 0;
}

[[maybe_unused]] const int kRegistered = RegisterAll();

}  // namespace
}  // namespace tmem
