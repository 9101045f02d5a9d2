// SPDX-License-Identifier: GPL-2.0-only
/*
 * One lane: what the guest posted is copied into the channel once, what the daemon completed is
 * copied back once.
 *
 * The guest cannot change a payload that the daemon works on: a slot that a taken descriptor names
 * is busy until that is done, and another descriptor that names it gets a slot that does not exist,
 * so that the daemon answers it BAD_SLOT. What a descriptor named is kept here, not read back from
 * the channel.
 */

#include <linux/bitmap.h>
#include <linux/kvm_host.h>
#include <linux/minmax.h>
#include <linux/nospec.h>

#include "channel.h"
#include "counters.h"
#include "lane.h"
#include "punch.h"
#include "window.h"

/* Descriptors between two looks at the clock: at most 128 KiB of payload. */
#define TAKE_CHUNK 32u

/* Writes that a run of results takes besides payloads: its part of the ring, the lane's `done`. */
#define WRITES_OF_RUN 2u

static const u64 no_such_slot = U64_MAX;

static u64 ring_offset(const struct tmem_lane *lane, u64 at)
{
	return lane->offset + TMEM_PAGE_BYTES + at * sizeof(struct tmem_desc);
}

static u64 slot_offset(const struct tmem_lane *lane, u64 slot)
{
	return lane->offset + tmem_slots_offset(lane->entries) + (slot << TMEM_PAGE_SHIFT);
}

/* How many from descriptor `from` on lie in one piece of at most `most`, itself in one page. */
static unsigned int piece(const struct tmem_lane *lane, u64 from, u64 to, unsigned int most)
{
	u64 at = from & (lane->entries - 1);

	return min3(to - from, lane->entries - at, (u64)most - (at & (most - 1)));
}

/* Makes the slot of a descriptor in the channel busy and fetches a put's payload. */
static int take_slot(struct tmem_entry *entry, struct tmem_channel *channel,
		     struct tmem_lane *lane, struct tmem_desc *desc, u16 *named)
{
	u8 op = READ_ONCE(desc->op);
	bool put = op == TMEM_OP_PUT && !(READ_ONCE(desc->flags) & TMEM_DESC_FILL);
	u64 slot = READ_ONCE(desc->value);
	u64 offset;

	*named = 0;
	if ((!put && op != TMEM_OP_GET) || slot >= lane->slots)
		return 0;
	slot = array_index_nospec(slot, lane->slots);
	if (test_bit(slot, lane->busy)) {
		WRITE_ONCE(desc->value, no_such_slot);
		return 0;
	}
	if (put) {
		offset = slot_offset(lane, slot);
		if (window_read(entry, channel, offset, channel->window + offset, PAGE_SIZE))
			return -EFAULT;
		tmem_count(TMEM_COUNT_pages_in);
	}
	__set_bit(slot, lane->busy);
	*named = TMEM_NAMES_SLOT | (put ? 0 : TMEM_NAMES_GET) | slot;
	return 0;
}

/* The lane that comes after the key lanes. */
static bool is_control(const struct tmem_channel *channel, const struct tmem_lane *lane)
{
	return lane == &channel->lane[channel->lanes - 1];
}

static int take_desc(struct tmem_entry *entry, struct tmem_channel *channel,
		     struct tmem_lane *lane, struct tmem_desc *desc, u64 offset, u16 *named)
{
	if (is_control(channel, lane) &&
	    (punch_is_active(channel) || READ_ONCE(desc->op) == TMEM_OP_REPORT))
		return punch_report(entry, channel, lane, desc, offset, named);
	return take_slot(entry, channel, lane, desc, named);
}

static int take_piece(struct tmem_entry *entry, struct tmem_channel *channel,
		      struct tmem_lane *lane, u64 posted)
{
	unsigned int count = piece(lane, lane->taken, posted, TAKE_CHUNK);
	u64 at = lane->taken & (lane->entries - 1);
	u64 offset = ring_offset(lane, at);
	struct tmem_desc *desc = channel->window + offset;
	unsigned int i;
	int error;

	error = window_read(entry, channel, offset, desc, count * sizeof(*desc));
	for (i = 0; i < count && !error; i++) {
		error = take_desc(entry, channel, lane, desc + i, offset + i * sizeof(*desc),
				  lane->named + at + i);
		if (!error)
			lane->taken++;
	}
	return error;
}

static int take_locked(struct tmem_entry *entry, struct tmem_channel *channel,
		       struct tmem_lane *lane, bool *left)
{
	struct tmem_lane_head head;
	int error = 0;

	lockdep_assert_held(&lane->lock);
	if (window_read(entry, channel, lane->offset, &head, sizeof(head)))
		return -EFAULT;
	if (head.done != lane->done || head.posted - lane->done > lane->entries ||
	    head.posted - lane->done < lane->taken - lane->done)
		return -EPROTO;
	while (lane->taken != head.posted && !error && !(entry->took && entry_is_late(entry))) {
		error = take_piece(entry, channel, lane, head.posted);
		entry->took = true;
	}
	*left = *left || lane->taken != head.posted;
	return error == -EAGAIN ? 0 : error;
}

