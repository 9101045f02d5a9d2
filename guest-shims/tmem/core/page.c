// SPDX-License-Identifier: GPL-2.0-only
/* Ephemeral pages by key: put and get. */
#include "internal.h"

/* Oldest keys that one put may flush to make room in the table. */
#define EVICTIONS_MAX 8U

/* Words of a page that one step of the loops below takes: a step costs as much as two words. */
#define STEP 8U

/**
 * tmem_page_is_filled - is the page one 8-byte word repeated?
 * @page: page
 * @word: set to that word
 *
 * Most pages that are not differ at once at both ends.
 */
bool tmem_page_is_filled(const void *page, u64 *word)
{
	const u64 *words = page;
	const u32 last = TMEM_PAGE_BYTES / sizeof(u64) - 1;
	u64 first = words[0];
	u32 at;

	if (words[last] != first || words[last / 2] != first)
		return false;
	for (at = 0; at <= last; at += STEP) {
		const u64 *step = &words[at];

		if ((step[0] ^ first) | (step[1] ^ first) | (step[2] ^ first) | (step[3] ^ first) |
		    (step[4] ^ first) | (step[5] ^ first) | (step[6] ^ first) | (step[7] ^ first))
			return false;
	}
	*word = first;
	return true;
}

/**
 * tmem_page_fill - fill a page with a word
 * @page: page
 * @word: word
 */
void tmem_page_fill(void *page, u64 word)
{
	u64 *words = page;
	u32 at;

	for (at = 0; at < TMEM_PAGE_BYTES / sizeof(u64); at += STEP) {
		u64 *step = &words[at];

		step[0] = word;
		step[1] = word;
		step[2] = word;
		step[3] = word;
		step[4] = word;
		step[5] = word;
		step[6] = word;
		step[7] = word;
	}
}

/* What a put carries: a slot or a word. */
struct payload {
	u64 word;
	u32 slot;
	u32 generation; /* of the lane when the slot was taken */
	bool filled;
};

static void give_payload(struct tmem_lane *lane, const struct payload *payload)
{
	if (payload->slot != TMEM_NO_SLOT)
		tmem_lane_give_slot(lane, payload->slot);
}

/* Lane locked. The put is not made: P2. */
static void drop_put(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
		     const struct tmem_key *key, enum tmem_counter reason)
{
	tmem_count(client, reason);
	if (!tmem_fault(TMEM_FAULT_DROPPED_PUT_KEEPS_OLD))
		tmem_drop_key(client, lane, handle, key);
}

/* Lane locked. Is this still the pool that the lane was computed for? */
static bool pool_is(struct tmem_client *client, u32 pool, u64 handle)
{
	return tmem_read(&client->pools[pool].handle) == handle;
}

static bool owed(const struct tmem_lane *lane, const struct tmem_key *key)
{
	return tmem_debt_any(&lane->debt) &&
	       tmem_debt_covers(&lane->debt, key->pool, key->object, key->index);
}

/* Takes a slot and copies the page into it, or finds that no slot is needed. */
static bool prepare_payload(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
			    const struct tmem_key *key, const void *page, struct payload *payload)
{
	unsigned long flags;
	bool lost = tmem_host_lost(client, TMEM_KIND_EPHEMERAL);

	payload->slot = TMEM_NO_SLOT;
	payload->filled = (tmem_read(&client->window.features) & TMEM_FEATURE_FILL) &&
			  tmem_page_is_filled(page, &payload->word);
	flags = tmem_lock(&lane->lock);
	payload->generation = lane->generation;
	if (lost || tmem_lane_lost(lane)) {
		drop_put(client, lane, handle, key, TMEM_COUNT_puts_dropped_lost);
		goto dropped;
	}
	if (payload->filled) {
		tmem_client_unlock(client, lane, flags);
		return true;
	}
	payload->slot = tmem_make_slot(client, lane);
	if (payload->slot == TMEM_NO_SLOT) {
		drop_put(client, lane, handle, key, TMEM_COUNT_puts_dropped_no_slot);
		goto dropped;
	}
	tmem_client_unlock(client, lane, flags);
	client->options.ops->copy_page(tmem_lane_page(lane, payload->slot), page);
	return true;

dropped:
	tmem_client_unlock(client, lane, flags);
	return false;
}

