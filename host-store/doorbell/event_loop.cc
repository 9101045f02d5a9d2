// SPDX-License-Identifier: GPL-2.0-only
// The loop over epoll.
#include "host-store/doorbell/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "host-store/base/clock.h"

namespace tmem {
namespace {

constexpr std::uint64_t kStopId = 0;
constexpr std::size_t kEventsAtOnce = 16;
constexpr std::uint64_t kNsPerMs = 1'000'000;
// epoll_wait takes an int; who has waited for so long waits again.
constexpr std::uint64_t kLongestWaitMs = 1'000'000;

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return SystemError("epoll_create1");
  UniqueFd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) return SystemError("eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kStopId;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, stop.get(), &event) != 0) {
    return SystemError("epoll_ctl");
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(stop)));
}

EventLoop::EventLoop(UniqueFd epoll, UniqueFd stop)
    : epoll_(std::move(epoll)), stop_(std::move(stop)) {}

Result<EventLoop::WatchId> EventLoop::Watch(int fd, std::uint32_t events, Handler handler) {
  const std::uint64_t id = ++last_id_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return SystemError("epoll_ctl");
  entries_[id] = std::make_shared<Entry>(Entry{fd, std::move(handler)});
  return WatchId{id};
}

void EventLoop::Change(WatchId id, std::uint32_t events) {
  const auto found = entries_.find(static_cast<std::uint64_t>(id));
  if (found == entries_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->first;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second->fd, &event);
}

void EventLoop::Unwatch(WatchId id) {
  const auto found = entries_.find(static_cast<std::uint64_t>(id));
  if (found == entries_.end()) return;
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second->fd, nullptr);
  entries_.erase(found);
}

EventLoop::ChoreId EventLoop::Begin(Chore chore) {
  const ChoreId id{++last_id_};
  chores_.emplace_back(id, std::move(chore));
  return id;
}

void EventLoop::Drop(ChoreId id) {
  chores_.remove_if([id](const auto& chore) { return chore.first == id; });
}

void EventLoop::DoChore() {
  if (chores_.empty()) return;
  if (chores_.front().second()) {
    chores_.splice(chores_.end(), chores_, chores_.begin());
  } else {
    chores_.pop_front();
  }
}

EventLoop::AlarmId EventLoop::SetAlarm(std::uint64_t after_ns, Alarm alarm) {
  const AlarmId id{++last_id_};
  alarms_.emplace(std::pair(SteadyClock().NowNs() + after_ns, id), std::move(alarm));
  return id;
}

void EventLoop::CancelAlarm(AlarmId id) {
  std::erase_if(alarms_, [id](const auto& alarm) { return alarm.first.second == id; });
}

// Rounded up: an alarm never rings early.
int EventLoop::WaitMs() const {
  if (!chores_.empty()) return 0;
  if (alarms_.empty()) return -1;
  const std::uint64_t due_ns = alarms_.begin()->first.first;
  const std::uint64_t now_ns = SteadyClock().NowNs();
  const std::uint64_t wait_ns = due_ns > now_ns ? due_ns - now_ns : 0;
  return static_cast<int>(std::min((wait_ns + kNsPerMs - 1) / kNsPerMs, kLongestWaitMs));
}

// Those that are due now: what they set anew has its turn after another look at the fds.
void EventLoop::RingAlarms() {
  if (alarms_.empty()) return;
  const std::uint64_t now_ns = SteadyClock().NowNs();
  const std::uint64_t last_id = last_id_;
  for (auto due = alarms_.begin(); due != alarms_.end() && due->first.first <= now_ns;
       due = alarms_.begin()) {
    if (static_cast<std::uint64_t>(due->first.second) > last_id) break;
    const Alarm alarm = std::move(due->second);
    alarms_.erase(due);
    alarm();
  }
}

void EventLoop::Run() {
  std::array<epoll_event, kEventsAtOnce> events;
  for (;;) {
    const int ready =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), WaitMs());
    if (ready < 0 && errno != EINTR) return;
    for (int i = 0; i < ready; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const std::uint64_t id = event.data.u64;  // a copy: the struct is packed
      if (id == kStopId) {
        eventfd_t ignored = 0;
        (void)::eventfd_read(stop_.get(), &ignored);
        return;
      }
      const auto found = entries_.find(id);
      if (found == entries_.end()) continue;
      const std::shared_ptr<Entry> entry = found->second;  // it may unwatch itself
      entry->handler(event.events);
    }
    RingAlarms();
    DoChore();
  }
}

void EventLoop::Stop() {
  (void)::eventfd_write(stop_.get(), 1);
}

}  // namespace tmem
