// SPDX-License-Identifier: GPL-2.0-only
// A client of a fake host, with short time limits, for tests of one rule each.
#ifndef TESTS_GUEST_CORE_CLIENT_FIXTURE_H_
#define TESTS_GUEST_CORE_CLIENT_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "tests/guest_core/core.h"
#include "tests/guest_core/fake_host.h"

namespace tmem {

class ClientFixture : public ::testing::Test {
 protected:
  using Page = FakeHost::Page;

  static constexpr std::uint64_t kTimeoutNs = 20 * TMEM_NS_PER_MS;

  void Connect(const FakeHostOptions& options = {}, std::uint32_t table_keys = 4096) {
    if (client_) tmem_client_destroy(client_.get());
    host_ = std::make_unique<FakeHost>(options);
    tmem_client_options client_options{};
    client_options.ops = &kOps;
    client_options.context = this;
    client_options.table_keys = table_keys;
    client_options.get_timeout_ns = kTimeoutNs;
    client_options.load_timeout_ns = kTimeoutNs;
    client_options.shrink = shrink_;
    client_ = std::make_unique<tmem_client>();
    ASSERT_EQ(
        tmem_client_create(client_.get(), &client_options, host_->window(), host_->window_bytes()),
        0);
    ASSERT_EQ(tmem_client_register(client_.get()), 0);
  }

  void ConnectWithPool(const FakeHostOptions& options = {}, std::uint32_t table_keys = 4096) {
    Connect(options, table_keys);
    const int pool = tmem_pool_create(client_.get(), TMEM_POOL_EPHEMERAL);
    ASSERT_GE(pool, 0);
    pool_ = static_cast<u32>(pool);
  }

  ~ClientFixture() override {
    if (client_) tmem_client_destroy(client_.get());
  }

  tmem_key Key(std::uint64_t index, std::uint64_t object = 1) const {
    return {pool_, {object, 0, 0}, index};
  }

  static Page MakePage(std::uint64_t seed) {
    Page page;
    for (std::size_t at = 0; at < page.size(); at += 8) {
      const std::uint64_t word = seed * 0x9e3779b97f4a7c15ULL + at * (seed + 1);
      std::memcpy(page.data() + at, &word, sizeof word);
    }
    return page;
  }

  void Put(std::uint64_t index, std::uint64_t seed, std::uint64_t object = 1) {
    const Page page = MakePage(seed);
    const tmem_key key = Key(index, object);
    tmem_put_page(client_.get(), &key, page.data());
  }

  // The seed's page, another one, or nothing.
  enum class Got { kMiss, kRight, kWrong };
  Got Get(std::uint64_t index, std::uint64_t seed, std::uint64_t object = 1) {
    Page page{};
    void* pages[1] = {page.data()};
    u64 hits = 0;
    const tmem_key key = Key(index, object);
    if (tmem_get_pages(client_.get(), &key, 1, pages, &hits) == 0) return Got::kMiss;
    return page == MakePage(seed) ? Got::kRight : Got::kWrong;
  }

  void FlushRange(std::uint64_t first, std::uint64_t last, std::uint64_t object = 1) {
    const tmem_key key = Key(first, object);
    tmem_flush_range(client_.get(), &key, last);
  }

  void FlushObject(std::uint64_t object = 1) {
    const u64 id[3] = {object, 0, 0};
    tmem_flush_object(client_.get(), pool_, id);
  }

  // What timer and interrupt do in a guest.
  void Kick() { tmem_client_kick(client_.get(), TMEM_KICK_OTHER); }

  // Kicks and works until nothing is wanted any more.
  void Settle() {
    for (int i = 0; i < 100; ++i) {
      Kick();
      if (client_->wants_work == 0) return;
      tmem_client_work(client_.get());
    }
    FAIL() << "the worker never comes to an end";
  }

  std::uint64_t Count(tmem_counter counter) { return tmem_client_count_of(client_.get(), counter); }

  std::unique_ptr<FakeHost> host_;
  std::unique_ptr<tmem_client> client_;
  u32 pool_ = 0;
  int soon_ = 0;
  int later_ = 0;
  int shrinks_ = 0;
  bool shrink_ = false;
  bool ringing_allowed_ = true;

 private:
  static ClientFixture* Self(void* context) { return static_cast<ClientFixture*>(context); }
  static void CopyPage(void* to, const void* from) { std::memcpy(to, from, TMEM_PAGE_BYTES); }
  static void RingHost(void* context) {
    EXPECT_TRUE(Self(context)->ringing_allowed_) << "a put or a flush must not ring";
    Self(context)->host_->Ring();
  }

  static void KickSoon(void* context) { ++Self(context)->soon_; }
  static void KickLater(void* context) { ++Self(context)->later_; }
  static void ShrinkSoon(void* context) { ++Self(context)->shrinks_; }

  static constexpr tmem_client_ops kOps = {
      .ring = RingHost,
      .hypercall = nullptr,
      .kick_soon = KickSoon,
      .kick_later = KickLater,
      .shrink_soon = ShrinkSoon,
      .copy_page = CopyPage,
  };
};

// The same with one swap area.
class SwapFixture : public ClientFixture {
 protected:
  static constexpr u32 kArea = 1;

  void ConnectSwap(tmem_pool_kind kind, std::uint64_t credits = 1000,
                   const FakeHostOptions& options = {}) {
    Connect(options);
    ASSERT_EQ(tmem_swap_start(client_.get(), kind), 0);
    ASSERT_EQ(tmem_swap_on(client_.get(), kArea, 1000), 0);
    pool_ = client_->swap.pool;
    host_->Grant(credits);
  }

  bool Store(std::uint64_t slot, std::uint64_t seed) {
    const Page page = MakePage(seed);
    return tmem_swap_store(client_.get(), kArea, slot, page.data()) == TMEM_SWAP_KEPT;
  }

  enum class Loaded { kDevice, kRight, kWrong, kError };
  Loaded Load(std::uint64_t slot, std::uint64_t seed) {
    Page page{};
    void* pages[1] = {page.data()};
    const u64 slots[1] = {slot};
    tmem_swap_loaded results[1];
    tmem_swap_load(client_.get(), kArea, 1, slots, pages, results);
    if (results[0] == TMEM_SWAP_DEVICE) return Loaded::kDevice;
    if (results[0] == TMEM_SWAP_ERROR) return Loaded::kError;
    return page == MakePage(seed) ? Loaded::kRight : Loaded::kWrong;
  }

  // Of a page that is there.
  Page LoadPage(std::uint64_t slot) {
    Page page{};
    void* pages[1] = {page.data()};
    const u64 slots[1] = {slot};
    tmem_swap_loaded results[1];
    tmem_swap_load(client_.get(), kArea, 1, slots, pages, results);
    EXPECT_EQ(results[0], TMEM_SWAP_HIT);
    return page;
  }

  void Invalidate(std::uint64_t slot, std::uint64_t count = 1) {
    tmem_swap_invalidate(client_.get(), kArea, slot, count);
  }
  void Written(std::uint64_t slot) { tmem_swap_written(client_.get(), kArea, slot, 1); }
};

}  // namespace tmem

#endif  // TESTS_GUEST_CORE_CLIENT_FIXTURE_H_
