// SPDX-License-Identifier: GPL-2.0-only
// Makes connections out of guests that wait on the device.
#include "host-store/daemon/hypercall_listener.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "host-store/daemon/size_text.h"
#include "host-store/window/geometry.h"
#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

constexpr std::uint64_t kTickNs = 1'000'000'000;

// Which epoll reports always.
constexpr std::uint32_t kOnlyHangUp = 0;

// The device stays readable while more wait.
constexpr int kGuestsAtOnce = 16;

// Text of the kernel's that somebody else may have chosen: a label, or a name in a cgroup's path.
template <std::size_t kBytes>
std::string PrintableText(const char (&text)[kBytes]) {
  std::string printable(text, ::strnlen(text, kBytes));
  std::replace_if(
      printable.begin(), printable.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return printable;
}

// A path that was cut off may be anything below what is left of it: as good as none.
std::string CgroupOf(const kvm_tmem_guest& guest) {
  return ::strnlen(guest.cgroup, sizeof guest.cgroup) < sizeof guest.cgroup
             ? PrintableText(guest.cgroup)
             : "";
}

Peer PeerOf(const kvm_tmem_guest& guest) {
  return {.doorbell = "hypercall",
          .pid = guest.tgid,
          .uid = guest.uid,
          .cgroup = CgroupOf(guest),
          .label = PrintableText(guest.label)};
}

bool IsWindowSize(std::uint64_t bytes) {
  return bytes != 0 && bytes % TMEM_PAGE_BYTES == 0 && bytes <= TMEM_MAX_WINDOW_BYTES;
}

}  // namespace

Result<std::unique_ptr<HypercallListener>> HypercallListener::Create(
    EventLoop& loop, const Clock& clock, Options options, std::unique_ptr<KvmTmemDevice> device) {
  std::unique_ptr<HypercallListener> listener(
      new HypercallListener(loop, clock, std::move(options)));
  if (Result<void> started = listener->Start(std::move(device)); !started) return started.error();
  return listener;
}

HypercallListener::HypercallListener(EventLoop& loop, const Clock& clock, Options options)
    : loop_(loop), options_(std::move(options)), log_limiter_(clock) {}

HypercallListener::~HypercallListener() {
  loop_.CancelAlarm(next_tick_);
  if (device_ != nullptr) Lose("tmemd stops");
}

Result<void> HypercallListener::Start(std::unique_ptr<KvmTmemDevice> device) {
  next_tick_ = loop_.SetAlarm(kTickNs, [this] { Tick(); });
  if (device != nullptr) return Use(std::move(device));
  Open();
  return Ok();
}

// ---- the device -------------------------------------------------------------------------------

void HypercallListener::Tick() {
  next_tick_ = loop_.SetAlarm(kTickNs, [this] { Tick(); });
  if (device_ == nullptr) {
    Open();
    return;
  }
  const Result<kvm_tmem_info> info = device_->Info();
  if (!info) {
    Lose(info.error().message);
    return;
  }
  info_ = *info;
  options_.on_pool_limit(info_.pool_limit_bytes);
}

void HypercallListener::Open() {
  Result<std::unique_ptr<KvmTmemDevice>> device = options_.open();
  if (!device) {
    Tell(device.error().message + "; looking for it once a second");
    return;
  }
  if (Result<void> used = Use(std::move(*device)); !used) Tell(used.error().message);
}

Result<void> HypercallListener::Use(std::unique_ptr<KvmTmemDevice> device) {
  const Result<kvm_tmem_info> info = device->Info();
  if (!info) return info.error();
  const Result<EventLoop::WatchId> watch =
      loop_.Watch(device->fd(), EPOLLIN, [this](std::uint32_t events) { OnDeviceReady(events); });
  if (!watch) return watch.error();
  device_ = std::move(device);
  device_watch_ = *watch;
  info_ = *info;
  Tell("open");
  options_.on_pool_limit(info_.pool_limit_bytes);
  return Ok();
}

void HypercallListener::Lose(const std::string& why) {
  while (!served_.empty()) End(served_.begin(), why);
  loop_.Unwatch(device_watch_);
  device_.reset();
  info_ = {};
  Tell(why);
}

void HypercallListener::Tell(const std::string& state) {
  if (state == state_) return;
  state_ = state;
  spdlog::info("hypercall doorbell: {}", state);
}

void HypercallListener::OnDeviceReady(std::uint32_t events) {
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    Lose("the device has ended");
    return;
  }
  for (int i = 0; i < kGuestsAtOnce; ++i) {
    const Result<std::optional<kvm_tmem_guest>> guest = device_->Next();
    if (!guest) {
      Lose(guest.error().message);
      return;
    }
    if (!*guest) return;
    Welcome(**guest);
  }
}