/* Lane locked. Flushes oldest keys until the new one fits (C13). */
static u32 insert_key(struct tmem_client *client, struct tmem_lane *lane,
		      const struct tmem_key *key)
{
	u32 at = tmem_table_insert(&lane->table, key, (u32)lane->staged);
	u32 tries;

	for (tries = 0; at == TMEM_TABLE_NONE && tries < EVICTIONS_MAX; tries++) {
		u32 oldest = tmem_table_oldest(&lane->table);
		struct tmem_key old;

		/* Two: the flush of the oldest, and then the put. */
		if (oldest == TMEM_TABLE_NONE || !tmem_make_room(client, lane, 2))
			break;
		tmem_table_key_at(&lane->table, oldest, &old);
		tmem_drop_key(client, lane, tmem_read(&client->pools[old.pool].handle), &old);
		tmem_count(client, TMEM_COUNT_table_evictions);
		at = tmem_table_insert(&lane->table, key, (u32)lane->staged);
	}
	return at;
}

static struct tmem_desc put_desc(u64 handle, const struct tmem_key *key,
				 const struct payload *payload)
{
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_PUT, handle, key->object, key->index);

	desc.flags = payload->filled ? TMEM_DESC_FILL : 0;
	desc.value = payload->filled ? payload->word : payload->slot;
	return desc;
}

static struct tmem_record put_record(const struct tmem_desc *desc, const struct payload *payload,
				     u32 at)
{
	struct tmem_record record = tmem_record_of(TMEM_OP_PUT);

	record.slot = (u16)payload->slot;
	record.flags = desc->flags;
	record.value = desc->value;
	record.table_key = at;
	return record;
}

/* Lane locked. The last put of this key is not published yet: this one takes its place. */
static void replace_put(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
			const struct tmem_key *key, const struct payload *payload, u32 at,
			u64 entry)
{
	struct tmem_desc desc = put_desc(handle, key, payload);
	struct tmem_record record = put_record(&desc, payload, at);
	u32 old_slot = tmem_lane_record(lane, entry)->slot;

	tmem_lane_restage(lane, entry, &desc, &record);
	if (old_slot != TMEM_NO_SLOT)
		tmem_lane_give_slot(lane, old_slot);
	tmem_table_touch(&lane->table, at, (u32)entry);
	tmem_count(client, TMEM_COUNT_puts_replaced);
}

/* Lane locked. */
static void append_put(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
		       const struct tmem_key *key, const struct payload *payload, u32 at)
{
	struct tmem_desc desc = put_desc(handle, key, payload);
	struct tmem_record record = put_record(&desc, payload, at);

	tmem_lane_stage(lane, &desc, &record);
	tmem_staged(client, lane, TMEM_OP_PUT);
}

/* Lane locked. */
static void stage_put(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
		      const struct tmem_key *key, const struct payload *payload)
{
	u64 reaped = lane->reaped;
	u32 at = tmem_table_find(&lane->table, key);
	u64 entry;

	if (at != TMEM_TABLE_NONE && tmem_staged_put(lane, at, &entry)) {
		replace_put(client, lane, handle, key, payload, at, entry);
	} else {
		if (!tmem_make_room(client, lane, TMEM_FLUSH_RESERVE(lane))) {
			give_payload(lane, payload);
			drop_put(client, lane, handle, key, TMEM_COUNT_puts_dropped_no_ring);
			return;
		}
		/* Making room may have reaped a refusal of this very key. */
		if (lane->reaped != reaped)
			at = tmem_table_find(&lane->table, key);
		if (at != TMEM_TABLE_NONE)
			tmem_table_touch(&lane->table, at, (u32)lane->staged);
		else
			at = insert_key(client, lane, key);
		if (at == TMEM_TABLE_NONE) {
			give_payload(lane, payload);
			tmem_count(client, TMEM_COUNT_puts_dropped_table);
			return;
		}
		/* Evictions stage flushes: the put's position is known only now. */
		lane->table.keys[at].entry = (u32)lane->staged;
		append_put(client, lane, handle, key, payload, at);
	}
	tmem_count(client, TMEM_COUNT_puts);
	if (payload->filled)
		tmem_count(client, TMEM_COUNT_puts_filled);
}

/**
 * tmem_put_page - offer a page to the host
 * @client: client
 * @key: key
 * @page: 4096 bytes, copied before return
 *
 * Afterwards a get finds these bytes or nothing (P1, P2). Any context: never sleeps, allocates,
 * waits or rings (C1).
 */
