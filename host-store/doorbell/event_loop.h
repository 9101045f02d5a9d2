// SPDX-License-Identifier: GPL-2.0-only
// One thread's loop over the readiness of many file descriptors.
#ifndef HOST_STORE_DOORBELL_EVENT_LOOP_H_
#define HOST_STORE_DOORBELL_EVENT_LOOP_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {

// Level-triggered: costs nothing while nothing happens and no alarm is due. A handler may watch and
// unwatch any fd, its own too. Long work is a chore: done piece by piece, with a look at the fds
// and alarms after each. Thread rule: the thread that runs it, except Stop.
class EventLoop {
 public:
  using Handler = std::function<void(std::uint32_t events)>;
  enum class WatchId : std::uint64_t { kNone = 0 };
  // One piece, short enough to keep a connection waiting; false once there is nothing left.
  using Chore = std::function<bool()>;
  enum class ChoreId : std::uint64_t { kNone = 0 };

  static Result<std::unique_ptr<EventLoop>> Create();

  // `events` as in epoll_ctl. The fd must outlive the watch.
  Result<WatchId> Watch(int fd, std::uint32_t events, Handler handler);
  void Change(WatchId id, std::uint32_t events);
  void Unwatch(WatchId id);

  // Chores take turns. A chore may begin others but not drop itself.
  ChoreId Begin(Chore chore);
  void Drop(ChoreId id);

  // Once, that many nanoseconds from now by the machine's monotonic clock, or up to a millisecond
  // later; may set others, the same again too. An alarm that has rung or is cancelled is no error.
  using Alarm = std::function<void()>;
  enum class AlarmId : std::uint64_t { kNone = 0 };
  AlarmId SetAlarm(std::uint64_t after_ns, Alarm alarm);
  void CancelAlarm(AlarmId id);

  // Returns after Stop.
  void Run();
  // From any thread.
  void Stop();

 private:
  struct Entry {
    int fd;
    Handler handler;
  };

  EventLoop(UniqueFd epoll, UniqueFd stop);
  void DoChore();
  int WaitMs() const;
  void RingAlarms();

  const UniqueFd epoll_;
  const UniqueFd stop_;
  std::uint64_t last_id_ = 0;
  // By id and not by fd: an event of a closed fd must not reach the next user of its number.
  std::map<std::uint64_t, std::shared_ptr<Entry>> entries_;
  std::list<std::pair<ChoreId, Chore>> chores_;                // whose turn it is first
  std::map<std::pair<std::uint64_t, AlarmId>, Alarm> alarms_;  // by when they are due
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_EVENT_LOOP_H_
