// SPDX-License-Identifier: GPL-2.0-only
// The thread that punches.
#include "host-store/doorbell/ram_puncher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tmem {
namespace {

std::uint64_t ThreadCpuNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

constexpr std::uint64_t kHugePageBytes = std::uint64_t{2} << 20;

bool IsPlain(const tmem_report_range& range) {
  return range.status == 0 && range.zero0 == 0 && range.zero1 == 0;
}

}  // namespace

std::vector<PunchPiece> PlanPunches(const std::vector<tmem_report_range>& ranges, const RamMap& map,
                                    std::vector<tmem_status>& statuses) {
  std::vector<PunchPiece> pieces;
  statuses.assign(ranges.size(), TMEM_STATUS_BAD_RANGE);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const auto place = map.Locate(ranges[i].address, ranges[i].bytes);
    if (!place || !IsPlain(ranges[i])) continue;
    statuses[i] = TMEM_STATUS_NONE;
    pieces.push_back({*place, {i}});
  }
  std::sort(pieces.begin(), pieces.end(), [](const PunchPiece& a, const PunchPiece& b) {
    return a.range.offset < b.range.offset;
  });
  std::size_t last = 0;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    FileRange& before = pieces[last].range;
    const FileRange& next = pieces[i].range;
    // A guest that reports something twice harms nobody; it is only not merged.
    const bool merges = before.offset + before.bytes == next.offset &&
                        before.bytes + next.bytes <= RamPuncher::kMaxPieceBytes;
    if (merges) {
      before.bytes += next.bytes;
      pieces[last].ranges.push_back(pieces[i].ranges.front());
    } else if (++last != i) {
      pieces[last] = std::move(pieces[i]);
    }
  }
  if (!pieces.empty()) pieces.resize(last + 1);
  return pieces;
}

FileRange FirstPunch(const FileRange& range) {
  if (range.bytes <= RamPuncher::kMaxPieceBytes) return range;
  return {range.offset, RamPuncher::kMaxPieceBytes - range.offset % kHugePageBytes};
}

RamPuncher::RamPuncher(RamConfig config, pid_t vmm, Handlers handlers)
    : config_(std::move(config)),
      vmm_(vmm),
      handlers_(std::move(handlers)),
      thread_([this] { Run(); }) {}

RamPuncher::~RamPuncher() {
  Cancel();
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void RamPuncher::Begin(std::vector<tmem_report_range> ranges) {
  MutexLock lock(mutex_);
  ranges_ = std::move(ranges);
  busy_ = true;
  changed_.NotifyAll();
}

ReportSink::Outcome RamPuncher::Take() {
  MutexLock lock(mutex_);
  ready_.store(false, std::memory_order_relaxed);
  return std::exchange(outcome_, {});
}

void RamPuncher::Cancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  while (busy_) changed_.Wait(mutex_);
  cancelled_.store(false, std::memory_order_relaxed);
  ready_.store(false, std::memory_order_relaxed);
  outcome_ = {};
}

void RamPuncher::Run() {
  MutexLock lock(mutex_);
  for (;;) {
    while (!busy_ && !stopping_) changed_.Wait(mutex_);
    if (stopping_) return;
    const std::vector<tmem_report_range> ranges = std::exchange(ranges_, {});
    lock.Unlock();
    Outcome outcome = Work(ranges);
    lock.Lock();
    outcome_ = std::move(outcome);
    busy_ = false;
    ready_.store(true, std::memory_order_release);
    changed_.NotifyAll();
    lock.Unlock();
    handlers_.on_ready();
    lock.Lock();
  }
}

// Every step that may not be made any more refuses all that is left.
ReportSink::Outcome RamPuncher::Work(const std::vector<tmem_report_range>& ranges) {
  const std::uint64_t begin_ns = ThreadCpuNs();
  Outcome outcome;
  outcome.status = TMEM_STATUS_OK;
  const Result<std::uint64_t> ram_bytes = OpenAndCheck();
  if (!ram_bytes) {
    handlers_.on_refused(ram_bytes.error().message);
    outcome.status = TMEM_STATUS_INHIBITED;
    outcome.ranges.assign(ranges.size(), TMEM_STATUS_INHIBITED);
    outcome.cpu_ns = ThreadCpuNs() - begin_ns;
    return outcome;
  }
  const RamMap map(config_.layout, *ram_bytes);
  for (const PunchPiece& piece : PlanPunches(ranges, map, outcome.ranges)) {
    const bool done = Punch(piece.range);
    for (const std::size_t i : piece.ranges) {
      outcome.ranges[i] = done ? TMEM_STATUS_OK : TMEM_STATUS_INHIBITED;
    }
    if (done) outcome.dropped_bytes += piece.range.bytes;
  }
  outcome.cpu_ns = ThreadCpuNs() - begin_ns;
  return outcome;
}

// The bytes of RAM.
Result<std::uint64_t> RamPuncher::OpenAndCheck() {
  if (!file_.valid()) {
    file_ = UniqueFd(::open(config_.path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file_.valid()) return SystemError("the RAM file " + config_.path);
  }
  struct stat file {};
  if (::fstat(file_.get(), &file) != 0) return SystemError("fstat");
  if (!S_ISREG(file.st_mode) || file.st_size <= 0) {
    return Error{ErrorCode::kInvalidArgument, config_.path + " is no file with a guest's RAM"};
  }
  if (Result<void> may = CheckMayDrop(vmm_, file); !may) {
    // Another one may be there at the next report: QEMU had not created its own yet.
    file_.Close();
    return may.error();
  }
  return static_cast<std::uint64_t>(file.st_size);
}

// False: not all of it.
bool RamPuncher::Punch(FileRange left) const {
  while (left.bytes != 0) {
    if (cancelled_.load(std::memory_order_relaxed)) return false;
    const FileRange now = FirstPunch(left);
    const int failed = ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   static_cast<off_t>(now.offset), static_cast<off_t>(now.bytes));
    if (failed != 0 && errno == EINTR) continue;
    if (failed != 0) return false;
    left = {left.offset + now.bytes, left.bytes - now.bytes};
  }
  return true;
}

}  // namespace tmem