// ---- guests -----------------------------------------------------------------------------------

void HypercallListener::Welcome(const kvm_tmem_guest& guest) {
  const GuestPort* former = nullptr;
  for (auto served = served_.begin(); served != served_.end(); ++served) {
    if (served->vm != guest.vm) continue;
    former = served->port;
    End(served, "it registers anew");
    break;
  }
  EndThoseThatHungUp();
  Peer peer = PeerOf(guest);
  std::string why_not;
  GuestPort* const port = FindPort(peer, former, why_not);
  if (port == nullptr) {
    Refuse(guest, peer, why_not);
  } else if (!IsWindowSize(guest.window_bytes) || guest.window_bytes > options_.max_window_bytes) {
    ++window_;
    Refuse(guest, peer,
           "its window has " + FormatSize(guest.window_bytes) + ", --window allows " +
               FormatSize(options_.max_window_bytes));
  } else if (Result<void> accepted = Accept(guest, peer, *port); !accepted) {
    ++failed_;
    Refuse(guest, peer, accepted.error().message);
  }
}

GuestPort* HypercallListener::FindPort(const Peer& peer, const GuestPort* former,
                                       std::string& why_not) {
  GuestPort* found = nullptr;
  bool matches = false;
  for (const Place& place : options_.places) {
    if (!place.rule.Matches(peer)) continue;
    matches = true;
    if (place.port->connected()) continue;
    if (found == nullptr || place.port == former) found = place.port;
  }
  if (found != nullptr) return found;
  ++(matches ? busy_ : no_rule_);
  why_not = matches ? "each guest that its rule allows is connected" : "no rule of --guest matches";
  return nullptr;
}

Result<void> HypercallListener::Accept(const kvm_tmem_guest& guest, Peer peer, GuestPort& port) {
  UniqueFd kick(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!kick.valid()) return SystemError("eventfd");
  Result<KvmTmemDevice::Channel> channel = device_->Accept(guest, kick.get());
  if (!channel) return std::move(channel).error();
  const auto& header = *reinterpret_cast<const tmem_header*>(channel->memory.data());
  const tmem_geometry geometry = CopyOnce(header.geometry);
  if (Result<void> checked = CheckGeometry(geometry, channel->memory.bytes()); !checked) {
    return checked;
  }
  served_.push_back({.vm = guest.vm, .fd = std::move(channel->fd), .port = &port});
  const auto served = std::prev(served_.end());
  const Result<EventLoop::WatchId> watch =
      loop_.Watch(served->fd.get(), kOnlyHangUp,
                  [this, served](std::uint32_t) { End(served, "its channel has ended"); });
  Result<void> connected = Ok();
  if (watch) {
    served->watch = *watch;
    connected = port.Connect({.memory = std::move(channel->memory),
                              .geometry = geometry,
                              .kick = std::move(kick),
                              .bell = std::move(channel->bell),
                              .peer = std::move(peer)});
  } else {
    connected = watch.error();
  }
  if (!connected) {
    loop_.Unwatch(served->watch);
    served_.erase(served);
  }
  return connected;
}

void HypercallListener::Refuse(const kvm_tmem_guest& guest, const Peer& peer,
                               const std::string& reason) {
  device_->Refuse(guest.channel);
  if (const auto end_of_line = log_limiter_.Admit()) {
    spdlog::warn("a guest of process {} (uid {}, cgroup {}) was refused: {}{}", peer.pid, peer.uid,
                 peer.cgroup, reason, *end_of_line);
  }
}

// A guest that was started anew may be here before the end of its former channel was looked at.
void HypercallListener::EndThoseThatHungUp() {
  for (auto served = served_.begin(); served != served_.end();) {
    const auto next = std::next(served);
    pollfd channel{served->fd.get(), 0, 0};
    if (::poll(&channel, 1, 0) == 1) End(served, "its channel has ended");
    served = next;
  }
}

void HypercallListener::End(ServedIterator served, const std::string& reason) {
  loop_.Unwatch(served->watch);
  served->port->Disconnect(reason);
  served_.erase(served);  // closes the channel
}

// ---- status -----------------------------------------------------------------------------------

nlohmann::json HypercallListener::Status() const {
  return {
      {"state", state_},
      {"number", info_.hypercall},
      {"max_guests", info_.max_guests},
      {"max_window_bytes", info_.max_window_bytes},
      {"pool_limit_bytes", info_.pool_limit_bytes},
      {"connected", served_.size()},
      {"refused",
       {{"no_rule", no_rule_}, {"busy", busy_}, {"window", window_}, {"failed", failed_}}},
  };
}

}  // namespace tmem
