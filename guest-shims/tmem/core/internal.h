/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the core share and nobody else calls. */
#ifndef TMEM_CORE_INTERNAL_H
#define TMEM_CORE_INTERNAL_H

#include "client.h"
#include "fault.h"

/* Entries of a ring that puts and gets leave to flushes. */
#define TMEM_FLUSH_RESERVE(lane) ((lane)->entries / 8)

/**
 * struct tmem_batch - calls in flight that one caller waits for
 * @lanes: bit i: a call is in lane i
 * @unpublished: of these, lanes whose last call may not be published yet
 * @count: calls
 * @slept: the wait for one of them was long
 * @given_up: injected: not even handed over
 * @reason: why it was handed over
 * @calls: the caller's memory for as many as it makes
 */
struct tmem_batch {
	u64 lanes, unpublished;
	u32 count;
	bool slept, given_up;
	enum tmem_kick_reason reason;
	struct tmem_call *calls;
};

static inline void tmem_count_many(struct tmem_client *client, enum tmem_counter counter, u64 by)
{
	tmem_fetch_add(&client->counters[counter], by);
}

static inline void tmem_count(struct tmem_client *client, enum tmem_counter counter)
{
	tmem_count_many(client, counter, 1);
}

static inline struct tmem_lane *tmem_lane_of_key(struct tmem_client *client, u64 handle,
						 const u64 object[3], u64 index)
{
	u32 lane = tmem_lane_of(handle, object, index, client->key_lanes);

	return &client->lanes[tmem_fault_lane(client, handle, lane)];
}

static inline struct tmem_desc tmem_desc_of(enum tmem_op op, u64 handle, const u64 object[3],
					    u64 index)
{
	struct tmem_desc desc = { 0 };

	desc.op = op;
	desc.pool = handle;
	if (object) {
		desc.object[0] = object[0];
		desc.object[1] = object[1];
		desc.object[2] = object[2];
	}
	desc.index = index;
	return desc;
}

static inline struct tmem_record tmem_record_of(enum tmem_op op)
{
	struct tmem_record record = { 0 };

	record.op = op;
	record.slot = TMEM_NO_SLOT;
	record.table_key = TMEM_TABLE_NONE;
	return record;
}

/* Bits of a swap area, changed under its lock. A word is a block of the lane hash. */
#define TMEM_WORD_SLOTS TMEM_LANE_BLOCK_PAGES

static inline u32 tmem_word_mask(u64 slot)
{
	return 1U << (slot % TMEM_WORD_SLOTS);
}

static inline bool tmem_bit_is_set(const u32 *bits, u64 slot)
{
	return bits[slot / TMEM_WORD_SLOTS] & tmem_word_mask(slot);
}

static inline void tmem_bit_set(u32 *bits, u64 slot)
{
	u32 *word = &bits[slot / TMEM_WORD_SLOTS];

	tmem_write(word, *word | tmem_word_mask(slot));
}

static inline void tmem_bit_clear(u32 *bits, u64 slot)
{
	u32 *word = &bits[slot / TMEM_WORD_SLOTS];

	tmem_write(word, *word & ~tmem_word_mask(slot));
}

static inline u64 tmem_area_words(const struct tmem_swap_area *area)
{
	return (area->slots + TMEM_WORD_SLOTS - 1) / TMEM_WORD_SLOTS;
}

/* hypercall.c */
u32 tmem_hypercall(struct tmem_client *client, enum tmem_hypercall operation, u64 lanes,
		   enum tmem_kick_reason reason);
u64 tmem_unreaped_lanes(const struct tmem_client *client);
bool tmem_refresh(struct tmem_client *client, u64 age_ns);
bool tmem_has_credits(struct tmem_client *client, u64 count);
void tmem_pause(struct tmem_client *client, u32 *pendings);

/* kick.c */
void tmem_count_ring(struct tmem_client *client, enum tmem_kick_reason reason);
bool tmem_notices_want_work(struct tmem_client *client);
void tmem_announce(struct tmem_client *client, struct tmem_lane *lane);
void tmem_follow_hints(struct tmem_client *client, u32 hints);
void tmem_reap(struct tmem_client *client, struct tmem_lane *lane);
void tmem_staged(struct tmem_client *client, struct tmem_lane *lane, enum tmem_op op);
void tmem_want_work(struct tmem_client *client);
void tmem_trip(struct tmem_client *client, enum tmem_page_kind kind);
void tmem_client_probe(struct tmem_client *client);
bool tmem_make_room_slowly(struct tmem_client *client, struct tmem_lane *lane, u32 reserve);
u32 tmem_make_slot_slowly(struct tmem_client *client, struct tmem_lane *lane);

/* Is the doorbell a hypercall? Then the host sees only what one names, and copies. */
static inline bool tmem_by_hypercall(const struct tmem_client *client)
{
	return client->options.ops->hypercall;
}

/* By hypercall, and the last one is so long ago? */
static inline bool tmem_entry_is_due(struct tmem_client *client, u64 age_ns)
{
	return tmem_by_hypercall(client) &&
	       tmem_now_ns() - tmem_read(&client->entered_ns) >= age_ns;
}

static inline u64 tmem_probe_ns(const struct tmem_client *client)
{
	return client->options.probe_ns ? client->options.probe_ns : TMEM_PROBE_NS;
}

