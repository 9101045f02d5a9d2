// SPDX-License-Identifier: GPL-2.0-only
/* Flushes of ephemeral keys: only what the host may hold costs a descriptor; none needs room. */
#include "internal.h"

/* Indices of a range that are looked up one by one; a longer one goes through the object's keys. */
#define RANGE_LOOKUPS_MAX 64U

/* Blocks of a range whose lanes are computed; a longer one goes to all lanes. */
#define RANGE_BLOCKS_MAX 16U

/* Keys dropped from a table under one hold of the lane's lock. */
#define FORGET_STEPS 128U

/**
 * tmem_owe_range - remember a flush that could not be posted
 * @client: client
 * @lane: lane, locked
 * @pool: pool
 * @object: id
 * @first: first page
 * @last: last page, included
 */
void tmem_owe_range(struct tmem_client *client, struct tmem_lane *lane, u32 pool,
		    const u64 object[3], u64 first, u64 last)
{
	tmem_debt_add_range(&lane->debt, pool, object, first, last);
	tmem_count(client, TMEM_COUNT_flushes_owed);
	lane->hints |= TMEM_HINT_WORK;
}

static void stage_flush(struct tmem_client *client, struct tmem_lane *lane,
			const struct tmem_desc *desc)
{
	struct tmem_record record = tmem_record_of(desc->op);

	tmem_lane_stage(lane, desc, &record);
	tmem_staged(client, lane, desc->op);
	tmem_count(client, TMEM_COUNT_flushes_posted);
}

/**
 * tmem_post_flush - post the flush of one page, or owe it
 * @client: client
 * @lane: the key's lane, locked
 * @handle: the pool's handle
 * @key: key
 */
void tmem_post_flush(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
		     const struct tmem_key *key)
{
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_FLUSH, handle, key->object, key->index);

	if (tmem_debt_any(&lane->debt) &&
	    tmem_debt_covers(&lane->debt, key->pool, key->object, key->index))
		return;
	if (tmem_lane_extend_flush(lane, handle, key->object, key->index)) {
		tmem_count(client, TMEM_COUNT_flushes_merged);
		return;
	}
	desc.count = 1;
	if (tmem_make_room(client, lane, 0))
		stage_flush(client, lane, &desc);
	else
		tmem_owe_range(client, lane, key->pool, key->object, key->index, key->index);
}

/**
 * tmem_staged_put - is the last put of a table's key not published yet?
 * @lane: lane, locked
 * @at: place of the key in the table
 * @entry: set to the put's position
 */
bool tmem_staged_put(const struct tmem_lane *lane, u32 at, u64 *entry)
{
	const struct tmem_record *record;

	if (!tmem_lane_is_staged(lane, lane->table.keys[at].entry, entry))
		return false;
	record = &lane->records[*entry & (lane->entries - 1)];
	return record->op == TMEM_OP_PUT && record->table_key == at;
}

/**
 * tmem_cancel_staged - turn a put that is not published into a flush of its key
 * @client: client
 * @lane: lane, locked
 * @handle: the pool's handle
 * @key: key
 * @entry: the put's position
 *
 * An older put of the key may be before it, so the descriptor cannot just vanish. Its slot, if it
 * has one, is the caller's to keep or to give.
 */
void tmem_cancel_staged(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
			const struct tmem_key *key, u64 entry)
{
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_FLUSH, handle, key->object, key->index);
	struct tmem_record record = tmem_record_of(TMEM_OP_FLUSH);

	desc.count = 1;
	tmem_lane_restage(lane, entry, &desc, &record);
	tmem_count(client, TMEM_COUNT_puts_cancelled);
}

static void drop_at(struct tmem_client *client, struct tmem_lane *lane, u64 handle, u32 at,
		    const struct tmem_key *key)
{
	u64 entry;

	if (tmem_staged_put(lane, at, &entry)) {
		u32 slot = lane->records[entry & (lane->entries - 1)].slot;

		if (tmem_fault(TMEM_FAULT_STALE_STAGED_PUT))
			return;
		tmem_table_remove(&lane->table, at);
		tmem_cancel_staged(client, lane, handle, key, entry);
		if (slot != TMEM_NO_SLOT)
			tmem_lane_give_slot(lane, slot);
		return;
	}
	/* First: to post may reap, which changes the table. */
	tmem_table_remove(&lane->table, at);
	tmem_post_flush(client, lane, handle, key);
}

/**
 * tmem_drop_key - make sure that a key is not readable
 * @client: client
 * @lane: the key's lane, locked
 * @handle: the pool's handle
 * @key: key
 */
