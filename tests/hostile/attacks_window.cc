// SPDX-License-Identifier: GPL-2.0-only
// Lies in the header, the counters and the descriptors of a window.
#include <array>
#include <cstring>

#include "host-store/window/shared_memory_access.h"
#include "tests/hostile/attacks.h"

namespace tmem {
namespace {

constexpr tmem_op kKeyOps[] = {TMEM_OP_PUT, TMEM_OP_GET, TMEM_OP_FLUSH, TMEM_OP_FLUSH_OBJECT,
                               TMEM_OP_FLUSH_POOL};

void StoreNasty(Attacker& attacker, std::size_t first_word, std::size_t words) {
  auto* header = reinterpret_cast<std::uint64_t*>(attacker.window());
  const std::size_t at = first_word + attacker.Random() % words;
  StoreRelaxed(header[at], attacker.Nasty());
}

void HeaderGarbage(Attacker& attacker) {
  while (!attacker.Over()) {
    StoreNasty(attacker, 0, TMEM_PAGE_BYTES / sizeof(std::uint64_t));
    if (attacker.OneIn(64)) attacker.client().Kick();
  }
}

// Magic, version, lanes, rings, slots; then operations as if nothing had happened.
void Geometry(Attacker& attacker) {
  while (!attacker.Over()) {
    for (int i = 0; i < 8; ++i) StoreNasty(attacker, 0, sizeof(tmem_geometry) / 8);
    (void)attacker.Do(attacker.AnyLane(), tmem_desc{});
  }
}

// Epoch, credits, awake, heartbeat, answers: what only the host may write.
void HostFields(Attacker& attacker) {
  while (!attacker.Over()) {
    tmem_host_page& host = attacker.view().host_page();
    StoreNasty(attacker, sizeof(tmem_geometry) / 8, sizeof(tmem_host_page) / 8);
    if (attacker.OneIn(4)) StoreRelaxed(host.awake, tmem_u32{attacker.Below(2)});
    if (attacker.OneIn(8)) StoreRelaxed(host.credits_granted, tmem_u64{attacker.Nasty()});
    const std::uint64_t pool = attacker.Pool(TMEM_POOL_PERSISTENT);
    tmem_desc put = attacker.KeyDesc(TMEM_OP_PUT, pool, 1, attacker.Below(64));
    attacker.Post(attacker.LaneOf(put), put);
    attacker.PublishAll();
  }
}

void GuestFields(Attacker& attacker) {
  constexpr std::size_t kFirst = offsetof(tmem_header, guest) / 8;
  while (!attacker.Over()) {
    StoreNasty(attacker, kFirst, sizeof(tmem_guest_page) / 8);
    attacker.client().Kick();
    std::this_thread::yield();
  }
  attacker.ForgetRegistration();
}

void CounterJumps(Attacker& attacker) {
  while (!attacker.Over()) {
    tmem_lane_head& head = attacker.view().lane(attacker.AnyLane()).head();
    const std::uint64_t posted = LoadRelaxed(head.posted);
    const std::uint64_t entries = attacker.view().geometry().ring_entries;
    const std::uint64_t to[] = {posted + 1 + attacker.Below(16),
                                posted - 1 - attacker.Below(300),
                                posted + entries,
                                posted + entries + 1,
                                ~std::uint64_t{0} - attacker.Below(3),
                                std::uint64_t{1} << 63,
                                posted ^ (std::uint64_t{1} << 32),
                                attacker.Nasty()};
    StoreRelease(attacker.OneIn(3) ? head.done : head.posted, tmem_u64{to[attacker.Below(8)]});
    attacker.client().Kick();
    attacker.ForgetRegistration();
    std::this_thread::sleep_for(std::chrono::microseconds(attacker.Below(200)));
    if (!attacker.EnsureRegistered()) return;
  }
}

tmem_desc RandomDesc(Attacker& attacker) {
  std::array<std::uint64_t, sizeof(tmem_desc) / 8> words;
  for (std::uint64_t& word : words) word = attacker.Nasty();
  tmem_desc desc;
  std::memcpy(&desc, words.data(), sizeof desc);
  desc.op = static_cast<tmem_u8>(attacker.OneIn(8) ? attacker.Random() : attacker.Below(21));
  if (!attacker.OneIn(4)) desc.status = 0;
  if (!attacker.OneIn(4)) desc.state = 0;
  return desc;
}

void RandomDescriptors(Attacker& attacker) {
  while (!attacker.Over()) {
    for (int i = 0; i < 32; ++i) attacker.Post(attacker.AnyLane(), RandomDesc(attacker));
    attacker.PublishAll();
  }
}

tmem_desc ValidDesc(Attacker& attacker) {
  const std::uint64_t pool =
      attacker.Pool(attacker.OneIn(2) ? TMEM_POOL_EPHEMERAL : TMEM_POOL_PERSISTENT);
  tmem_desc desc =
      attacker.KeyDesc(kKeyOps[attacker.Below(5)], pool, attacker.Below(4), attacker.Below(256));
  switch (desc.op) {
    case TMEM_OP_PUT:
    case TMEM_OP_GET: desc.value = attacker.Below(attacker.view().geometry().lane_slots); break;
    case TMEM_OP_FLUSH: desc.count = 1 + attacker.Below(64); break;
    case TMEM_OP_FLUSH_POOL: desc.object[0] = 0; [[fallthrough]];
    default: desc.index = 0;
  }
  return desc;
}

// One field of a valid descriptor is not what it should be.
void MutatedDescriptors(Attacker& attacker) {
  while (!attacker.Over()) {
    for (int i = 0; i < 32; ++i) {
      tmem_desc desc = ValidDesc(attacker);
      std::uint32_t lane = attacker.LaneOf(desc);
      switch (attacker.Below(12)) {
        case 0: desc.op = static_cast<tmem_u8>(attacker.Nasty()); break;
        case 1: desc.flags = static_cast<tmem_u8>(attacker.Nasty()); break;
        case 2: desc.status = static_cast<tmem_u16>(attacker.Nasty()); break;
        case 3: desc.state = static_cast<tmem_u32>(attacker.Nasty()); break;
        case 4: desc.pool = attacker.AnyHandle(); break;
        case 5: desc.object[attacker.Below(3)] = attacker.Nasty(); break;
        case 6: desc.index = attacker.Nasty(); break;
        case 7: desc.count = static_cast<tmem_u32>(attacker.Nasty()); break;
        case 8: desc.tag = static_cast<tmem_u32>(attacker.Nasty()); break;
        case 9: desc.value = attacker.Nasty(); break;
        case 10: lane = attacker.AnyLane(); break;
        default: break;
      }
      attacker.Post(lane, desc);
    }
    attacker.PublishAll();
  }
}

// Handles that are old, huge, negative, or perhaps another guest's; destroyed in mid-flight.
void PoolHandles(Attacker& attacker) {
  const std::uint32_t control = attacker.view().control_lane();
  while (!attacker.Over()) {
    for (int i = 0; i < 24; ++i) {
      tmem_desc desc = attacker.KeyDesc(kKeyOps[attacker.Below(5)], attacker.AnyHandle(),
                                        attacker.Below(4), attacker.Below(64));
      if (desc.op == TMEM_OP_FLUSH) desc.count = 1;
      attacker.Post(attacker.LaneOf(desc), desc);
    }
    tmem_desc destroy{};
    destroy.op = TMEM_OP_POOL_DESTROY;
    destroy.pool = attacker.OneIn(2) ? attacker.AnyHandle() : attacker.Pool(TMEM_POOL_EPHEMERAL);
    attacker.ForgetPools();
    attacker.Post(control, destroy);
    attacker.PublishAll();
  }
}

// Puts and gets of one slot, many at a time, in every order.
void OverlappingSlots(Attacker& attacker) {
  while (!attacker.Over()) {
    const std::uint64_t pool = attacker.Pool(TMEM_POOL_EPHEMERAL);
    const std::uint32_t slot = attacker.Below(attacker.view().geometry().lane_slots);
    for (int i = 0; i < 64; ++i) {
      tmem_desc desc = attacker.KeyDesc(attacker.OneIn(2) ? TMEM_OP_PUT : TMEM_OP_GET, pool,
                                        attacker.Below(2), attacker.Below(96));
      desc.value = slot;
      attacker.Post(attacker.LaneOf(desc), desc);
    }
    attacker.PublishAll();
    attacker.DrainAll();
  }
}

// Valid work, while the second thread changes what the daemon is reading.
void WorkUnderScribbler(Attacker& attacker, Scribble what) {
  attacker.StartScribbling(what);
  while (!attacker.Over()) {
    for (int i = 0; i < 32; ++i) {
      const tmem_desc desc = ValidDesc(attacker);
      attacker.Post(attacker.LaneOf(desc), desc);
    }
    attacker.PublishAll();
    if (attacker.OneIn(4)) attacker.DrainAll();
  }
}

void PayloadsChange(Attacker& attacker) {
  WorkUnderScribbler(attacker, Scribble::kPayloads);
}
void DescriptorsChange(Attacker& attacker) {
  WorkUnderScribbler(attacker, Scribble::kDescriptors);
}
void CountersChange(Attacker& attacker) {
  WorkUnderScribbler(attacker, Scribble::kCounters);
  attacker.ForgetRegistration();
}
void HeaderChanges(Attacker& attacker) {
  WorkUnderScribbler(attacker, Scribble::kHeader);
  attacker.ForgetRegistration();
}

constexpr Attack kAttacks[] = {
    {"header_garbage", HeaderGarbage},
    {"geometry", Geometry},
    {"host_fields", HostFields},
    {"guest_fields", GuestFields},
    {"counter_jumps", CounterJumps},
    {"random_descriptors", RandomDescriptors},
    {"mutated_descriptors", MutatedDescriptors},
    {"pool_handles", PoolHandles},
    {"overlapping_slots", OverlappingSlots},
    {"payloads_change", PayloadsChange},
    {"descriptors_change", DescriptorsChange},
    {"counters_change", CountersChange},
    {"header_changes", HeaderChanges},
};

}  // namespace

std::span<const Attack> WindowAttacks() {
  return kAttacks;
}

std::vector<Attack> AllAttacks() {
  std::vector<Attack> all;
  for (const auto& attacks : {WindowAttacks(), LoadAttacks(), ProcessAttacks()}) {
    all.insert(all.end(), attacks.begin(), attacks.end());
  }
  return all;
}

}  // namespace tmem
