// SPDX-License-Identifier: GPL-2.0-only
// What one page costs: put, get, miss; against the floor and against zram on the same pages.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/store/workbench.h"

namespace tmem {
namespace {

using Bound = Figure::Bound;

// One request to zram; 32 of the pages at a time are landed and settled, as a worker does it.
constexpr size_t kRoundPages = ZramPeer::kRequestBytes / kPageBytes;
constexpr size_t kBatchPages = 32;
// Of a sample: these are put and got in each pass, those behind them lie in the store all the time.
constexpr size_t kMeasuredPages = 4096;
constexpr size_t kSamplePages = 16384;
// Rounds between the put of a page and its get, so that its bytes are cold by then.
constexpr size_t kLagRounds = 8;
constexpr size_t kPasses = 5;

// Times of one page in each round, by who did it.
struct Times {
  std::vector<double> ours, floor, peer;
};

double MedianRatio(const std::vector<double>& ours, const std::vector<double>& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / other[i]);
  return Median(std::move(ratios));
}

Figure Against(const std::string& name, const std::string& kind, const Times& times,
               const std::vector<double>& other, double target, const char* unit) {
  return {.name = name,
          .page_kind = kind,
          .value = MedianRatio(times.ours, other),
          .unit = unit,
          .bound = target == 0 ? Bound::kNone : Bound::kAtMost,
          .target = target,
          .detail_unit = "ns",
          .ours = Median(times.ours),
          .floor = Median(times.floor),
          .peer = times.peer.empty() ? std::optional<double>() : Median(times.peer)};
}

// Ours, the floor and the peer, in turns: each round is done by all of them, in changing order.
class PutGetRounds {
 public:
  PutGetRounds(const BenchContext& context, const std::string& kind)
      : zram_(context.zram),
        pages_(LoadSample(context.samples_dir, kind, kSamplePages)),
        measured_(std::min(kMeasuredPages, pages_->size() / 2) / kRoundPages * kRoundPages),
        out_(kRoundPages),
        coded_(measured_),
        lengths_(measured_),
        store_(256 << 20) {
    for (size_t i = measured_; i < pages_->size(); ++i) {
      store_.Put(i, PageView((*pages_)[i]));
      if (i % kBatchPages == 0) store_.SettleAll();
    }
    store_.SettleAll();
  }

  // The first rounds make the store larger, with memory that the kernel has to make; from then on
  // what gets free goes into puts, as in a pool that is full.
  void Run(size_t passes) {
    const size_t rounds = measured_ / kRoundPages;
    for (size_t step = 0; step < passes * rounds + kLagRounds; ++step) {
      Times& put = step < kLagRounds ? growing_ : put_;
      InTurns(put, step % rounds, [this](int who, size_t round) { PutRound(who, round); });
      if (step < kLagRounds) continue;
      InTurns(get_, (step - kLagRounds) % rounds,
              [this](int who, size_t round) { GetRound(who, round); });
    }
  }
  const Times& put() const { return put_; }
  const Times& growing() const { return growing_; }
  const Times& get() const { return get_; }

 private:
  static constexpr int kOurs = 0, kFloor = 1, kPeer = 2;

  template <typename Work>
  void InTurns(Times& times, size_t round, Work work) {
    ++turn_;
    for (int i = 0; i < 3; ++i) {
      const int who = (turn_ + i) % 3;
      if (who == kPeer && zram_ == nullptr) continue;
      pages_->Touch(round * kRoundPages, kRoundPages);
      out_.Touch(0, kRoundPages);
      const uint64_t begin_ns = ThreadNs();
      work(who, round);
      const double ns = static_cast<double>(ThreadNs() - begin_ns) / kRoundPages;
      (who == kOurs ? times.ours : who == kFloor ? times.floor : times.peer).push_back(ns);
    }
  }
  void PutRound(int who, size_t round) {
    const size_t first = round * kRoundPages;
    if (who == kPeer) {
      zram_->Write(first * kPageBytes, pages_->data() + first * kPageBytes,
                   ZramPeer::kRequestBytes);
      return;
    }
    for (size_t i = first; i < first + kRoundPages; ++i) {
      const PageView page((*pages_)[i]);
      if (who == kFloor) {
        lengths_[i] = floor_.Put(page, coded_[i].data());
        continue;
      }
      store_.Put(i, page);
      if ((i + 1) % kBatchPages == 0) store_.store().SettleOf(store_.guest(), kBatchPages);
    }
  }
  void GetRound(int who, size_t round) {
    const size_t first = round * kRoundPages;
    if (who == kPeer) {
      zram_->Read(first * kPageBytes, out_.data(), ZramPeer::kRequestBytes);
      return;
    }
    for (size_t i = first; i < first + kRoundPages; ++i) {
      if (who == kOurs) {
        if (!store_.Get(i, out_[i - first])) std::abort();
      } else if (lengths_[i] != 0) {
        floor_.Get(coded_[i].data(), lengths_[i], out_[i - first]);
      } else {
        floor_.GetRaw(PageView(coded_[i]), out_[i - first]);
      }
    }
  }

