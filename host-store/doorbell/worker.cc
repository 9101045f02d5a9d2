// SPDX-License-Identifier: GPL-2.0-only
// The loop of a worker.
#include "host-store/doorbell/worker.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

// While a guest is short of credits, others may free memory without this worker seeing it.
constexpr int kCreditRetryMs = 1000;

constexpr std::size_t kEpollEvents = 32;

// How often the thread's CPU time is asked for while it is busy: a system call.
constexpr std::uint64_t kLedgerNs = 5'000'000;

// Visits to guests that wait belong to one stream while none comes later than this after the last,
// and it is one from so many on: half a dozen batches of read-ahead.
constexpr std::uint64_t kStreamGapNs = 2'000'000;
constexpr std::uint32_t kStreamVisits = 24;

std::uint64_t ThreadCpuNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// Edge-triggered: each write to an eventfd is a new edge, so nothing depends on its being read.
Result<void> WatchEventfd(int epoll, int fd, void* tag) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = tag;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return SystemError("epoll_ctl");
  return Ok();
}

// How often an eventfd that woke us was written to: a guest may ring twice before we look. The
// peer shares the open file and may have taken the count or made reads wait: this one never does.
std::uint64_t TakeRings(int kick_fd) {
  std::uint64_t rings = 0;
  const iovec target{&rings, sizeof(rings)};
  const ssize_t got = ::preadv2(kick_fd, &target, 1, -1, RWF_NOWAIT);
  if (got == sizeof(rings)) return rings;
  return got < 0 && errno == EAGAIN ? 0 : 1;  // a kernel that cannot read so: at least one
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::Start(Store& store, const Clock& clock,
                                              const WorkerOptions& options) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return SystemError("epoll_create1");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return SystemError("eventfd");
  if (Result<void> watched = WatchEventfd(epoll.get(), wake.get(), nullptr); !watched) {
    return watched.error();
  }
  return std::unique_ptr<Worker>(
      new Worker(store, clock, options, std::move(epoll), std::move(wake)));
}

Worker::Worker(Store& store, const Clock& clock, const WorkerOptions& options, UniqueFd epoll,
               UniqueFd wake)
    : clock_(clock),
      options_(options),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      service_(store),
      thread_([this] { Run(); }) {}

Worker::~Worker() {
  stopping_.store(true, std::memory_order_release);
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

Result<void> Worker::Attach(Channel& channel, std::uint32_t weight, int kick_fd,
                            ChannelListener listener) {
  if (Result<void> watched = WatchEventfd(epoll_.get(), kick_fd, &channel); !watched) {
    return watched;
  }
  channel_count_.fetch_add(1, std::memory_order_relaxed);
  Send({Command::Kind::kAttach, &channel, kick_fd, weight, std::move(listener)});
  return Ok();
}

void Worker::Detach(Channel& channel, int kick_fd) {
  Send({Command::Kind::kDetach, &channel, kick_fd, 0, {}});
  // Closing our fd would not end the watch while a peer holds the same eventfd.
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, kick_fd, nullptr);
  channel_count_.fetch_sub(1, std::memory_order_relaxed);
}

void Worker::Send(Command command) {
  MutexLock lock(mutex_);
  commands_.push_back(std::move(command));
  const std::uint64_t mine = ++sent_;
  has_commands_.store(true, std::memory_order_release);
  lock.Unlock();
  (void)::eventfd_write(wake_.get(), 1);
  lock.Lock();
  while (applied_ < mine) applied_changed_.Wait(mutex_);
}

void Worker::ApplyCommands() {
  if (!has_commands_.load(std::memory_order_acquire)) return;
  MutexLock lock(mutex_);
  for (Command& command : commands_) {
    Channel& channel = *command.channel;
    if (command.kind == Command::Kind::kAttach) {
      channel.Wake();
      service_.Add(channel, command.weight, std::move(command.listener));
      kick_fds_.emplace_back(&channel, command.kick_fd);
    } else {
      channel.PrepareSleep();
      service_.Remove(channel);
      std::erase_if(kick_fds_, [&](const auto& kick) { return kick.first == &channel; });
      CloseLedger();
      ledger_.Remove(channel.counters());
      if (last_served_ == &channel.counters()) last_served_ = nullptr;
    }
  }
  commands_.clear();
  applied_ = sent_;
  has_commands_.store(false, std::memory_order_relaxed);
  applied_changed_.NotifyAll();
}

