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
    : store_(store),
      clock_(clock),
      options_(options),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      thread_([this] { Run(); }) {}

Worker::~Worker() {
  stopping_.store(true, std::memory_order_release);
  (void)::eventfd_write(wake_.get(), 1);
  thread_.join();
}

Result<void> Worker::Attach(Channel& channel, int kick_fd, ChannelListener listener) {
  if (Result<void> watched = WatchEventfd(epoll_.get(), kick_fd, &channel); !watched) {
    return watched;
  }
  channel_count_.fetch_add(1, std::memory_order_relaxed);
  Send({Command::Kind::kAttach, {&channel, kick_fd, std::move(listener)}});
  return Ok();
}

void Worker::Detach(Channel& channel, int kick_fd) {
  Send({Command::Kind::kDetach, {&channel, kick_fd, {}}});
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
    if (command.kind == Command::Kind::kAttach) {
      command.served.channel->Wake();
      served_.push_back(std::move(command.served));
    } else {
      command.served.channel->PrepareSleep();
      std::erase_if(served_,
                    [&](const Served& served) { return served.channel == command.served.channel; });
    }
  }
  commands_.clear();
  applied_ = sent_;
  has_commands_.store(false, std::memory_order_relaxed);
  applied_changed_.NotifyAll();
}

void Worker::Run() {
  last_work_ns_ = clock_.NowNs();
  while (!stopping_.load(std::memory_order_acquire)) {
    ApplyCommands();
    if (VisitAll() || SettleSome()) {
      last_work_ns_ = clock_.NowNs();
    } else if (clock_.NowNs() - last_work_ns_ < options_.poll_ns) {
      __builtin_ia32_pause();
    } else {
      Sleep();
    }
  }
  for (const Served& served : served_) served.channel->PrepareSleep();
}

bool Worker::VisitAll() {
  bool any = false;
  for (const Served& served : served_) {
    Channel* channel = served.channel;
    if (!channel->HasWork()) continue;
    any = true;
    const std::uint64_t start_ns = ThreadCpuNs();
    const Channel::Visited visited = channel->Visit();
    channel->counters().cpu_ns.Add(ThreadCpuNs() - start_ns);
    if (visited.event != Channel::Event::kNone && served.listener) {
      served.listener(visited.event);
    }
  }
  unsettled_ |= any;
  return any;
}

bool Worker::SettleSome() {
  if (!unsettled_) return false;
  const std::uint64_t start_ns = ThreadCpuNs();
  unsettled_ = store_.Settle(kSettlePages) != 0;
  settle_cpu_ns_.Add(ThreadCpuNs() - start_ns);
  return unsettled_;
}

bool Worker::AnyWork() const {
  return has_commands_.load(std::memory_order_acquire) ||
         std::any_of(served_.begin(), served_.end(),
                     [](const Served& served) { return served.channel->HasWork(); });
}

void Worker::Sleep() {
  bool credits_low = false;
  for (const Served& served : served_) {
    Channel* channel = served.channel;
    if (channel->CreditsLow()) channel->TopUpCredits();
    credits_low |= channel->CreditsLow();
    channel->PrepareSleep();
  }
  FullFence();  // a guest that publishes now either sees awake == 0 or is seen by AnyWork
  if (!AnyWork()) {
    std::array<epoll_event, kEpollEvents> events;
    const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   credits_low ? kCreditRetryMs : -1);
    for (int i = 0; i < ready; ++i) {
      void* tag = events[static_cast<std::size_t>(i)].data.ptr;
      // A tag may be that of a channel detached before this wake: compare, do not follow.
      for (const Served& served : served_) {
        if (served.channel == tag) {
          served.channel->counters().rings_received.Add(TakeRings(served.kick_fd));
        }
      }
    }
  }
  WakeAll();
}

void Worker::WakeAll() {
  for (const Served& served : served_) served.channel->Wake();
}

}  // namespace tmem
