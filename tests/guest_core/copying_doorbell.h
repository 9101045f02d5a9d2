// SPDX-License-Identifier: GPL-2.0-only
// A double of the host's kernel module: the hypercall doorbell between a guest's own window and a
// channel, which is the window that a daemon serves. It does what abi/README.md section 10 says.
#ifndef TESTS_GUEST_CORE_COPYING_DOORBELL_H_
#define TESTS_GUEST_CORE_COPYING_DOORBELL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/base/mutex.h"

namespace tmem {

// Thread rule: all from any thread. Only who is in Enter writes the guest's window.
class CopyingDoorbell {
 public:
  // What a daemon has accepted: a window of the same geometry, and how to kick it.
  struct Channel {
    void* window = nullptr;
    std::function<void()> kick;
  };
  // Hypercalls by what they were or answered, pages by where they went.
  struct Counts {
    std::uint64_t registers = 0, kicks = 0, calls = 0, pendings = 0;
    std::uint64_t pages_in = 0, pages_out = 0, torn_down = 0;
  };

  // Pages of the guest that one hypercall may write.
  static constexpr std::uint32_t kMaxPagesWritten = 60;

  // The guest's window has this geometry, written as the guest would.
  explicit CopyingDoorbell(const tmem_geometry& geometry);

  void* window() { return memory_.get(); }
  std::uint64_t window_bytes() const { return geometry_.window_bytes; }
  tmem_lane_head& guest_head(std::uint32_t lane);

  // Whoever registers next gets this channel.
  void Accept(Channel channel) TMEM_EXCLUDES(mutex_);
  // The daemon is gone: GONE, whatever the guest asks. Afterwards nobody uses the channel.
  void End() TMEM_EXCLUDES(mutex_);
  // The guest's memory is that of another VM now, which is not registered.
  void Restore() TMEM_EXCLUDES(mutex_);
  // The next so many REGISTER and CALL do not even look.
  void PendNext(std::uint32_t hypercalls) TMEM_EXCLUDES(mutex_);

  // The hypercall. Returns enum tmem_hypercall_answer.
  std::uint32_t Enter(tmem_hypercall operation, std::uint64_t lanes) TMEM_EXCLUDES(mutex_);

  Counts counts() const TMEM_EXCLUDES(mutex_);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  // The module's own copies: descriptors taken from the guest, and given back to it.
  struct Lane {
    std::uint64_t taken = 0;
    std::uint64_t returned = 0;
  };
  enum class State { kNotRegistered, kRegistered, kGone };

  std::uint32_t EntriesOf(std::uint32_t lane) const;
  std::uint32_t SlotsOf(std::uint32_t lane) const;
  std::byte* At(void* window, std::uint32_t lane, std::uint64_t offset) const;
  tmem_lane_head& HeadAt(void* window, std::uint32_t lane) const;
  tmem_desc& DescAt(void* window, std::uint32_t lane, std::uint64_t entry) const;
  std::byte* SlotAt(void* window, std::uint32_t lane, std::uint64_t slot) const;

  std::uint32_t Register() TMEM_EXCLUDES(mutex_);
  bool AnsweredLocked(std::uint64_t request) TMEM_REQUIRES(mutex_);
  std::uint32_t HandOver(tmem_hypercall operation, std::uint64_t lanes) TMEM_EXCLUDES(mutex_);
  std::uint32_t RefusalLocked() const TMEM_REQUIRES(mutex_);
  bool TakeLaneLocked(std::uint32_t lane) TMEM_REQUIRES(mutex_);
  bool ReturnLanesLocked(std::uint64_t lanes) TMEM_REQUIRES(mutex_);
  bool ReturnLaneLocked(std::uint32_t lane, std::uint32_t& pages) TMEM_REQUIRES(mutex_);
  void CopyHostPageLocked() TMEM_REQUIRES(mutex_);
  bool TakePendingLocked() TMEM_REQUIRES(mutex_);

  const tmem_geometry geometry_;
  std::unique_ptr<void, Free> memory_;
  mutable Mutex mutex_;
  Channel channel_ TMEM_GUARDED_BY(mutex_);
  State state_ TMEM_GUARDED_BY(mutex_) = State::kNotRegistered;
  std::uint64_t registration_ TMEM_GUARDED_BY(mutex_) = 0;
  std::uint64_t request_ TMEM_GUARDED_BY(mutex_) = 0;
  std::vector<Lane> lanes_ TMEM_GUARDED_BY(mutex_);
  std::uint32_t pend_next_ TMEM_GUARDED_BY(mutex_) = 0;
  Counts counts_ TMEM_GUARDED_BY(mutex_);
};

}  // namespace tmem

#endif  // TESTS_GUEST_CORE_COPYING_DOORBELL_H_