/**
 * tmem_client_unlock - unlock a lane and do what is to be done without the lock
 * @client: client
 * @lane: lane, locked
 * @flags: as tmem_lock returned them
 */
static inline void tmem_client_unlock(struct tmem_client *client, struct tmem_lane *lane,
				      unsigned long flags)
{
	u32 hints = lane->hints;

	lane->hints = 0;
	tmem_unlock(&lane->lock, flags);
	if (hints)
		tmem_follow_hints(client, hints);
}

/**
 * tmem_is_registered - is this guest registered with the host that serves the window now?
 * @client: client
 *
 * A host that has taken the window over, or reset the channel, answers nothing before the guest has
 * registered anew.
 */
static inline bool tmem_is_registered(const struct tmem_client *client)
{
	return tmem_load_acquire(&client->ready) &&
	       tmem_read(&client->window.header->host.resets) == tmem_read(&client->resets);
}

/**
 * tmem_host_lost - would it be useless to ask the host now?
 * @client: client
 * @kind: of the pages
 */
static inline bool tmem_host_lost(struct tmem_client *client, enum tmem_page_kind kind)
{
	return !tmem_is_registered(client) ||
	       tmem_breaker_is_open(&client->breakers[kind], &client->window.header->host);
}

/**
 * tmem_lane_lost - half of the lane's slots are in quarantine
 * @lane: lane, locked
 */
static inline bool tmem_lane_lost(const struct tmem_lane *lane)
{
	return lane->quarantined && lane->quarantined * 2 >= lane->slots;
}

/**
 * tmem_make_room - is there room for a descriptor, at once?
 * @client: client
 * @lane: lane, locked
 * @reserve: entries to be left for flushes
 */
static inline bool tmem_make_room(struct tmem_client *client, struct tmem_lane *lane, u32 reserve)
{
	return tmem_lane_has_room(lane, reserve) || tmem_make_room_slowly(client, lane, reserve);
}

/**
 * tmem_make_slot - take a slot that is free or was just completed
 * @client: client
 * @lane: lane, locked
 *
 * Return: slot or TMEM_NO_SLOT.
 */
static inline u32 tmem_make_slot(struct tmem_client *client, struct tmem_lane *lane)
{
	u32 slot = tmem_lane_take_slot(lane);

	return slot != TMEM_NO_SLOT ? slot : tmem_make_slot_slowly(client, lane);
}

/* batch.c */
void tmem_batch_watch(struct tmem_client *client, const struct tmem_batch *batch, int change);
void tmem_batch_reap(struct tmem_client *client, const struct tmem_batch *batch);
struct tmem_call *tmem_batch_add(struct tmem_batch *batch, const struct tmem_lane *lane);
bool tmem_batch_get(struct tmem_client *client, struct tmem_lane *lane, struct tmem_batch *batch,
		    struct tmem_desc *desc, u32 page);
void tmem_batch_publish(struct tmem_client *client, struct tmem_batch *batch,
			struct tmem_lane *lane);
void tmem_batch_hand_over(struct tmem_client *client, struct tmem_batch *batch,
			  enum tmem_kick_reason reason);
bool tmem_batch_wait_for(struct tmem_client *client, struct tmem_batch *batch, u32 at,
			 u64 deadline_ns);
bool tmem_batch_wait(struct tmem_client *client, struct tmem_batch *batch, u64 deadline_ns,
		     enum tmem_kick_reason reason);
void tmem_batch_count(struct tmem_client *client, const struct tmem_batch *batch);
bool tmem_wait_slot(struct tmem_client *client, struct tmem_lane *lane, u64 deadline_ns);
void tmem_batch_give_slots(struct tmem_client *client, struct tmem_batch *batch);

/* pool.c, admin held */
int tmem_control(struct tmem_client *client, const struct tmem_desc *desc, u64 *value);
void tmem_pools_open(struct tmem_client *client);
void tmem_pools_close(struct tmem_client *client, bool persistent_too);

/* flush.c, lane locked */
void tmem_owe_range(struct tmem_client *client, struct tmem_lane *lane, u32 pool,
		    const u64 object[3], u64 first, u64 last);
void tmem_post_flush(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
		     const struct tmem_key *key);
void tmem_cancel_staged(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
			const struct tmem_key *key, u64 entry);
void tmem_drop_key(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
		   const struct tmem_key *key);
bool tmem_staged_put(const struct tmem_lane *lane, u32 at, u64 *entry);
bool tmem_drain_debt(struct tmem_client *client, struct tmem_lane *lane);

/**
 * struct tmem_swap_put - one page on its way into the swap pool
 * @area: number of its area
 * @slot: swap slot
 * @tag: remembered for it, and kept by the host
 * @filled: it is @word repeated
 * @replay: it was promised before a reset: only if the slot still holds that promise
 * @word: see @filled
 * @page: 4096 bytes, unless @filled
 */
struct tmem_swap_put {
	u32 area;
	u64 slot;
	u32 tag;
	bool filled;
	bool replay;
	u64 word;
	const void *page;
};

/* swap.c */
void tmem_swap_flush_area(struct tmem_client *client, u32 number, bool post);
enum tmem_swap_stored tmem_swap_push(struct tmem_client *client, const struct tmem_swap_put *put,
				     u64 deadline_ns);

#endif /* TMEM_CORE_INTERNAL_H */
