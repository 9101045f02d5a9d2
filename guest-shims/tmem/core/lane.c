// SPDX-License-Identifier: GPL-2.0-only
/* One lane of the window: its ring, its slots, and what this side remembers of both. */
#include "lane.h"

#include "fault.h"

/**
 * tmem_lane_init - take over a lane's part of the window
 * @lane: set
 * @memory: the lane's first byte
 * @number: lane
 * @entries: descriptors of its ring, a power of two
 * @slots: its payload slots
 *
 * Return: 0, -ENOMEM.
 */
int tmem_lane_init(struct tmem_lane *lane, void *memory, u32 number, u32 entries, u32 slots)
{
	u32 slot;

	memset(lane, 0, sizeof(*lane));
	tmem_lock_init(&lane->lock);
	lane->head = memory;
	lane->ring = (struct tmem_desc *)((u8 *)memory + TMEM_PAGE_BYTES);
	lane->payload = (u8 *)memory + tmem_slots_offset(entries);
	lane->number = number;
	lane->entries = entries;
	lane->slots = slots;
	lane->records = tmem_alloc(sizeof(*lane->records) * entries);
	lane->free_stack = tmem_alloc(sizeof(*lane->free_stack) * (slots + 1));
	if (!lane->records || !lane->free_stack) {
		tmem_lane_destroy(lane);
		return -ENOMEM;
	}
	for (slot = 0; slot < slots; slot++)
		lane->free_stack[slot] = (u16)(slots - 1 - slot);
	lane->free_slots = slots;
	return 0;
}

/**
 * tmem_lane_destroy - free what this side remembers
 * @lane: lane that nobody uses any more
 */
void tmem_lane_destroy(struct tmem_lane *lane)
{
	tmem_table_destroy(&lane->table);
	tmem_free(lane->records);
	tmem_free(lane->free_stack);
	lane->records = NULL;
	lane->free_stack = NULL;
}

static void finish_call(struct tmem_call *call, const struct tmem_completion *completion)
{
	call->status = completion->status;
	call->flags = completion->flags;
	call->tag = completion->tag;
	call->value = completion->value;
	tmem_store_release(&call->done, 1);
}

/**
 * tmem_lane_abort - let go of everybody who waits, the channel is lost
 * @lane: lane, locked
 *
 * Their slots stay in quarantine: the host may still write there. Until tmem_lane_reset() nothing
 * is published: the host would find it in the next registration.
 */
void tmem_lane_abort(struct tmem_lane *lane)
{
	struct tmem_completion nothing = { 0 };
	u64 entry;

	lane->closed = true;
	for (entry = lane->reaped; entry != lane->staged; entry++) {
		struct tmem_record *record = tmem_lane_record(lane, entry);

		if (!record->call)
			continue;
		record->call->slot = TMEM_NO_SLOT;
		finish_call(record->call, &nothing);
		record->call = NULL;
		if (record->slot != TMEM_NO_SLOT) {
			record->quarantined = true;
			tmem_write(&lane->quarantined, lane->quarantined + 1);
		}
	}
}

/**
 * tmem_lane_reset - start again after a registration
 * @lane: lane, locked, aborted before
 *
 * Slots of ring entries become free. Those that someone of this guest is copying in or out of
 * stay his.
 */
void tmem_lane_reset(struct tmem_lane *lane)
{
	u64 entry;

	for (entry = lane->reaped; entry != lane->staged; entry++) {
		struct tmem_record *record = tmem_lane_record(lane, entry);

		if (record->slot != TMEM_NO_SLOT)
			tmem_lane_give_slot(lane, record->slot);
	}
	lane->staged = 0;
	lane->announced = 0;
	lane->unsent = 0;
	tmem_write(&lane->posted, 0ULL);
	tmem_write(&lane->reaped, 0ULL);
	tmem_write(&lane->quarantined, 0U);
	lane->insane = false;
	lane->closed = false;
	lane->generation++;
	tmem_write(&lane->head->guest_waits, lane->waiters ? 1U : 0U);
}

