// SPDX-License-Identifier: GPL-2.0-only
/* Faults on purpose: names, and what is more than a line where it is broken. */
#include "fault.h"

#include "internal.h"

struct tmem_inject tmem_inject;

#ifndef __KERNEL__
u32 tmem_fault_now;
u32 tmem_fault_on_cpu;
#endif

/* A host that drops what is reported late needs a few calls, or milliseconds, for it. */
#define LATE_REPORT_LOOKS 200U

/* The swap area whose flush is held back, and one; and how many stores it has had since. */
static u64 held_area;
static u64 held_stores;

/* By number, as they are listed in that order. */
#define NAME_OF_FAULT(name, number, text) text,
static const char *const fault_names[TMEM_FAULT_END] = {
	"none",
	TMEM_FAULTS(NAME_OF_FAULT)
};

/**
 * tmem_fault_name - what a fault is called
 * @fault: enum tmem_fault
 */
const char *tmem_fault_name(u32 fault)
{
	return fault_names[fault];
}

/**
 * tmem_fault_of_name - which fault is called that
 * @name: "none" or nothing: no fault
 *
 * Return: enum tmem_fault or -EINVAL.
 */
int tmem_fault_of_name(const char *name)
{
	int fault;

	if (!*name)
		return TMEM_FAULT_NONE;
	for (fault = 0; fault < TMEM_FAULT_END; fault++) {
		if (!strcmp(name, fault_names[fault]))
			return fault;
	}
	return -EINVAL;
}

static bool every(u32 number, u64 *count)
{
	return number && (tmem_fetch_add(count, 1) + 1) % number == 0;
}

/**
 * tmem_inject_failed_load - shall the host seem to have lost the page of this load?
 */
bool tmem_inject_failed_load(void)
{
	static u64 loads;

	return tmem_faults_on() && every(tmem_read(&tmem_inject.fail_loads), &loads);
}

/**
 * tmem_inject_late_get - shall this get give up before the host is told of it?
 */
bool tmem_inject_late_get(void)
{
	static u64 gets;

	return tmem_faults_on() && every(tmem_read(&tmem_inject.late_gets), &gets);
}

static bool is_swap_pool(const struct tmem_client *client, u64 handle)
{
	return client->swap.kind && handle == tmem_read(&client->pools[client->swap.pool].handle);
}

/**
 * tmem_fault_lane - the lane of a key
 * @client: client
 * @handle: of the key's pool
 * @lane: that of its hash
 *
 * The host refuses keys of other lanes, so CPU 0 keeps the right ones for the others to err. Pages
 * of swap areas keep theirs too: a store that the host refuses is an error, not a stale page.
 *
 * Return: the lane to be used.
 */
u32 tmem_fault_lane(const struct tmem_client *client, u64 handle, u32 lane)
{
	if (!tmem_fault(TMEM_FAULT_LANE_PER_CPU) || is_swap_pool(client, handle))
		return lane;
	return (lane + tmem_fault_cpu()) & (client->key_lanes - 1);
}

/**
 * tmem_fault_forget_tail - set one bit for a large folio: clear the others
 * @client: client
 * @number: area
 * @slot: of its first page
 * @count: its pages
 */
void tmem_fault_forget_tail(struct tmem_client *client, u32 number, u64 slot, u64 count)
{
	struct tmem_swap_area *area = tmem_load_acquire(&client->swap.areas[number]);
	unsigned long flags;

	if (!area || !tmem_fault(TMEM_FAULT_THP_ONE_BIT))
		return;
	flags = tmem_lock(&area->lock);
	while (--count > 0)
		tmem_bit_clear(area->held, ++slot);
	tmem_unlock(&area->lock, flags);
}

/**
 * tmem_fault_hold_area_flush - keep the flush of a whole swap area for later
 * @number: area
 *
 * Return: false if it is to be posted now.
 */
bool tmem_fault_hold_area_flush(u32 number)
{
	if (!tmem_fault(TMEM_FAULT_AREA_FLUSH_LATE))
		return false;
	tmem_write(&held_stores, 0ULL);
	tmem_write(&held_area, number + 1ULL);
	return true;
}

/**
 * tmem_fault_late_area_flush - a page was stored: is the flush that was held back due now?
 * @client: client, no lock held
 * @number: area of the page
 */
void tmem_fault_late_area_flush(struct tmem_client *client, u32 number)
{
	if (!tmem_fault(TMEM_FAULT_AREA_FLUSH_LATE) || tmem_read(&held_area) != number + 1ULL ||
	    tmem_fetch_add(&held_stores, 1) + 1 != TMEM_FAULT_LATE_STORES)
		return;
	tmem_write(&held_area, 0ULL);
	tmem_swap_flush_area(client, number, true);
}

/**
 * tmem_fault_late_report - hand over the report that has returned already, and see it done
 * @client: client
 * @lane: control lane
 *
 * Its pages have been free for others since then.
 */
void tmem_fault_late_report(struct tmem_client *client, struct tmem_lane *lane)
{
	u32 pendings = 0;
	u32 looks;

	if (!tmem_fault(TMEM_FAULT_REPORT_RETURNS_EARLY))
		return;
	for (looks = 0; looks < LATE_REPORT_LOOKS; looks++) {
		unsigned long flags = tmem_lock(&lane->lock);
		bool over;

		tmem_reap(client, lane);
		tmem_announce(client, lane);
		over = lane->posted == lane->reaped;
		tmem_client_unlock(client, lane, flags);
		if (over)
			return;
		if (tmem_by_hypercall(client))
			tmem_hypercall(client, TMEM_HC_CALL, 1ULL << lane->number, TMEM_KICK_OTHER);
		else
			tmem_client_ring(client, TMEM_KICK_OTHER);
		tmem_pause(client, &pendings);
	}
}

/**
 * tmem_fault_other_handle - the handle that a get names
 * @client: client
 * @lane: lane of the key
 * @key: key
 * @handle: of the key's pool
 *
 * Return: that of another pool, if the key has the same lane there, as the host looks at that.
 */
u64 tmem_fault_other_handle(struct tmem_client *client, const struct tmem_lane *lane,
			    const struct tmem_key *key, u64 handle)
{
	u32 at;

	for (at = 0; tmem_fault(TMEM_FAULT_GET_OTHER_POOL) && at < TMEM_MAX_POOLS; at++) {
		u64 other = tmem_read(&client->pools[at].handle);

		if (at != key->pool && other && !is_swap_pool(client, other) &&
		    tmem_lane_of_key(client, other, key->object, key->index) == lane)
			return other;
	}
	return handle;
}
