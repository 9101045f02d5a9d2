// SPDX-License-Identifier: GPL-2.0-only
// A channel over plain memory and a guest beside it, visited in the guest's own thread.
#ifndef HOST_STORE_WINDOW_CHANNEL_FIXTURE_H_
#define HOST_STORE_WINDOW_CHANNEL_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "host-store/window/channel.h"
#include "host-store/window/geometry.h"
#include "host-store/window/test_guest.h"

namespace tmem {

struct CountingBell final : GuestBell {
  void Ring() override { ++rings; }
  std::uint64_t rings = 0;
};

// A kick visits until nothing is left, unless `visit_on_kick_` is off.
class ChannelTest : public testing::Test {
 protected:
  ChannelTest()
      : store_(Store::Create(StoreOptions()).value()),
        id_(store_->AddGuest({.name = "guest", .domain = ""}).value()),
        memory_(Allocate()),
        guest_((channel_ = std::make_unique<Channel>(
                    *store_, id_, WindowView(memory_.get(), MakeGeometry(WindowOptions()).value()),
                    bell_, ChannelOptions()),
                memory_.get()),
               [this] { Kick(); }) {}

  static tmem::StoreOptions StoreOptions() {
    tmem::StoreOptions options{};
    options.limit_bytes = 64u << 20;
    options.pool_min_bytes = 32u << 20;
    options.seed = 1;
    return options;
  }

  void Kick() {
    ++kicks_;
    while (visit_on_kick_ && channel_->HasWork()) last_visit_ = channel_->Visit();
  }

  void Register(std::uint64_t features = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT |
                                         TMEM_FEATURE_FILL) {
    ASSERT_EQ(guest_.Register(features), TMEM_STATUS_OK);
  }

  const WindowView& view() const { return guest_.view(); }

  std::unique_ptr<Store> store_;
  GuestId id_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  CountingBell bell_;
  std::unique_ptr<Channel> channel_;
  TestGuest guest_;
  std::uint64_t request_ = 0;
  std::uint64_t kicks_ = 0;
  bool visit_on_kick_ = true;
  Channel::Visited last_visit_{};

 private:
  static std::unique_ptr<std::byte, decltype(&std::free)> Allocate() {
    const std::size_t bytes = WindowOptions().window_bytes;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(TMEM_PAGE_BYTES, bytes));
    std::memset(memory, 0, bytes);
    return {memory, &std::free};
  }
};

}  // namespace tmem

#endif  // HOST_STORE_WINDOW_CHANNEL_FIXTURE_H_
