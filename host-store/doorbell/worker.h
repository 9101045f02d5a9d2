// SPDX-License-Identifier: GPL-2.0-only
// A thread that serves the channels of many guests: polls for a bounded time, then sleeps.
#ifndef HOST_STORE_DOORBELL_WORKER_H_
#define HOST_STORE_DOORBELL_WORKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "host-store/base/clock.h"
#include "host-store/base/mutex.h"
#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/store/store.h"
#include "host-store/window/channel.h"

namespace tmem {

// Told in the worker's thread, between visits; must not block.
using ChannelListener = std::function<void(Channel::Event)>;

struct WorkerOptions {
  // How long a worker looks at the lanes after the last work before it sleeps. Waking a sleeper
  // costs 30-250 us, so 50-200 us pay.
  std::uint64_t poll_ns = 100'000;
};

// Visits its channels in turn, each for a bounded amount of work, so that no guest can hog it. When
// no channel has work it compresses what has landed, a few pages at a time so that a get does not
// wait for long, then polls, then sleeps without a timeout (a second while a guest is short of
// credits).
//
// Thread rule: Attach and Detach from any one thread at a time, not from a listener.
class Worker {
 public:
  // Pages compressed between two looks at the lanes: about 60 us of LZ4.
  static constexpr std::size_t kSettlePages = 8;

  static Result<std::unique_ptr<Worker>> Start(Store& store, const Clock& clock,
                                               const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Serves `channel` from now on; writes to the eventfd `kick_fd` wake the worker. The fd is never
  // read: a peer that shares it could make the read block. Both must stay until Detach has
  // returned.
  Result<void> Attach(Channel& channel, int kick_fd, ChannelListener listener);
  // Waits for the end of the visit in progress; afterwards the worker does not touch the channel.
  void Detach(Channel& channel, int kick_fd);

  std::size_t channels() const { return channel_count_.load(std::memory_order_relaxed); }
  // CPU time of compression, which belongs to no single guest.
  std::uint64_t settle_cpu_ns() const { return settle_cpu_ns_.value(); }

 private:
  struct Served {
    Channel* channel;
    int kick_fd;
    ChannelListener listener;
  };
  struct Command {
    enum class Kind : std::uint8_t { kAttach, kDetach } kind;
    Served served;
  };

  Worker(Store& store, const Clock& clock, const WorkerOptions& options, UniqueFd epoll,
         UniqueFd wake);
  void Send(Command command) TMEM_EXCLUDES(mutex_);
  void Run();
  void ApplyCommands() TMEM_EXCLUDES(mutex_);
  bool VisitAll();
  bool AnyWork() const;
  bool SettleSome();
  void Sleep();
  void WakeAll();

  Store& store_;
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
  std::vector<Served> served_;
  std::uint64_t last_work_ns_ = 0;
  bool unsettled_ = false;
  Counter settle_cpu_ns_;

  std::thread thread_;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_WORKER_H_
