// SPDX-License-Identifier: GPL-2.0-only
// Connects and disconnects one guest.
#include "host-store/daemon/guest_port.h"

#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <utility>

#include "host-store/daemon/size_text.h"
#include "host-store/daemon/status_json.h"

namespace tmem {
namespace {

// Pieces of a removal between two looks at the sockets: 128 pages, about 0.1 ms.
constexpr int kPiecesAtOnce = 8;

std::unique_ptr<RamPuncher> MakePuncher(const Connection& connection, const RamConfig& ram,
                                        RamPuncher::Handlers handlers) {
  if (ram.path.empty() || !ram.reports || connection.peer.doorbell != "ivshmem") return nullptr;
  // The worker that waits for the guest's rings is woken the same way.
  handlers.on_ready = [kick = connection.kick.get()] { (void)::eventfd_write(kick, 1); };
  return std::make_unique<RamPuncher>(ram, connection.peer.pid, std::move(handlers));
}

// By hypercall the module knows the guest's memory without being told.
ChannelOptions WithReports(ChannelOptions options, ReportSink* sink, const Connection& connection,
                           const RamConfig& ram) {
  options.reports = sink;
  options.module_reports = ram.reports && connection.peer.doorbell == "hypercall";
  return options;
}

}  // namespace

GuestPort::Session::Session(Store& store, GuestId id, Connection from,
                            const ChannelOptions& options, const RamConfig& ram,
                            RamPuncher::Handlers handlers)
    : connection(std::move(from)),
      puncher(MakePuncher(connection, ram, std::move(handlers))),
      channel(store, id, WindowView(connection.memory.data(), connection.geometry),
              *connection.bell, WithReports(options, puncher.get(), connection, ram)) {}

GuestPort::GuestPort(EventLoop& loop, Store& store, const Clock& clock, GuestPortOptions options,
                     PickWorker pick_worker)
    : loop_(loop),
      store_(store),
      options_(std::move(options)),
      pick_worker_(std::move(pick_worker)),
      log_limiter_(clock),
      shrink_(options_.shrink ? std::make_unique<ShrinkRequests>() : nullptr) {
  options_.channel.shrink = shrink_.get();
}

GuestPort::~GuestPort() {
  if (connected()) EndSession();
  loop_.Drop(removal_);
  if (id_) store_.RemoveGuest(*id_);
}

// ---- connections ------------------------------------------------------------------------------

Result<void> GuestPort::Connect(Connection connection) {
  if (connected()) {
    return Error{ErrorCode::kAlreadyExists,
                 "it is connected already, over " + session_->connection.peer.doorbell};
  }
  if (connection.memory.bytes() > options_.window_bytes) {
    return Error{ErrorCode::kExhausted, "its window has " + FormatSize(connection.memory.bytes()) +
                                            ", --window allows " +
                                            FormatSize(options_.window_bytes)};
  }
  if (Result<void> entered = EnterStore(); !entered) return entered;
  session_ = std::make_unique<Session>(
      store_, *id_, std::move(connection), options_.channel, options_.ram,
      RamPuncher::Handlers{.on_ready = {},
                           .on_refused = [this](const std::string& why) { OnReportRefused(why); }});
  Worker& worker = pick_worker_();
  Result<void> attached =
      worker.Attach(session_->channel, options_.guest.weight, session_->connection.kick.get(),
                    [this](Channel::Event event) { OnChannelEvent(event); });
  if (!attached) {
    EndSession();
    return attached;
  }
  session_->worker = &worker;
  ++connections_;
  if (const auto end_of_line = log_limiter_.Admit()) {
    const Peer& peer = session_->connection.peer;
    spdlog::info("guest {}: connected over {} by process {} (uid {}){}", name(), peer.doorbell,
                 peer.pid, peer.uid, *end_of_line);
  }
  return Ok();
}

Result<void> GuestPort::EnterStore() {
  if (id_) {
    // Pages of the connection before are still on their way out, under handles that have ended.
    store_.RestartCounters(*id_);
    return Ok();
  }
  const Result<GuestId> id = store_.AddGuest(options_.guest);
  if (!id) return id.error();
  id_ = *id;
  return Ok();
}

void GuestPort::Disconnect(const std::string& reason) {
  EndSession();
  if (const auto end_of_line = log_limiter_.Admit()) {
    spdlog::info("guest {}: disconnected: {}{}", name(), reason, *end_of_line);
  }
}

void GuestPort::EndSession() {
  if (session_->worker != nullptr) {
    session_->worker->Detach(session_->channel, session_->connection.kick.get());
  }
  last_status_ = Status();
  // The process that had the window may live on and keep it.
  session_->connection.memory.Discard();
  session_.reset();
  store_.BeginResetGuest(*id_);
  if (removal_ == EventLoop::ChoreId::kNone) {
    removal_ = loop_.Begin([this] { return RemoveSome(); });
  }
}

bool GuestPort::RemoveSome() {
  for (int i = 0; i < kPiecesAtOnce; ++i) {
    if (store_.Reap(*id_, removed_)) continue;
    removal_ = EventLoop::ChoreId::kNone;
    if (connected()) return false;  // again, and with nothing of what it had
    store_.RemoveGuest(*id_);       // what is left of it is small
    id_.reset();
    return false;
  }
  return true;
}

// ---- what the operator asks -------------------------------------------------------------------

Result<void> GuestPort::MayAsk() const {
  if (shrink_ == nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 "not to be asked: start tmemd with --guest " + name() + ",shrink=on"};
  }
  if (!connected()) return Error{ErrorCode::kUnavailable, "not connected"};
  if (!shrink_->status().taken) {
    return Error{ErrorCode::kUnavailable, "does not take it: start the guest with tmem.shrink=1"};
  }
  return Ok();
}

