// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/window/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "host-store/window/wire_names.h"

namespace tmem {
namespace {

constexpr std::uint32_t kKeyLanes = 8;
constexpr std::uint32_t kSlots = 120;
constexpr std::uint32_t kControlSlots = 8;
constexpr std::uint64_t kAllFeatures = TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT |
                                       TMEM_FEATURE_FILL | TMEM_FEATURE_REPORT |
                                       TMEM_FEATURE_SHRINK;
constexpr std::uint64_t kHandle = std::uint64_t{7} << 32 | 3;

LaneContext KeyLane(std::uint32_t lane, std::uint64_t features = kAllFeatures) {
  return {lane, kKeyLanes, kSlots, features};
}

LaneContext ControlLane(std::uint64_t features = kAllFeatures) {
  return {kKeyLanes, kKeyLanes, kControlSlots, features};
}

// A descriptor of each operation that is right in every field.
tmem_desc Good(tmem_op op) {
  tmem_desc desc{};
  desc.op = static_cast<tmem_u8>(op);
  const bool names_key = op == TMEM_OP_PUT || op == TMEM_OP_GET || op == TMEM_OP_FLUSH;
  if (names_key || op == TMEM_OP_FLUSH_OBJECT || op == TMEM_OP_FLUSH_POOL ||
      op == TMEM_OP_POOL_DESTROY) {
    desc.pool = kHandle;
  }
  if (names_key || op == TMEM_OP_FLUSH_OBJECT) {
    desc.object[0] = 11;
    desc.object[1] = 22;
    desc.object[2] = 33;
  }
  if (names_key) desc.index = 1000;
  if (op == TMEM_OP_FLUSH || op == TMEM_OP_REPORT) desc.count = 5;
  if (op == TMEM_OP_SHRUNK || op == TMEM_OP_DRAINED) desc.count = 1;
  if (op == TMEM_OP_POOL_CREATE) desc.value = TMEM_POOL_EPHEMERAL;
  if (op == TMEM_OP_CREDIT_RETURN) desc.value = 9;
  if (op == TMEM_OP_REPORT) desc.state = TMEM_REPORT_POSTED;
  return desc;
}

bool IsControl(tmem_op op) {
  return op >= TMEM_OP_POOL_CREATE;
}

LaneContext HomeOf(const tmem_desc& desc, std::uint64_t features = kAllFeatures) {
  if (IsControl(static_cast<tmem_op>(desc.op))) return ControlLane(features);
  return KeyLane(tmem_lane_of(desc.pool, desc.object, desc.index, kKeyLanes), features);
}

tmem_status StatusOf(const Operation& operation) {
  const auto* refused = std::get_if<op::Refused>(&operation);
  return refused == nullptr ? TMEM_STATUS_OK : refused->status;
}

const std::vector<tmem_op> kAllOps = {
    TMEM_OP_NOP,           TMEM_OP_PUT,        TMEM_OP_GET,         TMEM_OP_FLUSH,
    TMEM_OP_FLUSH_OBJECT,  TMEM_OP_FLUSH_POOL, TMEM_OP_POOL_CREATE, TMEM_OP_POOL_DESTROY,
    TMEM_OP_CREDIT_RETURN, TMEM_OP_REPORT,     TMEM_OP_SHRUNK,      TMEM_OP_DRAINED};

TEST(Decoder, AgreesWithTheVectorsOfTheContract) {
  std::ifstream file(std::string(TMEM_VECTORS) + "/descriptors.json");
  ASSERT_TRUE(file);
  const auto cases = nlohmann::json::parse(file)["cases"];
  ASSERT_GE(cases.size(), 45u);
  for (const auto& c : cases) {
    const auto hex = c["bytes"].get<std::string>();
    unsigned char bytes[sizeof(tmem_desc)];
    for (std::size_t i = 0; i < sizeof bytes; ++i) {
      bytes[i] = static_cast<unsigned char>(std::stoul(hex.substr(2 * i, 2), nullptr, 16));
    }
    tmem_desc desc;
    std::memcpy(&desc, bytes, sizeof desc);
    const auto lane = c["lane"].get<std::uint32_t>();
    const LaneContext context = lane == kKeyLanes ? ControlLane() : KeyLane(lane);
    const auto status = StatusOf(Decode(desc, context));
    std::string verdict(kStatusNames[StatusPosition(static_cast<std::uint16_t>(status))].name);
    for (char& letter : verdict) letter = static_cast<char>(std::toupper(letter));
    EXPECT_EQ(verdict, c["verdict"].get<std::string>()) << c["name"];
  }
}

TEST(Decoder, DecodesWhatEachOperationSays) {
  const auto decode = [](tmem_op op) { return Decode(Good(op), HomeOf(Good(op))); };
  EXPECT_TRUE(std::holds_alternative<op::Nop>(decode(TMEM_OP_NOP)));
  tmem_desc put = Good(TMEM_OP_PUT);
  put.value = 17;
  put.tag = 99;
  const auto decoded_put = std::get<op::Put>(Decode(put, HomeOf(put)));
  EXPECT_EQ(decoded_put.slot, 17u);
  EXPECT_EQ(decoded_put.tag, 99u);
  EXPECT_EQ(decoded_put.key.index, 1000u);
  EXPECT_EQ(decoded_put.key.pool, PoolHandle{kHandle});
  EXPECT_EQ(decoded_put.key.object, (ObjectId{{11, 22, 33}}));
  put.flags = TMEM_DESC_FILL;
  EXPECT_EQ(std::get<op::PutFilled>(Decode(put, HomeOf(put))).fill_word, 17u);
  EXPECT_EQ(std::get<op::Get>(decode(TMEM_OP_GET)).slot, 0u);
  EXPECT_EQ(std::get<op::Flush>(decode(TMEM_OP_FLUSH)).range.count, 5u);
  EXPECT_EQ(std::get<op::FlushObject>(decode(TMEM_OP_FLUSH_OBJECT)).object.words[2], 33u);
  EXPECT_EQ(std::get<op::FlushPool>(decode(TMEM_OP_FLUSH_POOL)).pool, PoolHandle{kHandle});
  EXPECT_EQ(std::get<op::PoolCreate>(decode(TMEM_OP_POOL_CREATE)).kind, PoolKind::kEphemeral);
  EXPECT_EQ(std::get<op::PoolDestroy>(decode(TMEM_OP_POOL_DESTROY)).pool, PoolHandle{kHandle});
  EXPECT_EQ(std::get<op::CreditReturn>(decode(TMEM_OP_CREDIT_RETURN)).credits, 9u);
  EXPECT_EQ(std::get<op::Report>(decode(TMEM_OP_REPORT)).ranges, 5u);
}

// X1: a field that an operation does not use is zero, each bit of it.
TEST(Decoder, X1RefusesEveryBitOfEveryUnusedField) {
  struct Field {
    const char* name;
    std::function<void(tmem_desc&, int)> flip;
    int bits;
    std::vector<tmem_op> used_by;
  };
  const std::vector<Field> fields = {
      {"flags",
       [](tmem_desc& d, int b) { d.flags = static_cast<tmem_u8>(1u << b); },
       8,
       {TMEM_OP_PUT}},
      {"status", [](tmem_desc& d, int b) { d.status = static_cast<tmem_u16>(1u << b); }, 16, {}},
      // Of a report: ChannelReport.OtherStatesAreRefused.
      {"state", [](tmem_desc& d, int b) { d.state ^= 1u << b; }, 32, {TMEM_OP_REPORT}},
      {"pool",
       [](tmem_desc& d, int b) { d.pool = 1ull << b; },
       64,
       {TMEM_OP_PUT, TMEM_OP_GET, TMEM_OP_FLUSH, TMEM_OP_FLUSH_OBJECT, TMEM_OP_FLUSH_POOL,
        TMEM_OP_POOL_DESTROY}},
      {"object0",
       [](tmem_desc& d, int b) { d.object[0] = 1ull << b; },
       64,
       {TMEM_OP_PUT, TMEM_OP_GET, TMEM_OP_FLUSH, TMEM_OP_FLUSH_OBJECT}},
      {"object2",
       [](tmem_desc& d, int b) { d.object[2] = 1ull << b; },
       64,
       {TMEM_OP_PUT, TMEM_OP_GET, TMEM_OP_FLUSH, TMEM_OP_FLUSH_OBJECT}},
      {"index",
       [](tmem_desc& d, int b) { d.index = 1ull << b; },
       64,
       {TMEM_OP_PUT, TMEM_OP_GET, TMEM_OP_FLUSH}},
      {"count",
       [](tmem_desc& d, int b) { d.count = 1u << b; },
       32,
       {TMEM_OP_FLUSH, TMEM_OP_REPORT, TMEM_OP_SHRUNK, TMEM_OP_DRAINED}},
      {"tag", [](tmem_desc& d, int b) { d.tag = 1u << b; }, 32, {TMEM_OP_PUT}},
      {"value",
       [](tmem_desc& d, int b) { d.value = 1ull << b; },
       64,
       {TMEM_OP_PUT, TMEM_OP_GET, TMEM_OP_POOL_CREATE, TMEM_OP_CREDIT_RETURN, TMEM_OP_REPORT,
        TMEM_OP_SHRUNK, TMEM_OP_DRAINED}},
  };
  for (const tmem_op op : kAllOps) {
    ASSERT_EQ(StatusOf(Decode(Good(op), HomeOf(Good(op)))), TMEM_STATUS_OK) << op;
    for (const Field& field : fields) {
      if (std::count(field.used_by.begin(), field.used_by.end(), op) != 0) continue;
      for (int bit = 0; bit < field.bits; ++bit) {
        tmem_desc desc = Good(op);
        field.flip(desc, bit);
        EXPECT_EQ(StatusOf(Decode(desc, HomeOf(desc))), TMEM_STATUS_BAD_FIELD)
            << "op " << op << ", " << field.name << " bit " << bit;
      }
    }
  }
}

TEST(Decoder, X1RefusesUnknownOperationsAndTheWrongKindOfLane) {
  for (int number = 0; number < 256; ++number) {
    tmem_desc desc{};
    desc.op = static_cast<tmem_u8>(number);
    const bool known = std::any_of(kAllOps.begin(), kAllOps.end(),
                                   [&](tmem_op op) { return static_cast<int>(op) == number; });
    const bool control = number >= TMEM_OP_POOL_CREATE;
    if (!known || control) {
      EXPECT_EQ(StatusOf(Decode(desc, KeyLane(0))), TMEM_STATUS_BAD_OP) << number;
    }
    if (!known || (!control && number != TMEM_OP_NOP)) {
      EXPECT_EQ(StatusOf(Decode(desc, ControlLane())), TMEM_STATUS_BAD_OP) << number;
    }
  }
}

TEST(Decoder, X1RefusesOutcomesThatAreNone) {
  for (const tmem_op op : {TMEM_OP_SHRUNK, TMEM_OP_DRAINED}) {
    tmem_desc desc = Good(op);
    EXPECT_EQ(StatusOf(Decode(desc, ControlLane(0))), TMEM_STATUS_UNSUPPORTED);
    const std::uint32_t most = op == TMEM_OP_SHRUNK ? 1 : 3;
    for (desc.count = 0; desc.count < 10; ++desc.count) {
      EXPECT_EQ(StatusOf(Decode(desc, ControlLane())),
                desc.count <= most ? TMEM_STATUS_OK : TMEM_STATUS_BAD_FIELD);
    }
  }
}

TEST(Decoder, X1RefusesSlotsBeyondTheLane) {
  for (const tmem_op op : {TMEM_OP_PUT, TMEM_OP_GET, TMEM_OP_REPORT}) {
    tmem_desc desc = Good(op);
    const LaneContext lane = HomeOf(desc);
    desc.value = lane.slots - 1;
    EXPECT_EQ(StatusOf(Decode(desc, lane)), TMEM_STATUS_OK);
    for (const std::uint64_t slot :
         {std::uint64_t{lane.slots}, std::uint64_t{1} << 32, std::uint64_t{1} << 63,
          std::numeric_limits<std::uint64_t>::max()}) {
      desc.value = slot;
      EXPECT_EQ(StatusOf(Decode(desc, lane)), TMEM_STATUS_BAD_SLOT) << op << " " << slot;
    }
  }
}

TEST(Decoder, F1FlushTakesEveryRangeButAnEmptyOne) {
  tmem_desc desc = Good(TMEM_OP_FLUSH);
  for (const std::uint32_t count : {1u, 32u, 0xffffffffu}) {
    for (const std::uint64_t first :
         {std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()}) {
      desc.count = count;
      desc.index = first;
      EXPECT_EQ(StatusOf(Decode(desc, KeyLane(0))), TMEM_STATUS_OK);
    }
  }
  desc.count = 0;
  EXPECT_EQ(StatusOf(Decode(desc, KeyLane(0))), TMEM_STATUS_BAD_FIELD);
}

// K1: all 64 bits of the index and all 192 of the object count.
TEST(Decoder, K1KeepsEveryBitOfTheKey) {
  for (int bit = 0; bit < 64; ++bit) {
    tmem_desc desc = Good(TMEM_OP_PUT);
    desc.index = 1ull << bit;
    desc.object[1] = 1ull << bit;
    const auto put = std::get<op::Put>(Decode(desc, HomeOf(desc)));
    EXPECT_EQ(put.key.index, 1ull << bit);
    EXPECT_EQ(put.key.object.words[1], 1ull << bit);
  }
}

TEST(Decoder, K2RefusesSharedPools) {
  for (const tmem_pool_kind kind : {TMEM_POOL_EPHEMERAL, TMEM_POOL_PERSISTENT}) {
    tmem_desc desc = Good(TMEM_OP_POOL_CREATE);
    desc.value = kind | TMEM_POOL_SHARED;
    EXPECT_EQ(StatusOf(Decode(desc, ControlLane())), TMEM_STATUS_BAD_FIELD);
  }
}

TEST(Decoder, K4RefusesPoolKindsWhoseFeatureWasNotChosen) {
  tmem_desc desc = Good(TMEM_OP_POOL_CREATE);
  EXPECT_EQ(StatusOf(Decode(desc, ControlLane(TMEM_FEATURE_PERSISTENT))), TMEM_STATUS_UNSUPPORTED);
  desc.value = TMEM_POOL_PERSISTENT;
  EXPECT_EQ(StatusOf(Decode(desc, ControlLane(TMEM_FEATURE_EPHEMERAL))), TMEM_STATUS_UNSUPPORTED);
  EXPECT_EQ(StatusOf(Decode(desc, ControlLane(TMEM_FEATURE_PERSISTENT))), TMEM_STATUS_OK);
}

TEST(Decoder, FillAndReportNeedTheirFeature) {
  tmem_desc put = Good(TMEM_OP_PUT);
  put.flags = TMEM_DESC_FILL;
  EXPECT_EQ(StatusOf(Decode(put, HomeOf(put, kAllFeatures & ~TMEM_FEATURE_FILL))),
            TMEM_STATUS_BAD_FIELD);
  const tmem_desc report = Good(TMEM_OP_REPORT);
  EXPECT_EQ(StatusOf(Decode(report, ControlLane(kAllFeatures & ~TMEM_FEATURE_REPORT))),
            TMEM_STATUS_UNSUPPORTED);
}

// P2: a put that is refused leaves no older copy; of a key of another lane nothing may be touched.
TEST(Decoder, P2RefusedPutsNameThePageThatMustGo) {
  const auto gone = [](const tmem_desc& desc, const LaneContext& lane) {
    return std::get<op::Refused>(Decode(desc, lane)).gone.has_value();
  };
  tmem_desc put = Good(TMEM_OP_PUT);
  const LaneContext home = HomeOf(put);
  const auto changed = [&](auto change) {
    tmem_desc desc = put;
    change(desc);
    return desc;
  };
  EXPECT_TRUE(gone(changed([](tmem_desc& d) { d.value = kSlots; }), home));
  EXPECT_TRUE(gone(changed([](tmem_desc& d) { d.flags = 2; }), home));
  EXPECT_TRUE(gone(changed([](tmem_desc& d) { d.state = 1; }), home));
  EXPECT_TRUE(gone(changed([](tmem_desc& d) { d.count = 1; }), home));
  EXPECT_TRUE(gone(changed([](tmem_desc& d) { d.status = 1; }), home));
  EXPECT_TRUE(gone(changed([](tmem_desc& d) {
                     d.status = 1;
                     d.flags = TMEM_DESC_FILL;
                   }),
                   home));
  const LaneContext away = KeyLane((home.lane + 1) % kKeyLanes);
  EXPECT_FALSE(gone(put, away));
  EXPECT_FALSE(gone(changed([](tmem_desc& d) { d.value = kSlots; }), away));
  tmem_desc get = Good(TMEM_OP_GET);
  get.value = kSlots;
  EXPECT_FALSE(gone(get, HomeOf(get)));  // G4: the page is still there
}

TEST(Decoder, EveryKeyHasExactlyOneLane) {
  for (std::uint64_t index = 0; index < 4096; index += 31) {
    tmem_desc desc = Good(TMEM_OP_GET);
    desc.index = index;
    int accepted = 0;
    for (std::uint32_t lane = 0; lane < kKeyLanes; ++lane) {
      const tmem_status status = StatusOf(Decode(desc, KeyLane(lane)));
      if (status == TMEM_STATUS_OK) {
        ++accepted;
      } else {
        EXPECT_EQ(status, TMEM_STATUS_BAD_LANE);
      }
    }
    EXPECT_EQ(accepted, 1) << index;
  }
}

}  // namespace
}  // namespace tmem
