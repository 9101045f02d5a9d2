/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One lane of the window: its ring, its slots, and what this side remembers of both.
 *
 * `lock` guards all of it. It is taken with interrupts off, because puts come under locks that
 * interrupts take; nothing waits, allocates, rings or copies a page under it. Lane locks do not
 * nest.
 *
 * 1. Positions run freely: reaped <= posted <= staged <= reaped + entries. Below `posted` the host
 *    owns the entries, from there to `staged` they are written but not published. A host that is
 *    awake finds what is published; for one that sleeps it counts once it is announced.
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
	u64 announced; /* below it the host was rung for, or was awake */
	u32 unsent; /* staged since then and waited for by nobody; hypercall only */
	u32 free_slots;
	u32 quarantined;
	u32 waiters;
	bool insane;
	bool closed; /* between two registrations: nothing is published */
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
bool tmem_lane_extend_flush(struct tmem_lane *lane, u64 pool, const u64 object[3], u64 index);
bool tmem_lane_done(struct tmem_lane *lane, u64 *done);
void tmem_lane_take_done(struct tmem_lane *lane, struct tmem_completion *completion);
bool tmem_lane_disown(struct tmem_lane *lane, struct tmem_call *call);
void tmem_lane_watch(struct tmem_lane *lane, int change);

/* Once or more for each page: inline. */

/* What is remembered of an entry. */
static inline struct tmem_record *tmem_lane_record(const struct tmem_lane *lane, u64 entry)
{
	return &lane->records[entry & (lane->entries - 1)];
}

/**
 * tmem_lane_take_slot - take a free slot
 * @lane: lane, locked
 *
 * Return: the slot, now the caller's, or TMEM_NO_SLOT.
 */
static inline u32 tmem_lane_take_slot(struct tmem_lane *lane)
{
	u32 left = lane->free_slots;

	if (!left)
		return TMEM_NO_SLOT;
	tmem_write(&lane->free_slots, left - 1);
	return lane->free_stack[left - 1];
}

/**
 * tmem_lane_give_slot - a slot is free again
 * @lane: lane, locked
 * @slot: slot that nobody else owns
 */
static inline void tmem_lane_give_slot(struct tmem_lane *lane, u32 slot)
{
	lane->free_stack[lane->free_slots] = (u16)slot;
	tmem_write(&lane->free_slots, lane->free_slots + 1);
}

/**
 * tmem_lane_page - the memory of a slot
 * @lane: lane
 * @slot: slot that the caller owns
 */
static inline void *tmem_lane_page(const struct tmem_lane *lane, u32 slot)
{
	return lane->payload + ((size_t)slot << TMEM_PAGE_SHIFT);
}

/**
 * tmem_lane_has_room - can a descriptor be staged?
 * @lane: lane, locked
 * @reserve: entries to be left for others
 */
static inline bool tmem_lane_has_room(const struct tmem_lane *lane, u32 reserve)
{
	return lane->staged - lane->reaped + reserve < lane->entries;
}

/**
 * tmem_lane_restage - write another descriptor over one that is not published
 * @lane: lane, locked
 * @entry: its position
 * @desc: descriptor
 * @record: what to remember of it
 */
static inline void tmem_lane_restage(struct tmem_lane *lane, u64 entry,
				     const struct tmem_desc *desc,
				     const struct tmem_record *record)
{
	lane->ring[entry & (lane->entries - 1)] = *desc;
	*tmem_lane_record(lane, entry) = *record;
}

/**
 * tmem_lane_stage - write a descriptor at the ring's end
 * @lane: lane, locked, with room
 * @desc: descriptor
 * @record: what to remember of it
 *
 * Return: its position.
 */
static inline u64 tmem_lane_stage(struct tmem_lane *lane, const struct tmem_desc *desc,
				  const struct tmem_record *record)
{
	u64 entry = lane->staged++;

	tmem_lane_restage(lane, entry, desc, record);
	return entry;
}

/**
 * tmem_lane_is_staged - is this entry written but not published?
 * @lane: lane, locked
 * @entry_low: low half of its position; may be one of long ago
 * @entry: set to the position
 *
 * Of an old position the caller compares what the record says.
 */
static inline bool tmem_lane_is_staged(const struct tmem_lane *lane, u32 entry_low, u64 *entry)
{
	u32 ahead = entry_low - (u32)lane->posted;

	if (ahead >= lane->staged - lane->posted)
		return false;
	*entry = lane->posted + ahead;
	return true;
}

/**
 * tmem_lane_publish - hand everything staged to the host
 * @lane: lane, locked
 *
 * The caller fences and rings after unlocking.
 *
 * Return: whether there was anything.
 */
static inline bool tmem_lane_publish(struct tmem_lane *lane)
{
	if (lane->posted == lane->staged || lane->closed)
		return false;
	tmem_write(&lane->posted, lane->staged);
	tmem_store_release(&lane->head->posted, lane->staged);
	return true;
}

/**
 * tmem_lane_take_plain - take the next completed entry, if it is a put that went as most do
 * @lane: lane, locked; tmem_lane_done() has said that there is one
 *
 * Return: false: nothing was done, tmem_lane_take_done() is for it.
 */
static inline bool tmem_lane_take_plain(struct tmem_lane *lane)
{
	struct tmem_record *record = tmem_lane_record(lane, lane->reaped);

	if (record->op != TMEM_OP_PUT ||
	    tmem_read(&lane->ring[lane->reaped & (lane->entries - 1)].status) != TMEM_STATUS_OK)
		return false;
	tmem_write(&lane->reaped, lane->reaped + 1);
	if (record->slot != TMEM_NO_SLOT)
		tmem_lane_give_slot(lane, record->slot);
	record->slot = TMEM_NO_SLOT;
	return true;
}

#endif /* TMEM_CORE_LANE_H */
