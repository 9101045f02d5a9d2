// SPDX-License-Identifier: GPL-2.0-only
/* The exact table of the ephemeral keys that the host may hold, of one lane. */
#include "table.h"

#include "fault.h"

enum object_state {
	OBJECT_FREE,
	OBJECT_LIVE,
	OBJECT_DYING, /* out of the hash; its keys go in steps */
};

/* Oldest keys of forgotten objects that one search for the oldest key may drop. */
#define OLDEST_STEPS 16U

static u32 power_of_two_from(u32 at_least)
{
	u32 power = 1;

	while (power < at_least)
		power <<= 1;
	return power;
}

static u32 object_bucket(const struct tmem_table *table, u32 pool, const u64 object[3])
{
	u64 hash = tmem_mix(table->seed, ((u64)pool << 32) | table->lives[pool]);

	hash = tmem_mix(hash, object[0]);
	hash = tmem_mix(hash, object[1]);
	hash = tmem_mix(hash, object[2]);
	return (u32)hash & table->object_hash_mask;
}

static u32 key_bucket(const struct tmem_table *table, u32 object, u64 index)
{
	return (u32)tmem_mix(tmem_mix(table->seed, object), index) & table->key_hash_mask;
}

static u64 key_index(const struct tmem_table_key *key)
{
	return ((u64)key->index_high << 32) | key->index_low;
}

static bool object_is(const struct tmem_table *table, const struct tmem_table_object *record,
		      u32 pool, const u64 object[3])
{
	return record->pool == pool && record->life == table->lives[pool] &&
	       record->id[0] == object[0] && record->id[1] == object[1] &&
	       record->id[2] == object[2];
}

static u32 search_object(struct tmem_table *table, u32 pool, const u64 object[3])
{
	u32 at = table->object_hash[object_bucket(table, pool, object)];

	while (at != TMEM_TABLE_NONE && !object_is(table, &table->objects[at], pool, object))
		at = table->objects[at].hash_next;
	if (at != TMEM_TABLE_NONE)
		table->recent = at;
	return at;
}

static inline u32 find_object(struct tmem_table *table, u32 pool, const u64 object[3])
{
	const struct tmem_table_object *recent = &table->objects[table->recent];

	if (recent->state == OBJECT_LIVE && object_is(table, recent, pool, object))
		return table->recent;
	return search_object(table, pool, object);
}

static bool object_alive(const struct tmem_table *table, const struct tmem_table_object *record)
{
	return record->state == OBJECT_LIVE && record->life == table->lives[record->pool];
}

/**
 * tmem_table_init - allocate a table, empty
 * @table: where
 * @keys: how many keys it can hold
 *
 * Return: 0, -EINVAL for a number out of bounds, -ENOMEM.
 */
int tmem_table_init(struct tmem_table *table, u32 keys)
{
	u32 at;

	memset(table, 0, sizeof(*table));
	if (keys < TMEM_TABLE_MIN_KEYS || keys > TMEM_TABLE_MAX_KEYS)
		return -EINVAL;
	table->key_count = keys;
	table->object_count = keys / 4;
	table->key_hash_mask = power_of_two_from(keys / 2) - 1;
	table->object_hash_mask = power_of_two_from(keys / 4) - 1;
	table->keys = tmem_alloc(sizeof(*table->keys) * table->key_count);
	table->objects = tmem_alloc(sizeof(*table->objects) * table->object_count);
	table->key_hash = tmem_alloc(sizeof(u32) * (table->key_hash_mask + 1));
	table->object_hash = tmem_alloc(sizeof(u32) * (table->object_hash_mask + 1));
	table->hidden = tmem_fault_alloc(table->key_hash_mask + 1);
	if (!table->keys || !table->objects || !table->key_hash || !table->object_hash) {
		tmem_table_destroy(table);
		return -ENOMEM;
	}
	memset(table->key_hash, 0xff, sizeof(u32) * (table->key_hash_mask + 1));
	memset(table->object_hash, 0xff, sizeof(u32) * (table->object_hash_mask + 1));
	for (at = 0; at < table->key_count; at++) {
		table->keys[at].object = TMEM_TABLE_NONE;
		table->keys[at].hash_next = at + 1;
	}
	table->keys[at - 1].hash_next = TMEM_TABLE_NONE;
	for (at = 0; at < table->object_count; at++)
		table->objects[at].hash_next = at + 1;
	table->objects[at - 1].hash_next = TMEM_TABLE_NONE;
	table->dying_objects = TMEM_TABLE_NONE;
	table->oldest = TMEM_TABLE_NONE;
	table->newest = TMEM_TABLE_NONE;
	table->sweep = table->object_count;
	table->seed = tmem_random();
	return 0;
}

