// SPDX-License-Identifier: GPL-2.0-only
// The page store: every guest's pages, compressed and deduplicated, within one hard limit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "abi/tmem_abi.h"
#include "compress/page.h"
#include "host-store/base/result.h"

namespace tmem {

class FaultPlan;

enum class GuestId : uint32_t {};

// Generation << 32 | id, as the guest names it on the wire; 0 is never a pool.
enum class PoolHandle : uint64_t {};

enum class PoolKind : uint8_t {
  kEphemeral = TMEM_POOL_EPHEMERAL,
  kPersistent = TMEM_POOL_PERSISTENT
};

// What became of an operation. The values are the wire's, so that no table translates them.
enum class Outcome : uint16_t {
  kOk = TMEM_STATUS_OK,
  kMiss = TMEM_STATUS_MISS,
  kNoSpace = TMEM_STATUS_NO_SPACE,
  kNoCredit = TMEM_STATUS_NO_CREDIT,
  kFrozen = TMEM_STATUS_FROZEN,
  kCorrupt = TMEM_STATUS_CORRUPT,
  kTooMany = TMEM_STATUS_TOO_MANY,
  kCodec = TMEM_STATUS_CODEC,
  kBadPool = TMEM_STATUS_BAD_POOL,
  kStalePool = TMEM_STATUS_STALE_POOL,
};

struct ObjectId {
  std::array<uint64_t, 3> words;
  bool operator==(const ObjectId&) const = default;
};

struct PageKey {
  PoolHandle pool;
  ObjectId object;
  uint64_t index;
};

// Pages first .. first + count - 1 of an object. Flushes clip at the last index instead of
// wrapping.
struct PageRange {
  uint64_t first;
  uint64_t count;
};

// Which keys a flush that arrived through one lane may remove (F3): those of that lane.
struct LaneFilter {
  uint32_t lane;
  uint32_t key_lanes;  // power of two; 1 = every key
};

// A flush that is done piece by piece, so that one of a million pages keeps nobody waiting.
struct FlushProgress {
  Outcome outcome = Outcome::kOk;  // kOk, kBadPool, kStalePool
  uint64_t pages = 0;              // gone so far
  uint64_t steps = 0;              // blocks and objects looked at so far
  bool done = true;

  // What it covers, and where to go on: the store's business.
  PoolHandle pool{};
  PoolKind kind = PoolKind::kEphemeral;
  std::optional<ObjectId> object = {};
  uint64_t first = 0, last = UINT64_MAX;
  LaneFilter filter{0, 1};
  bool ends_pool = false;
  uint32_t shard = 0;
  uint64_t next = 0;
  std::optional<ObjectId> at_object = {};
  std::optional<uint64_t> at_base = {};
};

struct GuestOptions {
  std::string name;
  std::string domain;  // trust domain: pages are shared inside it only; empty = a domain of its own
  // Its share of the workers' time and of ephemeral memory, against other guests' weights; from 1.
  std::uint32_t weight = 1;
};

struct StoreOptions {
  uint64_t limit_bytes;     // everything the process holds is counted against this
  uint64_t pool_min_bytes;  // what credits are granted against; at most limit_bytes
  uint64_t landing_bytes;   // bound of the landing buffer; 0 = a sane part of the limit
  uint64_t overhead_bytes;  // charged up front for program, stacks, allocator slack
  uint64_t seed;            // for hash keys and random choices; the daemon passes true randomness
  uint32_t max_guests = 64;
  FaultPlan* faults = nullptr;  // tests: makes allocations and codecs fail; outlives the store
};

struct GetResult {
  Outcome outcome;
  bool filled;  // the page is fill_word repeated and nothing was written to the buffer
  uint64_t fill_word;
  uint32_t tag;  // as put
};

// One guest's figures; counters are free-running since the guest was added.
struct GuestStatus {
  GuestId id;
  std::string name;
  std::string domain;
  uint64_t ephemeral_pages, persistent_pages;
  uint64_t stored_bytes;  // full stored size, sharers each charged in full
  uint64_t credits;       // granted, neither used nor returned
  // puts_codec stays 0: a page that the codec refuses is kept raw.
  uint64_t puts_ok, puts_no_space, puts_no_credit, puts_frozen, puts_codec, puts_bad_pool;
  uint64_t gets_hit, gets_miss, gets_corrupt, gets_bad_pool;
  uint64_t flushes, pages_flushed, pages_evicted, pages_replaced;
};

struct StoreStatus {
  uint64_t limit_bytes, pool_min_bytes;
  uint64_t used_bytes;  // all of: slabs, landing, metadata, reserved (windows), overhead
  uint64_t slab_bytes, landing_bytes, metadata_bytes, reserved_bytes, overhead_bytes;
  uint64_t index_bytes;  // of metadata: objects, blocks, keys and their tables
  uint64_t pages;        // keys held
  uint64_t same_filled, duplicates, compressed, raw, landed;  // how those keys are held
  uint64_t saved_by_dedup_bytes;
  uint64_t epoch;
  std::vector<GuestStatus> guests;
};

// Thread rule: every method may be called from any thread at any time. The order of operations on
// one key is the caller's: a lane is worked by one thread at a time. A guest's id must not be used
// after RemoveGuest has returned.
class Store {
 public:
  // Errors: options out of range, no memory for the fixed parts.
  static Result<std::unique_ptr<Store>> Create(const StoreOptions& options);
  ~Store();

