// SPDX-License-Identifier: GPL-2.0-only
// A guest with a timer and a worker on a real store in this process.
#include "tests/guest_core/live_guest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "host-store/window/geometry.h"

namespace tmem {
namespace {

void CopyPage(void* to, const void* from) {
  std::memcpy(to, from, TMEM_PAGE_BYTES);
}

}  // namespace

// The ticker is soon enough.
const tmem_client_ops LiveGuest::kMemoryOps = {
    .ring = RingHost,
    .hypercall = nullptr,
    .kick_soon = [](void*) {},
    .kick_later = [](void*) {},
    .shrink_soon = nullptr,
    .copy_page = CopyPage,
};

const tmem_client_ops LiveGuest::kHypercallOps = {
    .ring = nullptr,
    .hypercall = EnterHost,
    .kick_soon = [](void*) {},
    .kick_later = [](void*) {},
    .shrink_soon = nullptr,
    .copy_page = CopyPage,
};

LiveGuest::LiveGuest(DoorbellKind kind, std::uint64_t limit_bytes) : limit_bytes_(limit_bytes) {
  if (kind == DoorbellKind::kHypercall) {
    doorbell_ = std::make_unique<CopyingDoorbell>(MakeGeometry({}).value());
  }
  ConnectTo(CreateHost());
  CreateClient();
  connected_.store(true, std::memory_order_release);
  EXPECT_EQ(tmem_client_register(&client_), 0);
  ticker_ = std::thread([this] { Tick(); });
}

LiveGuest::~LiveGuest() {
  stopping_.store(true);
  ticker_.join();
  connected_.store(false);
  if (by_hypercall()) doorbell_->End();
  channel_.reset();
  tmem_client_destroy(&client_);
}

void LiveGuest::CreateClient() {
  tmem_client_options options{};
  options.ops = by_hypercall() ? &kHypercallOps : &kMemoryOps;
  options.context = this;
  options.table_keys = 4096;
  options.get_timeout_ns = 50 * TMEM_NS_PER_MS;
  options.load_timeout_ns = 60 * TMEM_NS_PER_S;
  options.spin_ns = 20 * TMEM_NS_PER_US;
  options.spin_page_ns = 4 * TMEM_NS_PER_US;
  options.probe_ns = 5 * TMEM_NS_PER_MS;  // sooner than in a guest
  void* const window =
      by_hypercall() ? doorbell_->window() : static_cast<void*>(channel_->window().data());
  EXPECT_EQ(tmem_client_create(&client_, &options, window, channel_->window().size()), 0);
}

std::unique_ptr<InProcessHost> LiveGuest::CreateHost() {
  InProcessOptions options{};
  options.store.limit_bytes = limit_bytes_;
  options.store.pool_min_bytes = limit_bytes_ / 2;
  options.store.seed = ++seed_;
  options.workers = 1;
  return InProcessHost::Create(options, clock_).value();
}

void LiveGuest::ConnectTo(std::unique_ptr<InProcessHost> host) {
  host_ = std::move(host);
  auto channel = host_->Connect({.name = "guest", .domain = ""}, [this] { Notified(); }).value();
  InProcessGuest* const raw = channel.get();
  {
    MutexLock lock(channel_mutex_);
    channel_ = std::move(channel);
  }
  if (by_hypercall()) doorbell_->Accept({raw->window().data(), [raw] { raw->Kick(); }});
}

void LiveGuest::ReplaceHost(std::chrono::milliseconds delay) {
  if (by_hypercall()) doorbell_->End();
  WindowMemory window = LeaveHost();
  std::this_thread::sleep_for(delay);
  if (by_hypercall()) {
    ConnectTo(CreateHost());
  } else {
    AdoptBy(CreateHost(), std::move(window));
  }
}

void LiveGuest::RestoreOnNewHost() {
  MutexLock lock(running_);
  if (by_hypercall()) {
    doorbell_->Restore();
    (void)LeaveHost();
    ConnectTo(CreateHost());
  } else {
    RestoreWindow();
  }
}

// The new host runs meanwhile, so that words are restored one by one.
void LiveGuest::RestoreWindow() {
  WindowMemory window = LeaveHost();
  auto* const words = reinterpret_cast<std::uint64_t*>(window.data());
  const std::vector<std::uint64_t> saved(words, words + window.bytes() / sizeof(*words));
  std::fill_n(words, saved.size(), 0);
  AdoptBy(CreateHost(), std::move(window));
  for (std::size_t i = 0; i < saved.size(); ++i) {
    __atomic_store_n(&words[i], saved[i], __ATOMIC_RELAXED);
  }
  channel_->Kick();
}

WindowMemory LiveGuest::LeaveHost() {
  std::unique_ptr<InProcessGuest> old;
  {
    MutexLock lock(channel_mutex_);
    old = std::move(channel_);
  }
  WindowMemory window = InProcessGuest::Leave(std::move(old));
  host_.reset();
  return window;
}

void LiveGuest::AdoptBy(std::unique_ptr<InProcessHost> host, WindowMemory window) {
  host_ = std::move(host);
  auto adopted =
      host_->Adopt({.name = "guest", .domain = ""}, std::move(window), [this] { Notified(); })
          .value();
  MutexLock lock(channel_mutex_);
  channel_ = std::move(adopted);
}

void LiveGuest::RingHost(void* context) {
  LiveGuest* self = Self(context);
  MutexLock lock(self->channel_mutex_);
  if (self->channel_) self->channel_->Kick();
}

std::uint32_t LiveGuest::EnterHost(void* context, tmem_hypercall operation, std::uint64_t lanes) {
  return Self(context)->doorbell_->Enter(operation, lanes);
}

// By hypercall nobody notifies a guest.
void LiveGuest::Notified() {
  if (by_hypercall() || !connected_.load(std::memory_order_acquire)) return;
  if (tmem_client_interrupt(&client_)) work_.store(true);
}

void LiveGuest::Tick() {
  auto work_again = std::chrono::steady_clock::now();
  while (!stopping_.load()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MutexLock lock(running_);
    tmem_client_kick_later(&client_);
    const auto now = std::chrono::steady_clock::now();
    if (__atomic_load_n(&client_.wants_work, __ATOMIC_RELAXED) != 0 || work_.exchange(false) ||
        now >= work_again) {
      const u64 again_ns = tmem_client_work(&client_);
      // The probe of a lost host comes sooner here than in a guest.
      work_again =
          now + (again_ns == 0 ? std::chrono::milliseconds(500) : std::chrono::milliseconds(5));
    }
  }
}

}  // namespace tmem
