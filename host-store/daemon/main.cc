// SPDX-License-Identifier: GPL-2.0-only
// tmemd: process set-up around the daemon.
#include <malloc.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <variant>

#include "host-store/base/clock.h"
#include "host-store/daemon/config.h"
#include "host-store/daemon/daemon.h"
#include "host-store/doorbell/unique_fd.h"

namespace tmem {
namespace {

// The kernel should end others first: a guest that loses its pages here loses memory. Needs
// CAP_SYS_RESOURCE; without it the daemon runs as any other process.
constexpr const char* kOomScoreAdjust = "-900";

// One arena, and a fixed threshold above which memory comes from and goes back to the kernel at
// once: what is freed does not stay counted against nobody.
void BoundAllocator() {
  (void)::mallopt(M_ARENA_MAX, 1);
  (void)::mallopt(M_MMAP_THRESHOLD, 128 << 10);
  (void)::mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

void ProtectFromOomKiller() {
  if (std::FILE* file = std::fopen("/proc/self/oom_score_adj", "w"); file != nullptr) {
    (void)std::fputs(kOomScoreAdjust, file);
    (void)std::fclose(file);
  }
}

// Each guest needs four fds, each slab file one.
void RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// Before any thread starts, so that all inherit it and only the signalfd sees these.
UniqueFd BlockStopSignals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  (void)::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  (void)std::signal(SIGPIPE, SIG_IGN);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

ExitCode Main(int argc, const char* const* argv) {
  const std::variant<DaemonConfig, ExitCode> parsed = ParseCommandLine(argc, argv);
  if (const auto* code = std::get_if<ExitCode>(&parsed)) return *code;
  const auto& config = std::get<DaemonConfig>(parsed);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("tmemd"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  BoundAllocator();
  ProtectFromOomKiller();
  RaiseFileLimit();
  const UniqueFd signal_fd = BlockStopSignals();
  const SteadyClock clock;
  const Result<std::unique_ptr<Daemon>> daemon = Daemon::Create(config, clock);
  if (!daemon) {
    std::cerr << "tmemd: " << daemon.error().message << '\n';
    return daemon.error().code == ErrorCode::kAlreadyExists ? ExitCode::kInUse : ExitCode::kFailed;
  }
  const Result<void> ran = (*daemon)->Run(signal_fd.get());
  if (!ran) {
    std::cerr << "tmemd: " << ran.error().message << '\n';
    return ExitCode::kFailed;
  }
  return ExitCode::kOk;
}

}  // namespace
}  // namespace tmem

int main(int argc, char** argv) {
  return static_cast<int>(tmem::Main(argc, argv));
}
