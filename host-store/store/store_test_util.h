// SPDX-License-Identifier: GPL-2.0-only
// What the store's tests share: a small store, pages by number, and short names for calls.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "compress/same_filled.h"
#include "compress/sample_pages.h"
#include "host-store/base/clock.h"
#include "host-store/store/fault_plan.h"
#include "host-store/store/store.h"

namespace tmem {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr LaneFilter kAllLanes{0, 1};

// How much of a page is random, which decides how it is kept.
enum class Fill { kCompressible, kRandom };

// A page that no other (number, fill) gives; always the same for the same.
inline PageBytes MakePage(uint64_t number, Fill fill = Fill::kCompressible) {
  PageBytes page;
  uint64_t word = number * 2 + 1;
  for (size_t i = 0; i < kPageBytes; i += sizeof(word)) {
    // Compressible: a random word, then three that repeat.
    if (fill == Fill::kRandom || i % 32 == 0) word = tmem_mix(word, number + i);
    std::memcpy(page.data() + i, &word, sizeof(word));
  }
  std::memcpy(page.data(), &number, sizeof(number));
  return page;
}

inline StoreOptions SmallStore() {
  return {.limit_bytes = 16 * kMiB,
          .pool_min_bytes = 8 * kMiB,
          .landing_bytes = 0,
          .overhead_bytes = 0,
          .seed = 1};
}

// One store with one guest and a pool of each kind; each test adds what else it needs.
class StoreTest : public testing::Test {
 protected:
  void Open(const StoreOptions& options) {
    auto store = Store::Create(options);
    ASSERT_TRUE(store.ok()) << store.error().Describe();
    store_ = std::move(store).value();
    guest_ = AddGuest("guest");
    ephemeral_ = CreatePool(guest_, PoolKind::kEphemeral);
    persistent_ = CreatePool(guest_, PoolKind::kPersistent);
  }
  void SetUp() override { Open(SmallStore()); }
  void TearDown() override {
    if (store_ == nullptr) return;
    const Result<void> checked = store_->CheckInvariants();
    EXPECT_TRUE(checked.ok()) << checked.error().Describe();
  }

  GuestId AddGuest(const std::string& name, const std::string& domain = "") {
    auto guest = store_->AddGuest({name, domain});
    EXPECT_TRUE(guest.ok());
    return guest.ok() ? guest.value() : GuestId{0};
  }
  PoolHandle CreatePool(GuestId guest, PoolKind kind) {
    const auto made = store_->CreatePool(guest, kind);
    EXPECT_EQ(made.outcome, Outcome::kOk);
    return made.pool;
  }

  static PageKey Key(PoolHandle pool, uint64_t index, uint64_t object = 7) {
    return {pool, {{object, 0, 1}}, index};
  }
  Outcome Put(PoolHandle pool, uint64_t index, const PageBytes& page, uint32_t tag = 0) {
    return store_->Put(guest_, Key(pool, index), PageView(page), tag);
  }
  GetResult Get(PoolHandle pool, uint64_t index, PageBytes& out) {
    return Get(guest_, Key(pool, index), out);
  }
  GetResult Get(GuestId guest, const PageKey& key, PageBytes& out) {
    out.fill(std::byte{0xee});
    const GetResult result = store_->Get(guest, key, PageBuffer(out));
    if (result.outcome == Outcome::kOk && result.filled) {
      FillPage(result.fill_word, PageBuffer(out));
    }
    return result;
  }
  // A hit with these very bytes.
  void ExpectHit(PoolHandle pool, uint64_t index, const PageBytes& page) {
    PageBytes out;
    EXPECT_EQ(Get(pool, index, out).outcome, Outcome::kOk) << "index " << index;
    EXPECT_EQ(out, page) << "index " << index;
  }
  void ExpectMiss(PoolHandle pool, uint64_t index) {
    PageBytes out;
    EXPECT_EQ(Get(pool, index, out).outcome, Outcome::kMiss) << "index " << index;
  }
  void SettleAll() {
    while (store_->Settle(64) != 0) {
    }
  }

  SteadyClock clock_;
  FaultPlan faults_;
  std::unique_ptr<Store> store_;
  GuestId guest_{};
  PoolHandle ephemeral_{}, persistent_{};
};

}  // namespace tmem
