// SPDX-License-Identifier: GPL-2.0-only
/* Calls in flight on some lanes: hand over, spin briefly, sleep, give up in time. */
#include "internal.h"

/* Looks at the window between two looks at the clock, which is slow under emulation. */
#define LOOKS 8U

/*
 * A sleeper that nobody wakes rings after this long, and then once a second, whatever `awake` says:
 * whoever wrote it may be gone, or it is from before the guest went back in time.
 */
#define FIRST_PROBE_NS (20 * TMEM_NS_PER_MS)

/* What a sleeper looks at, without locks. */
struct waiting {
	struct tmem_client *client;
	const struct tmem_batch *batch;
};

/**
 * tmem_batch_add - a call that the next descriptor of a lane will answer
 * @batch: batch with room
 * @lane: lane
 *
 * Return: the call, for the descriptor's record.
 */
struct tmem_call *tmem_batch_add(struct tmem_batch *batch, const struct tmem_lane *lane)
{
	struct tmem_call *call = &batch->calls[batch->count++];

	memset(call, 0, sizeof(*call));
	call->slot = TMEM_NO_SLOT;
	call->lane = (u8)lane->number;
	batch->lanes |= 1ULL << lane->number;
	batch->unpublished |= 1ULL << lane->number;
	return call;
}

/**
 * tmem_batch_get - stage a get and wait for it with the others
 * @client: client
 * @lane: the key's lane, locked
 * @batch: batch with room
 * @desc: the get, but for its slot
 * @page: the caller's own number of the page
 *
 * Return: false if the lane has no room now.
 */
bool tmem_batch_get(struct tmem_client *client, struct tmem_lane *lane, struct tmem_batch *batch,
		    struct tmem_desc *desc, u32 page)
{
	struct tmem_record record = tmem_record_of(TMEM_OP_GET);
	u32 slot;

	if (!tmem_make_room(client, lane, TMEM_FLUSH_RESERVE(lane)))
		return false;
	slot = tmem_make_slot(client, lane);
	if (slot == TMEM_NO_SLOT)
		return false;
	record.call = tmem_batch_add(batch, lane);
	record.call->page = (u8)page;
	record.call->slot = (u16)slot;
	record.slot = (u16)slot;
	desc->value = slot;
	tmem_lane_stage(lane, desc, &record);
	return true;
}

static bool all_done(const struct tmem_batch *batch)
{
	u32 at = batch->count;

	/* The last ones are done last, mostly. */
	while (at > 0) {
		if (!tmem_load_acquire(&batch->calls[--at].done))
			return false;
	}
	return true;
}

static bool something_to_reap(struct tmem_client *client, u64 lanes)
{
	for (; lanes; lanes &= lanes - 1) {
		const struct tmem_lane *lane = &client->lanes[__builtin_ctzll(lanes)];

		if (tmem_read(&lane->head->done) != tmem_read(&lane->reaped))
			return true;
	}
	return false;
}

static void reap_lanes(struct tmem_client *client, u64 lanes)
{
	for (; lanes; lanes &= lanes - 1) {
		struct tmem_lane *lane = &client->lanes[__builtin_ctzll(lanes)];
		unsigned long flags;

		if (tmem_read(&lane->head->done) == tmem_read(&lane->reaped))
			continue;
		flags = tmem_lock(&lane->lock);
		tmem_reap(client, lane);
		tmem_client_unlock(client, lane, flags);
	}
}

static void watch_lanes(struct tmem_client *client, u64 lanes, int change)
{
	for (; lanes; lanes &= lanes - 1) {
		struct tmem_lane *lane = &client->lanes[__builtin_ctzll(lanes)];
		unsigned long flags = tmem_lock(&lane->lock);

		tmem_lane_watch(lane, change);
		tmem_client_unlock(client, lane, flags);
	}
}

/**
 * tmem_batch_publish - let the host begin with what is staged in a lane
 * @client: client
 * @batch: batch
 * @lane: lane, locked
 *
 * It is rung for by tmem_batch_hand_over(). By hypercall the host begins when it is entered; what
 * is not published by then can still be taken back.
 */
void tmem_batch_publish(struct tmem_client *client, struct tmem_batch *batch,
			struct tmem_lane *lane)
{
	if (batch->given_up || tmem_by_hypercall(client))
		return;
	tmem_announce(client, lane);
	batch->unpublished &= ~(1ULL << lane->number);
}

/**
 * tmem_batch_watch - somebody goes to sleep until a batch's lanes move, or is back
 * @client: client
 * @batch: batch
 * @change: 1 or -1
 */
void tmem_batch_watch(struct tmem_client *client, const struct tmem_batch *batch, int change)
{
	watch_lanes(client, batch->lanes, change);
}

/**
 * tmem_batch_reap - take back what the host has done in a batch's lanes
 * @client: client
 * @batch: batch
 */
void tmem_batch_reap(struct tmem_client *client, const struct tmem_batch *batch)
{
	reap_lanes(client, batch->lanes);
}

