// SPDX-License-Identifier: GPL-2.0-only
/* Handing lanes over to the host, and taking back what it has done. */
#include "internal.h"

/*
 * A ring that the host has not answered with a heartbeat is repeated after this long: a doorbell
 * may get lost with the daemon that was to hear it.
 */
#define RING_AGAIN_NS (10 * TMEM_NS_PER_MS)

/*
 * What the host may have done since the last hypercall comes back with the next; where something
 * waits for it, that is after this long.
 */
#define ENTER_AGAIN_NS TMEM_NS_PER_MS

/**
 * tmem_want_work - let tmem_client_work run soon
 * @client: client
 */
void tmem_want_work(struct tmem_client *client)
{
	/* Once until the worker has begun: the kick itself may find that work is wanted. */
	if (tmem_read(&client->wants_work))
		return;
	tmem_write(&client->wants_work, 1U);
	client->options.ops->kick_soon(client->options.context);
}

/**
 * tmem_trip - a wait for the host timed out
 * @client: client
 * @kind: of the pages
 */
void tmem_trip(struct tmem_client *client, enum tmem_page_kind kind)
{
	if (!tmem_breaker_trip(&client->breakers[kind], &client->window.header->host))
		return;
	tmem_count(client, TMEM_COUNT_breaker_trips);
	tmem_want_work(client);
}

/**
 * tmem_follow_hints - do what a section under a lane's lock has left to be done
 * @client: client, no lock held
 * @hints: enum tmem_hint
 */
void tmem_follow_hints(struct tmem_client *client, u32 hints)
{
	const struct tmem_client_ops *ops = client->options.ops;
	u32 reason = hints & TMEM_HINT_FLUSH ? TMEM_KICK_FLUSH : TMEM_KICK_PUT;

	if (hints & TMEM_HINT_WAKE)
		tmem_wake(&client->waitq);
	if (hints & TMEM_HINT_TRIP) {
		/* Not loads of promised pages: those fail after a time-out of their own only. */
		tmem_trip(client, TMEM_KIND_EPHEMERAL);
		tmem_trip(client, TMEM_KIND_STORE);
	}
	if (hints & TMEM_HINT_WORK)
		tmem_want_work(client);
	if (hints & TMEM_HINT_SOON) {
		tmem_write(&client->soon_reason, reason);
		ops->kick_soon(client->options.context);
	} else if ((hints & TMEM_HINT_LATER) && !tmem_read(&client->later_armed)) {
		tmem_write(&client->later_reason, reason);
		tmem_write(&client->later_armed, 1U);
		ops->kick_later(client->options.context);
	}
}

/* What was published before is seen by a host that is awake, before it sleeps. */
static bool host_is_awake(struct tmem_client *client)
{
	tmem_full_fence(); /* pairs with the one between clearing `awake` and looking at `posted` */
	return tmem_read(&client->window.header->host.awake);
}

/**
 * tmem_announce - everything staged in a lane is handed over
 * @client: client
 * @lane: lane, locked
 *
 * The caller rings, or names the lane in a hypercall, after unlocking.
 */
void tmem_announce(struct tmem_client *client, struct tmem_lane *lane)
{
	tmem_lane_publish(lane);
	lane->announced = lane->staged;
	if (lane->unsent) {
		tmem_fetch_add(&client->unsent, 0 - (u64)lane->unsent);
		lane->unsent = 0;
	}
}

/* By hypercall: full batches of all lanes together. What is not published can be taken back. */
static void staged_for_hypercall(struct tmem_client *client, struct tmem_lane *lane)
{
	u64 unsent = tmem_fetch_add(&client->unsent, 1) + 1;

	lane->unsent++;
	if (unsent % TMEM_STAGED_MAX == 0)
		lane->hints |= TMEM_HINT_SOON;
	else if (!tmem_read(&client->later_armed))
		lane->hints |= TMEM_HINT_LATER;
}

/**
 * tmem_staged - a descriptor was staged that nobody waits for
 * @client: client
 * @lane: lane, locked
 * @op: what it does
 *
 * A few are published together: a host that is awake takes them while more are staged. Doorbells
 * are for larger batches. A kick that is armed already has still to take this lane's lock, so it
 * finds the descriptor.
 */
void tmem_staged(struct tmem_client *client, struct tmem_lane *lane, enum tmem_op op)
{
	if (op != TMEM_OP_PUT)
		lane->hints |= TMEM_HINT_FLUSH;
	if (tmem_by_hypercall(client)) {
		staged_for_hypercall(client, lane);
		return;
	}
	if (lane->staged - lane->announced < TMEM_STAGED_MAX) {
		if (lane->staged - lane->posted >= TMEM_PUBLISHED_MIN)
			tmem_lane_publish(lane);
		if (!tmem_read(&client->later_armed))
			lane->hints |= TMEM_HINT_LATER;
		return;
	}
	tmem_announce(client, lane);
	if (host_is_awake(client))
		tmem_count(client, TMEM_COUNT_doorbells_suppressed);
	else
		lane->hints |= TMEM_HINT_SOON;
}

