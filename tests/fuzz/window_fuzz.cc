// SPDX-License-Identifier: GPL-2.0-only
// Fuzz target: a hostile guest does anything to its window; the host stays within bounds and limit,
// and a neighbour's pages stay what they were.
//
// The input is a list of steps: one byte of step kind, then its arguments. What a step needs and
// the input does not hold is zero.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "abi/tmem_abi.h"
#include "host-store/doorbell/in_process.h"
#include "host-store/window/test_guest.h"

namespace {

using tmem::kPageBytes;

constexpr std::uint64_t kLimitBytes = 64 << 20;
constexpr std::uint64_t kFeatures =
    TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL;
// Enough to reach every state; more only makes inputs slow.
constexpr int kMaxSteps = 256;

// Small rings and few slots, so that a short input wraps them.
constexpr tmem::WindowOptions kWindow{.window_bytes = 256 << 10,
                                      .key_lanes = 4,
                                      .ring_entries = 16,
                                      .lane_slots = 4,
                                      .control_ring_entries = 16,
                                      .control_slots = 1};

class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  template <typename T>
  T Take() {
    T value{};
    const std::size_t count = std::min(sizeof(T), bytes_.size());
    std::memcpy(&value, bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

void Require(bool condition) {
  if (!condition) std::abort();
}

// One host for all inputs, with a neighbour whose two pages must survive each of them.
class World {
 public:
  World() {
    tmem::InProcessOptions options{};
    options.store.limit_bytes = kLimitBytes;
    options.store.pool_min_bytes = kLimitBytes / 4;
    options.store.seed = 1;
    options.window = kWindow;
    options.workers = 0;
    host_ = tmem::InProcessHost::Create(options, clock_).value();
    neighbour_ = host_->Connect({.name = "neighbour", .domain = ""}).value();
    side_ = std::make_unique<tmem::TestGuest>(neighbour_->window().data(),
                                              [this] { neighbour_->Kick(); });
    Require(side_->Register() == TMEM_STATUS_OK);
    pool_ = side_->CreatePool(TMEM_POOL_PERSISTENT);
    Require(pool_ != 0);
    for (std::uint64_t index = 0; index < kPages; ++index) {
      Require(side_->Put({pool_, 1, index}, Page(index)) == TMEM_STATUS_OK);
    }
  }

  std::unique_ptr<tmem::InProcessGuest> ConnectHostile() {
    return host_->Connect({.name = "hostile", .domain = ""}).value();
  }

  void Check() {
    for (std::uint64_t index = 0; index < kPages; ++index) {
      tmem::TestPage page;
      Require(side_->Get({pool_, 1, index}, page) == TMEM_STATUS_OK);
      Require(page == Page(index));
    }
    Require(host_->store().Status().used_bytes <= kLimitBytes);
  }

 private:
  static constexpr std::uint64_t kPages = 2;
  static tmem::TestPage Page(std::uint64_t index) {
    return tmem::MakeTestPage(index, tmem::TestPageKind::kCompressible);
  }

  tmem::SteadyClock clock_;
  std::unique_ptr<tmem::InProcessHost> host_;
  std::unique_ptr<tmem::InProcessGuest> neighbour_;
  std::unique_ptr<tmem::TestGuest> side_;
  std::uint64_t pool_ = 0;
};

// The guest that does anything. It writes the window itself and never waits: what it wrote may
// well be nothing that is ever answered. Some steps are nearly right, so that inputs get far.
class Hostile {
 public:
  explicit Hostile(tmem::InProcessGuest& guest)
      : guest_(guest), window_(guest.window()), geometry_(tmem::MakeGeometry(kWindow).value()) {}

  void Step(Input& input) {
    switch (input.Take<std::uint8_t>() % 8) {
      case 0: Poke(input); break;
      case 1: Register(); break;
      case 2: Post(Lane(input), input.Take<tmem_desc>()); break;
      case 3: CreatePool(input); break;
      case 4: Post(Lane(input), NearlyRight(input)); break;
      case 5: SetPosted(input); break;
      case 6: FillSlots(input); break;
      default: guest_.Kick(); break;
    }
  }

 private:
  static std::uint32_t Lane(Input& input) {
    return input.Take<std::uint8_t>() % (kWindow.key_lanes + 1);
  }

  template <typename T>
  void Write(std::size_t offset, const T& value) {
    std::memcpy(window_.data() + offset, &value, sizeof(value));
  }

  std::size_t EntryOffset(std::uint32_t lane, std::uint64_t counter) const {
    static_assert(kWindow.ring_entries == kWindow.control_ring_entries);
    return tmem_lane_offset(&geometry_, lane) + kPageBytes +
           (counter % kWindow.ring_entries) * sizeof(tmem_desc);
  }

  void Poke(Input& input) {
    const std::size_t offset = input.Take<std::uint32_t>() % (window_.size() - 8);
    Write(offset, input.Take<std::uint64_t>());
  }

  void Register() {
    tmem_guest_page page{};
    page.boot_id[0] = 1;
    page.features_chosen = kFeatures;
    page.version_chosen = TMEM_ABI_VERSION;
    page.register_request = ++requests_;
    Write(TMEM_OFFSET(tmem_header, guest), page);
    posted_.fill(0);
    guest_.Kick();
  }

  void Post(std::uint32_t lane, const tmem_desc& desc) {
    Write(EntryOffset(lane, posted_[lane]), desc);
    Write(tmem_lane_offset(&geometry_, lane), ++posted_[lane]);
    guest_.Kick();
  }

  void CreatePool(Input& input) {
    tmem_desc desc{};
    desc.op = TMEM_OP_POOL_CREATE;
    desc.value = input.Take<std::uint8_t>() % 4;
    const std::size_t entry = EntryOffset(kWindow.key_lanes, posted_[kWindow.key_lanes]);
    Post(kWindow.key_lanes, desc);
    std::memcpy(&desc, window_.data() + entry, sizeof(desc));
    pool_ = desc.value;
  }

  // A descriptor of a real key with a plausible value.
  tmem_desc NearlyRight(Input& input) const {
    const auto op = static_cast<tmem_op>(input.Take<std::uint8_t>() % 20);
    tmem_desc desc = tmem::TestGuest::KeyDesc(
        op, {pool_, input.Take<std::uint8_t>() % 2U, input.Take<std::uint8_t>() % 40U});
    desc.flags = input.Take<std::uint8_t>() % 2;
    desc.count = input.Take<std::uint8_t>() % 64;
    desc.value = input.Take<std::uint8_t>() % 6;
    return desc;
  }

  void SetPosted(Input& input) {
    const std::uint32_t lane = Lane(input);
    const auto step = static_cast<std::uint64_t>(std::int64_t{input.Take<std::int8_t>()});
    Write(tmem_lane_offset(&geometry_, lane), posted_[lane] + step);
    guest_.Kick();
  }

  void FillSlots(Input& input) {
    const auto value = static_cast<std::byte>(input.Take<std::uint8_t>());
    for (std::uint32_t lane = 0; lane < kWindow.key_lanes; ++lane) {
      const std::size_t slots =
          tmem_lane_offset(&geometry_, lane) + tmem_slots_offset(kWindow.ring_entries);
      const auto begin = window_.begin() + static_cast<std::ptrdiff_t>(slots);
      // Half a page, so that pages are neither all same-filled nor all alike.
      std::fill(begin, begin + kPageBytes / 2, value);
    }
  }

  tmem::InProcessGuest& guest_;
  std::span<std::byte> window_;
  tmem_geometry geometry_;
  std::array<std::uint64_t, kWindow.key_lanes + 1> posted_{};
  std::uint64_t requests_ = 0;
  std::uint64_t pool_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static World world;
  Input input(std::as_bytes(std::span(data, size)));
  const auto guest = world.ConnectHostile();
  Hostile hostile(*guest);
  for (int step = 0; step < kMaxSteps && !input.empty(); ++step) hostile.Step(input);
  world.Check();
  return 0;
}