/* -EBUSY: another vCPU drops what was reported, which takes its time; so it is asked again. */
static int lock_lane(const struct tmem_channel *channel, struct tmem_lane *lane)
{
	if (is_control(channel, lane))
		return mutex_trylock(&lane->lock) ? 0 : -EBUSY;
	return mutex_lock_interruptible(&lane->lock) ? -EINTR : 0;
}

int lane_take(struct tmem_entry *entry, struct tmem_channel *channel, unsigned int number,
	      bool *left)
{
	struct tmem_lane *lane = &channel->lane[number];
	u64 before;
	int error = lock_lane(channel, lane);

	if (error == -EBUSY)
		*left = true;
	if (error)
		return error == -EBUSY ? 0 : error;
	before = lane->taken;
	error = take_locked(entry, channel, lane, left);
	if (lane->taken != before) {
		entry->moved = true;
		tmem_count_add(TMEM_COUNT_descs_in, lane->taken - before);
		/* Descriptors and payloads before it; pairs with the daemon's load. */
		smp_store_release(&lane_head(channel, lane)->posted, lane->taken);
	}
	mutex_unlock(&lane->lock);
	return error;
}

/* A hit whose page is in the slot, not in the descriptor. */
static bool is_paged_hit(struct tmem_desc *desc)
{
	return READ_ONCE(desc->status) == TMEM_STATUS_OK &&
	       !(READ_ONCE(desc->flags) & TMEM_DESC_FILL);
}

static int complete_slot(struct tmem_entry *entry, struct tmem_channel *channel,
			 struct tmem_lane *lane, u64 at)
{
	struct tmem_desc *desc = channel->window + ring_offset(lane, at);
	u16 named = lane->named[at];
	u64 offset = slot_offset(lane, named & TMEM_NAMES_MASK);

	if (!(named & TMEM_NAMES_GET) || !is_paged_hit(desc))
		return 0;
	if (entry->writes <= WRITES_OF_RUN)
		return -EAGAIN;
	tmem_count(TMEM_COUNT_pages_out);
	return window_write(entry, channel, offset, channel->window + offset, PAGE_SIZE);
}

/* Results of a piece of the ring, payloads first. Returns how many, or an error. */
static int complete_piece(struct tmem_entry *entry, struct tmem_channel *channel,
			  struct tmem_lane *lane, u64 from, u64 to)
{
	unsigned int count = piece(lane, from, to, PAGE_SIZE / sizeof(struct tmem_desc));
	u64 at = from & (lane->entries - 1);
	u64 offset = ring_offset(lane, at);
	unsigned int ready;
	int error;

	for (ready = 0; ready < count; ready++) {
		error = complete_slot(entry, channel, lane, at + ready);
		if (error == -EAGAIN)
			break;
		if (error)
			return error;
	}
	if (ready && window_write(entry, channel, offset, channel->window + offset,
				  ready * sizeof(struct tmem_desc)))
		return -EFAULT;
	return ready;
}

/* The guest sees `done`, then its slots are free again. */
static int pass_done(struct tmem_entry *entry, struct tmem_channel *channel,
		     struct tmem_lane *lane, u64 reached)
{
	u64 done;

	if (window_write(entry, channel, lane->offset + offsetof(struct tmem_lane_head, done),
			 &reached, sizeof(reached)))
		return -EFAULT;
	for (done = lane->done; done != reached; done++) {
		u16 named = lane->named[done & (lane->entries - 1)];

		if (named & TMEM_NAMES_SLOT)
			__clear_bit(named & TMEM_NAMES_MASK, lane->busy);
	}
	tmem_count_add(TMEM_COUNT_descs_out, reached - lane->done);
	WRITE_ONCE(lane->done, reached);
	return 0;
}

static int complete_locked(struct tmem_entry *entry, struct tmem_channel *channel,
			   struct tmem_lane *lane, u64 done)
{
	u64 reached = lane->done;
	int count = 0;
	int error = 0;

	lockdep_assert_held(&lane->lock);
	while (reached != done && entry->writes >= WRITES_OF_RUN) {
		count = complete_piece(entry, channel, lane, reached, done);
		if (count <= 0)
			break;
		reached += count;
	}
	if (reached != lane->done)
		error = pass_done(entry, channel, lane, reached);
	return error ? error : min(count, 0);
}

int lane_complete(struct tmem_entry *entry, struct tmem_channel *channel, unsigned int number,
		  u64 done)
{
	struct tmem_lane *lane = &channel->lane[number];
	int error = lock_lane(channel, lane);

	if (error)
		return error == -EBUSY ? 0 : error;
	/* Another vCPU may have come further. */
	if ((s64)(done - lane->done) > 0) {
		if (done - lane->done > lane->taken - lane->done)
			error = -EPROTO;
		else
			error = complete_locked(entry, channel, lane, done);
	}
	mutex_unlock(&lane->lock);
	return error;
}
