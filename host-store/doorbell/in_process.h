// SPDX-License-Identifier: GPL-2.0-only
// The in-process doorbell: a host and its guests in one process, for VMM authors, tests,
// benchmarks.
//
//   auto host = InProcessHost::Create(options, clock).value();
//   auto guest = host->Connect({.name = "vm1", .domain = ""}).value();
//   guest->window()         the window, as abi/README.md describes it; the guest side maps nothing
//   guest->Kick()           the doorbell: call it after publishing when `awake` is 0
//   guest->Call(lanes, ns)  kicks and waits until all that is posted in these lanes is done
//
// A guest side that waits by itself:
//
//   uint64_t seen = guest->notifications();
//   lane->guest_waits = 1; full fence; if (done has not moved)
//   guest->WaitForNotification(seen, timeout_ns);
#ifndef HOST_STORE_DOORBELL_IN_PROCESS_H_
#define HOST_STORE_DOORBELL_IN_PROCESS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "host-store/base/clock.h"
#include "host-store/base/mutex.h"
#include "host-store/base/result.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/doorbell/window_memory.h"
#include "host-store/doorbell/worker.h"
#include "host-store/store/store.h"
#include "host-store/window/channel.h"
#include "host-store/window/geometry.h"

namespace tmem {

class InProcessGuest;

struct InProcessOptions {
  StoreOptions store;
  WindowOptions window;  // of guests that bring none of their own; counted in the store's limit
  ChannelOptions channel;
  // Threads that serve the guests. 0: operations execute in the caller's thread, inside Kick and
  // Call, compression included, and `awake` stays 0; deterministic.
  std::uint32_t workers = 0;
  WorkerOptions worker;
};

// A store and, if wanted, the threads that serve it. `clock` outlives it, it outlives its guests.
// Thread rule: Connect and the end of a guest from one thread at a time; store() from any.
class InProcessHost {
 public:
  static Result<std::unique_ptr<InProcessHost>> Create(const InProcessOptions& options,
                                                       const Clock& clock);
  ~InProcessHost();

  Store& store() { return *store_; }

  // `notify` is called when the host notifies the guest, in the thread that does the work (inside
  // Kick without workers); it must not block or call back. Errors: name taken, no memory.
  Result<std::unique_ptr<InProcessGuest>> Connect(const GuestOptions& options,
                                                  std::function<void()> notify = {});

  // The same with a window of the caller's: fresh, or one that outlived another host
  // (InProcessGuest::Leave). Its guest is then notified once, registers again, and puts again what
  // the other host had not acknowledged. Give each store another seed, so that no pool handle comes
  // twice. `layout` is `window.bytes()` long, and of an older window as it was.
  Result<std::unique_ptr<InProcessGuest>> Adopt(const GuestOptions& options, WindowMemory window,
                                                const WindowOptions& layout,
                                                std::function<void()> notify = {});
  // With the layout that all windows of this host have.
  Result<std::unique_ptr<InProcessGuest>> Adopt(const GuestOptions& options, WindowMemory window,
                                                std::function<void()> notify = {});

 private:
  friend class InProcessGuest;
  InProcessHost(const InProcessOptions& options, std::unique_ptr<Store> store);

  const InProcessOptions options_;
  const std::unique_ptr<Store> store_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// One guest's window and doorbell. Its end destroys the guest's pools and gives the memory back.
// Thread rule: everything but Pause, Resume, Leave and the destructor from any thread.
class InProcessGuest {
 public:
  // Ends the connection and keeps the window, as when the host dies: what the guest posts there is
  // for the next host.
  static WindowMemory Leave(std::unique_ptr<InProcessGuest> guest);
  ~InProcessGuest();
  InProcessGuest(const InProcessGuest&) = delete;
  InProcessGuest& operator=(const InProcessGuest&) = delete;

  // Page-aligned; geometry and host page are filled in.
  std::span<std::byte> window() const { return {memory_.data(), memory_.bytes()}; }
  std::uint32_t lane_count() const { return view_.lane_count(); }
  GuestId id() const { return channel_.guest(); }
  const ChannelCounters& counters() const { return channel_.counters(); }

  void Kick();
  // Kicks, then waits until what was posted in `lanes` (bit i = lane i) at the time of the call is
  // done. False after `timeout_ns`, or when the host has reset the channel.
  bool Call(std::uint64_t lanes, std::uint64_t timeout_ns);

  std::uint64_t notifications() const;
  // True as soon as notifications() differs from `seen`.
  bool WaitForNotification(std::uint64_t seen, std::uint64_t timeout_ns);

  // A host that is lost, for tests: between the two nothing looks at the window.
  void Pause();
  void Resume();

  // X2; see Channel.
  void Freeze();
  void Thaw();

 private:
  friend class InProcessHost;

  class Bell final : public GuestBell {
   public:
    explicit Bell(std::function<void()> notify) : notify_(std::move(notify)) {}
    void Ring() override;
    std::uint64_t rung() const;
    bool Wait(std::uint64_t seen, std::uint64_t timeout_ns);

   private:
    const std::function<void()> notify_;
    mutable Mutex mutex_;
    CondVar changed_;
    std::uint64_t rung_ TMEM_GUARDED_BY(mutex_) = 0;
  };

  InProcessGuest(InProcessHost& host, GuestId id, std::uint32_t weight,
                 const tmem_geometry& geometry, WindowMemory memory, UniqueFd kick,
                 std::function<void()> notify);
  void ExecuteInCaller();
  bool AllDone(const std::vector<std::uint64_t>& targets) const;

  InProcessHost& host_;
  const std::uint32_t weight_;
  WindowMemory memory_;
  const UniqueFd kick_;
  Bell bell_;
  const WindowView view_;
  Channel channel_;
  Worker* worker_ = nullptr;  // none: the caller's thread
  // Whoever holds it is the one thread that visits the channel; only used without a worker.
  Mutex visiting_;
  bool paused_ TMEM_GUARDED_BY(visiting_) = false;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_IN_PROCESS_H_
