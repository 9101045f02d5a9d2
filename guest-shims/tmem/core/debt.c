// SPDX-License-Identifier: GPL-2.0-only
/* Flushes that could not be posted yet, of one lane. */
#include "debt.h"

static bool same_object(const struct tmem_debt_entry *entry, u32 pool, const u64 object[3])
{
	return entry->pool == pool && entry->object[0] == object[0] &&
	       entry->object[1] == object[1] && entry->object[2] == object[2];
}

static void drop_entry(struct tmem_debt *debt, u32 at)
{
	debt->entries[at] = debt->entries[--debt->count];
}

/* Drops all entries of an object, or those of the whole pool when @object is NULL. */
static void drop_covered(struct tmem_debt *debt, u32 pool, const u64 *object)
{
	u32 at = 0;

	while (at < debt->count) {
		if (debt->entries[at].pool == pool &&
		    (!object || same_object(&debt->entries[at], pool, object)))
			drop_entry(debt, at);
		else
			at++;
	}
}

/**
 * tmem_debt_covers - does the guest owe a flush of this key?
 * @debt: debt
 * @pool: pool
 * @object: id
 * @index: page
 */
bool tmem_debt_covers(const struct tmem_debt *debt, u32 pool, const u64 object[3], u64 index)
{
	u32 at;

	if (debt->pools & (1ULL << pool))
		return true;
	for (at = 0; at < debt->count; at++) {
		const struct tmem_debt_entry *entry = &debt->entries[at];

		if (same_object(entry, pool, object) &&
		    (entry->whole_object || (index >= entry->first && index <= entry->last)))
			return true;
	}
	return false;
}

/* Joins a range to one it touches; true if that was possible or nothing was to be done. */
static bool join_range(struct tmem_debt *debt, u32 pool, const u64 object[3], u64 first, u64 last)
{
	u32 at;

	for (at = 0; at < debt->count; at++) {
		struct tmem_debt_entry *entry = &debt->entries[at];

		if (!same_object(entry, pool, object))
			continue;
		if (entry->whole_object)
			return true;
		if ((first > entry->last && first - entry->last > 1) ||
		    (entry->first > last && entry->first - last > 1))
			continue;
		if (first < entry->first)
			entry->first = first;
		if (last > entry->last)
			entry->last = last;
		return true;
	}
	return false;
}

static bool append(struct tmem_debt *debt, const struct tmem_debt_entry *entry)
{
	if (debt->count == TMEM_DEBT_ENTRIES)
		return false;
	debt->entries[debt->count++] = *entry;
	return true;
}

/**
 * tmem_debt_add_range - owe a flush of a range
 * @debt: debt
 * @pool: pool
 * @object: id
 * @first: first page
 * @last: last page, included
 */
void tmem_debt_add_range(struct tmem_debt *debt, u32 pool, const u64 object[3], u64 first, u64 last)
{
	struct tmem_debt_entry entry = { pool, false, { object[0], object[1], object[2] },
					 first, last };

	if ((debt->pools & (1ULL << pool)) || join_range(debt, pool, object, first, last) ||
	    append(debt, &entry))
		return;
	tmem_debt_add_object(debt, pool, object);
}

/**
 * tmem_debt_add_object - owe a flush of a whole object
 * @debt: debt
 * @pool: pool
 * @object: id
 */
void tmem_debt_add_object(struct tmem_debt *debt, u32 pool, const u64 object[3])
{
	struct tmem_debt_entry entry = { pool, true, { object[0], object[1], object[2] }, 0, 0 };

	if (debt->pools & (1ULL << pool))
		return;
	drop_covered(debt, pool, object);
	if (!append(debt, &entry))
		tmem_debt_add_pool(debt, pool);
}

/**
 * tmem_debt_add_pool - owe a flush of a whole pool
 * @debt: debt
 * @pool: pool
 */
void tmem_debt_add_pool(struct tmem_debt *debt, u32 pool)
{
	drop_covered(debt, pool, NULL);
	debt->pools |= 1ULL << pool;
}

/**
 * tmem_debt_forget_pool - the pool is gone on the host, nothing of it is owed
 * @debt: debt
 * @pool: pool
 */
void tmem_debt_forget_pool(struct tmem_debt *debt, u32 pool)
{
	drop_covered(debt, pool, NULL);
	debt->pools &= ~(1ULL << pool);
}

/**
 * tmem_debt_take_pool - take out a pool whose flush the caller will post
 * @debt: debt
 * @pool: set
 *
 * Return: false if no whole pool is owed.
 */
bool tmem_debt_take_pool(struct tmem_debt *debt, u32 *pool)
{
	if (!debt->pools)
		return false;
	*pool = (u32)__builtin_ctzll(debt->pools);
	debt->pools &= debt->pools - 1;
	return true;
}

/**
 * tmem_debt_take_entry - take out a range or object whose flush the caller will post
 * @debt: debt
 * @entry: set
 *
 * Return: false if none is owed.
 */
bool tmem_debt_take_entry(struct tmem_debt *debt, struct tmem_debt_entry *entry)
{
	if (!debt->count)
		return false;
	*entry = debt->entries[--debt->count];
	return true;
}
