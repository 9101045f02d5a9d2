// SPDX-License-Identifier: GPL-2.0-only
// How long a guest waits for a batch of gets, and what puts and gets cost the daemon's worker.
//
// The guest module's core streams through a file as the second pass of a guest's read does: for
// each window of pages it works for a while, puts the pages that reclaim drops, and gets the
// window. The host is in this process, with one worker. Time: of one batch of gets, copying out
// included. `think` is the guest's own work a page in us; 20 is what a guest under TCG needs.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compress/sample_pages.h"
#include "host-store/doorbell/in_process.h"

extern "C" {
#include "guest-shims/tmem/core/client.h"
}

namespace tmem {
namespace {

constexpr std::uint64_t kFilePages = 8192;
constexpr std::uint64_t kResidentPages = 2048;  // windows this far back are put again
constexpr std::size_t kDistinctPages = 8192;
constexpr std::uint64_t kLaterNs = 1'000'000;  // the module's timer

std::uint64_t CpuNs(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t NowNs() {
  return CpuNs(CLOCK_MONOTONIC);
}

class StreamingGuest {
 public:
  StreamingGuest(PageKind kind, std::uint64_t poll_ns) {
    for (std::size_t i = 0; i < kDistinctPages; ++i) pages_.push_back(MakeSamplePage(kind, i));
    InProcessOptions options{};
    options.store.limit_bytes = 256u << 20;
    options.store.seed = 1;
    options.workers = 1;
    options.worker.poll_ns = poll_ns;
    host_ = InProcessHost::Create(options, clock_).value();
    channel_ = host_->Connect({.name = "guest", .domain = ""}).value();
    tmem_client_options client_options{};
    client_options.ops = &kOps;
    client_options.context = this;
    client_options.table_keys = 1 << 16;
    client_options.get_timeout_ns = 10 * TMEM_NS_PER_S;
    client_options.load_timeout_ns = 10 * TMEM_NS_PER_S;
    // It never sleeps: a second vCPU or a wake-up would be measured with it.
    client_options.spin_ns = 10 * TMEM_NS_PER_S;
    Require(tmem_client_create(&client_, &client_options, channel_->window().data(),
                               channel_->window().size()) == 0);
    Require(tmem_client_register(&client_) == 0);
    const int pool = tmem_pool_create(&client_, TMEM_POOL_EPHEMERAL);
    Require(pool >= 0);
    pool_ = static_cast<u32>(pool);
    for (std::uint64_t page = 0; page < kFilePages - kResidentPages; ++page) {
      Put(page);
      Think(10'000);
    }
  }

  ~StreamingGuest() {
    channel_.reset();
    tmem_client_destroy(&client_);
  }
  StreamingGuest(const StreamingGuest&) = delete;
  StreamingGuest& operator=(const StreamingGuest&) = delete;

  // Returns the nanoseconds that the gets took.
  std::uint64_t ReadWindow(std::uint64_t pages, std::uint64_t think_ns) {
    for (std::uint64_t i = 0; i < pages; ++i) {
      Put((at_ + kFilePages - kResidentPages + i) % kFilePages);
      Think(think_ns);
    }
    void* to[TMEM_GET_MAX];
    for (std::uint64_t i = 0; i < pages; ++i) to[i] = buffers_[i].data();
    u64 hits = 0;
    const tmem_key first = Key(at_);
    const std::uint64_t start_ns = NowNs();
    hits_ += tmem_get_pages(&client_, &first, static_cast<u32>(pages), to, &hits);
    const std::uint64_t ns = NowNs() - start_ns;
    at_ = (at_ + pages) % kFilePages;
    return ns;
  }

  std::uint64_t hits() const { return hits_; }
  std::uint64_t Count(tmem_counter counter) { return tmem_client_count_of(&client_, counter); }

 private:
  static void Require(bool condition) {
    if (!condition) std::abort();
  }
  static StreamingGuest* Self(void* context) { return static_cast<StreamingGuest*>(context); }

  tmem_key Key(std::uint64_t page) const { return {pool_, {1, 0, 0}, page}; }

  void Put(std::uint64_t page) {
    const tmem_key key = Key(page);
    tmem_put_page(&client_, &key, pages_[page % kDistinctPages].data());
    Kicks();
  }

  // What irq_work and the timer do in a guest.
  void Kicks() {
    const bool later = later_ns_ != 0 && NowNs() >= later_ns_;
    if (!soon_ && !later) return;
    soon_ = false;
    if (later) later_ns_ = 0;
    tmem_client_kick(&client_, TMEM_KICK_PUT);
  }

  void Think(std::uint64_t ns) {
    for (const std::uint64_t until_ns = NowNs() + ns; NowNs() < until_ns;) {
      Kicks();
      __builtin_ia32_pause();
    }
  }

  static void Ring(void* context) { Self(context)->channel_->Kick(); }
  static void KickSoon(void* context) { Self(context)->soon_ = true; }
  static void KickLater(void* context) {
    if (Self(context)->later_ns_ == 0) Self(context)->later_ns_ = NowNs() + kLaterNs;
  }
  static void CopyPage(void* to, const void* from) { std::memcpy(to, from, TMEM_PAGE_BYTES); }

  static constexpr tmem_client_ops kOps = {
      .ring = Ring,
      .hypercall = nullptr,
      .kick_soon = KickSoon,
      .kick_later = KickLater,
      .shrink_soon = nullptr,
      .copy_page = CopyPage,
  };

  SteadyClock clock_;
  std::vector<PageBytes> pages_;
  std::array<PageBytes, TMEM_GET_MAX> buffers_{};
  std::unique_ptr<InProcessHost> host_;
  std::unique_ptr<InProcessGuest> channel_;
  tmem_client client_{};
  u32 pool_ = 0;
  std::uint64_t at_ = 0;
  std::uint64_t hits_ = 0;
  bool soon_ = false;
  std::uint64_t later_ns_ = 0;
};

struct Case {
  PageKind kind;
  std::uint64_t batch;
  std::uint64_t think_us;
  std::uint64_t poll_us;
};

void RunStream(benchmark::State& state, const Case& run) {
  StreamingGuest guest(run.kind, run.poll_us * 1000);
  for (int i = 0; i < 64; ++i) guest.ReadWindow(run.batch, run.think_us * 1000);
  std::vector<std::uint64_t> times_ns;
  const std::uint64_t hits = guest.hits();
  const std::uint64_t rung = guest.Count(TMEM_COUNT_doorbells_rung);
  const std::uint64_t dropped = guest.Count(TMEM_COUNT_puts_dropped_no_slot);
  const std::uint64_t process_ns = CpuNs(CLOCK_PROCESS_CPUTIME_ID);
  const std::uint64_t thread_ns = CpuNs(CLOCK_THREAD_CPUTIME_ID);
  for (auto _ : state) {
    times_ns.push_back(guest.ReadWindow(run.batch, run.think_us * 1000));
    state.SetIterationTime(static_cast<double>(times_ns.back()) * 1e-9);
  }
  const auto daemon_ns = static_cast<double>(CpuNs(CLOCK_PROCESS_CPUTIME_ID) - process_ns -
                                             (CpuNs(CLOCK_THREAD_CPUTIME_ID) - thread_ns));
  const auto pages = static_cast<double>(times_ns.size() * run.batch);
  std::sort(times_ns.begin(), times_ns.end());
  const auto us = [&](double part) {
    return static_cast<double>(times_ns[static_cast<std::size_t>(
               part * static_cast<double>(times_ns.size() - 1))]) /
           1000;
  };
  state.counters["p50_us"] = us(0.5);
  state.counters["p99_us"] = us(0.99);
  state.counters["p50_page_ns"] = us(0.5) * 1000 / static_cast<double>(run.batch);
  state.counters["daemon_page_us"] = daemon_ns / 1000 / pages;
  state.counters["hits"] = static_cast<double>(guest.hits() - hits) / pages;
  state.counters["bells_page"] =
      static_cast<double>(guest.Count(TMEM_COUNT_doorbells_rung) - rung) / pages;
  state.counters["no_slot"] =
      static_cast<double>(guest.Count(TMEM_COUNT_puts_dropped_no_slot) - dropped);
}

void Register(const Case& run) {
  const std::string name =
      "stream/" + std::string(ToString(run.kind)) + "/batch:" + std::to_string(run.batch) +
      "/think:" + std::to_string(run.think_us) + "/poll:" + std::to_string(run.poll_us);
  benchmark::RegisterBenchmark(name.c_str(),
                               [run](benchmark::State& state) { RunStream(state, run); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(static_cast<benchmark::IterationCount>(32'768 / run.batch));
}

int RegisterAll() {
  for (const std::uint64_t batch : {1u, 4u, 16u, 32u, 64u}) {
    for (const std::uint64_t think_us : {0u, 20u})
      Register({PageKind::kText, batch, think_us, 100});
  }
  for (const PageKind kind : {PageKind::kZero, PageKind::kRandom}) Register({kind, 32, 20, 100});
  for (const std::uint64_t poll_us : {0u, 25u, 50u, 200u, 400u}) {
    Register({PageKind::kText, 32, 20, poll_us});
  }
  return 0;
}

[[maybe_unused]] const int kRegistered = RegisterAll();

}  // namespace
}  // namespace tmem
