// SPDX-License-Identifier: GPL-2.0-only
/* Swapped-out pages: store, load, invalidate. */
#include "internal.h"

/* How long a store may wait for a slot before the page goes to the device. */
#define STORE_WAIT_NS (100 * TMEM_NS_PER_MS)

static struct tmem_pool *swap_pool(struct tmem_client *client)
{
	return &client->pools[client->swap.pool];
}

static bool is_persistent(const struct tmem_client *client)
{
	return client->swap.kind == TMEM_POOL_PERSISTENT;
}

static enum tmem_page_kind kind_of(const struct tmem_client *client)
{
	return is_persistent(client) ? TMEM_KIND_PERSISTENT : TMEM_KIND_EPHEMERAL;
}

static struct tmem_lane *lane_of_slot(struct tmem_client *client, u64 handle, u32 area, u64 slot)
{
	const u64 object[3] = { area, 0, 0 };

	return tmem_lane_of_key(client, handle, object, slot);
}

static struct tmem_desc desc_of_slot(enum tmem_op op, u64 handle, u32 area, u64 slot)
{
	const u64 object[3] = { area, 0, 0 };

	return tmem_desc_of(op, handle, object, slot);
}

/* Lane locked. May the lane be used for this pool and slot? */
static bool lane_is_good(struct tmem_client *client, struct tmem_lane *lane, u64 handle, u32 area,
			 u64 slot)
{
	const u64 object[3] = { area, 0, 0 };

	return tmem_read(&swap_pool(client)->handle) == handle && !tmem_lane_lost(lane) &&
	       !(tmem_debt_any(&lane->debt) &&
		 tmem_debt_covers(&lane->debt, client->swap.pool, object, slot));
}

/* ---- areas ------------------------------------------------------------------------------- */

/**
 * tmem_swap_start - choose the pool of all swap areas, once
 * @client: client
 * @kind: TMEM_POOL_PERSISTENT, or TMEM_POOL_EPHEMERAL for writethrough
 *
 * Return: 0, -ENOSPC.
 */
int tmem_swap_start(struct tmem_client *client, u32 kind)
{
	int pool = tmem_pool_create(client, kind);

	if (pool < 0)
		return pool;
	client->swap.pool = (u32)pool;
	tmem_store_release(&client->swap.kind, kind);
	return 0;
}

static void free_area(struct tmem_swap_area *area)
{
	tmem_free(area->tags);
	tmem_free(area->held);
	tmem_free(area->device);
	tmem_free(area->lost);
	tmem_free(area->pending);
	tmem_free(area);
}

/**
 * tmem_swap_on - a swap area is switched on
 * @client: client
 * @number: area
 * @slots: its size
 *
 * Return: 0, -EINVAL, -EBUSY, -ENOMEM.
 */
int tmem_swap_on(struct tmem_client *client, u32 number, u64 slots)
{
	struct tmem_swap_area *area;
	size_t bytes;

	if (number >= TMEM_SWAP_AREAS || !slots || slots >> 32 || !client->swap.kind)
		return -EINVAL;
	if (client->swap.areas[number])
		return -EBUSY;
	area = tmem_alloc(sizeof(*area));
	if (!area)
		return -ENOMEM;
	tmem_lock_init(&area->lock);
	area->slots = slots;
	bytes = tmem_area_words(area) * sizeof(u32);
	area->tags = tmem_alloc(slots * sizeof(u32));
	area->held = tmem_alloc(bytes);
	area->device = tmem_alloc(bytes);
	area->lost = tmem_alloc(bytes);
	area->pending = tmem_alloc(bytes);
	if (!area->tags || !area->held || !area->device || !area->lost || !area->pending) {
		free_area(area);
		return -ENOMEM;
	}
	tmem_store_release(&client->swap.areas[number], area);
	return 0;
}

/**
 * tmem_swap_flush_area - drop all that an area holds on the host
 * @client: client
 * @number: area
 * @post: false: only see to it that no lane is at work on the area
 */
