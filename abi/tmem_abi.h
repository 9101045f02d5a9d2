/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between a guest and its host: one window of shared memory, three doorbells.
 *
 * abi/README.md specifies the protocol; this header gives its layout and its numbers. It compiles
 * as kernel C, user-space C11 and C++20. All integers are little-endian; x86-64 only.
 *
 * Who writes a field stands beside it: G the guest, H the host. Either side may find garbage in
 * what the other one writes: copy once, check the copy, use only the copy.
 */
#ifndef TMEM_ABI_H
#define TMEM_ABI_H

#ifdef __KERNEL__
#include <linux/types.h>
typedef __u64 tmem_u64;
typedef __u32 tmem_u32;
typedef __u16 tmem_u16;
typedef __u8 tmem_u8;
#else
#include <stdint.h>
typedef uint64_t tmem_u64;
typedef uint32_t tmem_u32;
typedef uint16_t tmem_u16;
typedef uint8_t tmem_u8;
#endif

/* "tmem-kvm" read as a little-endian 64-bit number. */
#define TMEM_MAGIC 0x6d766b2d6d656d74ULL

/* A host serves every version from `version_min` to `version`; the guest chooses one. */
#define TMEM_ABI_VERSION 1u

#define TMEM_PAGE_SHIFT 12u
#define TMEM_PAGE_BYTES 4096u
#define TMEM_CACHE_LINE_BYTES 64u

/* Bounds of the layout, which both sides check before they use a window. */
#define TMEM_MIN_RING_ENTRIES 16u
#define TMEM_MAX_RING_ENTRIES 4096u
#define TMEM_MAX_KEY_LANES 32u
#define TMEM_MAX_LANE_SLOTS 4096u
#define TMEM_MAX_WINDOW_BYTES (256u << 20)

/* Pools a guest may own at once (rule K4); the host may offer less in `max_pools`. */
#define TMEM_MAX_POOLS 64u

/* Ranges one report may carry: a slot holds 4096 / 32 of them, page reporting uses 32. */
#define TMEM_MAX_REPORT_RANGES 128u

/* Keys whose indices share all bits but the lowest five share a lane. */
#define TMEM_LANE_BLOCK_SHIFT 5u
#define TMEM_LANE_BLOCK_PAGES 32u

/* Features: offered by H in `features_offered`, chosen by G in `features_chosen`. */
#define TMEM_FEATURE_EPHEMERAL (1ULL << 0) /* ephemeral pools */
#define TMEM_FEATURE_PERSISTENT (1ULL << 1) /* persistent pools and credits */
#define TMEM_FEATURE_FILL (1ULL << 2) /* TMEM_DESC_FILL in puts and in get results */
#define TMEM_FEATURE_REPORT (1ULL << 3) /* TMEM_OP_REPORT */
#define TMEM_FEATURE_SHRINK (1ULL << 4) /* `shrink_target_pages`, `drain`, and their answers */

/* ---- header page: offset 0 of the window ------------------------------------------------- */

/*
 * Geometry. Written by the side that allocates the window, before the other one sees it, and
 * constant from then on: H for ivshmem and in-process, G for the hypercall.
 */
struct tmem_geometry {
	tmem_u64 magic; /* TMEM_MAGIC */
	tmem_u32 version; /* newest version the writer speaks */
	tmem_u32 version_min; /* oldest version the writer speaks */
	tmem_u64 window_bytes; /* a multiple of TMEM_PAGE_BYTES */
	tmem_u32 page_bytes; /* TMEM_PAGE_BYTES */
	tmem_u32 key_lanes; /* a power of two; the control lane comes after them */
	tmem_u32 ring_entries; /* a power of two: descriptors of a key lane */
	tmem_u32 lane_slots; /* payload slots of a key lane */
	tmem_u32 control_ring_entries; /* a power of two */
	tmem_u32 control_slots;
	tmem_u64 zero[2];
};

/* What the host offers and announces; written by H only. */
struct tmem_host_page {
	tmem_u64 features_offered;
	tmem_u32 max_pools;
	tmem_u32 max_report_ranges;
	tmem_u64 register_answer; /* = register_request once that registration is done */
	tmem_u32 register_status; /* enum tmem_status of that registration */
	tmem_u32 zero0;
	tmem_u64 epoch; /* changes when ephemeral contents are no longer vouched for */
	tmem_u64 resets; /* counts channel resets by H; the guest registers anew */
	tmem_u64 zero1[2];

