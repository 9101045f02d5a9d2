// SPDX-License-Identifier: GPL-2.0-only
// Connects, registers, posts; none of it politely.
#include "tests/hostile/attacker.h"

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "host-store/window/shared_memory_access.h"

namespace tmem {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kConnectPatience{1000};
constexpr milliseconds kAnswerPatience{300};
constexpr milliseconds kDrainPatience{50};
constexpr std::size_t kHandlesKept = 64;
constexpr std::uint64_t kAllFeatures =
    TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL;

template <typename Condition>
bool WaitFor(milliseconds patience, const Condition& condition) {
  const auto end = steady_clock::now() + patience;
  while (!condition()) {
    if (steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace

Attacker::Attacker(std::string run_dir, const std::string& guest, std::uint64_t seed)
    : run_dir_(std::move(run_dir)),
      socket_path_(run_dir_ + "/" + guest + ".sock"),
      random_(seed),
      scribbler_([this, seed] { ScribblerLoop(seed + 1); }) {}

Attacker::~Attacker() {
  stop_.store(true);
  scribbler_.join();
}

void Attacker::BeginSlice(milliseconds length) {
  slice_end_ = steady_clock::now() + length;
  unanswered_ = false;
}

// ---- connection -------------------------------------------------------------------------------

bool Attacker::EnsureConnected() {
  if (client_) return true;
  // The daemon may not yet have noticed that the former connection ended.
  const bool connected = WaitFor(kConnectPatience, [&] {
    Result<TestIvshmemClient> client = TestIvshmemClient::Connect(socket_path_);
    if (client.ok()) client_.emplace(std::move(*client));
    return client_.has_value();
  });
  if (!connected) return false;
  const auto* header = reinterpret_cast<const tmem_header*>(window());
  view_ = std::make_unique<WindowView>(window(), CopyOnce(header->geometry));
  posted_.assign(view_->lane_count(), 0);
  registered_ = false;
  ForgetPools();
  return true;
}

void Attacker::Disconnect() {
  StopScribbling();
  view_.reset();
  client_.reset();
  registered_ = false;
}

void Attacker::RequestRegistration(std::uint64_t features) {
  tmem_guest_page& page = view_->guest_page();
  StoreRelaxed(page.boot_id[0], tmem_u64{Random() | 1});
  StoreRelaxed(page.features_chosen, tmem_u64{features});
  StoreRelaxed(page.version_chosen, tmem_u32{TMEM_ABI_VERSION});
  StoreRelaxed(page.zero0, tmem_u32{0});
  for (tmem_u64& word : page.zero1) StoreRelaxed(word, tmem_u64{0});
  StoreRelease(page.register_request, tmem_u64{Random() | 1});
  FullFence();
  client_->Kick();
}

bool Attacker::EnsureRegistered() {
  if (registered_ && LoadAcquire(view_->host_page().resets) == resets_seen_) return true;
  ForgetPools();
  const bool fill = !OneIn(4);
  RequestRegistration(fill ? kAllFeatures : kAllFeatures & ~TMEM_FEATURE_FILL);
  const std::uint64_t request = LoadRelaxed(view_->guest_page().register_request);
  registered_ = WaitFor(kAnswerPatience,
                        [&] { return LoadAcquire(view_->host_page().register_answer) == request; });
  std::fill(posted_.begin(), posted_.end(), 0);
  unanswered_ = false;
  resets_seen_ = LoadAcquire(view_->host_page().resets);
  return registered_;
}

// ---- window -----------------------------------------------------------------------------------

void Attacker::Post(std::uint32_t lane, const tmem_desc& desc) {
  const LaneView& ring = view_->lane(lane);
  if (!unanswered_ && posted_[lane] - LoadAcquire(ring.head().done) >= ring.ring_entries()) {
    Publish(lane);
    (void)Drain(lane);
  }
  std::uint64_t words[sizeof desc / sizeof(std::uint64_t)];
  std::memcpy(words, &desc, sizeof desc);
  auto* to = reinterpret_cast<std::uint64_t*>(&ring.Entry(posted_[lane]++));
  for (const std::uint64_t word : words) StoreRelaxed(*to++, word);
}

void Attacker::Publish(std::uint32_t lane) {
  StoreRelease(view_->lane(lane).head().posted, tmem_u64{posted_[lane]});
  FullFence();
  if (LoadRelaxed(view_->host_page().awake) == 0) client_->Kick();
}

void Attacker::PublishAll() {
  for (std::uint32_t lane = 0; lane < view_->lane_count(); ++lane) Publish(lane);
}

bool Attacker::Drain(std::uint32_t lane) {
  const tmem_lane_head& head = view_->lane(lane).head();
  unanswered_ = unanswered_ ||
                !WaitFor(kDrainPatience, [&] { return LoadAcquire(head.done) == posted_[lane]; });
  if (unanswered_) registered_ = false;
  return !unanswered_;
}

void Attacker::DrainAll() {
  for (std::uint32_t lane = 0; lane < view_->lane_count(); ++lane) {
    if (!Drain(lane)) return;
  }
}

tmem_desc Attacker::Do(std::uint32_t lane, const tmem_desc& desc) {
  Post(lane, desc);
  Publish(lane);
  if (!Drain(lane)) return tmem_desc{};
  return CopyOnce(view_->lane(lane).Entry(posted_[lane] - 1));
}

// ---- material ---------------------------------------------------------------------------------

std::uint64_t Attacker::Nasty() {
  switch (Below(6)) {
    case 0: return Below(300);
    case 1: return std::uint64_t{0} - Below(300);
    case 2: return (std::uint64_t{1} << Below(64)) - Below(2);
    case 3: return (std::uint64_t{1} << 32) - Below(3);
    case 4: return Random();
    default: return Random() >> Below(64);
  }
}

std::uint64_t Attacker::Pool(tmem_pool_kind kind) {
  std::uint64_t& pool = kind == TMEM_POOL_EPHEMERAL ? ephemeral_ : persistent_;
  if (pool != 0) return pool;
  tmem_desc create{};
  create.op = TMEM_OP_POOL_CREATE;
  create.value = kind;
  const tmem_desc answer = Do(view_->control_lane(), create);
  if (answer.status == TMEM_STATUS_OK) pool = answer.value;
  if (pool != 0) RememberHandle(pool);
  return pool;
}

void Attacker::RememberHandle(std::uint64_t handle) {
  if (handles_.size() < kHandlesKept) {
    handles_.push_back(handle);
  } else {
    handles_[Below(kHandlesKept)] = handle;
  }
}

std::uint64_t Attacker::AnyHandle() {
  const std::uint64_t known = handles_.empty() ? 0 : handles_[Random() % handles_.size()];
  switch (Below(6)) {
    case 0: return known;
    case 1:
      return known + (std::uint64_t{1} << 32) * (Below(9) - 4ull);  // a neighbour's generation
    case 2: return (known & ~std::uint64_t{0xffffffff}) | Below(80);
    case 3: return (known & ~std::uint64_t{0xffffffff}) | (0xffffffffu - Below(3));
    case 4: return std::uint64_t{Below(64)} << 32 | Below(2);  // another guest's, as likely as any
    default: return Nasty();
  }
}

tmem_desc Attacker::KeyDesc(tmem_op op, std::uint64_t pool, std::uint64_t object,
                            std::uint64_t index) const {
  tmem_desc desc{};
  desc.op = static_cast<tmem_u8>(op);
  desc.pool = pool;
  desc.object[0] = object;
  desc.index = index;
  return desc;
}

std::uint32_t Attacker::LaneOf(const tmem_desc& desc) const {
  return tmem_lane_of(desc.pool, desc.object, desc.index, view_->geometry().key_lanes);
}

// ---- scribbler --------------------------------------------------------------------------------

void Attacker::StopScribbling() {
  scribble_.store(Scribble::kNothing);
  while (scribbling_.load()) std::this_thread::yield();
}

std::uint64_t Attacker::ScribblerCpuNs() {
  clockid_t clock{};
  timespec used{};
  if (::pthread_getcpuclockid(scribbler_.native_handle(), &clock) != 0) return 0;
  (void)::clock_gettime(clock, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(used.tv_nsec);
}

void Attacker::ScribblerLoop(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  while (!stop_.load()) {
    scribbling_.store(true);
    const Scribble what = scribble_.load();
    for (int i = 0; i < 64 && what != Scribble::kNothing; ++i) ScribbleOnce(what, random);
    scribbling_.store(false);
    if (what == Scribble::kNothing) std::this_thread::sleep_for(milliseconds(1));
  }
}

void Attacker::ScribbleOnce(Scribble what, std::mt19937_64& random) const {
  const std::uint64_t word = random() >> (random() % 64);
  const LaneView& lane = view_->lane(static_cast<std::uint32_t>(random() % view_->lane_count()));
  switch (what) {
    case Scribble::kNothing: return;
    case Scribble::kPayloads: {
      auto* slot = reinterpret_cast<std::uint64_t*>(
          lane.Slot(static_cast<std::uint32_t>(random() % lane.slots())).data());
      for (int i = 0; i < 16; ++i) StoreRelaxed(slot[random() % 512], word);
      return;
    }
    case Scribble::kDescriptors: {
      auto* entry = reinterpret_cast<std::uint64_t*>(&lane.Entry(random()));
      const std::size_t field = random() % (sizeof(tmem_desc) / sizeof(std::uint64_t));
      StoreRelaxed(entry[field], field == 0 ? word & 0x1f : word);
      return;
    }
    case Scribble::kCounters: {
      tmem_lane_head& head = lane.head();
      StoreRelaxed(random() % 2 == 0 ? head.posted : head.done, tmem_u64{head.posted + word % 300});
      return;
    }
    case Scribble::kHeader: {
      auto* header = reinterpret_cast<std::uint64_t*>(window());
      StoreRelaxed(header[random() % (sizeof(tmem_header) / sizeof(std::uint64_t))], word);
      return;
    }
  }
}

}  // namespace tmem
