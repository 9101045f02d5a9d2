// SPDX-License-Identifier: GPL-2.0-only
// Drops a guest's free memory by punching holes into the file behind its RAM.
#ifndef HOST_STORE_DOORBELL_RAM_PUNCHER_H_
#define HOST_STORE_DOORBELL_RAM_PUNCHER_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "host-store/base/mutex.h"
#include "host-store/base/result.h"
#include "host-store/doorbell/guest_ram.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/window/report_sink.h"

namespace tmem {

// A piece of the file that goes in one system call, and the ranges of the report that lie in it.
struct PunchPiece {
  FileRange range;
  std::vector<std::size_t> ranges;
};

// What is to be punched for a report: what cannot be is answered BAD_RANGE in `statuses`; the rest,
// in the order of the file, neighbours merged. A range is never split here, so a huge page is not
// either unless the guest reported part of it [R2]. Pure.
std::vector<PunchPiece> PlanPunches(const std::vector<tmem_report_range>& ranges, const RamMap& map,
                                    std::vector<tmem_status>& statuses);

// The beginning of it that goes in one system call: all of it up to kMaxPieceBytes, else so much
// that what is left begins with a huge page [R2]. Pure.
FileRange FirstPunch(const FileRange& range);

// One connection of one guest. The file is opened when the first report comes (QEMU creates it
// after it has connected), and whether it may be punched is asked at every report.
//
// Thread rule: as ReportSink says; the file is touched by a thread of its own only. Costs a thread
// that sleeps.
class RamPuncher final : public ReportSink {
 public:
  // In one system call, so that Cancel does not wait for long: neighbours are merged up to here,
  // and what a guest reports as one is split. A huge page takes 0.1 ms on hardware, milliseconds
  // under emulation.
  static constexpr std::uint64_t kMaxPieceBytes = std::uint64_t{32} << 20;

  struct Handlers {
    std::function<void()> on_ready;                      // in its thread
    std::function<void(const std::string&)> on_refused;  // in its thread: why
  };

  // `vmm`: the process that maps the file.
  RamPuncher(RamConfig config, pid_t vmm, Handlers handlers);
  ~RamPuncher() override;
  RamPuncher(const RamPuncher&) = delete;
  RamPuncher& operator=(const RamPuncher&) = delete;

  void Begin(std::vector<tmem_report_range> ranges) override TMEM_EXCLUDES(mutex_);
  bool Ready() const override { return ready_.load(std::memory_order_acquire); }
  Outcome Take() override TMEM_EXCLUDES(mutex_);
  void Cancel() override TMEM_EXCLUDES(mutex_);

 private:
  void Run() TMEM_EXCLUDES(mutex_);
  Outcome Work(const std::vector<tmem_report_range>& ranges);
  Result<std::uint64_t> OpenAndCheck();
  bool Punch(FileRange left) const;

  const RamConfig config_;
  const pid_t vmm_;
  const Handlers handlers_;
  UniqueFd file_;  // of its thread

  std::atomic<bool> cancelled_{false};
  std::atomic<bool> ready_{false};
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ TMEM_GUARDED_BY(mutex_) = false;
  bool busy_ TMEM_GUARDED_BY(mutex_) = false;
  std::vector<tmem_report_range> ranges_ TMEM_GUARDED_BY(mutex_);
  Outcome outcome_ TMEM_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace tmem

#endif  // HOST_STORE_DOORBELL_RAM_PUNCHER_H_
