// SPDX-License-Identifier: GPL-2.0-only
// A host side that does exactly what a test says.
#include "tests/guest_core/fake_host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tmem {

void FakeHost::Free::operator()(void* memory) const {
  std::free(memory);
}

FakeHost::FakeHost(const FakeHostOptions& options) : options_(options) {
  tmem_geometry geometry{};
  geometry.magic = TMEM_MAGIC;
  geometry.version = TMEM_ABI_VERSION;
  geometry.version_min = TMEM_ABI_VERSION;
  geometry.page_bytes = TMEM_PAGE_BYTES;
  geometry.key_lanes = options.key_lanes;
  geometry.ring_entries = options.ring_entries;
  geometry.lane_slots = options.lane_slots;
  geometry.control_ring_entries = TMEM_MIN_RING_ENTRIES;
  geometry.control_slots = options.control_slots;
  bytes_ = tmem_window_bytes_needed(&geometry);
  geometry.window_bytes = bytes_;
  memory_.reset(std::aligned_alloc(TMEM_PAGE_BYTES, bytes_));
  std::memset(window(), 0, bytes_);
  header().geometry = geometry;
  header().host.features_offered = options.features;
  header().host.max_pools = TMEM_MAX_POOLS;
  header().host.max_report_ranges = options.control_slots == 0 ? 0 : TMEM_MAX_REPORT_RANGES;
  header().host.epoch = 1;
  header().host.credits_target = options.credits;
}

tmem_lane_head& FakeHost::head(std::uint32_t lane) {
  return *reinterpret_cast<tmem_lane_head*>(static_cast<std::uint8_t*>(window()) +
                                            tmem_lane_offset(&header().geometry, lane));
}

void FakeHost::Ring() {
  ++rings_;
  if (!stopped_) Process();
}

void FakeHost::StartOver() {
  pools_.clear();
  pages_.clear();
  credits_used_ = 0;
  credits_granted_ = 0;
  Store(header().host.credits_granted, tmem_u64{0});
}

void FakeHost::AnswerRegistration() {
  const std::uint64_t request = header().guest.register_request;
  if (request == 0 || request == header().host.register_answer) return;
  StartOver();
  for (std::uint32_t lane = 0; lane <= options_.key_lanes; ++lane) {
    std::memset(&head(lane), 0, sizeof(tmem_lane_head));
  }
  registered_ = (header().guest.features_chosen & ~options_.features) == 0;
  header().host.register_status = registered_ ? TMEM_STATUS_OK : TMEM_STATUS_UNSUPPORTED;
  Store(header().host.register_answer, tmem_u64{request});
  if (answered) answered();
}

void FakeHost::Process(std::uint64_t limit) {
  AnswerRegistration();
  if (!registered_) return;
  std::uint64_t any = 0;
  for (std::uint32_t lane = 0; lane <= options_.key_lanes; ++lane) any |= ProcessLane(lane, limit);
  if (any != 0) Beat();
}

std::uint64_t FakeHost::ProcessLane(std::uint32_t lane, std::uint64_t limit) {
  tmem_lane_head& lane_head = head(lane);
  const std::uint32_t entries =
      lane == options_.key_lanes ? TMEM_MIN_RING_ENTRIES : options_.ring_entries;
  auto* ring =
      reinterpret_cast<tmem_desc*>(reinterpret_cast<std::uint8_t*>(&lane_head) + TMEM_PAGE_BYTES);
  const std::uint64_t posted = __atomic_load_n(&lane_head.posted, __ATOMIC_ACQUIRE);
  std::uint64_t done = lane_head.done;
  const std::uint64_t end = std::min(posted, limit > posted - done ? posted : done + limit);
  const std::uint64_t count = end - done;
  for (; done != end; ++done) Execute(lane, ring[done & (entries - 1)]);
  Store(lane_head.done, tmem_u64{done});
  return count;
}

