/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The exact table of one lane: each ephemeral key that was put and not flushed or taken since.
 *
 * Not synchronised: the lane's lock guards it. All memory is allocated up front.
 *
 * 1. A key is (object record, index), found by hash; an object record is (pool, life of the pool,
 *    id) with the number of its keys. An object without a record was never put.
 * 2. Keys hang in a ring by age, so that the oldest is known, and in a ring of their object.
 * 3. Forgetting an object or a pool costs one step: its record leaves the hash, or the pool's life
 *    goes up, and the keys can no longer be found. They come back to the free list in small steps.
 *
 * A lookup or a change costs two short hash chains. 36 bytes a key, 2 for its hash, and 15 for
 * object records, of which there is one for four keys.
 */
#ifndef TMEM_CORE_TABLE_H
#define TMEM_CORE_TABLE_H

#include "platform.h"

/* No key, no object. */
#define TMEM_TABLE_NONE 0xffffffffU

/* Bounds of tmem_table_init: keys of a lane. 2^24 keys are 64 GiB of pages in each lane. */
#define TMEM_TABLE_MIN_KEYS 16U
#define TMEM_TABLE_MAX_KEYS (1U << 24)

/* Names a page within this guest. */
struct tmem_key {
	u32 pool; /* the client's number of the pool, below TMEM_MAX_POOLS */
	u64 object[3];
	u64 index;
};

struct tmem_table_key {
	u32 index_low, index_high;
	u32 object; /* TMEM_TABLE_NONE: free */
	u32 entry; /* low half of the ring position of its last put */
	u32 hash_next; /* also the free list */
	u32 older, newer;
	u32 object_prev, object_next;
};

struct tmem_table_object {
	u64 id[3];
	u64 highest; /* index put so far */
	u32 pool;
	u32 life; /* of the pool when this record was made */
	u32 keys;
	u32 first; /* key; its object_prev is the last one */
	u32 hash_next; /* also the list of free and of dying records */
	u32 state;
};

struct tmem_table {
	struct tmem_table_key *keys;
	struct tmem_table_object *objects;
	u32 *key_hash;
	u32 *object_hash;
	u8 *hidden; /* buckets of key_hash that a fault on purpose hides */
	u32 key_count, object_count; /* allocated */
	u32 key_hash_mask, object_hash_mask;
	u32 free_keys, free_objects, dying_objects; /* list heads */
	u32 used; /* keys, those of forgotten objects too */
	u32 oldest, newest;
	u32 recent; /* object found last: most lookups are for it again */
	u32 sweep; /* next object to look at for a pool's end; object_count: none */
	u64 seed;
	u32 lives[TMEM_MAX_POOLS];
};

int tmem_table_init(struct tmem_table *table, u32 keys);
void tmem_table_destroy(struct tmem_table *table);

u32 tmem_table_find(struct tmem_table *table, const struct tmem_key *key);
u32 tmem_table_insert(struct tmem_table *table, const struct tmem_key *key, u32 entry);
void tmem_table_touch(struct tmem_table *table, u32 at, u32 entry);
void tmem_table_remove(struct tmem_table *table, u32 at);
u32 tmem_table_of_entry(const struct tmem_table *table, u32 at, u32 entry);
u32 tmem_table_oldest(struct tmem_table *table);
void tmem_table_key_at(const struct tmem_table *table, u32 at, struct tmem_key *key);

u32 tmem_table_object_keys(struct tmem_table *table, u32 pool, const u64 object[3],
			   u64 *highest);
void tmem_table_forget_object(struct tmem_table *table, u32 pool, const u64 object[3]);
u32 tmem_table_forget_range(struct tmem_table *table, u32 pool, const u64 object[3], u64 first,
			    u64 last, u32 before, u32 steps);
void tmem_table_forget_pool(struct tmem_table *table, u32 pool);
bool tmem_table_reclaim(struct tmem_table *table, u32 steps);

#endif /* TMEM_CORE_TABLE_H */
