/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Flushes that could not be posted: what one lane still owes the host.
 *
 * Not synchronised: the lane's lock guards it. While something is owed, gets of what it covers miss
 * in the guest and puts of it are dropped; so a flush never needs room (F1), and nothing is found
 * after it (F2). The room is bounded: when it runs out, ranges become their whole object, and
 * objects their whole pool. To owe more than was asked loses clean pages, never correctness.
 */
#ifndef TMEM_CORE_DEBT_H
#define TMEM_CORE_DEBT_H

#include "platform.h"

/* Each get and put of the lane looks at all of them while any is there. */
#define TMEM_DEBT_ENTRIES 16U

struct tmem_debt_entry {
	u32 pool;
	bool whole_object;
	u64 object[3];
	u64 first, last; /* included */
};

struct tmem_debt {
	u64 pools; /* bit i: all of pool i */
	u32 count;
	struct tmem_debt_entry entries[TMEM_DEBT_ENTRIES];
};

static inline bool tmem_debt_any(const struct tmem_debt *debt)
{
	return debt->pools || debt->count;
}

bool tmem_debt_covers(const struct tmem_debt *debt, u32 pool, const u64 object[3], u64 index);
void tmem_debt_add_range(struct tmem_debt *debt, u32 pool, const u64 object[3], u64 first,
			 u64 last);
void tmem_debt_add_object(struct tmem_debt *debt, u32 pool, const u64 object[3]);
void tmem_debt_add_pool(struct tmem_debt *debt, u32 pool);
void tmem_debt_forget_pool(struct tmem_debt *debt, u32 pool);
bool tmem_debt_take_pool(struct tmem_debt *debt, u32 *pool);
bool tmem_debt_take_entry(struct tmem_debt *debt, struct tmem_debt_entry *entry);

#endif /* TMEM_CORE_DEBT_H */
