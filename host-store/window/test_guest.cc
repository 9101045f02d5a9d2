// SPDX-License-Identifier: GPL-2.0-only
// The guest side of the protocol, for tests.
#include "host-store/window/test_guest.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

constexpr std::chrono::seconds kPatience{60};

std::uint64_t RandomNonZero() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

TestPage MakeTestPage(std::uint64_t seed, TestPageKind kind) {
  TestPage page;
  std::mt19937_64 random(seed);
  for (std::size_t at = 0; at < kPageBytes; at += sizeof(std::uint64_t)) {
    // Every third word is random, the others are few and repeat.
    const bool fresh = kind == TestPageKind::kRandom || at / 8 % 3 == 0;
    const std::uint64_t word = fresh ? random() : (seed & 0xff) * 0x0101010101010101u + at / 512;
    std::memcpy(page.data() + at, &word, sizeof word);
  }
  return page;
}

TestGuest::TestGuest(std::byte* window, std::function<void()> kick)
    : view_(window, CopyOnce(reinterpret_cast<const tmem_header*>(window)->geometry)),
      kick_(std::move(kick)),
      posted_(view_.lane_count(), 0) {}

bool TestGuest::Wait(const std::function<bool()>& condition) const {
  const auto start = std::chrono::steady_clock::now();
  for (int spins = 0; !condition(); ++spins) {
    if (spins < 200) {
      std::this_thread::yield();
      continue;
    }
    if (std::chrono::steady_clock::now() - start > kPatience) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

std::uint64_t TestGuest::RequestRegistration(std::uint64_t features) {
  tmem_guest_page& page = view_.guest_page();
  StoreRelaxed(page.boot_id[0], tmem_u64{RandomNonZero()});
  StoreRelaxed(page.features_chosen, tmem_u64{features});
  StoreRelaxed(page.version_chosen, tmem_u32{TMEM_ABI_VERSION});
  last_request_ = RandomNonZero();
  StoreRelease(page.register_request, tmem_u64{last_request_});
  FullFence();
  kick_();
  return last_request_;
}

tmem_status TestGuest::Register(std::uint64_t features) {
  const std::uint64_t request = RequestRegistration(features);
  const tmem_host_page& host = view_.host_page();
  if (!Wait([&] { return LoadAcquire(host.register_answer) == request; })) {
    return TMEM_STATUS_NONE;
  }
  std::fill(posted_.begin(), posted_.end(), 0);
  return static_cast<tmem_status>(LoadRelaxed(host.register_status));
}

std::uint64_t TestGuest::Stage(std::uint32_t lane, const tmem_desc& desc) {
  const std::uint64_t counter = posted_[lane]++;
  const LaneView& view = view_.lane(lane);
  if (counter >= view.ring_entries()) (void)WaitDone(lane, counter - view.ring_entries());
  view.Entry(counter) = desc;
  return counter;
}

std::uint64_t TestGuest::StagePut(const TestKey& key, const TestPage& page, std::uint32_t tag) {
  tmem_desc desc = KeyDesc(TMEM_OP_PUT, key);
  const std::uint32_t lane = LaneOf(key);
  const LaneView& view = view_.lane(lane);
  if (posted_[lane] >= view.slots() && !IsDone(lane, posted_[lane] - view.slots())) {
    Publish(lane);
    (void)WaitDone(lane, posted_[lane] - view.slots());
  }
  desc.value = posted_[lane] % view.slots();
  desc.tag = tag;
  std::memcpy(view.Slot(static_cast<std::uint32_t>(desc.value)).data(), page.data(), kPageBytes);
  return Stage(lane, desc);
}

void TestGuest::Publish(std::uint32_t lane) {
  StoreRelease(view_.lane(lane).head().posted, tmem_u64{posted_[lane]});
  FullFence();
  if (LoadRelaxed(view_.host_page().awake) == 0) kick_();
}

bool TestGuest::IsDone(std::uint32_t lane, std::uint64_t counter) const {
  return LoadAcquire(view_.lane(lane).head().done) > counter;
}

bool TestGuest::WaitDone(std::uint32_t lane, std::uint64_t counter) {
  return Wait([&] { return IsDone(lane, counter); });
}

tmem_desc TestGuest::Result(std::uint32_t lane, std::uint64_t counter) {
  if (!IsDone(lane, counter)) return tmem_desc{};
  return CopyOnce(view_.lane(lane).Entry(counter));
}

tmem_desc TestGuest::Do(std::uint32_t lane, const tmem_desc& desc) {
  const std::uint64_t counter = Stage(lane, desc);
  Publish(lane);
  (void)WaitDone(lane, counter);
  return Result(lane, counter);
}

tmem_desc TestGuest::KeyDesc(tmem_op op, const TestKey& key) {
  tmem_desc desc{};
  desc.op = static_cast<tmem_u8>(op);
  desc.pool = key.pool;
  desc.object[0] = key.object;
  desc.index = key.index;
  return desc;
}

std::uint32_t TestGuest::LaneOf(const TestKey& key) const {
  const tmem_u64 object[3] = {key.object, 0, 0};
  return tmem_lane_of(key.pool, object, key.index, view_.geometry().key_lanes);
}

std::uint64_t TestGuest::CreatePool(tmem_pool_kind kind) {
  tmem_desc desc{};
  desc.op = TMEM_OP_POOL_CREATE;
  desc.value = kind;
  const tmem_desc result = Do(view_.control_lane(), desc);
  return result.status == TMEM_STATUS_OK ? result.value : 0;
}

tmem_status TestGuest::Put(const TestKey& key, const TestPage& page, std::uint32_t tag) {
  const std::uint32_t lane = LaneOf(key);
  const std::uint64_t counter = StagePut(key, page, tag);
  Publish(lane);
  (void)WaitDone(lane, counter);
  return static_cast<tmem_status>(Result(lane, counter).status);
}

tmem_status TestGuest::PutFilled(const TestKey& key, std::uint64_t word, std::uint32_t tag) {
  tmem_desc desc = KeyDesc(TMEM_OP_PUT, key);
  desc.flags = TMEM_DESC_FILL;
  desc.value = word;
  desc.tag = tag;
  return static_cast<tmem_status>(Do(LaneOf(key), desc).status);
}

tmem_status TestGuest::Get(const TestKey& key, TestPage& page, std::uint32_t* tag) {
  tmem_desc desc = KeyDesc(TMEM_OP_GET, key);
  const std::uint32_t lane = LaneOf(key);
  const auto slot = static_cast<std::uint32_t>(posted_[lane] % view_.lane(lane).slots());
  desc.value = slot;
  const tmem_desc result = Do(lane, desc);
  if (result.status != TMEM_STATUS_OK) return static_cast<tmem_status>(result.status);
  if (tag != nullptr) *tag = result.tag;
  if ((result.flags & TMEM_DESC_FILL) != 0) {
    for (std::size_t at = 0; at < kPageBytes; at += sizeof result.value) {
      std::memcpy(page.data() + at, &result.value, sizeof result.value);
    }
  } else {
    std::memcpy(page.data(), view_.lane(lane).Slot(slot).data(), kPageBytes);
  }
  return TMEM_STATUS_OK;
}

tmem_status TestGuest::Flush(const TestKey& key, std::uint32_t count) {
  tmem_desc desc = KeyDesc(TMEM_OP_FLUSH, key);
  desc.count = count;
  tmem_status worst = TMEM_STATUS_OK;
  for (std::uint32_t lane = 0; lane < view_.geometry().key_lanes; ++lane) {
    worst = std::max(worst, static_cast<tmem_status>(Do(lane, desc).status));
  }
  return worst;
}

std::uint64_t TestGuest::CreditsGranted() const {
  return LoadAcquire(view_.host_page().credits_granted);
}

}  // namespace tmem