void tmem_drop_key(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
		   const struct tmem_key *key)
{
	u32 at = tmem_table_find(&lane->table, key);

	if (at == TMEM_TABLE_NONE)
		tmem_count(client, TMEM_COUNT_flushes_skipped);
	else
		drop_at(client, lane, handle, at, key);
}

/* Lanes that may hold keys of first .. last. */
static u64 lanes_of_range(struct tmem_client *client, u64 handle, const u64 object[3], u64 first,
			  u64 last)
{
	u64 block = first >> TMEM_LANE_BLOCK_SHIFT;
	u64 last_block = last >> TMEM_LANE_BLOCK_SHIFT;
	u64 lanes = 0;

	if (last_block - block >= RANGE_BLOCKS_MAX)
		return (1ULL << client->key_lanes) - 1;
	for (; block <= last_block; block++)
		lanes |= 1ULL << tmem_lane_of_key(client, handle, object,
						  block << TMEM_LANE_BLOCK_SHIFT)->number;
	return lanes;
}

/**
 * tmem_may_hold - is it worth while to get pages of an object?
 * @client: client
 * @first: key of the first page; the others follow it
 * @number: pages
 *
 * Cheap, not exact: no is certain. Any context.
 *
 * Return: false: all these gets would miss; they are counted as such.
 */
bool tmem_may_hold(struct tmem_client *client, const struct tmem_key *first, u32 number)
{
	u64 handle = tmem_load_acquire(&client->pools[first->pool].handle);
	u64 lanes = handle ? lanes_of_range(client, handle, first->object, first->index,
					    first->index + number - 1) : 0;

	for (; lanes; lanes &= lanes - 1) {
		struct tmem_lane *lane = &client->lanes[__builtin_ctzll(lanes)];
		unsigned long flags = tmem_lock(&lane->lock);
		u64 highest = 0;
		u32 keys = tmem_table_object_keys(&lane->table, first->pool, first->object,
						  &highest);

		tmem_client_unlock(client, lane, flags);
		if (keys && highest >= first->index)
			return true;
	}
	tmem_count_many(client, TMEM_COUNT_gets, number);
	tmem_count_many(client, TMEM_COUNT_get_misses_local, number);
	return false;
}

/* Lane locked. Drops keys of a short range one by one: those present, in this lane. */
static void flush_by_lookup(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
			    const struct tmem_key *first, u64 last)
{
	struct tmem_key key = *first;

	for (;; key.index++) {
		u32 at = tmem_table_find(&lane->table, &key);

		if (at != TMEM_TABLE_NONE)
			drop_at(client, lane, handle, at, &key);
		if (key.index == last)
			return;
	}
}

/* Lane locked. One descriptor for the whole range; what it does not reach becomes the object. */
static void post_range(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
		       const struct tmem_key *first, u64 last)
{
	bool whole = last - first->index >= 0xffffffffULL;
	struct tmem_desc desc = tmem_desc_of(whole ? TMEM_OP_FLUSH_OBJECT : TMEM_OP_FLUSH, handle,
					     first->object, whole ? 0 : first->index);

	if (!whole)
		desc.count = (u32)(last - first->index + 1);
	if (tmem_make_room(client, lane, 0))
		stage_flush(client, lane, &desc);
	else
		tmem_owe_range(client, lane, first->pool, first->object, first->index, last);
}

static void flush_lane_range(struct tmem_client *client, struct tmem_lane *lane, u64 handle,
			     const struct tmem_key *first, u64 last)
{
	unsigned long flags = tmem_lock(&lane->lock);
	u64 highest = 0;
	u32 keys = tmem_table_object_keys(&lane->table, first->pool, first->object, &highest);
	u32 before;

	if (last > highest)
		last = highest;
	if (!keys || first->index > last ||
	    tmem_read(&client->pools[first->pool].handle) != handle) {
		tmem_count(client, TMEM_COUNT_flushes_skipped);
		tmem_client_unlock(client, lane, flags);
		return;
	}
	if (last - first->index < RANGE_LOOKUPS_MAX) {
		flush_by_lookup(client, lane, handle, first, last);
		tmem_client_unlock(client, lane, flags);
		return;
	}
	post_range(client, lane, handle, first, last);
	before = (u32)lane->staged;
	for (;;) {
		u32 steps = keys < FORGET_STEPS ? keys : FORGET_STEPS;

		if (!tmem_table_forget_range(&lane->table, first->pool, first->object,
					     first->index, last, before, steps))
			break;
		keys -= steps;
		if (!keys)
			break;
		/* Keys put meanwhile come after the flush: `before` spares them. */
		tmem_client_unlock(client, lane, flags);
		flags = tmem_lock(&lane->lock);
	}
	tmem_client_unlock(client, lane, flags);
}