void tmem_swap_flush_area(struct tmem_client *client, u32 number, bool post)
{
	u64 handle = tmem_load_acquire(&swap_pool(client)->handle);
	const u64 object[3] = { number, 0, 0 };
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_FLUSH_OBJECT, handle, object, 0);
	u32 at;

	for (at = 0; client->lanes && at < client->key_lanes; at++) {
		struct tmem_lane *lane = &client->lanes[at];
		struct tmem_record record = tmem_record_of(TMEM_OP_FLUSH_OBJECT);
		unsigned long flags = tmem_lock(&lane->lock);

		if (!handle || !post) {
			/* taking the lock was all */
		} else if (tmem_make_room(client, lane, 0)) {
			tmem_lane_stage(lane, &desc, &record);
			tmem_staged(client, lane, TMEM_OP_FLUSH_OBJECT);
			tmem_count(client, TMEM_COUNT_flushes_posted);
		} else {
			tmem_debt_add_object(&lane->debt, client->swap.pool, object);
			tmem_count(client, TMEM_COUNT_flushes_owed);
			lane->hints |= TMEM_HINT_SOON;
		}
		tmem_client_unlock(client, lane, flags);
	}
}

/**
 * tmem_swap_off - a swap area is off and all it held is dropped
 * @client: client
 * @number: area; nothing happens if it is not on
 */
void tmem_swap_off(struct tmem_client *client, u32 number)
{
	struct tmem_swap_area *area = client->swap.areas[number];

	if (!area)
		return;
	/* Keeps the worker off the area, and the handle as it is. */
	tmem_mutex_lock(&client->admin);
	tmem_store_release(&client->swap.areas[number], NULL);
	/* Completions look areas up under a lane's lock: after this none has the old pointer. */
	tmem_swap_flush_area(client, number, !tmem_fault_hold_area_flush(number));
	tmem_mutex_unlock(&client->admin);
	free_area(area);
}

/* ---- store ------------------------------------------------------------------------------- */

/* Takes a slot of the lane, waiting for one if it must. */
static u32 wait_for_slot(struct tmem_client *client, struct tmem_lane *lane, u32 *generation,
			 u64 deadline_ns)
{
	for (;;) {
		unsigned long flags = tmem_lock(&lane->lock);
		u32 slot = TMEM_NO_SLOT;

		*generation = lane->generation;
		if (tmem_make_room(client, lane, TMEM_FLUSH_RESERVE(lane)))
			slot = tmem_make_slot(client, lane);
		tmem_client_unlock(client, lane, flags);
		if (slot != TMEM_NO_SLOT)
			return slot;
		if (!tmem_wait_slot(client, lane, deadline_ns)) {
			/* A host that is merely slow has a heartbeat, which closes it again. */
			tmem_trip(client, TMEM_KIND_STORE);
			return slot;
		}
	}
}

/* Lane locked. Writes the promise down; false: replay of one that has been withdrawn. */
static bool hold_slot(struct tmem_swap_area *area, const struct tmem_swap_put *put)
{
	unsigned long flags = tmem_lock(&area->lock);
	bool good = !put->replay ||
		    (tmem_bit_is_set(area->held, put->slot) && area->tags[put->slot] == put->tag);

	if (good) {
		tmem_bit_set(area->held, put->slot);
		tmem_bit_clear(area->pending, put->slot);
		tmem_bit_clear(area->lost, put->slot);
		area->tags[put->slot] = put->tag;
	}
	tmem_unlock(&area->lock, flags);
	return good;
}

/* Lane locked, with room. */
static void stage_swap_put(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
			   const struct tmem_swap_put *put, u32 slot)
{
	struct tmem_desc desc = desc_of_slot(TMEM_OP_PUT, handle, put->area, put->slot);
	struct tmem_record record = tmem_record_of(TMEM_OP_PUT);

	desc.flags = put->filled ? TMEM_DESC_FILL : 0;
	desc.value = put->filled ? put->word : slot;
	desc.tag = is_persistent(client) ? put->tag : 0;
	record.slot = (u16)slot;
	record.flags = desc.flags;
	record.value = desc.value;
	record.index = put->slot;
	record.tag = put->tag;
	record.area = (u8)(put->area + 1);
	record.persistent = is_persistent(client);
	tmem_lane_stage(lane, &desc, &record);
	tmem_staged(client, lane, TMEM_OP_PUT);
}

/**
 * tmem_swap_push - copy a page into its lane and promise it
 * @client: client
 * @put: what; the caller has taken the credit
 * @deadline_ns: how long to wait for room
 *
 * Return: TMEM_SWAP_KEPT once it is staged: with a credit it cannot be refused any more.
 */
