// SPDX-License-Identifier: GPL-2.0-only
// tmemd's part over /dev/kvm_tmem, one step at a time, so that a test decides when what happens.
#ifndef TESTS_KVM_DAEMON_DOUBLE_H_
#define TESTS_KVM_DAEMON_DOUBLE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/doorbell/unique_fd.h"
#include "host-store/kvm_tmem/device.h"
#include "host-store/window/test_guest.h"
#include "host-store/window/window_view.h"

namespace tmem {

// One accepted guest: its window in host memory, and a map of pages behind it. Ephemeral and
// persistent pools only differ in whether a get takes the page. Not thread-safe.
class DoubleChannel {
 public:
  DoubleChannel(UniqueFd fd, UniqueFd kick_fd, std::uint64_t window_bytes);
  ~DoubleChannel();
  DoubleChannel(const DoubleChannel&) = delete;
  DoubleChannel& operator=(const DoubleChannel&) = delete;

  const WindowView& view() const { return *view_; }
  int fd() const { return fd_.get(); }

  void AnswerRegistration(tmem_status status = TMEM_STATUS_OK);
  // Descriptors that the module has handed over and that were not executed yet.
  std::uint64_t Waiting(std::uint32_t lane) const;
  // Executes and completes all of them; returns how many. Without `Notify` waiters only see it at
  // their next look.
  std::uint64_t Serve();
  void Notify() const;
  // Takes the next descriptor of a lane and answers it as told.
  tmem_desc TakeAndAnswer(std::uint32_t lane, tmem_status status, std::uint64_t value = 0);
  bool WasKicked() const;  // since the last question
  bool HasHungUp() const;
  // Of the last KVM_TMEM_SLOTS; nothing if the channel has ended.
  std::optional<std::vector<kvm_tmem_slot>> Slots() const;

 private:
  using Key = std::array<std::uint64_t, 5>;  // pool, object, index

  void Execute(std::uint32_t lane, tmem_desc& entry);
  std::uint64_t Flush(const tmem_desc& desc, std::uint32_t lane);

  UniqueFd fd_;
  UniqueFd kick_fd_;
  std::uint64_t window_bytes_;
  std::byte* memory_ = nullptr;
  std::optional<WindowView> view_;
  std::vector<std::uint64_t> done_;
  std::map<Key, TestPage> pages_;
  std::uint64_t pools_ = 0;
};

// The device, open. Throws std::system_error where it does not open (EBUSY: another one has it).
class DaemonDouble {
 public:
  DaemonDouble();

  int fd() const { return fd_.get(); }
  kvm_tmem_info Info() const;
  std::optional<kvm_tmem_guest> Next() const;
  bool IsReadable(int timeout_ms = 0) const;
  // Null if it does not wait any more.
  std::unique_ptr<DoubleChannel> Accept(const kvm_tmem_guest& guest) const;
  int Refuse(std::uint64_t channel) const;  // 0 or the error number

 private:
  UniqueFd fd_;
};

}  // namespace tmem

#endif  // TESTS_KVM_DAEMON_DOUBLE_H_