void tmem_put_page(struct tmem_client *client, const struct tmem_key *key, const void *page)
{
	u64 handle = tmem_load_acquire(&client->pools[key->pool].handle);
	struct tmem_lane *lane;
	struct payload payload = { 0 };
	unsigned long flags;

	if (!handle) {
		tmem_count(client, TMEM_COUNT_puts_dropped_no_pool);
		return;
	}
	lane = tmem_lane_of_key(client, handle, key->object, key->index);
	if (!prepare_payload(client, lane, handle, key, page, &payload))
		return;
	flags = tmem_lock(&lane->lock);
	if (!pool_is(client, key->pool, handle) || lane->generation != payload.generation) {
		give_payload(lane, &payload);
		tmem_count(client, TMEM_COUNT_puts_dropped_no_pool);
	} else if (owed(lane, key)) {
		give_payload(lane, &payload);
		tmem_count(client, TMEM_COUNT_puts_dropped_debt);
	} else {
		stage_put(client, lane, handle, key, &payload);
	}
	tmem_client_unlock(client, lane, flags);
}

enum staged_get {
	GET_MISS, /* answered without the host */
	GET_IN_BATCH,
	GET_NO_ROOM,
};

/* Lane locked. The page is in a put that is not published: take it back. */
static void take_staged(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
			const struct tmem_key *key, u64 entry, struct tmem_call *call)
{
	const struct tmem_record *record = &lane->records[entry & (lane->entries - 1)];

	call->status = TMEM_STATUS_OK;
	call->flags = record->flags;
	call->value = record->value;
	call->slot = record->slot; /* still the guest's: it was not published */
	call->done = 1;
	tmem_cancel_staged(client, lane, handle, key, entry);
	tmem_count(client, TMEM_COUNT_get_hits_local);
}

/* Lane locked. */
static enum staged_get stage_get(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
				 const struct tmem_key *key, struct tmem_batch *batch, u32 page)
{
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_GET, handle, key->object, key->index);
	u64 reaped = lane->reaped;
	u32 at = tmem_table_find(&lane->table, key);
	struct tmem_call *call;
	u64 entry;

	if (at == TMEM_TABLE_NONE || !pool_is(client, key->pool, handle)) {
		tmem_count(client, TMEM_COUNT_get_misses_local);
		return GET_MISS;
	}
	if (owed(lane, key)) {
		tmem_count(client, TMEM_COUNT_get_misses_debt);
		return GET_MISS;
	}
	if (tmem_staged_put(lane, at, &entry)) {
		call = tmem_batch_add(batch, lane);
		call->page = (u8)page;
		take_staged(client, lane, handle, key, entry, call);
		tmem_table_remove(&lane->table, at);
		return GET_IN_BATCH;
	}
	if (tmem_lane_lost(lane)) {
		tmem_count(client, TMEM_COUNT_get_misses_lost);
		tmem_drop_key(client, lane, handle, key);
		return GET_MISS;
	}
	desc.pool = tmem_fault_other_handle(client, lane, key, handle);
	if (!tmem_batch_get(client, lane, batch, &desc, page))
		return GET_NO_ROOM;
	/* Hit or miss, the host does not have it afterwards (G1). Reaping may have dropped it. */
	if (lane->reaped != reaped)
		at = tmem_table_find(&lane->table, key);
	if (at != TMEM_TABLE_NONE)
		tmem_table_remove(&lane->table, at);
	return GET_IN_BATCH;
}

static void flush_missed(struct tmem_client *client, u64 handle, const struct tmem_key *key)
{
	struct tmem_lane *lane = tmem_lane_of_key(client, handle, key->object, key->index);
	unsigned long flags = tmem_lock(&lane->lock);
	u32 at = tmem_table_find(&lane->table, key);

	if (pool_is(client, key->pool, handle)) {
		if (at != TMEM_TABLE_NONE)
			tmem_table_remove(&lane->table, at);
		tmem_post_flush(client, lane, handle, key);
	}
	tmem_client_unlock(client, lane, flags);
}

/* Fills the page of a call that was waited for. Returns false for a miss. */
static bool take_answer(struct tmem_client *client, u64 handle, const struct tmem_key *first,
			const struct tmem_call *call, void *page)
{
	struct tmem_key key;

	if (call->status == TMEM_STATUS_OK && (call->flags & TMEM_DESC_FILL)) {
		tmem_page_fill(page, call->value);
		return true;
	}
	if (call->status == TMEM_STATUS_OK && call->slot != TMEM_NO_SLOT) {
		client->options.ops->copy_page(page, tmem_lane_page(&client->lanes[call->lane],
								    call->slot));
		return true;
	}
	if (call->status == TMEM_STATUS_MISS) {
		tmem_count(client, TMEM_COUNT_get_misses);
		return false;
	}
	/* Not answered, or with what cannot be believed: a miss, and G2. */
	tmem_count(client, TMEM_COUNT_get_failed);
	key = *first;
	key.index += call->page;
	flush_missed(client, handle, &key);
	return false;
}