  // Errors: too many guests, name taken.
  Result<GuestId> AddGuest(const GuestOptions& options);
  // Destroys the guest's pools (K5), frees its memory and its credits.
  void RemoveGuest(GuestId guest);
  // The same, but the guest stays: a reboot or a reset channel.
  void ResetGuest(GuestId guest);

  struct PoolOutcome {
    Outcome outcome;  // kOk, kTooMany, kNoSpace
    PoolHandle pool;
  };
  PoolOutcome CreatePool(GuestId guest, PoolKind kind);
  struct FlushOutcome {
    Outcome outcome;  // kOk, kBadPool, kStalePool
    uint64_t pages;   // how many went
  };
  FlushOutcome DestroyPool(GuestId guest, PoolHandle pool);
  // In pieces, as BeginFlush: the handle ends at once, ContinueFlush removes the pages.
  FlushProgress BeginDestroyPool(GuestId guest, PoolHandle pool);
  // ResetGuest in pieces: every handle and all credits end at once, Reap removes the pages.
  void BeginResetGuest(GuestId guest);
  // As of a guest that was just added, for one that begins anew before all its pages are gone.
  void RestartCounters(GuestId guest);
  // Removes some pages of pools that have ended; `progress` is the caller's from call to call and
  // begins empty. False once there are none.
  bool Reap(GuestId guest, FlushProgress& progress);