void FakeHost::Execute(std::uint32_t lane, tmem_desc& entry) {
  ++executed_[entry.op];
  if (intercept) {
    if (const std::uint16_t status = intercept(entry); status != 0) {
      entry.status = status;
      return;
    }
  }
  entry.status = TMEM_STATUS_OK;
  switch (entry.op) {
    case TMEM_OP_PUT: Put(lane, entry); break;
    case TMEM_OP_GET: Get(lane, entry); break;
    case TMEM_OP_FLUSH:
    case TMEM_OP_FLUSH_OBJECT:
    case TMEM_OP_FLUSH_POOL: Flush(lane, entry); break;
    case TMEM_OP_POOL_CREATE:
      entry.value = ++generation_ << 32 | (pools_.size() + 1);
      pools_[entry.value] = static_cast<tmem_pool_kind>(entry.op == 0 ? 0 : 1);
      break;
    case TMEM_OP_POOL_DESTROY:
      pools_.erase(entry.pool);
      std::erase_if(pages_, [&](const auto& p) { return std::get<0>(p.first) == entry.pool; });
      break;
    case TMEM_OP_CREDIT_RETURN: credits_used_ += entry.value; break;
    default: break;
  }
}

void FakeHost::Grant(std::uint64_t credits) {
  credits_granted_ += credits;
  Store(header().host.credits_granted, tmem_u64{credits_granted_});
}

std::uint8_t* FakeHost::SlotPage(std::uint32_t lane, std::uint64_t slot) {
  return reinterpret_cast<std::uint8_t*>(&head(lane)) + tmem_slots_offset(options_.ring_entries) +
         slot * TMEM_PAGE_BYTES;
}

namespace {

FakeHost::PageName NameOf(const tmem_desc& desc, std::uint64_t index) {
  return {desc.pool, desc.object[0], desc.object[1], desc.object[2], index};
}

void Fill(FakeHost::Page& page, std::uint64_t word) {
  for (std::size_t at = 0; at < page.size(); at += sizeof word) {
    std::memcpy(page.data() + at, &word, sizeof word);
  }
}

}  // namespace

void FakeHost::Put(std::uint32_t lane, tmem_desc& entry) {
  if (!pools_.contains(entry.pool)) {
    entry.status = TMEM_STATUS_STALE_POOL;
    return;
  }
  Stored& stored = pages_[NameOf(entry, entry.index)];
  stored.tag = entry.tag;
  if ((entry.flags & TMEM_DESC_FILL) != 0) {
    Fill(stored.page, entry.value);
  } else {
    std::memcpy(stored.page.data(), SlotPage(lane, entry.value), TMEM_PAGE_BYTES);
  }
}

void FakeHost::Get(std::uint32_t lane, tmem_desc& entry) {
  const auto found = pages_.find(NameOf(entry, entry.index));
  if (found == pages_.end()) {
    entry.status = TMEM_STATUS_MISS;
    return;
  }
  std::memcpy(SlotPage(lane, entry.value), found->second.page.data(), TMEM_PAGE_BYTES);
  entry.tag = found->second.tag;
  if (found->second.tag == 0) pages_.erase(found);  // only persistent pages have tags
}

bool FakeHost::InLane(const PageName& name, std::uint32_t lane) const {
  const auto& [pool, word0, word1, word2, index] = name;
  const std::uint64_t object[3] = {word0, word1, word2};
  return tmem_lane_of(pool, object, index, options_.key_lanes) == lane;
}

void FakeHost::Flush(std::uint32_t lane, tmem_desc& entry) {
  const auto concerned = [&](const PageName& name) {
    const auto& [pool, word0, word1, word2, index] = name;
    if (pool != entry.pool || !InLane(name, lane)) return false;
    if (entry.op == TMEM_OP_FLUSH_POOL) return true;
    if (word0 != entry.object[0] || word1 != entry.object[1] || word2 != entry.object[2]) {
      return false;
    }
    return entry.op == TMEM_OP_FLUSH_OBJECT ||
           (index >= entry.index && index - entry.index < entry.count);
  };
  entry.value = std::erase_if(pages_, [&](const auto& p) { return concerned(p.first); });
}

void FakeHost::EndEpoch() {
  // Which pools are persistent does not matter to the tests that end epochs.
  pools_.clear();
  pages_.clear();
  Store(header().host.epoch, tmem_u64{header().host.epoch + 1});
}

void FakeHost::Reset() {
  StartOver();
  registered_ = false;
  Store(header().host.resets, tmem_u64{header().host.resets + 1});
}

}  // namespace tmem