/**
 * tmem_flush_range - drop pages of an object
 * @client: client
 * @first: first page
 * @last: index of the last page, included
 *
 * After return no get finds them, until they are put again. Any context.
 */
void tmem_flush_range(struct tmem_client *client, const struct tmem_key *first, u64 last)
{
	u64 handle = tmem_load_acquire(&client->pools[first->pool].handle);
	u64 lanes;

	tmem_count(client, TMEM_COUNT_flushes);
	if (!handle)
		return;
	lanes = lanes_of_range(client, handle, first->object, first->index, last);
	for (; lanes; lanes &= lanes - 1)
		flush_lane_range(client, &client->lanes[__builtin_ctzll(lanes)], handle, first,
				 last);
}

/**
 * tmem_flush_object - drop all pages of an object
 * @client: client
 * @pool: pool
 * @object: id
 *
 * Any context.
 */
void tmem_flush_object(struct tmem_client *client, u32 pool, const u64 object[3])
{
	u64 handle = tmem_load_acquire(&client->pools[pool].handle);
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_FLUSH_OBJECT, handle, object, 0);
	u64 highest;
	u32 at;

	tmem_count(client, TMEM_COUNT_flushes);
	for (at = 0; handle && at < client->key_lanes; at++) {
		struct tmem_lane *lane = &client->lanes[at];
		unsigned long flags = tmem_lock(&lane->lock);

		if (!tmem_table_object_keys(&lane->table, pool, object, &highest)) {
			tmem_count(client, TMEM_COUNT_flushes_skipped);
			tmem_client_unlock(client, lane, flags);
			continue;
		}
		if (tmem_make_room(client, lane, 0)) {
			stage_flush(client, lane, &desc);
		} else {
			tmem_debt_add_object(&lane->debt, pool, object);
			tmem_count(client, TMEM_COUNT_flushes_owed);
		}
		tmem_table_forget_object(&lane->table, pool, object);
		lane->hints |= TMEM_HINT_WORK; /* to reclaim the keys */
		tmem_client_unlock(client, lane, flags);
		if (tmem_fault(TMEM_FAULT_OBJECT_FLUSH_ONE_LANE))
			break;
	}
}

/**
 * tmem_flush_pool - drop all pages of a pool
 * @client: client
 * @pool: pool, which stays usable
 *
 * Any context.
 */
void tmem_flush_pool(struct tmem_client *client, u32 pool)
{
	u64 handle = tmem_load_acquire(&client->pools[pool].handle);
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_FLUSH_POOL, handle, NULL, 0);
	u32 at;

	tmem_count(client, TMEM_COUNT_flushes);
	for (at = 0; handle && at < client->key_lanes; at++) {
		struct tmem_lane *lane = &client->lanes[at];
		unsigned long flags = tmem_lock(&lane->lock);

		if (tmem_make_room(client, lane, 0)) {
			stage_flush(client, lane, &desc);
		} else {
			tmem_debt_add_pool(&lane->debt, pool);
			tmem_count(client, TMEM_COUNT_flushes_owed);
		}
		tmem_table_forget_pool(&lane->table, pool);
		lane->hints |= TMEM_HINT_WORK;
		tmem_client_unlock(client, lane, flags);
	}
}

/* Lane locked. */
static void post_entry(struct tmem_client *client, struct tmem_lane *lane,
		       const struct tmem_debt_entry *entry)
{
	u64 handle = tmem_read(&client->pools[entry->pool].handle);
	bool whole = entry->whole_object || entry->last - entry->first >= 0xffffffffULL;
	struct tmem_desc desc = tmem_desc_of(whole ? TMEM_OP_FLUSH_OBJECT : TMEM_OP_FLUSH, handle,
					     entry->object, whole ? 0 : entry->first);

	if (!whole)
		desc.count = (u32)(entry->last - entry->first + 1);
	if (handle)
		stage_flush(client, lane, &desc);
}

/**
 * tmem_drain_debt - post flushes that are owed
 * @client: client
 * @lane: lane, locked
 *
 * Return: whether some are left.
 */
bool tmem_drain_debt(struct tmem_client *client, struct tmem_lane *lane)
{
	struct tmem_debt_entry entry;
	u32 pool;

	while (tmem_debt_any(&lane->debt) && tmem_make_room(client, lane, 0)) {
		if (tmem_debt_take_pool(&lane->debt, &pool)) {
			u64 handle = tmem_read(&client->pools[pool].handle);
			struct tmem_desc desc = tmem_desc_of(TMEM_OP_FLUSH_POOL, handle, NULL, 0);

			if (handle)
				stage_flush(client, lane, &desc);
		} else if (tmem_debt_take_entry(&lane->debt, &entry)) {
			post_entry(client, lane, &entry);
		}
	}
	return tmem_debt_any(&lane->debt);
}