enum tmem_swap_stored tmem_swap_push(struct tmem_client *client, const struct tmem_swap_put *put,
				     u64 deadline_ns)
{
	u64 handle = tmem_load_acquire(&swap_pool(client)->handle);
	struct tmem_swap_area *area = client->swap.areas[put->area];
	enum tmem_swap_stored stored = TMEM_SWAP_REFUSED;
	struct tmem_lane *lane;
	u32 slot, generation;
	unsigned long flags;

	if (!handle || !area)
		return stored;
	lane = lane_of_slot(client, handle, put->area, put->slot);
	/* A filled page needs no slot, but waiting for one also finds room in the ring. */
	slot = wait_for_slot(client, lane, &generation, deadline_ns);
	if (slot == TMEM_NO_SLOT)
		return stored;
	if (!put->filled)
		client->options.ops->copy_page(tmem_lane_page(lane, slot), put->page);
	tmem_delay();
	flags = tmem_lock(&lane->lock);
	if (put->filled) {
		tmem_lane_give_slot(lane, slot);
		slot = TMEM_NO_SLOT;
	}
	if (lane->generation == generation &&
	    lane_is_good(client, lane, handle, put->area, put->slot) &&
	    tmem_make_room(client, lane, TMEM_FLUSH_RESERVE(lane)) && hold_slot(area, put)) {
		stage_swap_put(client, lane, handle, put, slot);
		stored = TMEM_SWAP_KEPT;
	} else if (slot != TMEM_NO_SLOT) {
		tmem_lane_give_slot(lane, slot);
	}
	tmem_client_unlock(client, lane, flags);
	return stored;
}

/* Sets or clears the bits that say what the device has (C7). */
static void mark_device(struct tmem_client *client, u32 number, u64 slot, u64 count,
			void (*mark)(u32 *bits, u64 slot))
{
	struct tmem_swap_area *area = tmem_load_acquire(&client->swap.areas[number]);
	unsigned long flags;

	if (!area || slot >= area->slots || count > area->slots - slot)
		return;
	flags = tmem_lock(&area->lock);
	while (count-- > 0)
		mark(area->device, slot++);
	tmem_unlock(&area->lock, flags);
}

/* A new store begins: what the device has is old. */
static void forget_device(struct tmem_client *client, u32 number, u64 slot, u64 count)
{
	mark_device(client, number, slot, count, tmem_bit_clear);
}

static bool take_credit(struct tmem_client *client)
{
	return !is_persistent(client) ||
	       (tmem_has_credits(client, 1) && tmem_credit_take(&client->credit));
}

/* The reason why a store cannot even begin, or TMEM_COUNT_END. */
static enum tmem_counter refusal(struct tmem_client *client)
{
	if (tmem_host_lost(client, kind_of(client)) || tmem_host_lost(client, TMEM_KIND_STORE) ||
	    tmem_read(&client->replaying))
		return TMEM_COUNT_frontswap_refused_lost;
	if (!take_credit(client))
		return TMEM_COUNT_frontswap_refused_no_credit;
	return TMEM_COUNT_END;
}

/**
 * tmem_swap_store - a page is swapped out
 * @client: client
 * @number: area
 * @slot: swap slot
 * @page: 4096 bytes
 *
 * May sleep, 100 ms at most.
 *
 * Return: TMEM_SWAP_KEPT is a promise, in a persistent pool.
 */
enum tmem_swap_stored tmem_swap_store(struct tmem_client *client, u32 number, u64 slot,
				      const void *page)
{
	struct tmem_swap_area *area = tmem_load_acquire(&client->swap.areas[number]);
	struct tmem_swap_put put = { 0 };
	enum tmem_counter reason;

	if (!area || slot >= area->slots)
		return TMEM_SWAP_REFUSED;
	forget_device(client, number, slot, 1);
	reason = refusal(client);
	if (reason == TMEM_COUNT_END) {
		put.area = number;
		put.slot = slot;
		put.tag = (u32)tmem_random();
		put.page = page;
		put.filled = (tmem_read(&client->window.features) & TMEM_FEATURE_FILL) &&
			     tmem_page_is_filled(page, &put.word);
		if (tmem_swap_push(client, &put, tmem_now_ns() + STORE_WAIT_NS) ==
		    TMEM_SWAP_KEPT) {
			tmem_count(client, TMEM_COUNT_frontswap_stores);
			if (put.filled)
				tmem_count(client, TMEM_COUNT_frontswap_stores_filled);
			tmem_fault_late_area_flush(client, number);
			return TMEM_SWAP_KEPT;
		}
		if (is_persistent(client))
			tmem_credit_give_back(&client->credit, 1);
		reason = TMEM_COUNT_frontswap_refused_no_room;
	}
	tmem_count(client, reason);
	if (!tmem_fault(TMEM_FAULT_DROPPED_PUT_KEEPS_OLD))
		tmem_swap_invalidate(client, number, slot, 1);
	return TMEM_SWAP_REFUSED;
}