void GuestPort::WakeWorker() {
  if (connected()) (void)::eventfd_write(session_->connection.kick.get(), 1);
}

Result<void> GuestPort::AskShrink(std::uint64_t pages) {
  if (Result<void> may = MayAsk(); !may) return may;
  shrink_->AskShrink(pages);
  WakeWorker();
  return Ok();
}

Result<void> GuestPort::AskDrain() {
  if (Result<void> may = MayAsk(); !may) return may;
  shrink_->AskDrain();
  WakeWorker();
  return Ok();
}

// Also of a guest that is not there: it would be asked when it comes back.
Result<void> GuestPort::EndDrain() {
  if (shrink_ == nullptr) return MayAsk();
  shrink_->EndDrain();
  WakeWorker();
  return Ok();
}

// ---- status and log ---------------------------------------------------------------------------

nlohmann::json GuestPort::Status() const {
  nlohmann::json row;
  if (connected()) {
    const Peer& peer = session_->connection.peer;
    row = GuestStatusJson(store_.StatusOf(*id_), session_->channel.counters());
    row["window_bytes"] = session_->connection.memory.bytes();
    row["doorbell"] = peer.doorbell;
    row["pid"] = peer.pid;
    row["uid"] = peer.uid;
    row["cgroup"] = peer.cgroup;
    row["label"] = peer.label;
  } else {
    row = DisconnectedGuestJson(last_status_, id_ ? store_.StatusOf(*id_) : GuestStatus{});
    row["window_bytes"] = options_.window_bytes;
    row["doorbell"] = "";
  }
  row["name"] = options_.guest.name;
  row["domain"] = options_.guest.domain;
  row["weight"] = options_.guest.weight;
  row["connected"] = connected();
  row["leaving"] = !connected() && id_.has_value();
  row["connections"] = connections_;
  if (shrink_ != nullptr) row.update(ShrinkStatusJson(shrink_->status()));
  return row;
}

std::string GuestPort::cgroup() const {
  return connected() ? session_->connection.peer.cgroup : "";
}

void GuestPort::OnChannelEvent(Channel::Event event) {
  switch (event) {
    case Channel::Event::kNone: break;
    case Channel::Event::kRegistered:
      if (const auto end_of_line = log_limiter_.Admit()) {
        spdlog::info("guest {}: registered{}", name(), *end_of_line);
      }
      break;
    case Channel::Event::kRegistrationRefused: Warn("its registration was refused"); break;
    case Channel::Event::kReset:
      Warn("channel reset: its counters do not match (rolled back or hostile)");
      break;
  }
}

void GuestPort::OnReportRefused(const std::string& why) {
  Warn("its free memory cannot be dropped: " + why);
}

void GuestPort::Warn(const std::string& text) {
  if (const auto end_of_line = log_limiter_.Admit()) {
    spdlog::warn("guest {}: {}{}", name(), text, *end_of_line);
  }
}

}  // namespace tmem
