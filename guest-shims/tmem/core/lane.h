/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One lane of the window: its ring, its slots, and what this side remembers of both.
 *
 * `lock` guards all of it. It is taken with interrupts off, because puts come under locks that
 * interrupts take; nothing waits, allocates, rings or copies a page under it. Lane locks do not
 * nest.
 *
 * 1. Positions run freely: reaped <= posted <= staged <= reaped + entries. Below `posted` the host
 *    owns the entries, from there to `staged` they are written but not published.
 * 2. A slot is free, busy (someone in this guest copies in or out of it, or it waits in the ring),
 *    or quarantined: its get timed out and the host may still write there. It is free again when
 *    the descriptor that names it was reaped (G5), or after a new registration.
 * 3. Results are read once, from entries that `done` has passed, and only if `done` is possible:
 *    reaped <= done <= posted. Otherwise the lane is insane and the channel lost (X3).
 */
#ifndef TMEM_CORE_LANE_H
#define TMEM_CORE_LANE_H

#include "debt.h"
#include "table.h"

#define TMEM_NO_SLOT 0xffffU

/* One operation that somebody waits for. The waiter owns it; a lane points to it meanwhile. */
struct tmem_call {
	u64 value; /* result, or where the result's page is: the slot is below */
	u32 tag;
	u16 status; /* enum tmem_status as the host wrote it; 0: torn down */
	u16 slot;
	u8 lane;
	u8 flags;
	u8 done; /* set with release, after everything else */
	u8 page; /* the waiter's own number of the page */
};

/* What this side remembers of a ring entry. */
struct tmem_record {
	struct tmem_call *call; /* NULL: nobody waits (any more) */
	u64 index; /* of a persistent put */
	u64 value; /* its fill word */
	u32 table_key; /* of an ephemeral put of the table; TMEM_TABLE_NONE */
	u32 tag; /* of a put into a swap area */
	u16 slot;
	u8 op;
	u8 area; /* swap area + 1; 0: none */
	u8 flags;
	bool persistent;
	bool quarantined;
};

struct tmem_lane {
	struct tmem_spin lock;
	struct tmem_lane_head *head; /* in the window */
	struct tmem_desc *ring; /* in the window */
	u8 *payload; /* in the window */
	u32 number;
	u32 entries;
	u32 slots;
	u32 generation; /* counts registrations */
	u64 staged, posted, reaped;
	u32 free_slots;
	u32 quarantined;
	u32 waiters;
	bool insane;
	u32 hints; /* enum tmem_hint: what is to be done once unlocked */
	u16 *free_stack;
	struct tmem_record *records;
	struct tmem_table table; /* key lanes only */
	struct tmem_debt debt;
};

/* What a section under the lane's lock leaves to be done after it, without the lock. */
enum tmem_hint {
	TMEM_HINT_LATER = 1, /* something is staged: kick within about 1 ms */
	TMEM_HINT_SOON = 2, /* a batch is full: kick as soon as no lock is held */
	TMEM_HINT_WAKE = 4, /* something that others may wait for was reaped */
	TMEM_HINT_WORK = 8, /* the worker has something to do */
	TMEM_HINT_FLUSH = 16, /* what was staged was a flush; else a put */
	TMEM_HINT_TRIP = 32, /* half the slots are quarantined: the host is lost */
};

/* A completed entry: what was remembered of it and what the host answered, copied. */
struct tmem_completion {
	struct tmem_record record;
	u64 entry;
	u64 value;
	u32 tag;
	u16 status;
	u8 flags;
};

int tmem_lane_init(struct tmem_lane *lane, void *memory, u32 number, u32 entries, u32 slots);
void tmem_lane_destroy(struct tmem_lane *lane);
void tmem_lane_abort(struct tmem_lane *lane);
void tmem_lane_reset(struct tmem_lane *lane);

u32 tmem_lane_take_slot(struct tmem_lane *lane);
void tmem_lane_give_slot(struct tmem_lane *lane, u32 slot);
void *tmem_lane_page(const struct tmem_lane *lane, u32 slot);

bool tmem_lane_has_room(const struct tmem_lane *lane, u32 reserve);
u64 tmem_lane_stage(struct tmem_lane *lane, const struct tmem_desc *desc,
		    const struct tmem_record *record);
void tmem_lane_restage(struct tmem_lane *lane, u64 entry, const struct tmem_desc *desc,
		       const struct tmem_record *record);
bool tmem_lane_is_staged(const struct tmem_lane *lane, u32 entry_low, u64 *entry);
bool tmem_lane_extend_flush(struct tmem_lane *lane, u64 pool, const u64 object[3], u64 index);
bool tmem_lane_publish(struct tmem_lane *lane);
bool tmem_lane_next_done(struct tmem_lane *lane, struct tmem_completion *completion);
bool tmem_lane_disown(struct tmem_lane *lane, struct tmem_call *call);
void tmem_lane_watch(struct tmem_lane *lane, int change);

#endif /* TMEM_CORE_LANE_H */