/**
 * tmem_lane_extend_flush - let the last staged flush cover one page more
 * @lane: lane, locked
 * @pool: handle
 * @object: id
 * @index: page
 *
 * Only the very last entry may grow: an earlier one has puts behind it that must stay behind.
 *
 * Return: false if the last entry is not a flush of the pages just before.
 */
bool tmem_lane_extend_flush(struct tmem_lane *lane, u64 pool, const u64 object[3], u64 index)
{
	struct tmem_desc *last;

	if (lane->staged == lane->posted ||
	    tmem_lane_record(lane, lane->staged - 1)->op != TMEM_OP_FLUSH)
		return false;
	/* Not published: the host has no business here, and harms only itself by writing. */
	last = &lane->ring[(lane->staged - 1) & (lane->entries - 1)];
	if (last->pool != pool || last->object[0] != object[0] || last->object[1] != object[1] ||
	    last->object[2] != object[2] || last->count == 0xffffffffU ||
	    last->index + last->count != index)
		return false;
	last->count++;
	return true;
}

/**
 * tmem_lane_done - how far the host is
 * @lane: lane, locked
 * @done: set to the position it has reached
 *
 * Return: false if it cannot be there; lane->insane says so from then on.
 */
bool tmem_lane_done(struct tmem_lane *lane, u64 *done)
{
	*done = tmem_load_acquire(&lane->head->done);
	if (*done - lane->reaped > lane->posted - lane->reaped)
		lane->insane = true;
	return !lane->insane;
}

/**
 * tmem_lane_take_done - take the next completed entry
 * @lane: lane, locked; tmem_lane_done() has said that there is one
 * @completion: set
 *
 * Gives its slot back, or to the waiter of a get; tells the waiter.
 */
void tmem_lane_take_done(struct tmem_lane *lane, struct tmem_completion *completion)
{
	const struct tmem_desc *desc = &lane->ring[lane->reaped & (lane->entries - 1)];
	struct tmem_record *record = tmem_lane_record(lane, lane->reaped);

	completion->record = *record;
	completion->entry = lane->reaped;
	completion->status = tmem_read(&desc->status);
	completion->flags = tmem_read(&desc->flags);
	completion->tag = tmem_read(&desc->tag);
	completion->value = tmem_read(&desc->value);
	tmem_write(&lane->reaped, lane->reaped + 1);
	if (record->call)
		finish_call(record->call, completion);
	else if (record->slot != TMEM_NO_SLOT)
		tmem_lane_give_slot(lane, record->slot);
	if (record->quarantined)
		tmem_write(&lane->quarantined, lane->quarantined - 1);
	record->call = NULL;
	record->slot = TMEM_NO_SLOT;
}

/**
 * tmem_lane_disown - nobody waits for this call any more
 * @lane: lane, locked
 * @call: call that timed out
 *
 * Its slot goes into quarantine.
 *
 * Return: false if the call was done after all.
 */
bool tmem_lane_disown(struct tmem_lane *lane, struct tmem_call *call)
{
	u64 entry;

	for (entry = lane->reaped; entry != lane->staged; entry++) {
		struct tmem_record *record = tmem_lane_record(lane, entry);

		if (record->call != call)
			continue;
		record->call = NULL;
		if (tmem_fault(TMEM_FAULT_LATE_COMPLETION_REUSE) && record->slot != TMEM_NO_SLOT) {
			tmem_lane_give_slot(lane, record->slot);
			record->slot = TMEM_NO_SLOT;
		}
		if (record->slot != TMEM_NO_SLOT) {
			record->quarantined = true;
			tmem_write(&lane->quarantined, lane->quarantined + 1);
		}
		return true;
	}
	return false;
}

/**
 * tmem_lane_watch - somebody goes to sleep until `done` moves, or is back
 * @lane: lane, locked
 * @change: 1 or -1
 */
void tmem_lane_watch(struct tmem_lane *lane, int change)
{
	lane->waiters += (u32)change;
	tmem_write(&lane->head->guest_waits, lane->waiters ? 1U : 0U);
}
