// SPDX-License-Identifier: GPL-2.0-only
// In-process guests, served by workers or in the thread that kicks.
#include "host-store/doorbell/in_process.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

// Call looks this often; a guest that wants better waits for notifications itself.
constexpr std::uint64_t kCallPollNs = 20'000;

}  // namespace

// ---- host -------------------------------------------------------------------------------------

InProcessHost::InProcessHost(const InProcessOptions& options, std::unique_ptr<Store> store)
    : options_(options), store_(std::move(store)) {}

InProcessHost::~InProcessHost() = default;

Result<std::unique_ptr<InProcessHost>> InProcessHost::Create(const InProcessOptions& options,
                                                             const Clock& clock) {
  if (Result<tmem_geometry> geometry = MakeGeometry(options.window); !geometry) {
    return std::move(geometry).error();
  }
  Result<std::unique_ptr<Store>> store = Store::Create(options.store);
  if (!store) return std::move(store).error();
  std::unique_ptr<InProcessHost> host(new InProcessHost(options, std::move(*store)));
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    Result<std::unique_ptr<Worker>> worker = Worker::Start(*host->store_, clock, options.worker);
    if (!worker) return std::move(worker).error();
    host->workers_.push_back(std::move(*worker));
  }
  return host;
}

Result<std::unique_ptr<InProcessGuest>> InProcessHost::Connect(const GuestOptions& options,
                                                               std::function<void()> notify) {
  Result<WindowMemory> memory = WindowMemory::CreatePrivate(options_.window.window_bytes);
  if (!memory) return std::move(memory).error();
  return Adopt(options, std::move(*memory), std::move(notify));
}

Result<std::unique_ptr<InProcessGuest>> InProcessHost::Adopt(const GuestOptions& options,
                                                             WindowMemory window,
                                                             std::function<void()> notify) {
  return Adopt(options, std::move(window), options_.window, std::move(notify));
}

Result<std::unique_ptr<InProcessGuest>> InProcessHost::Adopt(const GuestOptions& options,
                                                             WindowMemory window,
                                                             const WindowOptions& layout,
                                                             std::function<void()> notify) {
  Result<tmem_geometry> geometry = MakeGeometry(layout);
  if (!geometry) return std::move(geometry).error();
  const std::uint64_t window_bytes = layout.window_bytes;
  if (window.bytes() != window_bytes) {
    return Error{ErrorCode::kInvalidArgument, "the window has another size"};
  }
  UniqueFd kick(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!kick.valid()) return SystemError("eventfd");
  if (Result<void> reserved = store_->Reserve(window_bytes); !reserved) return reserved.error();
  Result<GuestId> id = store_->AddGuest(options);
  if (!id) {
    store_->Unreserve(window_bytes);
    return std::move(id).error();
  }
  std::unique_ptr<InProcessGuest> guest(new InProcessGuest(*this, *id, options.weight, *geometry,
                                                           std::move(window), std::move(kick),
                                                           std::move(notify)));
  // Who waits for an answer of the former host looks again.
  if (LoadRelaxed(guest->view_.host_page().resets) != 0) guest->bell_.Ring();
  if (workers_.empty()) return guest;
  const auto idlest =
      std::min_element(workers_.begin(), workers_.end(),
                       [](const auto& a, const auto& b) { return a->channels() < b->channels(); });
  if (Result<void> attached =
          (*idlest)->Attach(guest->channel_, options.weight, guest->kick_.get(), {});
      !attached) {
    return attached.error();
  }
  guest->worker_ = idlest->get();
  return guest;
}

// ---- guest ------------------------------------------------------------------------------------

InProcessGuest::InProcessGuest(InProcessHost& host, GuestId id, std::uint32_t weight,
                               const tmem_geometry& geometry, WindowMemory memory, UniqueFd kick,
                               std::function<void()> notify)
    : host_(host),
      weight_(weight),
      memory_(std::move(memory)),
      kick_(std::move(kick)),
      bell_(std::move(notify)),
      view_(memory_.data(), geometry),
      channel_(*host.store_, id, view_, bell_, host.options_.channel) {}