/**
 * tmem_swap_offered - is it worth while to store a folio? Counts it.
 * @client: client
 * @number: area
 * @slot: of its first page
 * @count: its pages
 * @enabled: whether stores are switched on
 *
 * Return: false: refuse it; nothing older is held then.
 */
bool tmem_swap_offered(struct tmem_client *client, u32 number, u64 slot, u64 count, bool enabled)
{
	enum tmem_counter reason = TMEM_COUNT_END;

	if (count > 1)
		tmem_count(client, TMEM_COUNT_frontswap_large_folios);
	if (!enabled)
		reason = TMEM_COUNT_frontswap_refused_off;
	else if (count > 1 && is_persistent(client) && !tmem_has_credits(client, count))
		reason = TMEM_COUNT_frontswap_refused_large;
	if (reason == TMEM_COUNT_END)
		return true;
	tmem_count(client, reason);
	if (!tmem_fault(TMEM_FAULT_DROPPED_PUT_KEEPS_OLD))
		tmem_swap_invalidate(client, number, slot, count);
	/* As tmem_swap_store does: what the device has of before is not what it will have. */
	forget_device(client, number, slot, count);
	return false;
}

/**
 * tmem_swap_put_done - the host has answered the put of a swapped-out page
 * @client: client; the lane is locked
 * @completion: its answer
 */
void tmem_swap_put_done(struct tmem_client *client, const struct tmem_completion *completion)
{
	const struct tmem_record *record = &completion->record;
	struct tmem_swap_area *area = client->swap.areas[record->area - 1];
	unsigned long flags;

	if (completion->status == TMEM_STATUS_OK || !area)
		return;
	tmem_count(client, TMEM_COUNT_frontswap_puts_failed);
	flags = tmem_lock(&area->lock);
	if (tmem_bit_is_set(area->held, record->index) &&
	    area->tags[record->index] == record->tag) {
		/* A promise that the host broke is an error for that page, never other bytes. */
		if (record->persistent)
			tmem_bit_set(area->lost, record->index);
		else
			tmem_bit_clear(area->held, record->index);
	}
	tmem_unlock(&area->lock, flags);
}

/* ---- invalidate -------------------------------------------------------------------------- */

/* Lane locked. Posts the flush of a run of slots; false without room. */
static bool post_run(struct tmem_client *client, struct tmem_lane *lane, u64 handle, u32 number,
		     u64 slot, u32 count)
{
	struct tmem_desc desc = desc_of_slot(TMEM_OP_FLUSH, handle, number, slot);
	struct tmem_record record = tmem_record_of(TMEM_OP_FLUSH);

	if (tmem_lane_extend_flush(lane, handle, desc.object, slot)) {
		tmem_count(client, TMEM_COUNT_flushes_merged);
		while (--count > 0)
			tmem_lane_extend_flush(lane, handle, desc.object, ++slot);
		return true;
	}
	if (!tmem_make_room(client, lane, 0))
		return false;
	desc.count = count;
	tmem_lane_stage(lane, &desc, &record);
	tmem_staged(client, lane, TMEM_OP_FLUSH);
	tmem_count(client, TMEM_COUNT_flushes_posted);
	return true;
}

/* Lane locked. Posts flushes of all slots in `bits` of a word; returns those without room. */
static u32 post_bits(struct tmem_client *client, struct tmem_lane *lane, u64 handle, u32 number,
		     u64 word, u32 bits)
{
	while (bits) {
		u32 first = (u32)__builtin_ctz(bits);
		u32 rest = ~(bits >> first);
		u32 count = rest ? (u32)__builtin_ctz(rest) : TMEM_WORD_SLOTS - first;
		u32 run = (count == TMEM_WORD_SLOTS ? ~0U : (1U << count) - 1) << first;

		if (!post_run(client, lane, handle, number, word * TMEM_WORD_SLOTS + first, count))
			return bits;
		bits &= ~run;
	}
	return 0;
}

/* Takes the held bits of `mask` out of a word. */
static u32 release_word(struct tmem_swap_area *area, u64 word, u32 mask)
{
	unsigned long flags = tmem_lock(&area->lock);
	u32 bits = area->held[word] & mask;

	tmem_write(&area->held[word], area->held[word] & ~mask);
	area->lost[word] &= ~mask;
	area->device[word] &= ~mask;
	tmem_unlock(&area->lock, flags);
	return bits;
}