  // Keeps a copy of `page`. It is read exactly once, front to back, so the bytes may lie in memory
  // that a guest changes meanwhile. Whatever the outcome but kBadPool/kStalePool, older data under
  // this key is gone (P1, P2). A persistent put consumes one credit (kNoCredit without one) and
  // then cannot fail (P3).
  Outcome Put(GuestId guest, const PageKey& key, PageView page, uint32_t tag);
  // The same for a page that is one 8-byte word repeated.
  Outcome PutFilled(GuestId guest, const PageKey& key, uint64_t fill_word, uint32_t tag);
  // Takes an ephemeral page out, copies a persistent one (G1). `out` is written once, after the
  // bytes were verified (G3), and never read. Outcomes: kOk, kMiss, kCorrupt, kBadPool, kStalePool.
  // Bytes that do not verify: kMiss for an ephemeral page, which is gone then, and kCorrupt for a
  // persistent one, which stays; both count in gets_corrupt, for the daemon to log.
  GetResult Get(GuestId guest, const PageKey& key, PageBuffer out);
  // Range, object, pool: never needs room, always takes effect, whether found or not (F1).
  FlushOutcome Flush(GuestId guest, PoolHandle pool, const ObjectId& object, PageRange range,
                     LaneFilter filter);
  FlushOutcome FlushObject(GuestId guest, PoolHandle pool, const ObjectId& object,
                           LaneFilter filter);
  FlushOutcome FlushPool(GuestId guest, PoolHandle pool, LaneFilter filter);
  // The same three, piece by piece. The caller sees to it that nothing else touches the keys that
  // it covers before it is done.
  FlushProgress BeginFlush(GuestId guest, PoolHandle pool, const ObjectId& object, PageRange range,
                           LaneFilter filter);
  FlushProgress BeginFlushObject(GuestId guest, PoolHandle pool, const ObjectId& object,
                                 LaneFilter filter);
  FlushProgress BeginFlushPool(GuestId guest, PoolHandle pool, LaneFilter filter);
  // Removes at most kFlushPiecePages more, and looks at no more than kFlushPieceSteps blocks and
  // objects for them, whether it finds anything or not. Returns how many it removed.
  size_t ContinueFlush(GuestId guest, FlushProgress& progress);
  static constexpr size_t kFlushPiecePages = 16;
  static constexpr size_t kFlushPieceSteps = 32;

  // Puts are refused (X2) or accepted again; gets and flushes work either way.
  enum class Admission : uint8_t { kOpen, kFrozen };
  void SetAdmission(GuestId guest, Admission admission);

  // Grants what pool_min allows once the guest has a persistent pool, up to `unused_at_most` unused
  // credits, and not beyond its share of pool_min: by weight, among the guests that have one.
  // Returns all credits granted to this guest since it was added or reset, free-running:
  // the figure for `credits_granted`.
  uint64_t TopUpCredits(GuestId guest, uint64_t unused_at_most);
  // Takes back up to `credits` unused ones; returns how many it took.
  uint64_t ReturnCredits(GuestId guest, uint64_t credits);

  // Compresses up to `max_pages` pages that Put only landed; returns how many it did. Called by
  // workers between batches, when no get waits.
  size_t Settle(size_t max_pages);
  // The same of one guest's pages only.
  size_t SettleOf(GuestId guest, size_t max_pages);
  // How many of the guest's pages wait to be settled.
  uint32_t landed_of(GuestId guest) const;
  // Whether the guest has landed so much that a page of its own should be settled before its next
  // put, so that other guests' puts find room to land. Cheap.
  bool MustSettle(GuestId guest) const;

  // Memory that others hold in this process, such as windows, counted against the limit; may evict.
  // Error: does not fit even so.
  Result<void> Reserve(uint64_t bytes);
  void Unreserve(uint64_t bytes);

  // Another limit, at most the one it was made with. A lower one holds as soon as Shrink has
  // removed the ephemeral pages that are over it; it is not brought below what was promised to
  // persistent puts and given to windows.
  void SetLimit(uint64_t limit_bytes);
  // Removes some ephemeral pages; false when the limit that was set holds, or nothing can go now.
  bool Shrink();
  // The limit that holds now.
  uint64_t limit_bytes() const;
  // The lowest limit under which all of pool_min can be promised and all guests can be added.
  uint64_t MinLimitBytes() const;

  // Ends every ephemeral pool of every guest; the epoch changes.
  void EndEpoch();
  uint64_t epoch() const;

  // What the whole store holds now, the figure that the limit bounds. Cheap.
  uint64_t used_bytes() const;
  StoreStatus Status() const;
  GuestStatus StatusOf(GuestId guest) const;

  // The memfds that hold everything: from them alone every key's page can be found (records.h). The
  // descriptors stay the store's.
  struct MemoryFileView {
    std::string name;
    int fd;
    uint64_t stride_bytes;
  };
  std::vector<MemoryFileView> MemoryFiles() const;
  // Recounts everything against every figure. For tests, while no other call is under way. Errors:
  // the first thing that does not add up.
  Result<void> CheckInvariants() const;

 private:
  class Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tmem
