// SPDX-License-Identifier: GPL-2.0-only
// A well-behaved guest that knows what the host must answer, and how long it waited.
#ifndef TESTS_HOSTILE_GOOD_GUEST_H_
#define TESTS_HOSTILE_GOOD_GUEST_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "host-store/base/mutex.h"
#include "host-store/doorbell/test_ivshmem_client.h"
#include "host-store/window/test_guest.h"

namespace tmem {

// What went wrong, and what was done; all but `ops` and what follows must stay 0.
struct GoodGuestReport {
  std::uint64_t wrong_bytes = 0;  // a hit that is not the last put
  std::uint64_t wrong_tags = 0;
  std::uint64_t resurrected = 0;      // a hit on a key that was flushed, taken, or never put
  std::uint64_t lost_persistent = 0;  // a promised page that is not there
  std::uint64_t refused = 0;          // an operation that was in order
  std::uint64_t unanswered = 0;       // within TestGuest's minute
  std::uint64_t ops = 0;
  std::uint64_t hits = 0;
  std::uint64_t evicted = 0;  // ephemeral pages that the host has let go, as it may
  std::uint64_t max_ns = 0;   // the longest operation

  bool clean() const {
    return wrong_bytes + wrong_tags + resurrected + lost_persistent + refused + unanswered == 0;
  }
};

// Puts, gets and flushes stamped pages of two pools in its own thread, from construction to Stop.
// Thread rule: TakeGetNs and Stop from one other thread.
class GoodGuest {
 public:
  GoodGuest(const std::string& socket, std::uint64_t seed);
  ~GoodGuest();
  GoodGuest(const GoodGuest&) = delete;
  GoodGuest& operator=(const GoodGuest&) = delete;

  // The time of each get that hit since the last call.
  std::vector<std::uint64_t> TakeGetNs() TMEM_EXCLUDES(mutex_);
  // Ends the thread, then gets every persistent page once more.
  GoodGuestReport Stop();

 private:
  struct Stored {
    std::uint64_t stamp;
    std::uint32_t tag;
  };

  void Run();
  void Step();
  void PutEphemeral(std::uint64_t index);
  void GetEphemeral(std::uint64_t index);
  void PutPersistent(std::uint64_t index);
  void GetPersistent(std::uint64_t index);
  void FlushSome(std::uint64_t pool, std::map<std::uint64_t, Stored>& model, std::uint64_t index);
  void Account(tmem_status status, std::uint64_t start_ns);
  TestPage PageFor(std::uint64_t stamp) const;

  TestIvshmemClient client_;
  TestGuest guest_;
  std::mt19937_64 random_;
  std::uint64_t ephemeral_pool_ = 0;
  std::uint64_t persistent_pool_ = 0;
  std::uint64_t credits_spent_ = 0;
  std::uint64_t stamps_ = 0;
  std::map<std::uint64_t, Stored> ephemeral_;
  std::map<std::uint64_t, Stored> persistent_;
  GoodGuestReport report_;

  Mutex mutex_;
  std::vector<std::uint64_t> get_ns_ TMEM_GUARDED_BY(mutex_);
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tmem

#endif  // TESTS_HOSTILE_GOOD_GUEST_H_