/**
 * tmem_table_destroy - free a table's memory
 * @table: may be one that tmem_table_init refused
 */
void tmem_table_destroy(struct tmem_table *table)
{
	tmem_free(table->keys);
	tmem_free(table->objects);
	tmem_free(table->key_hash);
	tmem_free(table->object_hash);
	tmem_free(table->hidden);
	memset(table, 0, sizeof(*table));
}

/**
 * tmem_table_find - look a key up
 * @table: table
 * @key: what to look for
 *
 * Return: its place, or TMEM_TABLE_NONE: the host cannot have it.
 */
u32 tmem_table_find(struct tmem_table *table, const struct tmem_key *key)
{
	u32 object = find_object(table, key->pool, key->object);
	u32 at, bucket;

	if (object == TMEM_TABLE_NONE)
		return TMEM_TABLE_NONE;
	bucket = key_bucket(table, object, key->index);
	if (tmem_fault(TMEM_FAULT_TABLE_FORGETS_COLLISION) && table->hidden &&
	    table->hidden[bucket])
		return TMEM_TABLE_NONE;
	at = table->key_hash[bucket];
	while (at != TMEM_TABLE_NONE && (table->keys[at].object != object ||
					 key_index(&table->keys[at]) != key->index))
		at = table->keys[at].hash_next;
	return at;
}

static u32 make_object(struct tmem_table *table, u32 pool, const u64 object[3])
{
	u32 at = table->free_objects;
	struct tmem_table_object *record;
	u32 *bucket;

	if (at == TMEM_TABLE_NONE)
		return at;
	record = &table->objects[at];
	table->free_objects = record->hash_next;
	record->id[0] = object[0];
	record->id[1] = object[1];
	record->id[2] = object[2];
	record->pool = pool;
	record->life = table->lives[pool];
	record->keys = 0;
	record->highest = 0;
	record->first = TMEM_TABLE_NONE;
	record->state = OBJECT_LIVE;
	bucket = &table->object_hash[object_bucket(table, pool, object)];
	record->hash_next = *bucket;
	*bucket = at;
	return at;
}

static void unhash_object(struct tmem_table *table, u32 at)
{
	struct tmem_table_object *record = &table->objects[at];
	u64 hash = tmem_mix(table->seed, ((u64)record->pool << 32) | record->life);
	u32 *link;

	/* Not object_bucket: the pool's life may have moved on. */
	hash = tmem_mix(hash, record->id[0]);
	hash = tmem_mix(hash, record->id[1]);
	hash = tmem_mix(hash, record->id[2]);
	link = &table->object_hash[(u32)hash & table->object_hash_mask];
	while (*link != at)
		link = &table->objects[*link].hash_next;
	*link = record->hash_next;
}

static void free_object(struct tmem_table *table, u32 at)
{
	table->objects[at].state = OBJECT_FREE;
	table->objects[at].hash_next = table->free_objects;
	table->free_objects = at;
}

static void link_newest(struct tmem_table *table, u32 at)
{
	struct tmem_table_key *key = &table->keys[at];

	key->older = table->newest;
	key->newer = TMEM_TABLE_NONE;
	if (table->newest != TMEM_TABLE_NONE)
		table->keys[table->newest].newer = at;
	else
		table->oldest = at;
	table->newest = at;
}

static void unlink_age(struct tmem_table *table, u32 at)
{
	struct tmem_table_key *key = &table->keys[at];

	if (key->older != TMEM_TABLE_NONE)
		table->keys[key->older].newer = key->newer;
	else
		table->oldest = key->newer;
	if (key->newer != TMEM_TABLE_NONE)
		table->keys[key->newer].older = key->older;
	else
		table->newest = key->older;
}

static void link_to_object(struct tmem_table *table, u32 at, struct tmem_table_object *record)
{
	struct tmem_table_key *key = &table->keys[at];

	if (record->first == TMEM_TABLE_NONE) {
		key->object_prev = at;
		key->object_next = at;
		record->first = at;
	} else {
		u32 first = record->first;
		u32 last = table->keys[first].object_prev;

		key->object_prev = last;
		key->object_next = first;
		table->keys[last].object_next = at;
		table->keys[first].object_prev = at;
	}
	record->keys++;
}

