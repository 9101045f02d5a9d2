// SPDX-License-Identifier: GPL-2.0-only
// Too much of what is allowed: floods, storms, and the end of every resource.
#include <sys/eventfd.h>

#include "host-store/window/shared_memory_access.h"
#include "tests/hostile/attacks.h"

namespace tmem {
namespace {

// Slices that suffice to fill a small store, also with sanitizers.
constexpr std::uint32_t kToTheEnd = 6;

void FillSlotsRandomly(Attacker& attacker, std::uint32_t lane) {
  const LaneView& view = attacker.view().lane(lane);
  for (std::uint32_t slot = 0; slot < view.slots(); ++slot) {
    auto* words = reinterpret_cast<std::uint64_t*>(view.Slot(slot).data());
    for (std::size_t i = 0; i < kPageBytes / 8; ++i) StoreRelaxed(words[i], attacker.Random());
  }
}

// Puts with a fill word: a record or three each, no bytes.
void PostFilled(Attacker& attacker, std::uint64_t pool, std::uint64_t object, std::uint64_t index) {
  tmem_desc put = attacker.KeyDesc(TMEM_OP_PUT, pool, object, index);
  put.flags = TMEM_DESC_FILL;
  put.value = attacker.Random();
  attacker.Post(attacker.LaneOf(put), put);
}

void DoorbellFlood(Attacker& attacker) {
  while (!attacker.Over()) {
    for (int i = 0; i < 256; ++i) attacker.client().Kick();
  }
}

// Whole rings of small work, always asking to be notified, never looking.
void NotificationFlood(Attacker& attacker) {
  while (!attacker.Over()) {
    for (std::uint32_t lane = 0; lane < attacker.view().lane_count(); ++lane) {
      StoreRelaxed(attacker.view().lane(lane).head().guest_waits, tmem_u32{1});
      for (int i = 0; i < 16; ++i) attacker.Post(lane, tmem_desc{});
      attacker.Publish(lane);
    }
  }
}

// A sparse object, one key in each block, then ranges over all of it that remove nothing.
void FlushStorm(Attacker& attacker) {
  const std::uint64_t pool = attacker.Pool(TMEM_POOL_EPHEMERAL);
  const std::uint64_t far = std::uint64_t{1} << 60;
  for (std::uint64_t block = 0; block < 20000 && !attacker.Over(); ++block) {
    PostFilled(attacker, pool, 77, block * TMEM_LANE_BLOCK_PAGES);
    if (block % 64 == 0) attacker.PublishAll();
  }
  while (!attacker.Over()) {
    for (int i = 0; i < 64; ++i) {
      tmem_desc flush = attacker.KeyDesc(TMEM_OP_FLUSH, pool, 77, far);
      flush.count = 0xffffffffu;
      if (attacker.OneIn(64)) flush.index = 0;
      if (attacker.OneIn(8)) flush.index = attacker.Nasty();
      attacker.Post(attacker.AnyKeyLane(), flush);
    }
    attacker.PublishAll();
  }
}

// Objects and pools flushed through every lane, a ring at a time.
void FlushAll(Attacker& attacker) {
  const std::uint64_t pool = attacker.Pool(TMEM_POOL_EPHEMERAL);
  while (!attacker.Over()) {
    for (std::uint64_t i = 0; i < 256; ++i) PostFilled(attacker, pool, i, attacker.Below(4096));
    for (std::uint32_t lane = 0; lane < attacker.view().geometry().key_lanes; ++lane) {
      for (int i = 0; i < 32; ++i) {
        const bool object = attacker.OneIn(2);
        attacker.Post(lane, attacker.KeyDesc(object ? TMEM_OP_FLUSH_OBJECT : TMEM_OP_FLUSH_POOL,
                                             pool, object ? attacker.Below(256) : 0, 0));
      }
    }
    attacker.PublishAll();
  }
}

void RegistrationStorm(Attacker& attacker) {
  while (!attacker.Over()) {
    attacker.RequestRegistration(attacker.OneIn(4) ? attacker.Nasty() : TMEM_FEATURE_EPHEMERAL);
    if (attacker.OneIn(4)) std::this_thread::yield();
  }
  attacker.ForgetRegistration();
}

// A full house each time: what it held is dropped at each registration.
void RegisterFull(Attacker& attacker) {
  while (!attacker.Over()) {
    const std::uint64_t pool = attacker.Pool(TMEM_POOL_EPHEMERAL);
    for (std::uint64_t i = 0; i < 4096 && !attacker.Over(); ++i) {
      PostFilled(attacker, pool, i >> 10, i);
      if (i % 128 == 0) attacker.PublishAll();
    }
    attacker.ForgetRegistration();
    if (!attacker.EnsureRegistered()) return;
  }
}

void PoolsExhausted(Attacker& attacker) {
  const std::uint32_t control = attacker.view().control_lane();
  while (!attacker.Over()) {
    for (std::uint32_t i = 0; i < TMEM_MAX_POOLS + 8; ++i) {
      tmem_desc create{};
      create.op = TMEM_OP_POOL_CREATE;
      create.value = 1 + attacker.Below(2);
      if (attacker.OneIn(16)) create.value |= TMEM_POOL_SHARED;
      const tmem_desc answer = attacker.Do(control, create);
      if (answer.status == TMEM_STATUS_OK) attacker.RememberHandle(answer.value);
    }
    attacker.ForgetRegistration();
    if (!attacker.EnsureRegistered()) return;
  }
}

// Objects, blocks and keys without end, all in the index and none with bytes.
void KeysExhausted(Attacker& attacker) {
  const std::uint64_t pool = attacker.Pool(TMEM_POOL_EPHEMERAL);
  while (!attacker.Over()) {
    for (int i = 0; i < 128; ++i) PostFilled(attacker, pool, attacker.Random(), attacker.Random());
    attacker.PublishAll();
  }
}

// The lane hash has no key: everything into one lane and one shard.
void OneLane(Attacker& attacker) {
  const std::uint64_t pool = attacker.Pool(TMEM_POOL_EPHEMERAL);
  while (!attacker.Over()) {
    for (int i = 0; i < 64; ++i) {
      tmem_desc put = attacker.KeyDesc(TMEM_OP_PUT, pool, 9, attacker.Random());
      put.flags = TMEM_DESC_FILL;
      while (attacker.LaneOf(put) != 0) put.index += TMEM_LANE_BLOCK_PAGES;
      attacker.Post(0, put);
    }
    attacker.Publish(0);
  }
}

// Pages that do not compress, as fast as they are taken: landing buffer, codecs, eviction.
void IncompressibleFlood(Attacker& attacker) {
  const std::uint64_t pool = attacker.Pool(TMEM_POOL_EPHEMERAL);
  FillSlotsRandomly(attacker, 0);
  while (!attacker.Over()) {
    for (std::uint32_t i = 0; i < 64; ++i) {
      tmem_desc put = attacker.KeyDesc(TMEM_OP_PUT, pool, 5, attacker.Below(1u << 20));
      while (attacker.LaneOf(put) != 0) put.index += TMEM_LANE_BLOCK_PAGES;
      put.value = attacker.Below(attacker.view().geometry().lane_slots);
      auto* words = reinterpret_cast<std::uint64_t*>(
          attacker.view().lane(0).Slot(static_cast<std::uint32_t>(put.value)).data());
      StoreRelaxed(words[attacker.Below(512)], attacker.Random());  // no two equal
      attacker.Post(0, put);
    }
    attacker.Publish(0);
  }
}

// One page under many keys: sharers without end, all dropped at once.
void ManySharers(Attacker& attacker) {
  const std::uint64_t pool = attacker.Pool(TMEM_POOL_EPHEMERAL);
  FillSlotsRandomly(attacker, attacker.AnyKeyLane());
  while (!attacker.Over()) {
    for (std::uint64_t i = 0; i < 256; ++i) {
      const tmem_desc put = attacker.KeyDesc(TMEM_OP_PUT, pool, 6, attacker.Below(1u << 16));
      attacker.Post(attacker.LaneOf(put), put);
    }
    if (attacker.OneIn(16)) {
      for (std::uint32_t lane = 0; lane < attacker.view().geometry().key_lanes; ++lane) {
        attacker.Post(lane, attacker.KeyDesc(TMEM_OP_FLUSH_OBJECT, pool, 6, 0));
      }
    }
    attacker.PublishAll();
  }
}

// Every promise the host has to give, filled with pages that do not compress; then gone.
void PersistentHog(Attacker& attacker) {
  const std::uint64_t pool = attacker.Pool(TMEM_POOL_PERSISTENT);
  for (std::uint32_t lane = 0; lane < 2; ++lane) FillSlotsRandomly(attacker, lane);
  while (!attacker.Over()) {
    for (int i = 0; i < 64; ++i) {
      tmem_desc put = attacker.KeyDesc(TMEM_OP_PUT, pool, 7, attacker.Below(1u << 20));
      put.tag = static_cast<tmem_u32>(attacker.Random());
      put.value = attacker.Below(attacker.view().geometry().lane_slots);
      attacker.Post(attacker.LaneOf(put), put);
    }
    attacker.PublishAll();
  }
}

// Gives back credits that it never had, and puts without any.
void CreditLies(Attacker& attacker) {
  const std::uint32_t control = attacker.view().control_lane();
  while (!attacker.Over()) {
    tmem_desc back{};
    back.op = TMEM_OP_CREDIT_RETURN;
    back.value = attacker.OneIn(2) ? ~std::uint64_t{0} : attacker.Nasty();
    attacker.Post(control, back);
    for (int i = 0; i < 64; ++i) {
      PostFilled(attacker, attacker.Pool(TMEM_POOL_PERSISTENT), 8, attacker.Below(8192));
    }
    attacker.PublishAll();
  }
}

constexpr Attack kAttacks[] = {
    {"doorbell_flood", DoorbellFlood},
    {"notification_flood", NotificationFlood},
    {"flush_storm", FlushStorm},
    {"flush_all", FlushAll},
    {"registration_storm", RegistrationStorm},
    {"register_full", RegisterFull},
    {"pools_exhausted", PoolsExhausted},
    {"keys_exhausted", KeysExhausted, kToTheEnd},
    {"one_lane", OneLane, kToTheEnd},
    {"incompressible_flood", IncompressibleFlood, kToTheEnd},
    {"many_sharers", ManySharers},
    {"persistent_hog", PersistentHog, kToTheEnd},
    {"credit_lies", CreditLies},
};

}  // namespace

std::span<const Attack> LoadAttacks() {
  return kAttacks;
}

}  // namespace tmem
