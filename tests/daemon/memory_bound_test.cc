// SPDX-License-Identifier: GPL-2.0-only
// The hard limit holds for the whole process: with --memory-limit 64M and two guests that push 1
// GiB each, memory and windows stay below 64 MiB + 16 MiB, no promise is broken, nobody is starved.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <thread>

#include "host-store/doorbell/test_directory.h"
#include "host-store/doorbell/test_ivshmem_client.h"
#include "host-store/window/shared_memory_access.h"
#include "host-store/window/test_guest.h"
#include "tests/daemon/daemon_process.h"

namespace tmem {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
#ifdef TMEM_SANITIZED
constexpr std::uint64_t kAllowedBytes = ~std::uint64_t{0};  // shadow memory is not ours to bound
constexpr std::uint64_t kPagesPushed = 64 * kMiB / kPageBytes;  // a tenth of the speed
#else
constexpr std::uint64_t kAllowedBytes = (64 + 16) * kMiB;
constexpr std::uint64_t kPagesPushed = 1024 * kMiB / kPageBytes;
#endif
constexpr std::uint64_t kPersistentPages = 3000;

// Pages between two hand-overs: what a reclaim of this size gives.
constexpr std::uint64_t kBatch = 64;

// One guest: persistent pages as far as credits go, rewritten now and then, between a stream of
// ephemeral ones.
class Pusher {
 public:
  Pusher(const std::string& socket, std::uint64_t seed)
      : client_(TestIvshmemClient::Connect(socket).value()),
        guest_(client_.window(), [this] { client_.Kick(); }),
        seed_(seed) {}

  void Run() {
    ASSERT_EQ(guest_.Register(), TMEM_STATUS_OK);
    ephemeral_ = guest_.CreatePool(TMEM_POOL_EPHEMERAL);
    persistent_ = guest_.CreatePool(TMEM_POOL_PERSISTENT);
    ASSERT_NE(ephemeral_, 0u);
    ASSERT_NE(persistent_, 0u);
    for (std::uint64_t at = 0; at < kPagesPushed; at += kBatch) {
      for (std::uint64_t i = at; i < at + kBatch; ++i) {
        (void)guest_.StagePut({ephemeral_, i >> 12, i & 4095}, PageFor(i), 0);
        if (i % (kPagesPushed / kPersistentPages / 2) == 0) StagePersistent(i);
      }
      for (std::uint32_t lane = 0; lane < guest_.view().geometry().key_lanes; ++lane) {
        guest_.Publish(lane);
      }
    }
    for (std::uint32_t lane = 0; lane < guest_.view().geometry().key_lanes; ++lane) {
      if (guest_.posted(lane) != 0) {
        ASSERT_TRUE(guest_.WaitDone(lane, guest_.posted(lane) - 1));
      }
    }
  }

  // Every persistent page, as it was put last.
  void Verify() {
    std::uint64_t wrong = 0;
    for (const auto& [index, made_from] : promised_) {
      TestPage page;
      std::uint32_t tag = 0;
      if (guest_.Get({persistent_, 0, index}, page, &tag) != TMEM_STATUS_OK ||
          page != PageFor(made_from) || tag != static_cast<std::uint32_t>(made_from)) {
        ++wrong;
      }
    }
    EXPECT_EQ(wrong, 0u) << "of " << promised_.size();
    EXPECT_GT(promised_.size(), 500u);
  }

 private:
  // Half random, half compressible; never equal to another guest's.
  TestPage PageFor(std::uint64_t i) const {
    return MakeTestPage(seed_ * 1'000'000'007 + i,
                        i % 2 == 0 ? TestPageKind::kRandom : TestPageKind::kCompressible);
  }

  void StagePersistent(std::uint64_t made_from) {
    if (guest_.CreditsGranted() == spent_) return;  // the page would go to the swap device
    ++spent_;
    const std::uint64_t index = next_++ % kPersistentPages;
    (void)guest_.StagePut({persistent_, 0, index}, PageFor(made_from),
                          static_cast<std::uint32_t>(made_from));
    promised_[index] = made_from;
  }

  TestIvshmemClient client_;
  TestGuest guest_;
  const std::uint64_t seed_;
  std::uint64_t ephemeral_ = 0;
  std::uint64_t persistent_ = 0;
  std::uint64_t spent_ = 0;
  std::uint64_t next_ = 0;
  std::map<std::uint64_t, std::uint64_t> promised_;  // index -> what the page was made from
};

TEST(MemoryBound, TwoGuestsThatPushAGibibyteEachStayWithinTheLimit) {
  const TestDirectory directory;
  DaemonProcess daemon(directory.path(), {"--memory-limit", "64M", "--guest", "a", "--guest", "b"});
  ASSERT_TRUE(daemon.answers());
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> peak_bytes{0};
  std::thread sampler([&] {
    while (!stop.load()) {
      peak_bytes = std::max(peak_bytes.load(), MemoryBytesOf(daemon.pid()));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  Pusher a(directory.path() + "/a.sock", 1);
  Pusher b(directory.path() + "/b.sock", 2);
  std::thread thread_a([&] { a.Run(); });
  std::thread thread_b([&] { b.Run(); });
  thread_a.join();
  thread_b.join();
  a.Verify();
  b.Verify();
  stop = true;
  sampler.join();
  const auto status = daemon.Status();
  std::printf("peak %.1f MiB (allowed 80); status:\n%s\n",
              static_cast<double>(peak_bytes) / static_cast<double>(kMiB), status.dump(1).c_str());
  EXPECT_LE(peak_bytes, kAllowedBytes);
  EXPECT_LE(status["used_bytes"], status["limit_bytes"]);
  for (const auto& guest : status["guests"]) {
    EXPECT_GT(guest["ephemeral_pages"], 0) << guest["name"];
    EXPECT_EQ(guest["counters"]["gets_corrupt"], 0) << guest["name"];
    EXPECT_EQ(guest["counters"]["resets"], 0) << guest["name"];
  }
  EXPECT_EQ(daemon.Stop(SIGTERM), 0);
}

}  // namespace
}  // namespace tmem
