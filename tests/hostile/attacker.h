// SPDX-License-Identifier: GPL-2.0-only
// A guest bent on harm: its connection, its raw access to the window, and its second pair of hands.
#ifndef TESTS_HOSTILE_ATTACKER_H_
#define TESTS_HOSTILE_ATTACKER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/doorbell/test_ivshmem_client.h"
#include "host-store/window/window_view.h"

namespace tmem {

// What the second thread changes while the first one posts and the daemon reads.
enum class Scribble : std::uint8_t { kNothing, kPayloads, kDescriptors, kCounters, kHeader };

// Unlike TestGuest it checks nothing, waits only for moments, and believes no answer. Every choice
// comes from the seed. Thread rule: one thread; the scribbler is its own.
class Attacker {
 public:
  Attacker(std::string run_dir, const std::string& guest, std::uint64_t seed);
  ~Attacker();
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  // ---- an attack's time ----
  void BeginSlice(std::chrono::milliseconds length);
  // Also when the host does not answer: it has reset the channel, and a registration is due.
  bool Over() const { return unanswered_ || std::chrono::steady_clock::now() >= slice_end_; }

  // ---- connection ----
  // Both answer whether it is so afterwards; neither waits longer than a second.
  bool EnsureConnected();
  bool EnsureRegistered();
  void Disconnect();
  const TestIvshmemClient& client() const { return *client_; }
  const std::string& run_dir() const { return run_dir_; }
  const std::string& socket_path() const { return socket_path_; }

  // ---- window ----
  std::byte* window() const { return client_->window(); }
  const WindowView& view() const { return *view_; }
  std::uint32_t AnyLane() { return Below(view_->lane_count()); }
  std::uint32_t AnyKeyLane() { return Below(view_->geometry().key_lanes); }
  // Puts a descriptor into the next entry; hands over and waits a moment when the ring is full.
  void Post(std::uint32_t lane, const tmem_desc& desc);
  void Publish(std::uint32_t lane);
  void PublishAll();
  // Waits a moment for everything posted in the lane. False: not done, or the channel was reset.
  bool Drain(std::uint32_t lane);
  void DrainAll();
  // Post, publish, drain, read the answer; status NONE if there is none.
  tmem_desc Do(std::uint32_t lane, const tmem_desc& desc);
  // The guest's counter of a lane is whatever the attack made of it: a registration mends it.
  void ForgetRegistration() { registered_ = false; }
  std::uint64_t posted(std::uint32_t lane) const { return posted_[lane]; }
  void RequestRegistration(std::uint64_t features);

  // ---- material ----
  std::uint64_t Random() { return random_(); }
  std::uint32_t Below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool OneIn(std::uint32_t chances) { return Below(chances) == 0; }
  // A number of any magnitude, often at an edge.
  std::uint64_t Nasty();
  // A live pool of this kind, made if need be; 0 if the host refuses.
  std::uint64_t Pool(tmem_pool_kind kind);
  // Handles that live, that lived, and that never did.
  std::uint64_t AnyHandle();
  void RememberHandle(std::uint64_t handle);
  void ForgetPools() { ephemeral_ = persistent_ = 0; }
  // A well-formed operation on a key, and the lane it belongs to.
  tmem_desc KeyDesc(tmem_op op, std::uint64_t pool, std::uint64_t object,
                    std::uint64_t index) const;
  std::uint32_t LaneOf(const tmem_desc& desc) const;

  void StartScribbling(Scribble what) { scribble_.store(what); }
  // Returns when the second thread has its hands off the window.
  void StopScribbling();
  std::uint64_t ScribblerCpuNs();

 private:
  void ScribblerLoop(std::uint64_t seed);
  void ScribbleOnce(Scribble what, std::mt19937_64& random) const;

  const std::string run_dir_;
  const std::string socket_path_;
  std::mt19937_64 random_;
  std::chrono::steady_clock::time_point slice_end_;
  std::optional<TestIvshmemClient> client_;
  std::unique_ptr<WindowView> view_;
  std::vector<std::uint64_t> posted_;
  std::uint64_t resets_seen_ = 0;
  bool registered_ = false;
  bool unanswered_ = false;
  std::uint64_t ephemeral_ = 0;
  std::uint64_t persistent_ = 0;
  std::vector<std::uint64_t> handles_;

  std::atomic<Scribble> scribble_{Scribble::kNothing};
  std::atomic<bool> scribbling_{false};
  std::atomic<bool> stop_{false};
  std::thread scribbler_;
};

}  // namespace tmem

#endif  // TESTS_HOSTILE_ATTACKER_H_
