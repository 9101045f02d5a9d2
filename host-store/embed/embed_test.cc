// SPDX-License-Identifier: GPL-2.0-only
// The C interface as a VMM uses it, and as it should not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "host-store/embed/tmem_embed.h"
#include "host-store/window/shared_memory_access.h"
#include "host-store/window/test_guest.h"

namespace tmem {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kMiB = 1 << 20;

tmem_store_options StoreOf(std::uint64_t limit_bytes, std::uint32_t threads = 0) {
  tmem_store_options options{};
  options.version = TMEM_EMBED_VERSION;
  options.threads = threads;
  options.limit_bytes = limit_bytes;
  options.pool_min_bytes = limit_bytes / 4;
  return options;
}

tmem_guest_options GuestOf(const char* name) {
  tmem_guest_options options{};
  options.name = name;
  return options;
}

tmem_store* Create(const tmem_store_options& options) {
  tmem_store* store = nullptr;
  EXPECT_EQ(tmem_store_create(&options, &store), TMEM_ERROR_NONE) << tmem_error_details();
  return store;
}

tmem_guest* Add(tmem_store* store, const tmem_guest_options& options) {
  tmem_guest* guest = nullptr;
  EXPECT_EQ(tmem_guest_add(store, &options, &guest), TMEM_ERROR_NONE) << tmem_error_details();
  return guest;
}

TestGuest SideOf(tmem_guest* guest) {
  return TestGuest(static_cast<std::byte*>(tmem_guest_window(guest)),
                   [guest] { EXPECT_EQ(tmem_guest_kick(guest), TMEM_ERROR_NONE); });
}

std::uint64_t EphemeralPool(TestGuest& side) {
  EXPECT_EQ(side.Register(), TMEM_STATUS_OK);
  return side.CreatePool(TMEM_POOL_EPHEMERAL);
}

tmem_store_status StatusOf(const tmem_store* store) {
  tmem_store_status status{};
  EXPECT_EQ(tmem_store_read_status(store, &status), TMEM_ERROR_NONE);
  return status;
}

tmem_guest_status StatusOf(const tmem_guest* guest) {
  tmem_guest_status status{};
  EXPECT_EQ(tmem_guest_read_status(guest, &status), TMEM_ERROR_NONE);
  return status;
}

// A page-aligned piece of memory, as a VMM has it of its guest.
class GuestMemory {
 public:
  explicit GuestMemory(std::size_t bytes)
      : bytes_(bytes),
        data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~GuestMemory() { ::munmap(data_, bytes_); }
  GuestMemory(const GuestMemory&) = delete;
  GuestMemory& operator=(const GuestMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_;
};

// A store that is destroyed with the test; its guests must be gone by then.
class Embed : public testing::Test {
 protected:
  explicit Embed(std::uint32_t threads = 0) : store_(Create(StoreOf(64 * kMiB, threads))) {}
  ~Embed() override { EXPECT_EQ(tmem_store_destroy(store_), TMEM_ERROR_NONE); }

  // What adding a guest with these options answers; it must not be there.
  tmem_error Refusal(const tmem_guest_options& options) const {
    tmem_guest* guest = nullptr;
    const tmem_error error = tmem_guest_add(store_, &options, &guest);
    EXPECT_EQ(guest, nullptr);
    return error;
  }