static void publish_lanes(struct tmem_client *client, u64 lanes)
{
	for (; lanes; lanes &= lanes - 1) {
		struct tmem_lane *lane = &client->lanes[__builtin_ctzll(lanes)];
		unsigned long flags = tmem_lock(&lane->lock);

		tmem_announce(client, lane);
		tmem_client_unlock(client, lane, flags);
	}
}

/* The calls not done by now are nobody's; their slots wait for the host (G5). */
static bool disown_late(struct tmem_client *client, struct tmem_batch *batch)
{
	bool any = false;
	u32 at;

	for (at = 0; at < batch->count; at++) {
		struct tmem_call *call = &batch->calls[at];
		struct tmem_lane *lane = &client->lanes[call->lane];
		unsigned long flags;

		if (tmem_load_acquire(&call->done))
			continue;
		flags = tmem_lock(&lane->lock);
		if (tmem_lane_disown(lane, call)) {
			any = true;
			call->slot = TMEM_NO_SLOT;
			call->status = TMEM_STATUS_NONE;
			call->done = 1;
			if (tmem_lane_lost(lane))
				lane->hints |= TMEM_HINT_TRIP;
		}
		tmem_client_unlock(client, lane, flags);
	}
	return any;
}

/**
 * tmem_batch_hand_over - the batch's calls are staged, the host may have them
 * @client: client
 * @batch: batch
 * @reason: for the counters
 *
 * Everything staged in those lanes rides along. By hypercall it goes when the caller waits, which
 * it does next; if all was answered in this guest there is nothing to go for.
 */
void tmem_batch_hand_over(struct tmem_client *client, struct tmem_batch *batch,
			  enum tmem_kick_reason reason)
{
	tmem_delay();
	if (batch->given_up) {
		disown_late(client, batch);
		return;
	}
	batch->reason = reason;
	if (tmem_by_hypercall(client) && all_done(batch))
		return;
	publish_lanes(client, batch->unpublished);
	batch->unpublished = 0;
	if (!tmem_by_hypercall(client))
		tmem_client_ring(client, reason);
}

static bool batch_moved(void *argument)
{
	struct waiting *waiting = argument;

	return all_done(waiting->batch) ||
	       something_to_reap(waiting->client, waiting->batch->lanes) ||
	       !tmem_is_registered(waiting->client);
}

/* Waits for one call while the host is likely to be at it. */
static bool spin(struct tmem_client *client, const struct tmem_batch *batch, u32 at)
{
	const struct tmem_call *call = &batch->calls[at];
	const struct tmem_lane *lane = &client->lanes[call->lane];
	u64 until_ns = 0;

	for (;;) {
		u64 now_ns;
		u32 look;

		for (look = 0; look < LOOKS; look++) {
			if (tmem_read(&lane->head->done) != tmem_read(&lane->reaped))
				reap_lanes(client, 1ULL << lane->number);
			if (tmem_load_acquire(&call->done))
				return true;
			tmem_relax();
		}
		now_ns = tmem_now_ns();
		if (!until_ns)
			until_ns = now_ns + client->options.spin_ns +
				   (batch->count - at) * client->options.spin_page_ns;
		else if (now_ns >= until_ns)
			return false;
	}
}

static void sleep_until_done(struct tmem_client *client, struct tmem_batch *batch, u64 deadline_ns)
{
	struct waiting waiting = { client, batch };
	u64 probe_ns = FIRST_PROBE_NS;
	u64 now_ns, left_ns;

	watch_lanes(client, batch->lanes, 1);
	tmem_full_fence();
	for (;;) {
		reap_lanes(client, batch->lanes);
		now_ns = tmem_now_ns();
		if (all_done(batch) || now_ns >= deadline_ns || !tmem_is_registered(client))
			break;
		left_ns = deadline_ns - now_ns;
		if (tmem_wait(&client->waitq, batch_moved, &waiting,
			      left_ns < probe_ns ? left_ns : probe_ns))
			continue;
		tmem_client_probe(client);
		probe_ns = TMEM_PROBE_NS;
	}
	watch_lanes(client, batch->lanes, -1);
}

/* By hypercall the waiting is the host's, at most a millisecond at a time. */
static void call_until_done(struct tmem_client *client, struct tmem_batch *batch, u64 deadline_ns)
{
	u32 pendings = 0;

	for (;;) {
		tmem_hypercall(client, TMEM_HC_CALL, batch->lanes, batch->reason);
		reap_lanes(client, batch->lanes);
		if (all_done(batch) || tmem_now_ns() >= deadline_ns || !tmem_is_registered(client))
			return;
		tmem_pause(client, &pendings);
	}
}

/**
 * tmem_batch_wait_for - wait for one call of a batch
 * @client: client
 * @batch: batch that was handed over
 * @at: number of the call
 * @deadline_ns: when to give up
 *
 * The caller takes the calls in their order, each as soon as it is answered. After a time-out no
 * lane points to a call any more: those with status TMEM_STATUS_NONE were not answered.
 *
 * Return: false if some call timed out.
 */
