// SPDX-License-Identifier: GPL-2.0-only
// A guest side for tests: speaks the protocol of abi/README.md over a mapped window, one call at a
// time.
#ifndef HOST_STORE_WINDOW_TEST_GUEST_H_
#define HOST_STORE_WINDOW_TEST_GUEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "abi/tmem_abi.h"
#include "host-store/window/window_view.h"

namespace tmem {

using TestPage = std::array<std::byte, kPageBytes>;

struct TestKey {
  std::uint64_t pool;
  std::uint64_t object;
  std::uint64_t index;
};

// A page whose every byte depends on `seed`; random ones do not compress, the others to a third.
enum class TestPageKind : std::uint8_t { kRandom, kCompressible };
TestPage MakeTestPage(std::uint64_t seed, TestPageKind kind);

// Not thread-safe. Waits at most a minute for the host (tests run on slow, shared machines).
class TestGuest {
 public:
  // `kick` rings the host. The geometry is read from the window once, here.
  TestGuest(std::byte* window, std::function<void()> kick);

  const WindowView& view() const { return view_; }

  // Writes a registration and rings; Register also waits and returns its status (NONE: no answer).
  std::uint64_t RequestRegistration(std::uint64_t features);
  tmem_status Register(std::uint64_t features = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT |
                                                TMEM_FEATURE_FILL);

  // Fills the next entry of the lane; the host does not see it before Publish.
  std::uint64_t Stage(std::uint32_t lane, const tmem_desc& desc);
  // Stages a put in a slot of its own; may publish and wait for one to become free.
  std::uint64_t StagePut(const TestKey& key, const TestPage& page, std::uint32_t tag);
  // Hands over all that is staged in the lane; rings if the host is not awake.
  void Publish(std::uint32_t lane);
  bool IsDone(std::uint32_t lane, std::uint64_t counter) const;
  bool WaitDone(std::uint32_t lane, std::uint64_t counter);
  // The entry as the host left it. Status NONE if it was never completed.
  tmem_desc Result(std::uint32_t lane, std::uint64_t counter);
  // Stage, publish, wait.
  tmem_desc Do(std::uint32_t lane, const tmem_desc& desc);
  std::uint64_t posted(std::uint32_t lane) const { return posted_[lane]; }

  static tmem_desc KeyDesc(tmem_op op, const TestKey& key);
  std::uint32_t LaneOf(const TestKey& key) const;

  std::uint64_t CreatePool(tmem_pool_kind kind);  // the handle; 0 if refused
  tmem_status Put(const TestKey& key, const TestPage& page, std::uint32_t tag = 0);
  tmem_status PutFilled(const TestKey& key, std::uint64_t word, std::uint32_t tag = 0);
  // On OK the page is in `page`, expanded if it came as a fill word.
  tmem_status Get(const TestKey& key, TestPage& page, std::uint32_t* tag = nullptr);
  tmem_status Flush(const TestKey& key, std::uint32_t count);  // in all lanes
  std::uint64_t CreditsGranted() const;

 private:
  bool Wait(const std::function<bool()>& condition) const;

  WindowView view_;
  std::function<void()> kick_;
  std::vector<std::uint64_t> posted_;
  std::uint64_t last_request_ = 0;
};

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_TEST_GUEST_H_