/**
 * tmem_table_insert - add a key that is not in the table
 * @table: table
 * @key: key
 * @entry: ring position of its put
 *
 * Return: its place, or TMEM_TABLE_NONE: no room, flush the oldest key first.
 */
u32 tmem_table_insert(struct tmem_table *table, const struct tmem_key *key, u32 entry)
{
	u32 object, at, *bucket;
	struct tmem_table_key *slot;

	if (table->free_keys == TMEM_TABLE_NONE || table->free_objects == TMEM_TABLE_NONE)
		tmem_table_reclaim(table, OLDEST_STEPS);
	if (table->free_keys == TMEM_TABLE_NONE)
		return TMEM_TABLE_NONE;
	object = find_object(table, key->pool, key->object);
	if (object == TMEM_TABLE_NONE)
		object = make_object(table, key->pool, key->object);
	if (object == TMEM_TABLE_NONE)
		return TMEM_TABLE_NONE;
	at = table->free_keys;
	slot = &table->keys[at];
	table->free_keys = slot->hash_next;
	slot->index_low = (u32)key->index;
	slot->index_high = (u32)(key->index >> 32);
	slot->object = object;
	slot->entry = entry;
	bucket = &table->key_hash[key_bucket(table, object, key->index)];
	slot->hash_next = *bucket;
	*bucket = at;
	if (tmem_fault(TMEM_FAULT_TABLE_FORGETS_COLLISION) && table->hidden)
		table->hidden[bucket - table->key_hash] = 0;
	link_newest(table, at);
	link_to_object(table, at, &table->objects[object]);
	if (key->index > table->objects[object].highest)
		table->objects[object].highest = key->index;
	table->used++;
	return at;
}

/**
 * tmem_table_touch - a key of the table was put again
 * @table: table
 * @at: its place
 * @entry: ring position of the new put
 */
void tmem_table_touch(struct tmem_table *table, u32 at, u32 entry)
{
	table->keys[at].entry = entry;
	unlink_age(table, at);
	link_newest(table, at);
}

/**
 * tmem_table_remove - a key was flushed, taken or refused
 * @table: table
 * @at: its place
 */
void tmem_table_remove(struct tmem_table *table, u32 at)
{
	struct tmem_table_key *key = &table->keys[at];
	struct tmem_table_object *record = &table->objects[key->object];
	u32 bucket = key_bucket(table, key->object, key_index(key));
	u32 *link = &table->key_hash[bucket];

	while (*link != at)
		link = &table->keys[*link].hash_next;
	*link = key->hash_next;
	if (tmem_fault(TMEM_FAULT_TABLE_FORGETS_COLLISION) && table->hidden)
		table->hidden[bucket] = table->key_hash[bucket] != TMEM_TABLE_NONE;
	unlink_age(table, at);
	if (record->keys == 1) {
		record->first = TMEM_TABLE_NONE;
	} else {
		table->keys[key->object_prev].object_next = key->object_next;
		table->keys[key->object_next].object_prev = key->object_prev;
		if (record->first == at)
			record->first = key->object_next;
	}
	record->keys--;
	/* A dying record is freed by tmem_table_reclaim, whose list it is on. */
	if (record->keys == 0 && record->state == OBJECT_LIVE) {
		unhash_object(table, key->object);
		free_object(table, key->object);
	}
	key->object = TMEM_TABLE_NONE;
	key->hash_next = table->free_keys;
	table->free_keys = at;
	table->used--;
}

/**
 * tmem_table_of_entry - is this put still the last one of a key in the table?
 * @table: table
 * @at: place that the put was given
 * @entry: ring position of the put
 *
 * Return: @at, or TMEM_TABLE_NONE when the key has been flushed, taken or put again since.
 */
u32 tmem_table_of_entry(const struct tmem_table *table, u32 at, u32 entry)
{
	const struct tmem_table_key *key;

	if (at >= table->key_count)
		return TMEM_TABLE_NONE;
	key = &table->keys[at];
	if (key->object == TMEM_TABLE_NONE || key->entry != entry ||
	    !object_alive(table, &table->objects[key->object]))
		return TMEM_TABLE_NONE;
	return at;
}

/**
 * tmem_table_oldest - the key that was put first
 * @table: table
 *
 * Drops forgotten keys on the way, a bounded number.
 *
 * Return: its place, or TMEM_TABLE_NONE if nothing is there.
 */