bool tmem_batch_wait_for(struct tmem_client *client, struct tmem_batch *batch, u32 at,
			 u64 deadline_ns)
{
	if (tmem_load_acquire(&batch->calls[at].done))
		return true;
	if (tmem_by_hypercall(client)) {
		call_until_done(client, batch, deadline_ns);
	} else {
		if (spin(client, batch, at))
			return true;
		batch->slept = true;
		sleep_until_done(client, batch, deadline_ns);
	}
	/* A channel that is lost is known: nobody has waited in vain. */
	if (!disown_late(client, batch) || !tmem_is_registered(client))
		return true;
	tmem_count(client, TMEM_COUNT_timeouts);
	return false;
}

/**
 * tmem_batch_count - all calls of a batch were waited for
 * @client: client
 * @batch: batch
 */
void tmem_batch_count(struct tmem_client *client, const struct tmem_batch *batch)
{
	tmem_count(client, batch->slept ? TMEM_COUNT_waits_slept : TMEM_COUNT_waits_spun);
}

/**
 * tmem_batch_wait - hand a batch over and wait for all its calls
 * @client: client
 * @batch: batch; all its descriptors are staged
 * @deadline_ns: when to give up
 * @reason: for the counters
 *
 * Afterwards no lane points to a call. A call whose status is TMEM_STATUS_NONE was not answered.
 *
 * Return: false if some call timed out.
 */
bool tmem_batch_wait(struct tmem_client *client, struct tmem_batch *batch, u64 deadline_ns,
		     enum tmem_kick_reason reason)
{
	bool in_time = true;
	u32 at;

	if (!batch->count)
		return true;
	tmem_batch_hand_over(client, batch, reason);
	for (at = 0; at < batch->count && in_time; at++)
		in_time = tmem_batch_wait_for(client, batch, at, deadline_ns);
	tmem_batch_count(client, batch);
	return in_time;
}

struct room {
	struct tmem_client *client;
	struct tmem_lane *lane;
};

static bool lane_moved(void *argument)
{
	struct room *room = argument;

	return tmem_read(&room->lane->free_slots) ||
	       tmem_read(&room->lane->head->done) != tmem_read(&room->lane->reaped) ||
	       !tmem_is_registered(room->client);
}

/* The host may be done with the lane, and the slots be with tasks that copy out of them. */
static bool call_for_slot(struct room *room, u64 deadline_ns)
{
	struct tmem_client *client = room->client;
	u64 lanes = 1ULL << room->lane->number;
	u32 pendings = 0;
	u32 answer;

	do {
		answer = tmem_hypercall(client, TMEM_HC_CALL, lanes, TMEM_KICK_PUT);
		reap_lanes(client, lanes);
		if (tmem_read(&room->lane->free_slots))
			return true;
		if (answer == TMEM_HC_OK)
			tmem_wait(&client->waitq, lane_moved, room, TMEM_NS_PER_MS);
		else
			tmem_pause(client, &pendings);
	} while (tmem_is_registered(client) && tmem_now_ns() < deadline_ns);
	return false;
}

/**
 * tmem_wait_slot - sleep until a lane may have a free slot
 * @client: client
 * @lane: lane, not locked
 * @deadline_ns: when to give up
 *
 * Return: false if it was in vain.
 */
bool tmem_wait_slot(struct tmem_client *client, struct tmem_lane *lane, u64 deadline_ns)
{
	struct room room = { client, lane };
	u64 lanes = 1ULL << lane->number;
	u64 now_ns = tmem_now_ns();
	bool moved = false;

	if (now_ns >= deadline_ns)
		return false;
	publish_lanes(client, lanes);
	if (!tmem_by_hypercall(client))
		tmem_client_ring(client, TMEM_KICK_PUT);
	watch_lanes(client, lanes, 1);
	tmem_full_fence();
	if (tmem_by_hypercall(client))
		moved = call_for_slot(&room, deadline_ns);
	else
		moved = tmem_wait(&client->waitq, lane_moved, &room, deadline_ns - now_ns);
	watch_lanes(client, lanes, -1);
	reap_lanes(client, lanes);
	return moved && tmem_is_registered(client);
}

/**
 * tmem_batch_give_slots - the caller has copied out of the slots of its calls
 * @client: client
 * @batch: batch that was waited for
 */
void tmem_batch_give_slots(struct tmem_client *client, struct tmem_batch *batch)
{
	u64 lanes = batch->lanes;

	for (; lanes; lanes &= lanes - 1) {
		struct tmem_lane *lane = &client->lanes[__builtin_ctzll(lanes)];
		unsigned long flags = tmem_lock(&lane->lock);
		u32 at;

		for (at = 0; at < batch->count; at++) {
			struct tmem_call *call = &batch->calls[at];

			if (call->lane != lane->number || call->slot == TMEM_NO_SLOT)
				continue;
			tmem_lane_give_slot(lane, call->slot);
			call->slot = TMEM_NO_SLOT;
		}
		if (lane->waiters)
			lane->hints |= TMEM_HINT_WAKE;
		tmem_client_unlock(client, lane, flags);
	}
	batch->count = 0;
	batch->lanes = 0;
	batch->unpublished = 0;
	batch->slept = false;
	batch->given_up = false;
}