void Worker::Run() {
  noted_ns_ = last_work_ns_ = closed_ns_ = clock_.NowNs();
  while (!stopping_.load(std::memory_order_acquire)) {
    ApplyCommands();
    const Service::Step step = service_.Next();
    Note(step);
    if (step.did != Service::Did::kNothing) continue;
    if (noted_ns_ - last_work_ns_ < PollNs()) {
      // Whoever else wants this core goes first: it may be the very guest that is polled for.
      std::this_thread::yield();
    } else {
      Sleep();
    }
  }
  service_.ForEach([](Channel& channel) { channel.PrepareSleep(); });
}

void Worker::Note(const Service::Step& step) {
  const std::uint64_t now_ns = clock_.NowNs();
  CpuLedger::Kind kind = CpuLedger::Kind::kPoll;
  if (step.did != Service::Did::kNothing) {
    last_served_ = &step.channel->counters();
    last_work_ns_ = now_ns;
    if (step.waited_for) NoteWaiter(now_ns);
    kind = step.did == Service::Did::kVisit ? CpuLedger::Kind::kVisit : CpuLedger::Kind::kSettle;
  }
  if (last_served_ != nullptr) ledger_.Note(*last_served_, kind, now_ns - noted_ns_);
  noted_ns_ = now_ns;
  if (now_ns - closed_ns_ >= kLedgerNs) CloseLedger();
}

void Worker::NoteWaiter(std::uint64_t now_ns) {
  const bool goes_on = now_ns - last_waiter_ns_ <= kStreamGapNs;
  stream_visits_ = goes_on ? std::min(stream_visits_ + 1, kStreamVisits) : 0;
  last_waiter_ns_ = now_ns;
}

// A worker that must not poll does not, stream or not.
std::uint64_t Worker::PollNs() const {
  const bool streams =
      stream_visits_ == kStreamVisits && noted_ns_ - last_waiter_ns_ <= kStreamGapNs;
  if (!streams || options_.poll_ns == 0) return options_.poll_ns;
  return std::max(options_.poll_ns, options_.stream_poll_ns);
}

void Worker::CloseLedger() {
  const std::uint64_t cpu_ns = ThreadCpuNs();
  ledger_.Close(cpu_ns - closed_cpu_ns_);
  closed_cpu_ns_ = cpu_ns;
  closed_ns_ = noted_ns_;
}

bool Worker::AnyWork() const {
  return has_commands_.load(std::memory_order_acquire) || service_.HasWork();
}

void Worker::Sleep() {
  bool credits_low = false;
  CloseLedger();
  service_.ForEach([&](Channel& channel) {
    if (channel.CreditsLow()) channel.TopUpCredits();
    credits_low |= channel.CreditsLow();
    channel.PrepareSleep();
  });
  FullFence();  // a guest that publishes now either sees awake == 0 or is seen by AnyWork
  if (!AnyWork()) {
    std::array<epoll_event, kEpollEvents> events;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   credits_low ? kCreditRetryMs : -1);
    for (int i = 0; i < ready; ++i) {
      void* tag = events[static_cast<std::size_t>(i)].data.ptr;
      // A tag may be that of a channel detached before this wake: compare, do not follow.
      for (const auto& [channel, kick_fd] : kick_fds_) {
        if (channel == tag) channel->counters().rings_received.Add(TakeRings(kick_fd));
      }
    }
  }
  service_.ForEach([](Channel& channel) { channel.Wake(); });
  noted_ns_ = clock_.NowNs();
}

}  // namespace tmem