InProcessGuest::~InProcessGuest() {
  Pause();
  host_.store_->RemoveGuest(channel_.guest());
  host_.store_->Unreserve(view_.geometry().window_bytes);
}

WindowMemory InProcessGuest::Leave(std::unique_ptr<InProcessGuest> guest) {
  guest->Pause();
  return std::move(guest->memory_);
}

void InProcessGuest::Kick() {
  if (worker_ == nullptr) {
    ExecuteInCaller();
  } else {
    (void)::eventfd_write(kick_.get(), 1);
  }
}

void InProcessGuest::ExecuteInCaller() {
  MutexLock lock(visiting_);
  if (paused_) return;
  while (channel_.HasWork()) {
    (void)channel_.Visit();
  }
  host_.store_->Settle(SIZE_MAX);
}

bool InProcessGuest::AllDone(const std::vector<std::uint64_t>& targets) const {
  for (std::uint32_t lane = 0; lane < view_.lane_count(); ++lane) {
    if (LoadAcquire(view_.lane(lane).head().done) < targets[lane]) return false;
  }
  return true;
}

bool InProcessGuest::Call(std::uint64_t lanes, std::uint64_t timeout_ns) {
  std::vector<std::uint64_t> targets(view_.lane_count(), 0);
  for (std::uint32_t lane = 0; lane < view_.lane_count(); ++lane) {
    if ((lanes >> lane & 1) != 0) targets[lane] = LoadAcquire(view_.lane(lane).head().posted);
  }
  const std::uint64_t resets = LoadAcquire(view_.host_page().resets);
  FullFence();
  if (LoadRelaxed(view_.host_page().awake) == 0) Kick();
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::nanoseconds(static_cast<std::int64_t>(timeout_ns));
  while (!AllDone(targets)) {
    if (LoadAcquire(view_.host_page().resets) != resets) return false;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kCallPollNs));
  }
  return true;
}

std::uint64_t InProcessGuest::notifications() const {
  return bell_.rung();
}

bool InProcessGuest::WaitForNotification(std::uint64_t seen, std::uint64_t timeout_ns) {
  return bell_.Wait(seen, timeout_ns);
}

void InProcessGuest::Pause() {
  MutexLock lock(visiting_);
  if (!paused_ && worker_ != nullptr) worker_->Detach(channel_, kick_.get());
  paused_ = true;
}

void InProcessGuest::Resume() {
  {
    MutexLock lock(visiting_);
    paused_ = false;
  }
  if (worker_ != nullptr) {
    worker_->Attach(channel_, weight_, kick_.get(), {}).value();
  } else {
    ExecuteInCaller();
  }
}

// The channel belongs to its worker, so these hand it over first.
void InProcessGuest::Freeze() {
  Pause();
  channel_.Freeze();
  Resume();
}

void InProcessGuest::Thaw() {
  Pause();
  channel_.Thaw();
  Resume();
}

// ---- bell -------------------------------------------------------------------------------------

void InProcessGuest::Bell::Ring() {
  {
    MutexLock lock(mutex_);
    ++rung_;
  }
  changed_.NotifyAll();
  if (notify_) notify_();
}

std::uint64_t InProcessGuest::Bell::rung() const {
  MutexLock lock(mutex_);
  return rung_;
}

bool InProcessGuest::Bell::Wait(std::uint64_t seen, std::uint64_t timeout_ns) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::nanoseconds(static_cast<std::int64_t>(timeout_ns));
  MutexLock lock(mutex_);
  while (rung_ == seen) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    (void)changed_.WaitFor(mutex_, static_cast<std::uint64_t>(left.count()));
  }
  return true;
}

}  // namespace tmem
