// SPDX-License-Identifier: GPL-2.0-only
// A host side that does exactly what a test says: step by step, not at all, or wrongly.
#ifndef TESTS_GUEST_CORE_FAKE_HOST_H_
#define TESTS_GUEST_CORE_FAKE_HOST_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "abi/tmem_abi.h"

namespace tmem {

struct FakeHostOptions {
  std::uint32_t key_lanes = 2;
  std::uint32_t ring_entries = 64;
  std::uint32_t lane_slots = 24;
  std::uint32_t control_slots = 0;  // without them there are no reports
  std::uint64_t credits = 1000;     // granted once there is a persistent pool
  std::uint64_t features = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL;
};

// Not synchronised: the test's thread is the host too.
class FakeHost {
 public:
  using Page = std::array<std::uint8_t, TMEM_PAGE_BYTES>;
  using PageName = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t,
                              std::uint64_t>;  // pool, object, index
  struct Stored {
    Page page;
    std::uint32_t tag;
  };

  explicit FakeHost(const FakeHostOptions& options);

  void* window() { return memory_.get(); }
  std::uint64_t window_bytes() const { return bytes_; }
  tmem_header& header() { return *static_cast<tmem_header*>(window()); }
  tmem_lane_head& head(std::uint32_t lane);

  // The doorbell: looks at everything, unless the host is stopped.
  void Ring();
  void Stop() { stopped_ = true; }
  void Start() { stopped_ = false; }
  // Executes at most `limit` descriptors of each lane, also when stopped.
  void Process(std::uint64_t limit = ~std::uint64_t{0});
  // Looks at the window and does nothing.
  void Beat() { Store(header().host.heartbeat, ++heartbeat_); }

  void EndEpoch();
  // The channel is torn down; the guest has to register again.
  void Reset();
  void Grant(std::uint64_t credits);

  // Called with each descriptor before it is executed; a status other than 0 is the answer.
  std::function<std::uint16_t(const tmem_desc&)> intercept;
  // Called after each answer to a registration.
  std::function<void()> answered;

  std::uint64_t rings() const { return rings_; }
  std::uint64_t executed(tmem_op op) const { return executed_[op]; }
  std::size_t pages() const { return pages_.size(); }
  std::map<PageName, Stored>& stored() { return pages_; }

 private:
  struct Free {
    void operator()(void* memory) const;
  };

  template <typename T>
  static void Store(T& field, T value) {
    __atomic_store_n(&field, value, __ATOMIC_RELEASE);
  }
  void AnswerRegistration();
  void StartOver();
  std::uint64_t ProcessLane(std::uint32_t lane, std::uint64_t limit);
  void Execute(std::uint32_t lane, tmem_desc& entry);
  void Put(std::uint32_t lane, tmem_desc& entry);
  void Get(std::uint32_t lane, tmem_desc& entry);
  void Flush(std::uint32_t lane, tmem_desc& entry);
  std::uint8_t* SlotPage(std::uint32_t lane, std::uint64_t slot);
  bool InLane(const PageName& name, std::uint32_t lane) const;

  FakeHostOptions options_;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<void, Free> memory_;
  bool stopped_ = false;
  bool registered_ = false;
  std::uint64_t heartbeat_ = 0;
  std::uint64_t rings_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t credits_used_ = 0;
  std::uint64_t credits_granted_ = 0;
  std::array<std::uint64_t, 32> executed_{};
  std::map<std::uint64_t, tmem_pool_kind> pools_;
  std::map<PageName, Stored> pages_;
};

}  // namespace tmem

#endif  // TESTS_GUEST_CORE_FAKE_HOST_H_
