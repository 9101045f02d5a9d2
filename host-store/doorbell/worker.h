// SPDX-License-Identifier: GPL-2.0-only
// A thread that serves the channels of many guests: polls for a bounded time, then sleeps.
#ifndef HOST_STORE_DOORBELL_WORKER_H_
#define HOST_STORE_DOORBELL_WORKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "host-store/base/clock.h"
#include "host-store/base/mutex.h"
#include "host-store/base/result.h"
#include "host-store/doorbell/cpu_ledger.h"
#include "host-store/doorbell/service.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/store/store.h"
#include "host-store/window/channel.h"

namespace tmem {

struct WorkerOptions {
  // How long a worker looks at the lanes after the last work before it sleeps. Waking a sleeper
  // costs 30-250 us, so 50-200 us pay.
  std::uint64_t poll_ns = 100'000;
  // The same while a guest streams: it waits for pages again and again, each time soon after the
  // last. Then a sleep between two batches would cost it more than polling costs the worker.
  std::uint64_t stream_poll_ns = 500'000;
};

// Works for its channels by turns (Service), then polls, then sleeps without a timeout (a second
// while a guest is short of credits). Polling takes longer while a guest streams, and is paid by
// the guest worked for last.
//
// Thread rule: Attach and Detach from any one thread at a time, not from a listener.
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> Start(Store& store, const Clock& clock,
                                               const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Serves `channel` from now on; writes to the eventfd `kick_fd` wake the worker. The fd is never
  // read: a peer that shares it could make the read block. Both must stay until Detach has
  // returned.
  // `weight`: its share of work, see Service.
  Result<void> Attach(Channel& channel, std::uint32_t weight, int kick_fd,
                      ChannelListener listener);
  // Waits for the end of the visit in progress; afterwards the worker does not touch the channel.
  void Detach(Channel& channel, int kick_fd);

  std::size_t channels() const { return channel_count_.load(std::memory_order_relaxed); }

 private:
  struct Command {
    enum class Kind : std::uint8_t { kAttach, kDetach } kind;
    Channel* channel;
    int kick_fd;
    std::uint32_t weight;
    ChannelListener listener;
  };

  Worker(Store& store, const Clock& clock, const WorkerOptions& options, UniqueFd epoll,
         UniqueFd wake);
  void Send(Command command) TMEM_EXCLUDES(mutex_);
  void Run();
  void ApplyCommands() TMEM_EXCLUDES(mutex_);
  void Note(const Service::Step& step);
  void NoteWaiter(std::uint64_t now_ns);
  std::uint64_t PollNs() const;
  void CloseLedger();
  bool AnyWork() const;
  void Sleep();

  const Clock& clock_;
  const WorkerOptions options_;
  const UniqueFd epoll_;
  const UniqueFd wake_;

  Mutex mutex_;
  CondVar applied_changed_;
  std::vector<Command> commands_ TMEM_GUARDED_BY(mutex_);
  std::uint64_t sent_ TMEM_GUARDED_BY(mutex_) = 0;
  std::uint64_t applied_ TMEM_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> has_commands_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<std::size_t> channel_count_{0};

  // Of the worker's thread only.
  Service service_;
  std::vector<std::pair<Channel*, int>> kick_fds_;
  CpuLedger ledger_;
  ChannelCounters* last_served_ = nullptr;
  std::uint64_t noted_ns_ = 0;  // until when the ledger knows
  std::uint64_t last_work_ns_ = 0;
  std::uint64_t last_waiter_ns_ = 0;  // when somebody was last waited on
  std::uint32_t stream_visits_ = 0;   // visits to those who wait, each soon after the one before
  std::uint64_t closed_ns_ = 0;
  std::uint64_t closed_cpu_ns_ = 0;

  std::thread thread_;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_WORKER_H_