	/* Its own cache line: read by the guest after every publish. */
	tmem_u32 awake; /* 1: H polls the lanes, do not ring */
	tmem_u32 zero2;
	tmem_u64 heartbeat; /* grows each time H has looked at the lanes after a ring */
	tmem_u64 zero3[6];

	/* Notices; H's own counts decide. */
	tmem_u64 credits_granted; /* credits granted since registration, free-running */
	tmem_u64 credits_target; /* unused credits above this are to be returned */
	tmem_u64 shrink_target_pages; /* clean cache H would still like back; 0: none */
	tmem_u32 frozen; /* 1: new puts are refused (X2) */
	tmem_u32 drain; /* number of the wish that persistent pages go home; 0: none */
	tmem_u64 zero5[4];
};

/* What the guest declares; written by G only. */
struct tmem_guest_page {
	tmem_u64 boot_id[2]; /* random, not zero; anew at each boot */
	tmem_u64 features_chosen; /* a subset of features_offered */
	tmem_u32 version_chosen;
	tmem_u32 zero0;
	tmem_u64 register_request; /* random, not zero; anew at each registration; written last */
	tmem_u64 zero1[3];
};

struct tmem_header {
	struct tmem_geometry geometry; /* offset 0 */
	struct tmem_host_page host; /* offset 64 */
	struct tmem_guest_page guest; /* offset 256 */
};

/* ---- lanes ------------------------------------------------------------------------------- */

/*
 * A lane is [head page][ring][slots], each part starting on a page. Counters are 64 bits wide and
 * free-running; entry i of a ring is descriptor i & (ring_entries - 1). Each side keeps its own
 * copy of its counter in its own memory and compares it with the window's on every hand-over (X3).
 */
struct tmem_lane_head {
	/* G's cache line */
	tmem_u64 posted; /* descriptors published */
	tmem_u32 guest_waits; /* 1: some task sleeps until `done` moves, ring for it */
	tmem_u32 zero0;
	tmem_u64 zero1[6];
	/* H's cache line */
	tmem_u64 done; /* descriptors completed, in order; their results are valid */
	tmem_u64 zero2[7];
};

enum tmem_op {
	TMEM_OP_NOP = 0, /* any lane */
	/* key lanes */
	TMEM_OP_PUT = 1,
	TMEM_OP_GET = 2,
	TMEM_OP_FLUSH = 3, /* index .. index + count - 1 */
	TMEM_OP_FLUSH_OBJECT = 4,
	TMEM_OP_FLUSH_POOL = 5,
	/* control lane */
	TMEM_OP_POOL_CREATE = 16, /* value: enum tmem_pool_kind; result value: the handle */
	TMEM_OP_POOL_DESTROY = 17,
	TMEM_OP_CREDIT_RETURN = 18, /* value: credits given back */
	TMEM_OP_REPORT = 19, /* value: slot; count: ranges in it */
	TMEM_OP_SHRUNK = 20, /* value: pages of cache given up; count: enum tmem_shrink_outcome */
	TMEM_OP_DRAINED = 21, /* value: persistent pages brought home; count: the same */
};

/* How far G is with what `shrink_target_pages` or `drain` asks for. */
enum tmem_shrink_outcome {
	TMEM_SHRINK_CONTINUES = 0,
	TMEM_SHRINK_NOTHING_LEFT = 1, /* a shrink: no more to give; a drain: all are home */
	TMEM_SHRINK_NO_MEMORY = 2, /* a drain: G has no room for more */
	TMEM_SHRINK_UNREADABLE = 3, /* a drain: what is left cannot be read */
};

enum tmem_pool_kind {
	TMEM_POOL_EPHEMERAL = 1,
	TMEM_POOL_PERSISTENT = 2,
};

/* Or'ed into the kind. Reserved: always refused with TMEM_STATUS_BAD_FIELD (K2). */
#define TMEM_POOL_SHARED (1ULL << 32)

/* Written by G in a put, by H in the result of a get: `value` is the word that fills the page. */
#define TMEM_DESC_FILL (1u << 0)
#define TMEM_DESC_FLAGS (TMEM_DESC_FILL)

/* What became of a descriptor. Ranges: 1-15 done, 16-63 refused in order, 64-127 malformed. */
enum tmem_status {
	TMEM_STATUS_NONE = 0, /* not completed; what G posts */
	TMEM_STATUS_OK = 1, /* done; for a get: a hit */
	TMEM_STATUS_MISS = 2, /* get: the host does not have the key */
	TMEM_STATUS_NOT_TAKEN = 3, /* report: withdrawn by G before H took it */

