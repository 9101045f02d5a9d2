// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Holds the header against the test vectors, which were computed from the prose alone.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "abi/tmem_abi.h"

extern "C" unsigned int tmem_lane_of_in_c(tmem_u64 pool, const tmem_u64 object[3], tmem_u64 index,
                                          unsigned int key_lanes);
extern "C" tmem_u64 tmem_desc_bytes_in_c(void);

namespace {

using nlohmann::json;

json Load(const std::string& name) {
  std::ifstream file(std::string(TMEM_VECTORS) + "/" + name);
  EXPECT_TRUE(file) << name;
  return json::parse(file);
}

uint64_t Number(const json& text) {
  return std::stoull(text.get<std::string>(), nullptr, 16);
}

std::vector<unsigned char> Bytes(const json& text) {
  const auto hex = text.get<std::string>();
  std::vector<unsigned char> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<unsigned char>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(AbiVectors, LaneOfEveryKey) {
  const json cases = Load("lanes.json");
  ASSERT_GE(cases.size(), 40u);
  for (const json& c : cases) {
    const tmem_u64 object[3] = {Number(c["object"][0]), Number(c["object"][1]),
                                Number(c["object"][2])};
    const unsigned int lane = tmem_lane_of(Number(c["pool"]), object, Number(c["index"]),
                                           c["key_lanes"].get<unsigned int>());
    EXPECT_EQ(lane, c["lane"].get<unsigned int>()) << c;
    EXPECT_EQ(lane, tmem_lane_of_in_c(Number(c["pool"]), object, Number(c["index"]),
                                      c["key_lanes"].get<unsigned int>()));
  }
}

TEST(AbiVectors, DescriptorFieldsLieWhereTheProseSays) {
  const json cases = Load("descriptors.json")["cases"];
  ASSERT_GE(cases.size(), 45u);
  for (const json& c : cases) {
    const auto bytes = Bytes(c["bytes"]);
    tmem_desc desc;
    ASSERT_EQ(bytes.size(), sizeof desc);
    std::memcpy(&desc, bytes.data(), sizeof desc);
    const json& fields = c["fields"];
    EXPECT_EQ(desc.op, Number(fields["op"])) << c["name"];
    EXPECT_EQ(desc.flags, Number(fields["flags"])) << c["name"];
    EXPECT_EQ(desc.status, Number(fields["status"])) << c["name"];
    EXPECT_EQ(desc.state, Number(fields["state"])) << c["name"];
    EXPECT_EQ(desc.pool, Number(fields["pool"])) << c["name"];
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(desc.object[i], Number(fields["object"][i]));
    EXPECT_EQ(desc.index, Number(fields["index"])) << c["name"];
    EXPECT_EQ(desc.count, Number(fields["count"])) << c["name"];
    EXPECT_EQ(desc.tag, Number(fields["tag"])) << c["name"];
    EXPECT_EQ(desc.value, Number(fields["value"])) << c["name"];
  }
}

TEST(AbiVectors, OffsetsOfEveryGeometry) {
  const json layout = Load("layout.json");
  for (const json& c : layout["geometries"]) {
    tmem_geometry geometry{};
    geometry.key_lanes = c["key_lanes"].get<uint32_t>();
    geometry.ring_entries = c["ring_entries"].get<uint32_t>();
    geometry.lane_slots = c["lane_slots"].get<uint32_t>();
    geometry.control_ring_entries = c["control_ring_entries"].get<uint32_t>();
    geometry.control_slots = c["control_slots"].get<uint32_t>();
    EXPECT_EQ(tmem_lane_bytes(geometry.ring_entries, geometry.lane_slots),
              c["lane_bytes"].get<uint64_t>());
    EXPECT_EQ(tmem_slots_offset(geometry.ring_entries), c["slots_offset"].get<uint64_t>());
    EXPECT_EQ(tmem_lane_offset(&geometry, geometry.key_lanes), c["control_offset"].get<uint64_t>());
    EXPECT_EQ(tmem_window_bytes_needed(&geometry), c["needed"].get<uint64_t>());
  }
}

TEST(AbiVectors, GeometryBytes) {
  const json layout = Load("layout.json");
  const auto bytes = Bytes(layout["geometry_bytes"]);
  tmem_geometry geometry;
  ASSERT_EQ(bytes.size(), sizeof geometry);
  std::memcpy(&geometry, bytes.data(), sizeof geometry);
  EXPECT_EQ(geometry.magic, TMEM_MAGIC);
  EXPECT_EQ(geometry.version, TMEM_ABI_VERSION);
  EXPECT_EQ(geometry.window_bytes, layout["geometry_window_bytes"].get<uint64_t>());
  EXPECT_EQ(geometry.page_bytes, TMEM_PAGE_BYTES);
  EXPECT_EQ(geometry.key_lanes, 8u);
  EXPECT_EQ(geometry.control_slots, 8u);
  EXPECT_LE(tmem_window_bytes_needed(&geometry), geometry.window_bytes);
}

TEST(AbiLayout, CAndCxxAgree) {
  EXPECT_EQ(tmem_desc_bytes_in_c(), sizeof(tmem_desc));
}

}  // namespace
