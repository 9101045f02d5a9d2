// SPDX-License-Identifier: GPL-2.0-only
// Starts, runs and stops the parts of tmemd.
#include "host-store/daemon/daemon.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "host-store/daemon/size_text.h"
#include "host-store/daemon/status_json.h"
#include "host-store/daemon/version.h"

namespace tmem {
namespace {

// At most this many unused credits a guest: enough for 8 MiB of swap between two batches.
constexpr std::uint64_t kMaxCreditWindow = 2048;
constexpr std::uint64_t kMinCreditWindow = 16;

Result<std::uint64_t> RandomSeed() {
  std::uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) return SystemError("getrandom");
  return seed;
}

Result<void> CheckRunDir(const std::string& run_dir) {
  struct stat status {};
  if (::stat(run_dir.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return Error{ErrorCode::kNotFound, "run directory " + run_dir +
                                           " is missing: create it (mkdir -m 0755 " + run_dir +
                                           ") or give another one with --run-dir"};
  }
  if (::access(run_dir.c_str(), W_OK) != 0) return SystemError("writing in " + run_dir);
  return Ok();
}

std::uint64_t ProcessCpuNs() {
  rusage usage{};
  (void)::getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(time.tv_usec) * 1000u;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// Idle guests hold unused credits: together at most half of what there is to grant.
std::uint64_t CreditWindow(const DaemonConfig& config) {
  const std::uint64_t share = config.pool_min_bytes / TMEM_PAGE_BYTES / (2 * config.guests.size());
  return std::clamp(share, kMinCreditWindow, kMaxCreditWindow);
}

// Whatever bytes are in it: names come from requests and from the kernel.
std::string TextOf(const nlohmann::json& reply) {
  return reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string ErrorText(const std::string& text) {
  return TextOf({{"error", text}});
}

// Only digits: a stream would read -1 as the largest number.
bool ParsePages(const std::string& word, std::uint64_t& pages) {
  const char* const end = word.data() + word.size();
  const auto [rest, failed] = std::from_chars(word.data(), end, pages);
  return failed == std::errc() && rest == end;
}

bool HasRules(const DaemonConfig& config) {
  return std::any_of(config.guests.begin(), config.guests.end(),
                     [](const GuestConfig& guest) { return guest.rule.given(); });
}

// Null where there is none and none is needed.
Result<std::unique_ptr<KvmTmemDevice>> OpenDeviceAtStart(const DaemonConfig& config,
                                                         const Daemon::OpenDevice& open) {
  if (config.kvm_tmem == KvmTmemUse::kOff || !HasRules(config)) {
    return std::unique_ptr<KvmTmemDevice>();
  }
  Result<std::unique_ptr<KvmTmemDevice>> device = open();
  if (device || config.kvm_tmem == KvmTmemUse::kRequired) return device;
  return std::unique_ptr<KvmTmemDevice>();
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::Create(const DaemonConfig& config, const Clock& clock) {
  return Create(config, clock, [path = config.kvm_tmem_path] { return OpenKvmTmemDevice(path); });
}

Result<std::unique_ptr<Daemon>> Daemon::Create(const DaemonConfig& given, const Clock& clock,
                                               OpenDevice open_device) {
  if (Result<void> run_dir = CheckRunDir(given.run_dir); !run_dir) return run_dir.error();
  Result<std::unique_ptr<KvmTmemDevice>> device = OpenDeviceAtStart(given, open_device);
  if (!device) return std::move(device).error();
  std::uint64_t pool_limit_bytes = 0;
  if (*device != nullptr) {
    const Result<kvm_tmem_info> info = (*device)->Info();
    if (!info) return info.error();
    pool_limit_bytes = info->pool_limit_bytes;
  }
  const Result<DaemonConfig> config = CheckConfigWithin(given, pool_limit_bytes);
  if (!config) return config.error();
  const Result<std::uint64_t> seed = RandomSeed();
  if (!seed) return seed.error();
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  if (!loop) return std::move(loop).error();
  StoreOptions options{};
  options.limit_bytes = config->limit_bytes;
  options.pool_min_bytes = config->pool_min_bytes;
  options.overhead_bytes = config->overhead_bytes;
  options.seed = *seed;
  options.max_guests = static_cast<std::uint32_t>(config->guests.size());
  Result<std::unique_ptr<Store>> store = Store::Create(options);
  if (!store) return std::move(store).error();
  std::unique_ptr<Daemon> daemon(
      new Daemon(*config, clock, std::move(open_device), std::move(*loop), std::move(*store)));
  if (Result<void> started = daemon->Start(std::move(*device)); !started) return started.error();
  return daemon;
}

Daemon::Daemon(const DaemonConfig& config, const Clock& clock, OpenDevice open_device,
               std::unique_ptr<EventLoop> loop, std::unique_ptr<Store> store)
    : config_(config),
      clock_(clock),
      open_device_(std::move(open_device)),
      start_ns_(clock.NowNs()),
      loop_(std::move(loop)),
      store_(std::move(store)),
      limit_bytes_(config.limit_bytes) {}

Daemon::~Daemon() = default;

Result<void> Daemon::Start(std::unique_ptr<KvmTmemDevice> device) {
  // The control socket first: it tells whether another daemon serves this directory.
  Result<std::unique_ptr<ControlServer>> control =
      ControlServer::Create(*loop_, config_.run_dir + "/control.sock",
                            [this](const std::string& request) { return Answer(request); });
  if (!control && control.error().code == ErrorCode::kAlreadyExists) {
    return Error{ErrorCode::kAlreadyExists, "another tmemd serves " + config_.run_dir +
                                                ": stop it, or choose another --run-dir"};
  }
  if (!control) return std::move(control).error();
  control_ = std::move(*control);
  // Windows are paid for now, so that a guest that connects later is never refused for memory.
  const std::uint64_t windows_bytes = config_.guests.size() * config_.window.window_bytes;
  if (Result<void> reserved = store_->Reserve(windows_bytes); !reserved) return reserved;
  for (std::uint32_t i = 0; i < config_.workers; ++i) {
    Result<std::unique_ptr<Worker>> worker =
        Worker::Start(*store_, clock_, {.poll_ns = config_.poll_ns});
    if (!worker) return std::move(worker).error();
    workers_.push_back(std::move(*worker));
  }
  if (Result<void> guests = StartGuests(); !guests) return guests;
  if (Result<void> listening = Listen(std::move(device)); !listening) return listening;
  return KeepBudget();
}

Result<void> Daemon::StartGuests() {
  for (const GuestConfig& config : config_.guests) {
    GuestPortOptions options{.guest = config.guest,
                             .window_bytes = config_.window.window_bytes,
                             .channel = {},
                             .ram = config.ram,
                             .shrink = config.shrink};
    options.channel.credit_window = CreditWindow(config_);
    ports_.push_back(
        std::make_unique<GuestPort>(*loop_, *store_, clock_, std::move(options),
                                    [this]() -> Worker& { return LeastBusyWorker(); }));
    Result<std::unique_ptr<IvshmemListener>> socket =
        IvshmemListener::Create(*loop_, *ports_.back(),
                                {.socket_path = config_.run_dir + "/" + config.guest.name + ".sock",
                                 .window = config_.window,
                                 .rule = config.rule});
    if (!socket) return std::move(socket).error();
    sockets_.push_back(std::move(*socket));
  }
  return Ok();
}

Result<void> Daemon::Listen(std::unique_ptr<KvmTmemDevice> device) {
  if (config_.kvm_tmem == KvmTmemUse::kOff || !HasRules(config_)) return Ok();
  HypercallListener::Options options{
      .places = {},
      .max_window_bytes = config_.window.window_bytes,
      .open = open_device_,
      .on_pool_limit = [this](std::uint64_t bytes) { OnPoolLimit(bytes); }};
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    options.places.push_back({config_.guests[i].rule, ports_[i].get()});
  }
  Result<std::unique_ptr<HypercallListener>> listener =
      HypercallListener::Create(*loop_, clock_, std::move(options), std::move(device));
  if (!listener) return std::move(listener).error();
  hypercalls_ = std::move(*listener);
  if (store_->limit_bytes() > limit_bytes_) {
    return Error{ErrorCode::kInvalidArgument,
                 "kvm_tmem allows " + FormatSize(limit_bytes_) +
                     " (its parameter pool_limit_mb), which is less than the fixed parts of a "
                     "store of " +
                     FormatSize(config_.limit_bytes) + ": raise it or lower --memory-limit"};
  }
  return Ok();
}

Result<void> Daemon::KeepBudget() {
  if (config_.host_budget_bytes == 0) return Ok();
  const std::uint64_t reserve_bytes = BudgetReserveBytes(config_.host_budget_bytes);
  const std::uint64_t least_bytes = store_->MinLimitBytes() + reserve_bytes;
  if (config_.host_budget_bytes < least_bytes) {
    return Error{ErrorCode::kInvalidArgument,
                 "--host-budget " + FormatSize(config_.host_budget_bytes) +
                     " leaves guests nothing: --pool-min, windows, the daemon itself and a "
                     "reserve of " +
                     FormatSize(reserve_bytes) + " are " + FormatSize(least_bytes)};
  }
  HostBudget::Options options{
      .budget_bytes = config_.host_budget_bytes,
      .reserve_bytes = reserve_bytes,
      .max_limit_bytes = config_.limit_bytes,
      .cgroup_root = config_.cgroup_root.empty() ? FindCgroupRoot() : config_.cgroup_root,
      .pressure_path = config_.pressure_path,
      .vmstat_path = config_.vmstat_path,
      .places = {},
      .on_limit = [this](std::uint64_t bytes) { OnBudgetLimit(bytes); }};
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const GuestConfig& guest = config_.guests[i];
    options.places.push_back({.cgroup = guest.rule.cgroup,
                              .ram_path = guest.ram.path,
                              .memory_bytes = guest.memory_bytes,
                              .port = ports_[i].get()});
  }
  budget_ = HostBudget::Create(*loop_, *store_, clock_, std::move(options));
  return Ok();
}

void Daemon::OnPoolLimit(std::uint64_t pool_limit_bytes) {
  const std::uint64_t limit_bytes = pool_limit_bytes == 0 ? UINT64_MAX : pool_limit_bytes;
  if (limit_bytes != pool_limit_bytes_) {
    pool_limit_bytes_ = limit_bytes;
    spdlog::info("limit is now {}", FormatSize(std::min(config_.limit_bytes, limit_bytes)));
  }
  ApplyLimit();
}

void Daemon::OnBudgetLimit(std::uint64_t limit_bytes) {
  budget_limit_bytes_ = limit_bytes;
  ApplyLimit();
}

// Pages that are over it go in pieces, between two looks at the sockets.
void Daemon::ApplyLimit() {
  const std::uint64_t limit_bytes =
      std::min({config_.limit_bytes, pool_limit_bytes_, budget_limit_bytes_});
  if (limit_bytes != limit_bytes_) {
    limit_bytes_ = limit_bytes;
    store_->SetLimit(limit_bytes);
  }
  if (shrinking_ != EventLoop::ChoreId::kNone || !store_->Shrink()) return;
  shrinking_ = loop_->Begin([this] {
    if (store_->Shrink()) return true;
    shrinking_ = EventLoop::ChoreId::kNone;
    if (store_->limit_bytes() > pool_limit_bytes_) {
      spdlog::warn("what was promised to guests keeps the limit at {} for now",
                   FormatSize(store_->limit_bytes()));
    }
    return false;
  });
}

Worker& Daemon::LeastBusyWorker() {
  return **std::min_element(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) {
    return a->channels() < b->channels();
  });
}

Result<void> Daemon::Run(int signal_fd) {
  const Result<EventLoop::WatchId> watch =
      loop_->Watch(signal_fd, EPOLLIN, [this](std::uint32_t) { loop_->Stop(); });
  if (!watch) return watch.error();
  spdlog::info("{}: {} guests, limit {}, {} for swapped-out pages, {} workers, sockets in {}",
               kVersionText, config_.guests.size(), FormatSize(store_->limit_bytes()),
               FormatSize(config_.pool_min_bytes), config_.workers, config_.run_dir);
  loop_->Run();
  spdlog::info("stopping");
  return Ok();
}

// "shrink NAME PAGES", "drain NAME", "undrain NAME"; the answer is the guest's row of the status.
std::string Daemon::AnswerOfGuest(const std::string& request) {
  std::istringstream words(request);
  std::string what;
  std::string name;
  std::uint64_t pages = 0;
  words >> what >> name;
  std::string rest;
  const bool good = what == "shrink" ? words >> rest && ParsePages(rest, pages)
                                     : what == "drain" || what == "undrain";
  if (!good || words >> rest) return ErrorText("unknown request; known: status, shrink, drain");
  const auto port = std::find_if(ports_.begin(), ports_.end(),
                                 [&](const auto& each) { return each->name() == name; });
  if (port == ports_.end()) return ErrorText("there is no guest " + name);
  const Result<void> asked = what == "shrink"  ? (*port)->AskShrink(pages)
                             : what == "drain" ? (*port)->AskDrain()
                                               : (*port)->EndDrain();
  return asked ? TextOf((*port)->Status())
               : ErrorText("guest " + name + ": " + asked.error().message);
}

std::string Daemon::Answer(const std::string& request) {
  if (request != "status") return AnswerOfGuest(request);
  nlohmann::json status = StoreStatusJson(store_->Status());
  status["version"] = kVersionText;
  status["pid"] = ::getpid();
  status["uptime_ns"] = clock_.NowNs() - start_ns_;
  status["cpu_ns"] = ProcessCpuNs();
  status["workers"] = config_.workers;
  status["memory_limit_bytes"] = config_.limit_bytes;
  status["pool_limit_bytes"] = hypercalls_ != nullptr ? hypercalls_->pool_limit_bytes() : 0;
  status["refused_guests"] = hypercalls_ != nullptr ? hypercalls_->refused() : 0;
  if (budget_ != nullptr) status["budget"] = budget_->Status();
  if (hypercalls_ != nullptr) status["hypercall"] = hypercalls_->Status();
  status["guests"] = nlohmann::json::array();
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    nlohmann::json row = ports_[i]->Status();
    if (budget_ != nullptr) row.update(budget_->GuestStatus(i));
    status["guests"].push_back(std::move(row));
  }
  return TextOf(status);
}

}  // namespace tmem