	TMEM_STATUS_NO_SPACE = 16, /* limit, quota, or admission; the key is gone */
	TMEM_STATUS_NO_CREDIT = 17, /* persistent put beyond the credits; the key is gone */
	TMEM_STATUS_FROZEN = 18, /* puts are refused; the key is gone */
	TMEM_STATUS_CORRUPT = 19, /* checksum of a persistent page differs */
	TMEM_STATUS_TOO_MANY = 20, /* pools */
	TMEM_STATUS_UNSUPPORTED = 21, /* version or feature not offered, or not chosen */
	TMEM_STATUS_INHIBITED = 22, /* report refused by the operator or by R4/R6 */
	TMEM_STATUS_CODEC = 23, /* put: the host could not encode the page; the key is gone */

	TMEM_STATUS_BAD_OP = 64, /* unknown, or not of this lane's kind */
	TMEM_STATUS_BAD_FIELD = 65, /* a reserved field or unknown flag is not zero, out of range */
	TMEM_STATUS_BAD_SLOT = 66, /* no such slot in this lane */
	TMEM_STATUS_BAD_POOL = 67, /* no such pool */
	TMEM_STATUS_STALE_POOL = 68, /* the handle's generation is over */
	TMEM_STATUS_BAD_LANE = 69, /* the key belongs to another lane */
	TMEM_STATUS_BAD_RANGE = 70, /* report: outside RAM, unaligned, wrapping, over the window */
};

/* Life of a report, in `state`. Only compare-and-swap moves it. */
enum tmem_report_state {
	TMEM_REPORT_NONE = 0,
	TMEM_REPORT_POSTED = 1, /* by G, before `posted` moves over it */
	TMEM_REPORT_TAKEN = 2, /* by H, from POSTED: H may drop, pages stay isolated */
	TMEM_REPORT_WITHDRAWN = 3, /* by G, from POSTED: H must not drop */
	TMEM_REPORT_ANSWERED = 4, /* by H, from TAKEN: per-range status is in the slot */
};

struct tmem_desc {
	tmem_u8 op; /* enum tmem_op */
	tmem_u8 flags; /* TMEM_DESC_* */
	tmem_u16 status; /* enum tmem_status: 0 by G, the outcome by H */
	tmem_u32 state; /* enum tmem_report_state; 0 for every other operation */
	tmem_u64 pool; /* handle: generation << 32 | id */
	tmem_u64 object[3]; /* 192-bit object id */
	tmem_u64 index; /* page number in the object */
	tmem_u32 count; /* FLUSH: pages, not 0; REPORT: ranges; SHRUNK, DRAINED: outcome; else 0 */
	tmem_u32 tag; /* persistent put: kept; result of a persistent get: as it was put */
	tmem_u64 value; /* slot, fill word, or as the operation says; result: as it says */
};

/* One range of a report, in the report's slot. */
struct tmem_report_range {
	tmem_u64 address; /* G: guest physical address */
	tmem_u64 bytes; /* G */
	tmem_u32 status; /* H: enum tmem_status */
	tmem_u32 zero0;
	tmem_u64 zero1;
};

/* ---- hypercall doorbell ------------------------------------------------------------------ */

/* Number in rax; a parameter of host module and guest, away from Linux's kvm_para.h (1-12). */
#define TMEM_HYPERCALL_DEFAULT 0x746d656dULL /* "memt" in memory order */

/* Operation in rbx. */
enum tmem_hypercall {
	TMEM_HC_NEGOTIATE = 0, /* rcx = rdx = rsi = 0; answers TMEM_HC_MAGIC | version */
	TMEM_HC_REGISTER = 1, /* rcx: gpa of the list of window pages, rdx: pages in it */
	TMEM_HC_KICK = 2, /* rcx: set of lanes, bit i = lane i */
	TMEM_HC_CALL = 3, /* rcx: set of lanes; waits until all they held is done */
	TMEM_HC_UNREGISTER = 4,
};

#define TMEM_HC_MAGIC 0x746d656d00000000ULL