static void set_pending(struct tmem_client *client, struct tmem_swap_area *area, u64 word,
			u32 bits)
{
	unsigned long flags = tmem_lock(&area->lock);

	tmem_write(&area->pending[word], area->pending[word] | bits);
	tmem_write(&area->has_pending, 1U);
	tmem_unlock(&area->lock, flags);
	tmem_count_many(client, TMEM_COUNT_frontswap_invalidates_pending,
			tmem_popcount(bits));
}

static void invalidate_word(struct tmem_client *client, struct tmem_swap_area *area, u32 number,
			    u64 word, u32 mask)
{
	u64 handle = tmem_load_acquire(&swap_pool(client)->handle);
	struct tmem_lane *lane = lane_of_slot(client, handle, number, word * TMEM_WORD_SLOTS);
	unsigned long flags;
	u32 bits;

	flags = tmem_lock(&lane->lock);
	bits = release_word(area, word, mask);
	tmem_count_many(client, TMEM_COUNT_frontswap_invalidates, tmem_popcount(bits));
	if (bits && handle && tmem_read(&swap_pool(client)->handle) == handle)
		bits = post_bits(client, lane, handle, number, word, bits);
	if (bits) {
		set_pending(client, area, word, bits);
		lane->hints |= TMEM_HINT_WORK;
	}
	tmem_client_unlock(client, lane, flags);
}

/**
 * tmem_swap_invalidate - slots were freed
 * @client: client
 * @number: area
 * @slot: first slot
 * @count: slots
 *
 * Any context.
 */
void tmem_swap_invalidate(struct tmem_client *client, u32 number, u64 slot, u64 count)
{
	struct tmem_swap_area *area = tmem_load_acquire(&client->swap.areas[number]);
	u64 end;

	if (!area || slot >= area->slots)
		return;
	end = count > area->slots - slot ? area->slots : slot + count;
	while (slot < end) {
		u64 word = slot / TMEM_WORD_SLOTS;
		u64 next = (word + 1) * TMEM_WORD_SLOTS;
		u64 word_end = next < end ? next : end;
		u32 number_of_bits = (u32)(word_end - slot);
		u32 mask = number_of_bits == TMEM_WORD_SLOTS ? ~0U : (1U << number_of_bits) - 1;

		mask <<= slot % TMEM_WORD_SLOTS;
		if (tmem_read(&area->held[word]) & mask)
			invalidate_word(client, area, number, word, mask);
		slot = word_end;
	}
}

/**
 * tmem_swap_written - the device has the pages of these slots
 * @client: client
 * @number: area
 * @slot: first slot
 * @count: slots
 *
 * Any context.
 */
void tmem_swap_written(struct tmem_client *client, u32 number, u64 slot, u64 count)
{
	mark_device(client, number, slot, count, tmem_bit_set);
}

/* Posts what is pending of one word; true if some is left. */
static bool drain_word(struct tmem_client *client, struct tmem_swap_area *area, u32 number,
		       u64 handle, u64 word)
{
	struct tmem_lane *lane = lane_of_slot(client, handle, number, word * TMEM_WORD_SLOTS);
	unsigned long flags = tmem_lock(&lane->lock);
	unsigned long area_flags = tmem_lock(&area->lock);
	u32 bits = area->pending[word];

	tmem_write(&area->pending[word], 0U);
	tmem_unlock(&area->lock, area_flags);
	bits = post_bits(client, lane, handle, number, word, bits);
	if (bits) {
		area_flags = tmem_lock(&area->lock);
		tmem_write(&area->pending[word], area->pending[word] | bits);
		tmem_write(&area->has_pending, 1U);
		tmem_unlock(&area->lock, area_flags);
	}
	tmem_client_unlock(client, lane, flags);
	return bits;
}

/**
 * tmem_swap_drain - post flushes of slots that found no room
 * @client: client, admin held
 *
 * Return: whether some are left.
 */
bool tmem_swap_drain(struct tmem_client *client)
{
	bool left = false;
	u64 handle;
	u32 number;
	u64 word;

	if (!tmem_load_acquire(&client->swap.kind))
		return false;
	handle = tmem_load_acquire(&swap_pool(client)->handle);
	for (number = 0; handle && number < TMEM_SWAP_AREAS; number++) {
		struct tmem_swap_area *area = tmem_load_acquire(&client->swap.areas[number]);

		if (!area || !tmem_read(&area->has_pending))
			continue;
		tmem_write(&area->has_pending, 0U);
		for (word = 0; word < tmem_area_words(area); word++) {
			if (tmem_read(&area->pending[word]))
				left |= drain_word(client, area, number, handle, word);
		}
	}
	return left;
}
