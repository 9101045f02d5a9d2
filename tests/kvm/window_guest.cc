// SPDX-License-Identifier: GPL-2.0-only
// A window in guest memory and the hypercalls that hand it over.
#include "tests/kvm/window_guest.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <system_error>

#include "host-store/window/geometry.h"
#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::chrono::seconds kPatience{30};

tmem_hypercall_answer WhilePending(const std::function<tmem_hypercall_answer()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  tmem_hypercall_answer answer = TMEM_HC_PENDING;
  while (answer == TMEM_HC_PENDING && std::chrono::steady_clock::now() - begin < kPatience) {
    answer = call();
  }
  return answer;
}

}  // namespace

tmem_geometry SmallGeometry() {
  WindowOptions options;
  options.window_bytes = 256u << 10;
  options.key_lanes = 2;
  options.ring_entries = 64;
  options.lane_slots = 24;
  options.control_ring_entries = 16;
  options.control_slots = 4;
  return *MakeGeometry(options);
}

tmem_hypercall_answer AnswerOf(const CallOutcome& outcome) {
  const std::uint64_t answer = outcome.rax() ^ TMEM_HC_TAG;
  EXPECT_LE(answer, TMEM_HC_BAD_VERSION) << "rax is " << std::hex << outcome.rax();
  EXPECT_EQ(outcome.exit_reason, std::uint32_t{KVM_EXIT_IO});
  return static_cast<tmem_hypercall_answer>(answer);
}

const char* ToString(tmem_hypercall_answer answer) {
  switch (answer) {
    case TMEM_HC_OK: return "OK";
    case TMEM_HC_PENDING: return "PENDING";
    case TMEM_HC_GONE: return "GONE";
    case TMEM_HC_NOT_REGISTERED: return "NOT_REGISTERED";
    case TMEM_HC_BAD_ARGUMENT: return "BAD_ARGUMENT";
    case TMEM_HC_BAD_ADDRESS: return "BAD_ADDRESS";
    case TMEM_HC_REFUSED: return "REFUSED";
    case TMEM_HC_BAD_VERSION: return "BAD_VERSION";
  }
  return "?";
}

WindowGuest::WindowGuest(const Vm& vm, Vcpu& vcpu, const tmem_geometry& geometry,
                         std::uint64_t address)
    : vm_(vm),
      vcpu_(vcpu),
      pages_(geometry.window_bytes / kPage),
      list_(reinterpret_cast<std::uint64_t*>(vm.ram() + kPageListAddress)) {
  // Backwards in guest memory, so that no two neighbours are neighbours there.
  void* place =
      ::mmap(nullptr, geometry.window_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  mapped_ = static_cast<std::byte*>(place);
  for (std::uint64_t page = 0; page < pages_; ++page) {
    list_[page] = address + (pages_ - 1 - page) * kPage;
    if (::mmap(mapped_ + page * kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               vm_.memory_fd(), static_cast<off_t>(list_[page])) == MAP_FAILED) {
      throw std::system_error(errno, std::generic_category(), "mmap of a window page");
    }
  }
  view_.emplace(mapped_, geometry);
  view_->PublishGeometry();
}

WindowGuest::~WindowGuest() {
  ::munmap(mapped_, pages_ * kPage);
}

tmem_geometry& WindowGuest::geometry_in_window() const {
  return reinterpret_cast<tmem_header*>(mapped_)->geometry;
}

CallOutcome WindowGuest::Hypercall(tmem_hypercall operation, std::uint64_t rcx, std::uint64_t rdx) {
  return vcpu_.Make({TMEM_HYPERCALL_DEFAULT, operation, rcx, rdx, 0});
}

void WindowGuest::PrepareRegistration(std::uint64_t features) {
  tmem_guest_page& page = view_->guest_page();
  page = {};
  page.boot_id[0] = 0x1234;
  page.features_chosen = features;
  page.version_chosen = TMEM_ABI_VERSION;
  page.register_request = next_request_++ << 32 | 1;
  for (std::uint32_t lane = 0; lane < view_->lane_count(); ++lane) {
    StoreRelaxed(view_->lane(lane).head().posted, tmem_u64{0});
  }
}

tmem_hypercall_answer WindowGuest::RegisterAndWait() {
  return WhilePending([this] { return Register(); });
}

tmem_hypercall_answer WindowGuest::CallAndWait(std::uint64_t lanes) {
  return WhilePending([this, lanes] { return CallOnce(lanes); });
}

TestGuest& WindowGuest::speaker() {
  if (!speaker_) {
    speaker_.emplace(mapped_, [this] {
      const std::uint64_t request = LoadRelaxed(view_->guest_page().register_request);
      const bool registers = LoadRelaxed(view_->host_page().register_answer) != request;
      last_answer_ = registers ? RegisterAndWait() : CallAndWait(all_lanes());
    });
  }
  return *speaker_;
}

}  // namespace tmem