/* Answers but NEGOTIATE's: TMEM_HC_TAG | answer. Anything else: no tmem there. */
#define TMEM_HC_TAG 0x746d000000000000ULL
enum tmem_hypercall_answer {
	TMEM_HC_OK = 0,
	TMEM_HC_PENDING = 1, /* 1 ms is over, call again */
	TMEM_HC_GONE = 2, /* no daemon, or the channel is torn down */
	TMEM_HC_NOT_REGISTERED = 3,
	TMEM_HC_BAD_ARGUMENT = 4,
	TMEM_HC_BAD_ADDRESS = 5,
	TMEM_HC_REFUSED = 6, /* no rule for this guest, or too many guests */
	TMEM_HC_BAD_VERSION = 7,
};

/* ---- arithmetic both sides share --------------------------------------------------------- */

/* One round of the lane hash: xor in a word, multiply, fold the high half down. */
static inline tmem_u64 tmem_mix(tmem_u64 hash, tmem_u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
	return hash ^ (hash >> 32);
}

/*
 * The key lane of (pool, object, index). `key_lanes` is a power of two. Part of the ABI: both sides
 * must compute the same, so that operations on one key keep their order.
 */
static inline tmem_u32 tmem_lane_of(tmem_u64 pool, const tmem_u64 object[3], tmem_u64 index,
				    tmem_u32 key_lanes)
{
	tmem_u64 hash = tmem_mix(0, pool);

	hash = tmem_mix(hash, object[0]);
	hash = tmem_mix(hash, object[1]);
	hash = tmem_mix(hash, object[2]);
	hash = tmem_mix(hash, index >> TMEM_LANE_BLOCK_SHIFT);
	return (tmem_u32)hash & (key_lanes - 1);
}

static inline tmem_u64 tmem_pages_for(tmem_u64 bytes)
{
	return (bytes + TMEM_PAGE_BYTES - 1) >> TMEM_PAGE_SHIFT;
}

/* Bytes of a lane with these numbers of descriptors and slots. */
static inline tmem_u64 tmem_lane_bytes(tmem_u32 ring_entries, tmem_u32 slots)
{
	return (1 + tmem_pages_for((tmem_u64)ring_entries * sizeof(struct tmem_desc)) + slots)
	       << TMEM_PAGE_SHIFT;
}

/* Offset of key lane `lane` in the window; lane == key_lanes gives the control lane. */
static inline tmem_u64 tmem_lane_offset(const struct tmem_geometry *geometry, tmem_u32 lane)
{
	return TMEM_PAGE_BYTES +
	       lane * tmem_lane_bytes(geometry->ring_entries, geometry->lane_slots);
}

/* Offset of the first slot within a lane. */
static inline tmem_u64 tmem_slots_offset(tmem_u32 ring_entries)
{
	return tmem_lane_bytes(ring_entries, 0);
}

/* Bytes that a window of this geometry needs at least. */
static inline tmem_u64 tmem_window_bytes_needed(const struct tmem_geometry *geometry)
{
	return tmem_lane_offset(geometry, geometry->key_lanes) +
	       tmem_lane_bytes(geometry->control_ring_entries, geometry->control_slots);
}

/* ---- the layout, asserted by every build that includes this ------------------------------ */

#define TMEM_OFFSET(type, field) __builtin_offsetof(type, field)
#ifdef __cplusplus
#define TMEM_ASSERT(condition, text) static_assert(condition, text)
#else
#define TMEM_ASSERT(condition, text) _Static_assert(condition, text)
#endif

TMEM_ASSERT(sizeof(struct tmem_geometry) == 64, "geometry is one cache line");
TMEM_ASSERT(sizeof(struct tmem_host_page) == 192, "the host's part is three cache lines");
TMEM_ASSERT(sizeof(struct tmem_guest_page) == 64, "the guest's part is one cache line");
TMEM_ASSERT(sizeof(struct tmem_header) == 320, "the header is five cache lines");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_header, host) == 64, "host part");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_header, host.awake) == 128, "flags have their own line");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_header, host.credits_granted) == 192, "notices");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_header, guest) == 256, "guest part");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_header, guest.register_request) == 288, "request");
TMEM_ASSERT(sizeof(struct tmem_lane_head) == 128, "a lane head is two cache lines");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_lane_head, done) == 64, "host's line of a lane head");
TMEM_ASSERT(sizeof(struct tmem_desc) == 64, "a descriptor is one cache line");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_desc, pool) == 8, "pool");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_desc, object) == 16, "object");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_desc, index) == 40, "index");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_desc, count) == 48, "count");
TMEM_ASSERT(TMEM_OFFSET(struct tmem_desc, value) == 56, "value");
TMEM_ASSERT(sizeof(struct tmem_report_range) == 32, "a report range");

#endif /* TMEM_ABI_H */
