// SPDX-License-Identifier: GPL-2.0-only
// The guest's side of the hypercall doorbell: a window in the memory of a micro-guest, written by
// the VMM, handed over by hypercalls of its vCPU.
#ifndef TESTS_KVM_WINDOW_GUEST_H_
#define TESTS_KVM_WINDOW_GUEST_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/window/test_guest.h"
#include "host-store/window/window_view.h"
#include "tests/kvm/vm.h"

namespace tmem {

// A small window: 2 key lanes, so that a key's lane still matters.
tmem_geometry SmallGeometry();

// A list of pages in guest memory, at the address that a registration names.
constexpr std::uint64_t kPageListAddress = kFirstFree;
constexpr std::uint64_t kWindowAddress = 1u << 20;

// Answer of any operation but NEGOTIATE without its tag; what has none fails the test.
tmem_hypercall_answer AnswerOf(const CallOutcome& outcome);
const char* ToString(tmem_hypercall_answer answer);

// Not thread-safe. The pages of the window lie scattered in guest memory; `view` shows them in
// order.
class WindowGuest {
 public:
  WindowGuest(const Vm& vm, Vcpu& vcpu, const tmem_geometry& geometry = SmallGeometry(),
              std::uint64_t address = kWindowAddress);
  ~WindowGuest();
  WindowGuest(const WindowGuest&) = delete;
  WindowGuest& operator=(const WindowGuest&) = delete;

  const WindowView& view() const { return *view_; }
  tmem_geometry& geometry_in_window() const;
  // The list as it stands in guest memory; the test may spoil it.
  std::uint64_t* page_list() const { return list_; }
  std::uint64_t pages() const { return pages_; }

  // One hypercall.
  CallOutcome Hypercall(tmem_hypercall operation, std::uint64_t rcx = 0, std::uint64_t rdx = 0);
  tmem_hypercall_answer Do(tmem_hypercall operation, std::uint64_t rcx = 0, std::uint64_t rdx = 0) {
    return AnswerOf(Hypercall(operation, rcx, rdx));
  }

  // Writes a new request into the window, with lane counters back at 0.
  void PrepareRegistration(std::uint64_t features = TMEM_FEATURE_EPHEMERAL |
                                                    TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL);
  tmem_hypercall_answer Register() { return Do(TMEM_HC_REGISTER, kPageListAddress, pages_); }
  // Again while it is PENDING, for at most half a minute.
  tmem_hypercall_answer RegisterAndWait();
  tmem_hypercall_answer Kick(std::uint64_t lanes) { return Do(TMEM_HC_KICK, lanes); }
  tmem_hypercall_answer CallOnce(std::uint64_t lanes) { return Do(TMEM_HC_CALL, lanes); }
  tmem_hypercall_answer CallAndWait(std::uint64_t lanes);
  std::uint64_t all_lanes() const { return (1ull << view_->lane_count()) - 1; }

  // A guest that speaks the whole protocol over this window; each ring is a REGISTER or a CALL of
  // all lanes until it is answered. One at a time.
  TestGuest& speaker();
  // The next one begins with counters of 0, as after a registration.
  void ForgetSpeaker() { speaker_.reset(); }
  tmem_hypercall_answer last_answer() const { return last_answer_; }

 private:
  const Vm& vm_;
  Vcpu& vcpu_;
  std::uint64_t pages_;
  std::uint64_t* list_;
  std::byte* mapped_ = nullptr;
  std::optional<WindowView> view_;
  std::optional<TestGuest> speaker_;
  tmem_hypercall_answer last_answer_ = TMEM_HC_OK;
  std::uint64_t next_request_ = 1;
};

}  // namespace tmem

#endif  // TESTS_KVM_WINDOW_GUEST_H_