static bool status_is_known(u32 status)
{
	return (status >= TMEM_STATUS_OK && status <= TMEM_STATUS_NOT_TAKEN) ||
	       (status >= TMEM_STATUS_NO_SPACE && status <= TMEM_STATUS_CODEC) ||
	       (status >= TMEM_STATUS_BAD_OP && status <= TMEM_STATUS_BAD_RANGE);
}

/* An ephemeral put that the table knows has been answered. */
static void put_done(struct tmem_client *client, struct tmem_lane *lane,
		     const struct tmem_completion *completion)
{
	u32 at = tmem_table_of_entry(&lane->table, completion->record.table_key,
				     (u32)completion->entry);
	struct tmem_key key;

	if (completion->status == TMEM_STATUS_OK)
		return;
	if (completion->status == TMEM_STATUS_NO_SPACE)
		tmem_count(client, TMEM_COUNT_puts_refused_no_space);
	else if (completion->status == TMEM_STATUS_FROZEN)
		tmem_count(client, TMEM_COUNT_puts_refused_frozen);
	else
		tmem_count(client, TMEM_COUNT_puts_refused_other);
	if (at == TMEM_TABLE_NONE)
		return;
	tmem_table_key_at(&lane->table, at, &key);
	tmem_table_remove(&lane->table, at);
	/* What we do not understand may have left anything behind. */
	if (!status_is_known(completion->status) || completion->status == TMEM_STATUS_MISS ||
	    completion->status == TMEM_STATUS_NOT_TAKEN)
		tmem_owe_range(client, lane, key.pool, key.object, key.index, key.index);
}

static void account(struct tmem_client *client, struct tmem_lane *lane,
		    const struct tmem_completion *completion)
{
	if (!status_is_known(completion->status))
		tmem_count(client, TMEM_COUNT_unknown_statuses);
	if (completion->record.area)
		tmem_swap_put_done(client, completion);
	else if (completion->record.op == TMEM_OP_PUT)
		put_done(client, lane, completion);
	else if (completion->record.op == TMEM_OP_GET && completion->record.quarantined)
		tmem_count(client, TMEM_COUNT_late_completions);
}

static void reap_one(struct tmem_client *client, struct tmem_lane *lane)
{
	struct tmem_completion completion;

	tmem_lane_take_done(lane, &completion);
	account(client, lane, &completion);
}

/**
 * tmem_reap - take back all that the host has done in a lane
 * @client: client
 * @lane: lane, locked
 */
void tmem_reap(struct tmem_client *client, struct tmem_lane *lane)
{
	bool was_insane = lane->insane;
	u64 done;

	/* During a registration the host zeroes the counters: that is not insane. */
	if (!tmem_load_acquire(&client->ready))
		return;
	if (tmem_lane_done(lane, &done)) {
		if (lane->waiters && lane->reaped != done)
			lane->hints |= TMEM_HINT_WAKE;
		while (lane->reaped != done) {
			if (!tmem_lane_take_plain(lane))
				reap_one(client, lane);
		}
	} else if (!was_insane) {
		tmem_count(client, TMEM_COUNT_insane_windows);
		tmem_write(&client->ready, 0ULL);
		lane->hints |= TMEM_HINT_WORK | TMEM_HINT_WAKE;
	}
	if (tmem_debt_any(&lane->debt) && tmem_lane_has_room(lane, 0))
		lane->hints |= TMEM_HINT_SOON;
}

/* Lane locked. Something is full: see to it that the host makes room. */
static void hurry(struct tmem_client *client, struct tmem_lane *lane)
{
	if (tmem_lane_publish(lane) ||
	    (lane->posted != lane->reaped && tmem_entry_is_due(client, ENTER_AGAIN_NS)))
		lane->hints |= TMEM_HINT_SOON;
}

/**
 * tmem_make_room_slowly - tmem_make_room() of a ring that is full
 * @client: client
 * @lane: lane, locked
 * @reserve: entries to be left for flushes
 */
bool tmem_make_room_slowly(struct tmem_client *client, struct tmem_lane *lane, u32 reserve)
{
	tmem_reap(client, lane);
	if (tmem_lane_has_room(lane, reserve))
		return true;
	hurry(client, lane);
	return false;
}

/**
 * tmem_make_slot_slowly - tmem_make_slot() of a lane without a free one
 * @client: client
 * @lane: lane, locked
 *
 * Return: slot or TMEM_NO_SLOT.
 */
u32 tmem_make_slot_slowly(struct tmem_client *client, struct tmem_lane *lane)
{
	u32 slot;

	tmem_reap(client, lane);
	slot = tmem_lane_take_slot(lane);
	if (slot == TMEM_NO_SLOT)
		hurry(client, lane);
	return slot;
}

/**
 * tmem_count_ring - a doorbell was rung
 * @client: client
 * @reason: why
 */
void tmem_count_ring(struct tmem_client *client, enum tmem_kick_reason reason)
{
	static const enum tmem_counter by_reason[] = {
		TMEM_COUNT_doorbells_put, TMEM_COUNT_doorbells_get,
		TMEM_COUNT_doorbells_flush, TMEM_COUNT_doorbells_other,
	};

	tmem_count(client, TMEM_COUNT_doorbells_rung);
	tmem_count(client, by_reason[reason]);
}