/* Copies each hit out as soon as it is answered, while the host works on the next ones. */
static u32 finish_batch(struct tmem_client *client, u64 handle, const struct tmem_key *first,
			struct tmem_batch *batch, u64 deadline_ns, void *const *pages, u64 *hits)
{
	u32 found = 0;
	u32 at;

	if (!batch->count)
		return 0;
	tmem_batch_hand_over(client, batch, TMEM_KICK_GET);
	for (at = 0; at < batch->count; at++) {
		const struct tmem_call *call = &batch->calls[at];

		if (!tmem_load_acquire(&call->done) &&
		    !tmem_batch_wait_for(client, batch, at, deadline_ns))
			tmem_trip(client, TMEM_KIND_EPHEMERAL);
		if (take_answer(client, handle, first, call, pages[call->page])) {
			*hits |= 1ULL << call->page;
			found++;
		}
	}
	tmem_batch_count(client, batch);
	tmem_batch_give_slots(client, batch);
	return found;
}

/*
 * Stages gets from page `from` on, until there is no room. Returns the first page not staged. Not
 * inline: the calls of a batch fill most of its caller's frame.
 */
static noinline u32 stage_gets(struct tmem_client *client, u64 handle,
			       const struct tmem_key *first, u32 from, u32 number,
			       struct tmem_batch *batch)
{
	struct tmem_key key = *first;

	while (from < number) {
		struct tmem_lane *lane =
			tmem_lane_of_key(client, handle, key.object, first->index + from);
		u64 block = (first->index + from) >> TMEM_LANE_BLOCK_SHIFT;
		unsigned long flags = tmem_lock(&lane->lock);
		bool room = true;

		for (; from < number; from++) {
			key.index = first->index + from;
			if (key.index >> TMEM_LANE_BLOCK_SHIFT != block)
				break;
			room = stage_get(client, lane, handle, &key, batch, from) != GET_NO_ROOM;
			if (!room)
				break;
			/* The host begins while the others are being staged. */
			if (lane->staged - lane->posted >= TMEM_PUBLISHED_MIN)
				tmem_batch_publish(client, batch, lane);
		}
		tmem_batch_publish(client, batch, lane);
		tmem_client_unlock(client, lane, flags);
		if (!room)
			break;
	}
	return from;
}

/**
 * tmem_get_pages - take pages back from the host
 * @client: client
 * @first: key of the first page; the others follow it
 * @number: pages, at most TMEM_GET_MAX
 * @pages: where each goes
 * @hits: bit i is set when pages[i] was filled
 *
 * What was filled the host no longer holds. May sleep, at most 100 ms and 1 ms a page.
 *
 * Return: how many were filled.
 */
u32 tmem_get_pages(struct tmem_client *client, const struct tmem_key *first, u32 number,
		   void *const *pages, u64 *hits)
{
	u64 handle = tmem_load_acquire(&client->pools[first->pool].handle);
	struct tmem_call calls[TMEM_GET_MAX];
	struct tmem_batch batch = { .calls = calls };
	u64 deadline_ns = 0;
	u32 found = 0;
	u32 next = 0;

	*hits = 0;
	tmem_count_many(client, TMEM_COUNT_gets, number);
	if (!handle || tmem_host_lost(client, TMEM_KIND_EPHEMERAL)) {
		tmem_count_many(client, TMEM_COUNT_get_misses_lost, number);
		if (handle)
			tmem_flush_range(client, first, first->index + number - 1);
		return 0;
	}
	while (next < number) {
		u32 staged;

		batch.given_up = tmem_inject_late_get();
		staged = stage_gets(client, handle, first, next, number, &batch);

		if (!deadline_ns && (batch.count || staged < number))
			deadline_ns = tmem_now_ns() + client->options.get_timeout_ns +
				      number * TMEM_NS_PER_MS;
		if (staged == next && !batch.count) {
			struct tmem_key key = *first;

			key.index += staged;
			if (tmem_wait_slot(client,
					   tmem_lane_of_key(client, handle, key.object, key.index),
					   deadline_ns))
				continue;
			/* Puts that nobody takes fill the slots: the host is lost as well. */
			tmem_trip(client, TMEM_KIND_EPHEMERAL);
			tmem_count(client, TMEM_COUNT_get_misses_no_room);
			tmem_flush_range(client, &key, first->index + number - 1);
			break;
		}
		next = staged;
		found += finish_batch(client, handle, first, &batch, deadline_ns, pages, hits);
	}
	tmem_count_many(client, TMEM_COUNT_get_hits, found);
	return found;
}