  tmem_store* store_;
};

class EmbedThreads : public Embed, public testing::WithParamInterface<std::uint32_t> {
 protected:
  EmbedThreads() : Embed(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Threads, EmbedThreads, testing::Values(0u, 1u, 2u));

// ---- use --------------------------------------------------------------------------------------

TEST_P(EmbedThreads, PagesGoInAndComeBackAndAreCounted) {
  tmem_guest* guest = Add(store_, GuestOf("a"));
  TestGuest side = SideOf(guest);
  const std::uint64_t pool = EphemeralPool(side);
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(side.Put({pool, 1, i}, MakeTestPage(i, TestPageKind::kCompressible)), TMEM_STATUS_OK);
  }
  EXPECT_EQ(StatusOf(guest).puts, 200u);
  EXPECT_EQ(StatusOf(store_).pages, 200u);
  for (std::uint64_t i = 0; i < 200; ++i) {
    TestPage page;
    ASSERT_EQ(side.Get({pool, 1, i}, page), TMEM_STATUS_OK);
    ASSERT_EQ(page, MakeTestPage(i, TestPageKind::kCompressible));
  }
  TestPage page;
  EXPECT_EQ(side.Get({pool, 1, 0}, page), TMEM_STATUS_MISS);
  EXPECT_EQ(StatusOf(guest).hits, 200u);
  EXPECT_EQ(StatusOf(guest).misses, 1u);
  EXPECT_EQ(StatusOf(guest).ephemeral_pages, 0u);
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
}

TEST_P(EmbedThreads, CallReturnsWhenTheLanesAreDone) {
  tmem_guest* guest = Add(store_, GuestOf("a"));
  TestGuest side = SideOf(guest);
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  const std::uint64_t nop = side.Stage(3, tmem_desc{});
  StoreRelease(side.view().lane(3).head().posted, tmem_u64{1});
  EXPECT_EQ(tmem_guest_call(guest, 1u << 3, UINT64_MAX), TMEM_ERROR_NONE);
  EXPECT_EQ(side.Result(3, nop).status, TMEM_STATUS_OK);
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
}

TEST_P(EmbedThreads, AWindowOfTheVmmIsUsedAndGivenBack) {
  const GuestMemory memory(2 * kMiB);
  tmem_guest_options options = GuestOf("a");
  options.window = memory.data();
  options.window_bytes = 2 * kMiB;
  for (int round = 0; round < 2; ++round) {
    tmem_guest* guest = Add(store_, options);
    EXPECT_EQ(tmem_guest_window(guest), memory.data());
    TestGuest side = SideOf(guest);
    const std::uint64_t pool = EphemeralPool(side);
    EXPECT_EQ(side.PutFilled({pool, 1, 1}, 5), TMEM_STATUS_OK);
    EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
    memory.data()[0] = std::byte{1};  // still mapped
  }
}

TEST_P(EmbedThreads, NotifyIsCalledForWhoWaits) {
  std::atomic<int> rung{0};
  tmem_guest_options options = GuestOf("a");
  options.notify = [](void* context) { ++*static_cast<std::atomic<int>*>(context); };
  options.context = &rung;
  tmem_guest* guest = Add(store_, options);
  TestGuest side = SideOf(guest);
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  while (rung == 0) std::this_thread::yield();
  StoreRelaxed(side.view().lane(0).head().guest_waits, tmem_u32{1});
  (void)side.Do(0, tmem_desc{});
  while (rung == 1) std::this_thread::yield();
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
  EXPECT_EQ(rung, 2);
}

TEST_P(EmbedThreads, GuestsComeAndGoFromSeveralThreads) {
  std::vector<std::thread> threads;
  for (const char* name : {"a", "b", "c"}) {
    threads.emplace_back([this, name] {
      for (int round = 0; round < 5; ++round) {
        tmem_guest* guest = Add(store_, GuestOf(name));
        TestGuest side = SideOf(guest);
        const std::uint64_t pool = EphemeralPool(side);
        EXPECT_EQ(side.PutFilled({pool, 1, 1}, 5), TMEM_STATUS_OK);
        EXPECT_LE(StatusOf(store_).used_bytes, 64 * kMiB);
        EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(StatusOf(store_).pages, 0u);
}

TEST_F(Embed, EqualPagesAreSharedInsideATrustDomainOnly) {
  tmem_guest_options options = GuestOf("a");
  options.domain = "tenant";
  tmem_guest* a = Add(store_, options);
  options.name = "b";
  tmem_guest* b = Add(store_, options);
  tmem_guest* alone = Add(store_, GuestOf("tenant"));  // a guest of that name is not in it
  const TestPage page = MakeTestPage(1, TestPageKind::kRandom);
  std::uint64_t saved = 0;
  for (tmem_guest* guest : {a, alone, b}) {
    TestGuest side = SideOf(guest);
    const std::uint64_t pool = EphemeralPool(side);
    ASSERT_EQ(side.Put({pool, 1, 1}, page), TMEM_STATUS_OK);
    saved = StatusOf(store_).saved_by_dedup_bytes;
    if (guest != b) {
      EXPECT_EQ(saved, 0u);
    }
  }
  EXPECT_GT(saved, 0u);
  for (tmem_guest* guest : {a, b, alone}) EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
}

// ---- limits -----------------------------------------------------------------------------------

TEST_F(Embed, TheLimitHoldsWhateverGuestsPut) {
  tmem_guest* guest = Add(store_, GuestOf("a"));
  TestGuest side = SideOf(guest);
  const std::uint64_t pool = EphemeralPool(side);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    ASSERT_EQ(side.Put({pool, 1, i}, MakeTestPage(i, TestPageKind::kRandom)), TMEM_STATUS_OK);
  }
  EXPECT_LE(StatusOf(store_).used_bytes, StatusOf(store_).limit_bytes);
  EXPECT_GT(StatusOf(guest).evicted, 0u);
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
  EXPECT_EQ(StatusOf(store_).pages, 0u);
}

TEST(EmbedLimits, ALimitTooSmallForAnEmptyStoreIsFull) {
  const tmem_store_options options = StoreOf(4096);
  tmem_store* store = nullptr;
  EXPECT_EQ(tmem_store_create(&options, &store), TMEM_ERROR_FULL);
  EXPECT_EQ(store, nullptr);
  EXPECT_THAT(tmem_error_details(), HasSubstr("limit"));
}

TEST(EmbedLimits, AWindowThatDoesNotFitTheLimitIsFull) {
  tmem_store* store = Create(StoreOf(8 * kMiB));
  tmem_guest_options options = GuestOf("a");
  options.window_bytes = 8 * kMiB;
  tmem_guest* guest = nullptr;
  EXPECT_EQ(tmem_guest_add(store, &options, &guest), TMEM_ERROR_FULL) << tmem_error_details();
  options.window_bytes = 1 * kMiB;
  guest = Add(store, options);
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
  EXPECT_EQ(tmem_store_destroy(store), TMEM_ERROR_NONE);
}

TEST(EmbedLimits, OneGuestTooManyIsFull) {
  tmem_store_options options = StoreOf(64 * kMiB);
  options.max_guests = 1;
  tmem_store* store = Create(options);
  tmem_guest* guest = Add(store, GuestOf("a"));
  const tmem_guest_options second = GuestOf("b");
  tmem_guest* none = nullptr;
  EXPECT_EQ(tmem_guest_add(store, &second, &none), TMEM_ERROR_FULL);
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
  EXPECT_EQ(tmem_store_destroy(store), TMEM_ERROR_NONE);
}

// ---- misuse -----------------------------------------------------------------------------------

TEST_F(Embed, NullIsInvalidEverywhere) {
  const tmem_store_options store_options = StoreOf(64 * kMiB);
  const tmem_guest_options guest_options = GuestOf("a");
  tmem_store* store = nullptr;
  tmem_guest* guest = nullptr;
  EXPECT_EQ(tmem_store_create(nullptr, &store), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_store_create(&store_options, nullptr), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_store_destroy(nullptr), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_store_read_status(nullptr, nullptr), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_store_read_status(store_, nullptr), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_add(nullptr, &guest_options, &guest), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_add(store_, nullptr, &guest), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_add(store_, &guest_options, nullptr), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_remove(nullptr), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_window(nullptr), nullptr);
  EXPECT_EQ(tmem_guest_kick(nullptr), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_call(nullptr, 1, 0), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_read_status(nullptr, nullptr), TMEM_ERROR_INVALID);
}

TEST(EmbedMisuse, OptionsOfAnotherVersionOrOutOfRangeAreInvalid) {
  const std::vector<void (*)(tmem_store_options&)> wrong = {
      [](tmem_store_options& options) { options.version = 0; },
      [](tmem_store_options& options) { options.version = TMEM_EMBED_VERSION + 1; },
      [](tmem_store_options& options) { options.zero = 1; },
      [](tmem_store_options& options) { options.threads = 1000; },
      [](tmem_store_options& options) { options.max_guests = UINT32_MAX; },
      [](tmem_store_options& options) { options.limit_bytes = UINT64_MAX; },
      [](tmem_store_options& options) { options.pool_min_bytes = options.limit_bytes + 1; },
  };
  for (const auto& spoil : wrong) {
    tmem_store_options options = StoreOf(64 * kMiB);
    spoil(options);
    tmem_store* store = nullptr;
    EXPECT_EQ(tmem_store_create(&options, &store), TMEM_ERROR_INVALID);
    EXPECT_EQ(store, nullptr);
  }
}

TEST_F(Embed, AStoreWithGuestsIsInUse) {
  tmem_guest* guest = Add(store_, GuestOf("a"));
  EXPECT_EQ(tmem_store_destroy(store_), TMEM_ERROR_IN_USE);
  TestGuest side = SideOf(guest);
  EXPECT_EQ(side.Register(), TMEM_STATUS_OK);  // and goes on
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
}

TEST_F(Embed, ANameIsTakenOnce) {
  tmem_guest* guest = Add(store_, GuestOf("a"));
  EXPECT_EQ(Refusal(GuestOf("a")), TMEM_ERROR_EXISTS);
  EXPECT_THAT(tmem_error_details(), HasSubstr("a"));
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
}

TEST_F(Embed, NamesHaveALength) {
  const std::string longest(255, 'n');
  const std::string too_long(256, 'n');
  tmem_guest* guest = Add(store_, GuestOf(longest.c_str()));
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
  for (const char* name : {static_cast<const char*>(nullptr), "", too_long.c_str()}) {
    EXPECT_EQ(Refusal(GuestOf(name)), TMEM_ERROR_INVALID);
  }
  tmem_guest_options options = GuestOf("a");
  options.domain = "";
  EXPECT_EQ(Refusal(options), TMEM_ERROR_INVALID);
}

TEST_F(Embed, WindowsOfAWrongSizeOrPlaceAreInvalid) {
  const GuestMemory memory(8 * kMiB);
  for (const std::uint64_t bytes :
       {std::uint64_t{4096}, kMiB / 2, 3 * kMiB, 4 * kMiB + 4096, 512 * kMiB, ~std::uint64_t{0}}) {
    tmem_guest_options options = GuestOf("a");
    options.window_bytes = bytes;
    EXPECT_EQ(Refusal(options), TMEM_ERROR_INVALID) << bytes;
  }
  tmem_guest_options options = GuestOf("a");
  options.window = memory.data();
  EXPECT_EQ(Refusal(options), TMEM_ERROR_INVALID);  // its size is not said
  options.window = memory.data() + 64;
  options.window_bytes = 4 * kMiB;
  EXPECT_EQ(Refusal(options), TMEM_ERROR_INVALID);
  EXPECT_THAT(tmem_error_details(), HasSubstr("page"));
}

TEST_F(Embed, LanesThatAreNotThereAreInvalid) {
  tmem_guest* guest = Add(store_, GuestOf("a"));
  EXPECT_EQ(tmem_guest_call(guest, 1u << 9, 0), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_call(guest, std::uint64_t{1} << 63, 0), TMEM_ERROR_INVALID);
  EXPECT_EQ(tmem_guest_call(guest, (1u << 9) - 1, 0), TMEM_ERROR_NONE);  // nothing is posted
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
}

// A guest that posts before it has registered is not served; one with wrong counters is reset.
TEST_F(Embed, AGuestInTheWrongOrderWaitsInVain) {
  tmem_guest* guest = Add(store_, GuestOf("a"));
  TestGuest side = SideOf(guest);
  StoreRelease(side.view().lane(0).head().posted, tmem_u64{1});
  EXPECT_EQ(tmem_guest_call(guest, 1, kSecondNs / 100), TMEM_ERROR_NOT_DONE);
  EXPECT_THAT(tmem_error_details(), HasSubstr("time"));
  ASSERT_EQ(side.Register(), TMEM_STATUS_OK);
  StoreRelease(side.view().lane(0).head().posted, tmem_u64{1} << 40);
  EXPECT_EQ(tmem_guest_call(guest, 1, 60 * kSecondNs), TMEM_ERROR_NOT_DONE);
  EXPECT_EQ(StatusOf(guest).resets, 1u);
  EXPECT_EQ(tmem_guest_remove(guest), TMEM_ERROR_NONE);
}

TEST(EmbedMisuse, EveryErrorHasAName) {
  for (int error = TMEM_ERROR_NONE; error <= TMEM_ERROR_SYSTEM; ++error) {
    EXPECT_STRNE(tmem_error_name(static_cast<tmem_error>(error)), "unknown error");
  }
  EXPECT_STREQ(tmem_error_name(static_cast<tmem_error>(7)), "unknown error");
}

TEST(EmbedMisuse, DetailsAreOfTheirThread) {
  EXPECT_EQ(tmem_guest_kick(nullptr), TMEM_ERROR_INVALID);
  const std::string here = tmem_error_details();
  std::thread([] {
    EXPECT_STREQ(tmem_error_details(), "");
    EXPECT_EQ(tmem_store_create(nullptr, nullptr), TMEM_ERROR_INVALID);
  }).join();
  EXPECT_EQ(tmem_error_details(), here);
  EXPECT_THAT(here, HasSubstr("NULL"));
}

}  // namespace
}  // namespace tmem