  ZramPeer* const zram_;
  const std::unique_ptr<PageArray> pages_;
  const size_t measured_;
  const PageArray out_, coded_;
  std::vector<size_t> lengths_;
  Floor floor_;
  BenchStore store_;
  Times put_, growing_, get_;
  int turn_ = 0;
};

void MeasurePutAndGet(const BenchContext& context, const std::string& kind, Figures& figures) {
  PutGetRounds rounds(context, kind);
  rounds.Run(context.quick ? 1 : kPasses);
  const bool incompressible = kind == "random";
  figures.push_back(Against("put, by the floor", kind, rounds.put(), rounds.put().floor,
                            incompressible ? 1.3 : 1.2, "x floor"));
  if (context.zram != nullptr) {
    const double target = incompressible ? 0 : kind == "heap" ? 1.0 : 0.95;
    figures.push_back(
        Against("put, by zram's write", kind, rounds.put(), rounds.put().peer, target, "x zram"));
  }
  figures.push_back(Against("put while the store grows, by the floor", kind, rounds.growing(),
                            rounds.growing().floor, 0, "x floor"));
  figures.push_back(
      Against("get, by the floor", kind, rounds.get(), rounds.get().floor, 1.2, "x floor"));
  if (context.zram != nullptr) {
    figures.push_back(Against("get, by zram's read", kind, rounds.get(), rounds.get().peer,
                              incompressible ? 0 : 0.85, "x zram"));
  }
}

// The same text again under other keys: hashed, compared with what lies there, shared.
void MeasureDuplicates(const BenchContext& context, Figures& figures) {
  const auto pages = LoadSample(context.samples_dir, "text", kMeasuredPages);
  const PageArray coded(pages->size());
  std::vector<size_t> lengths(pages->size());
  BenchStore store(256 << 20);
  Floor floor;
  for (size_t i = 0; i < pages->size(); ++i) {
    lengths[i] = floor.Put(PageView((*pages)[i]), coded[i].data());
    store.Put(i, PageView((*pages)[i]));
    if (i % kBatchPages == 0) store.SettleAll();
  }
  store.SettleAll();
  Times times;
  const auto timed = [&](std::vector<double>& to, size_t first, auto each) {
    pages->Touch(first, kRoundPages);
    const uint64_t begin_ns = ThreadNs();
    for (size_t i = first; i < first + kRoundPages; ++i) each(i);
    to.push_back(static_cast<double>(ThreadNs() - begin_ns) / kRoundPages);
  };
  for (uint64_t pass = 0; pass < (context.quick ? 1 : kPasses); ++pass) {
    for (size_t first = 0; first + kRoundPages <= pages->size(); first += kRoundPages) {
      timed(times.floor, first, [&](size_t i) {
        if (lengths[i] != 0) floor.Duplicate(PageView((*pages)[i]), coded[i].data(), lengths[i]);
      });
      timed(times.ours, first, [&](size_t i) {
        store.Put(i, PageView((*pages)[i]), pass + 1);
        if ((i + 1) % kBatchPages == 0) store.store().SettleOf(store.guest(), kBatchPages);
      });
    }
  }
  figures.push_back(
      Against("put of a duplicate", "duplicates", times, times.floor, 1.15, "x floor"));
}

Figure Absolute(const std::string& name, const std::string& kind, double ns, double target_ns) {
  return {.name = name,
          .page_kind = kind,
          .value = ns,
          .unit = "ns",
          .bound = Bound::kAtMost,
          .target = target_ns,
          .detail_unit = {},
          .ours = {},
          .floor = {},
          .peer = {}};
}

// Put and settled, so that it is known what the page is.
void MeasureSameFilled(const BenchContext& context, const std::string& kind, Figures& figures) {
  const auto pages = LoadSample(context.samples_dir, kind, kRoundPages);
  BenchStore store(256 << 20);
  std::vector<double> times;
  for (uint64_t round = 0; round < 200; ++round) {
    pages->Touch(0, pages->size());
    const uint64_t begin_ns = ThreadNs();
    for (size_t i = 0; i < pages->size(); ++i) {
      store.Put(round % 50 * kRoundPages + i, PageView((*pages)[i]));
      if ((i + 1) % kBatchPages == 0) store.store().SettleOf(store.guest(), kBatchPages);
    }
    times.push_back(static_cast<double>(ThreadNs() - begin_ns) /
                    static_cast<double>(pages->size()));
  }
  figures.push_back(Absolute("put", kind, Median(times), 150));
}

// Single operations by the wall clock, while the landing buffer lasts.
void MeasureLanding(const BenchContext& context, Figures& figures) {
  constexpr size_t kLanded = 1024;
  const auto pages = LoadSample(context.samples_dir, "text", kLanded);
  const PageArray out(1);
  BenchStore store(256 << 20, 2 * kLanded * kPageBytes);
  std::vector<double> puts, gets;
  for (uint64_t pass = 0; pass < 50; ++pass) {
    for (size_t first = 0; first < pages->size(); first += kRoundPages) {
      pages->Touch(first, kRoundPages);
      for (size_t i = first; i < first + kRoundPages; ++i) {
        const uint64_t begin_ns = WallNs();
        store.Put(i, PageView((*pages)[i]));
        puts.push_back(static_cast<double>(WallNs() - begin_ns));
      }
      for (size_t i = first; i < first + kRoundPages; ++i) {
        const uint64_t begin_ns = WallNs();
        if (!store.Get(i, out[0])) std::abort();
        gets.push_back(static_cast<double>(WallNs() - begin_ns));
      }
    }
    store.SettleAll();
  }
  figures.push_back(Absolute("put into the landing buffer, p50", "text", Median(puts), 1000));
  figures.push_back(
      Absolute("put into the landing buffer, p99", "text", Quantile(puts, 0.99), 5000));
  figures.push_back(Absolute("get from the landing buffer, p50", "text", Median(gets), 500));
}

}  // namespace

void MeasurePages(const BenchContext& context, Figures& figures) {
  for (const char* kind : {"text", "binaries", "heap", "random"}) {
    MeasurePutAndGet(context, kind, figures);
  }
  MeasureDuplicates(context, figures);
  for (const char* kind : {"zero", "same-filled"}) MeasureSameFilled(context, kind, figures);
  MeasureLanding(context, figures);
}

}  // namespace tmem