u32 tmem_table_oldest(struct tmem_table *table)
{
	u32 step;

	for (step = 0; step < OLDEST_STEPS && table->oldest != TMEM_TABLE_NONE; step++) {
		u32 at = table->oldest;

		if (object_alive(table, &table->objects[table->keys[at].object]))
			return at;
		tmem_table_remove(table, at);
	}
	return TMEM_TABLE_NONE;
}

/**
 * tmem_table_key_at - what key stands at a place
 * @table: table
 * @at: place in use
 * @key: set
 */
void tmem_table_key_at(const struct tmem_table *table, u32 at, struct tmem_key *key)
{
	const struct tmem_table_object *record = &table->objects[table->keys[at].object];

	key->pool = record->pool;
	key->object[0] = record->id[0];
	key->object[1] = record->id[1];
	key->object[2] = record->id[2];
	key->index = key_index(&table->keys[at]);
}

/**
 * tmem_table_object_keys - how many keys an object has here
 * @table: table
 * @pool: pool
 * @object: id
 * @highest: if it has any, set to an index that none of them exceeds
 *
 * Return: the number; 0: a flush of it costs nothing.
 */
u32 tmem_table_object_keys(struct tmem_table *table, u32 pool, const u64 object[3],
			   u64 *highest)
{
	u32 at = find_object(table, pool, object);

	if (at == TMEM_TABLE_NONE)
		return 0;
	*highest = table->objects[at].highest;
	return table->objects[at].keys;
}

static void let_die(struct tmem_table *table, u32 at)
{
	unhash_object(table, at);
	table->objects[at].state = OBJECT_DYING;
	table->objects[at].hash_next = table->dying_objects;
	table->dying_objects = at;
}

/**
 * tmem_table_forget_object - all keys of an object were flushed
 * @table: table
 * @pool: pool
 * @object: id
 */
void tmem_table_forget_object(struct tmem_table *table, u32 pool, const u64 object[3])
{
	u32 at = find_object(table, pool, object);

	if (at != TMEM_TABLE_NONE)
		let_die(table, at);
}

/**
 * tmem_table_forget_range - keys of an object were flushed, one step of it
 * @table: table
 * @pool: pool
 * @object: id
 * @first: first index
 * @last: last index, included
 * @before: ring position of the flush; keys put after it stay
 * @steps: keys to look at
 *
 * Looks at the first @steps keys of the object; those outside the range move to its end. Who calls
 * it again for as many steps as the object had keys has seen them all.
 *
 * Return: keys that the object has left.
 */
u32 tmem_table_forget_range(struct tmem_table *table, u32 pool, const u64 object[3], u64 first,
			    u64 last, u32 before, u32 steps)
{
	u32 object_at = find_object(table, pool, object);
	struct tmem_table_object *record;

	if (object_at == TMEM_TABLE_NONE)
		return 0;
	record = &table->objects[object_at];
	while (steps-- > 0) {
		u32 at = record->first;
		u64 index = key_index(&table->keys[at]);

		/* In a ring, the next one becoming first is this one becoming last. */
		record->first = table->keys[at].object_next;
		/* A put of very long ago may seem to come after: it stays, which is harmless. */
		if (index < first || index > last ||
		    before - 1 - table->keys[at].entry > 0x7fffffffU)
			continue;
		if (record->keys == 1) {
			tmem_table_remove(table, at); /* frees the record too */
			return 0;
		}
		tmem_table_remove(table, at);
	}
	return record->keys;
}

/**
 * tmem_table_forget_pool - all keys of a pool are gone
 * @table: table
 * @pool: pool
 */
void tmem_table_forget_pool(struct tmem_table *table, u32 pool)
{
	table->lives[pool]++;
	table->sweep = 0;
}

/**
 * tmem_table_reclaim - bring keys of forgotten objects back to the free list
 * @table: table
 * @steps: bound of the work
 *
 * Return: whether more is left to do.
 */
bool tmem_table_reclaim(struct tmem_table *table, u32 steps)
{
	for (; steps > 0; steps--) {
		u32 at = table->dying_objects;

		if (at != TMEM_TABLE_NONE) {
			if (table->objects[at].keys > 0) {
				tmem_table_remove(table, table->objects[at].first);
				continue;
			}
			table->dying_objects = table->objects[at].hash_next;
			free_object(table, at);
			continue;
		}
		if (table->sweep == table->object_count)
			return false;
		at = table->sweep++;
		if (table->objects[at].state == OBJECT_LIVE &&
		    !object_alive(table, &table->objects[at]))
			let_die(table, at);
	}
	return table->dying_objects != TMEM_TABLE_NONE || table->sweep != table->object_count;
}