/**
 * tmem_client_ring - ring unless the host looks anyway
 * @client: client
 * @reason: for the counters
 *
 * The caller has published. A host that is awake, or that was rung and has not woken up yet,
 * looks at the lanes again before it sleeps.
 */
void tmem_client_ring(struct tmem_client *client, enum tmem_kick_reason reason)
{
	const struct tmem_host_page *host = &client->window.header->host;
	u64 heartbeat, now_ns;

	if (host_is_awake(client)) {
		tmem_count(client, TMEM_COUNT_doorbells_suppressed);
		return;
	}
	heartbeat = tmem_read(&host->heartbeat);
	now_ns = tmem_now_ns();
	if (tmem_read(&client->rung) && heartbeat == tmem_read(&client->rung_heartbeat) &&
	    now_ns - tmem_read(&client->rung_ns) < RING_AGAIN_NS) {
		tmem_count(client, TMEM_COUNT_doorbells_suppressed);
		return;
	}
	tmem_write(&client->rung_heartbeat, heartbeat);
	tmem_write(&client->rung_ns, now_ns);
	tmem_write(&client->rung, 1U);
	tmem_count_ring(client, reason);
	client->options.ops->ring(client->options.context);
}

/**
 * tmem_client_probe - ring whatever the window says
 * @client: client
 *
 * Whoever wrote `awake` may be gone, or it is from before this guest went back in time.
 */
void tmem_client_probe(struct tmem_client *client)
{
	if (tmem_by_hypercall(client)) {
		tmem_refresh(client, 0);
		return;
	}
	tmem_count_ring(client, TMEM_KICK_OTHER);
	client->options.ops->ring(client->options.context);
}

static bool host_started_over(const struct tmem_client *client)
{
	const struct tmem_host_page *host = &client->window.header->host;

	return tmem_read(&host->epoch) != tmem_read(&client->epoch) ||
	       tmem_read(&host->resets) != tmem_read(&client->resets);
}

/**
 * tmem_notices_want_work - has the host announced something that the worker has to follow?
 * @client: client
 */
bool tmem_notices_want_work(struct tmem_client *client)
{
	const struct tmem_host_page *host = &client->window.header->host;

	return host_started_over(client) || tmem_shrink_wanted(client) ||
	       tmem_credit_available(&client->credit) > tmem_read(&host->credits_target);
}

/* Lanes of which the host has something, and whether some of it is new to it. */
static bool hand_over(struct tmem_client *client, u64 *unseen)
{
	bool news = false;
	u32 at;

	*unseen = 0;
	for (at = 0; at < client->key_lanes; at++) {
		struct tmem_lane *lane = &client->lanes[at];
		unsigned long flags = tmem_lock(&lane->lock);

		tmem_reap(client, lane);
		if (tmem_debt_any(&lane->debt))
			tmem_drain_debt(client, lane);
		news |= lane->staged != lane->announced;
		tmem_announce(client, lane);
		if (lane->posted != lane->reaped)
			*unseen |= 1ULL << at;
		tmem_client_unlock(client, lane, flags);
	}
	return news;
}

static void kick(struct tmem_client *client, enum tmem_kick_reason reason)
{
	u64 unseen;
	bool news;

	if (!tmem_load_acquire(&client->ready))
		return;
	news = hand_over(client, &unseen);
	if (tmem_by_hypercall(client)) {
		if (unseen && (news || tmem_entry_is_due(client, ENTER_AGAIN_NS)))
			tmem_hypercall(client, TMEM_HC_KICK, unseen, reason);
	} else if (unseen) {
		tmem_client_ring(client, reason);
	}
	if (host_started_over(client))
		tmem_write(&client->wants_work, 1U);
}

/**
 * tmem_client_kick - publish what is staged and ring
 * @client: client
 * @reason: for the counters
 *
 * From a timer or an interrupt: no lock of anybody's may be held.
 */
void tmem_client_kick(struct tmem_client *client, enum tmem_kick_reason reason)
{
	tmem_write(&client->later_armed, 0U);
	kick(client, reason);
}

/**
 * tmem_client_kick_soon - what ops->kick_soon asked for
 * @client: client
 */
void tmem_client_kick_soon(struct tmem_client *client)
{
	/* By hypercall the timer stays armed: it is long, and to set it anew may cost an exit. */
	if (!tmem_by_hypercall(client))
		tmem_write(&client->later_armed, 0U);
	kick(client, tmem_read(&client->soon_reason));
}

/**
 * tmem_client_kick_later - what ops->kick_later asked for
 * @client: client
 */
void tmem_client_kick_later(struct tmem_client *client)
{
	tmem_client_kick(client, tmem_read(&client->later_reason));
}

/**
 * tmem_client_interrupt - the host has notified the guest
 * @client: client
 *
 * Return: whether tmem_client_work has something to do.
 */
bool tmem_client_interrupt(struct tmem_client *client)
{
	tmem_wake(&client->waitq);
	return tmem_notices_want_work(client);
}
