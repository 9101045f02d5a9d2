// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reports of free memory: the host may drop it while the caller keeps it isolated (R1).
 *
 * A report that the host has not taken can be withdrawn; which of both came first is settled by a
 * compare-and-swap of its state in the ring. One that the host has taken is over when the host has
 * answered it, or when it is certain that the host does nothing for this registration any more:
 *
 * - this guest has registered anew, which the host answers when all of before has come to an end;
 * - by hypercall, the answer says that the channel is gone: the host gives it when nobody is at
 *   work for the channel;
 * - otherwise, the host counts a reset of the channel, which ends its reports.
 *
 * A channel that only looks lost, and a window with impossible counters, are none of these.
 */
#include "internal.h"

/* How long the host may take to begin. Isolated memory is memory that nobody can use. */
#define TAKE_NS (200 * TMEM_NS_PER_MS)

/* As batch.c has it: a bell may have been lost. */
#define FIRST_PROBE_NS (20 * TMEM_NS_PER_MS)

/**
 * struct tmem_reporting - a report in progress
 * @client: client
 * @lane: the control lane
 * @registration: in which it was handed over
 * @resets: that the host had counted then
 * @generation: of the lane then: as long as it is the same, @entry is this report
 * @entry: its position
 * @batch: of one call
 * @call: that call
 */
struct tmem_reporting {
	struct tmem_client *client;
	struct tmem_lane *lane;
	u64 registration, resets;
	u32 generation;
	u64 entry;
	struct tmem_batch batch;
	struct tmem_call call;
};

/**
 * tmem_may_report - would the host take a report now?
 * @client: client
 */
bool tmem_may_report(const struct tmem_client *client)
{
	return tmem_is_registered(client) &&
	       (tmem_read(&client->window.features) & TMEM_FEATURE_REPORT);
}

/**
 * tmem_is_connected - is this guest registered?
 * @client: client
 */
bool tmem_is_connected(const struct tmem_client *client)
{
	return tmem_is_registered(client);
}

/**
 * tmem_client_report_skipped - nothing was reported, as the guest has little free memory
 * @client: client
 */
void tmem_client_report_skipped(struct tmem_client *client)
{
	tmem_count(client, TMEM_COUNT_reports_floor);
}

/* The host has answered; a call without a status was let go of by this side. */
static bool is_answered(const struct tmem_reporting *reporting)
{
	return tmem_load_acquire(&reporting->call.done) &&
	       reporting->call.status != TMEM_STATUS_NONE;
}

static bool is_torn_down(const struct tmem_reporting *reporting)
{
	const struct tmem_client *client = reporting->client;
	u64 now = tmem_load_acquire(&client->ready);

	if (now && now != reporting->registration)
		return true;
	if (tmem_by_hypercall(client))
		return tmem_load_acquire(&client->gone) == reporting->registration;
	return tmem_load_acquire(&client->window.header->host.resets) != reporting->resets;
}

static bool is_over(const struct tmem_reporting *reporting)
{
	return is_answered(reporting) || is_torn_down(reporting);
}

/* What a sleeper looks at. */
static bool has_moved(void *argument)
{
	const struct tmem_reporting *reporting = argument;

	return is_over(reporting) ||
	       tmem_read(&reporting->lane->head->done) != tmem_read(&reporting->lane->reaped);
}

/* A slot with the ranges, as a descriptor of the control lane. */
static int stage(struct tmem_reporting *reporting, const struct tmem_report_range *ranges,
		 u32 count)
{
	struct tmem_client *client = reporting->client;
	struct tmem_lane *lane = reporting->lane;
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_REPORT, 0, NULL, 0);
	struct tmem_record record = tmem_record_of(TMEM_OP_REPORT);
	unsigned long flags = tmem_lock(&lane->lock);
	u32 slot = TMEM_NO_SLOT;

	tmem_reap(client, lane);
	/* A host that has not come past a withdrawn report does not need the next one. */
	if (!lane->quarantined && !lane->closed && tmem_make_room(client, lane, 0))
		slot = tmem_make_slot(client, lane);
	if (slot == TMEM_NO_SLOT) {
		tmem_client_unlock(client, lane, flags);
		return -EBUSY;
	}
	/* Two kilobytes at most, and nobody's hurry. */
	memcpy(tmem_lane_page(lane, slot), ranges, sizeof(*ranges) * count);
	desc.state = TMEM_REPORT_POSTED;
	desc.count = count;
	desc.value = slot;
	record.slot = (u16)slot;
	record.call = tmem_batch_add(&reporting->batch, lane);
	record.call->slot = (u16)slot;
	reporting->generation = lane->generation;
	reporting->entry = tmem_lane_stage(lane, &desc, &record);
	tmem_client_unlock(client, lane, flags);
	return 0;
}

/* Its place in the ring; another's after a registration. */
static struct tmem_desc *desc_of(const struct tmem_reporting *reporting)
{
	const struct tmem_lane *lane = reporting->lane;

	return &lane->ring[reporting->entry & (lane->entries - 1)];
}

/* Whether the report is ours again: the host has not taken it and will not. */
static bool withdraw(struct tmem_reporting *reporting)
{
	struct tmem_lane *lane = reporting->lane;
	unsigned long flags = tmem_lock(&lane->lock);
	bool won = lane->generation == reporting->generation &&
		   tmem_compare_swap_shared(&desc_of(reporting)->state, TMEM_REPORT_POSTED,
					    TMEM_REPORT_WITHDRAWN);

	tmem_client_unlock(reporting->client, lane, flags);
	return won;
}

static void sleep_or_enter(struct tmem_reporting *reporting, u64 longest_ns, u32 *pendings)
{
	struct tmem_client *client = reporting->client;
	u64 limit_ns = *pendings ? TMEM_PROBE_NS : FIRST_PROBE_NS;

	if (limit_ns > longest_ns)
		limit_ns = longest_ns;

	if (tmem_by_hypercall(client) && tmem_is_registered(client)) {
		tmem_hypercall(client, TMEM_HC_CALL, reporting->batch.lanes, TMEM_KICK_OTHER);
		tmem_batch_reap(client, &reporting->batch);
		/* It drops only while it is called. */
		if (tmem_read(&desc_of(reporting)->state) == TMEM_REPORT_TAKEN)
			tmem_resched();
		else if (!is_over(reporting))
			tmem_pause(client, pendings);
		return;
	}
	if (tmem_wait(&client->waitq, has_moved, reporting, limit_ns))
		return;
	++*pendings;
	if (tmem_is_registered(client))
		tmem_client_probe(client);
	else
		tmem_want_work(client);
}

/* Returns whether the report was withdrawn; otherwise it is over. */
static bool wait(struct tmem_reporting *reporting)
{
	struct tmem_client *client = reporting->client;
	u64 deadline_ns = tmem_now_ns() + TAKE_NS;
	bool withdrawn = false;
	bool taken = false;
	u32 pendings = 0;

	tmem_batch_watch(client, &reporting->batch, 1);
	tmem_full_fence(); /* pairs with the host's between `done` and `guest_waits` */
	for (;;) {
		u64 now_ns = tmem_now_ns();

		tmem_batch_reap(client, &reporting->batch);
		if (is_over(reporting))
			break;
		if (!taken && (now_ns >= deadline_ns || !tmem_is_registered(client))) {
			withdrawn = withdraw(reporting);
			if (withdrawn)
				break;
			taken = true;
		}
		sleep_or_enter(reporting, taken ? TMEM_PROBE_NS : deadline_ns - now_ns, &pendings);
	}
	tmem_batch_watch(client, &reporting->batch, -1);
	return withdrawn;
}

/* From now on the lane does not know of the call, and a slot that the host may use stays away. */
static void let_go(struct tmem_reporting *reporting)
{
	struct tmem_lane *lane = reporting->lane;
	unsigned long flags = tmem_lock(&lane->lock);

	if (tmem_lane_disown(lane, &reporting->call))
		reporting->call.slot = TMEM_NO_SLOT;
	tmem_client_unlock(reporting->client, lane, flags);
	tmem_batch_give_slots(reporting->client, &reporting->batch);
}

/* The statuses of the ranges, each read once. */
static void take_answer(struct tmem_reporting *reporting, struct tmem_report_range *ranges,
			u32 count)
{
	struct tmem_client *client = reporting->client;
	const struct tmem_report_range *answer;
	u32 at;

	if (reporting->call.slot == TMEM_NO_SLOT)
		return;
	answer = tmem_lane_page(reporting->lane, reporting->call.slot);
	for (at = 0; at < count; at++) {
		ranges[at].status = tmem_read(&answer[at].status);
		if (ranges[at].status != TMEM_STATUS_OK) {
			tmem_count(client, TMEM_COUNT_report_ranges_refused);
			continue;
		}
		tmem_count(client, TMEM_COUNT_report_ranges);
		tmem_count_many(client, TMEM_COUNT_report_bytes, ranges[at].bytes);
	}
}

static int outcome_of(struct tmem_reporting *reporting, struct tmem_report_range *ranges,
		      u32 count)
{
	struct tmem_client *client = reporting->client;

	if (!is_answered(reporting)) {
		tmem_count(client, TMEM_COUNT_reports_torn_down);
		return -ECONNRESET;
	}
	if (reporting->call.status == TMEM_STATUS_OK) {
		take_answer(reporting, ranges, count);
		return 0;
	}
	tmem_count(client, TMEM_COUNT_reports_refused);
	return reporting->call.status == TMEM_STATUS_INHIBITED ? -EPERM : -EIO;
}

/**
 * tmem_report - let the host drop free memory
 * @client: client
 * @ranges: guest physical addresses; their statuses are set if the report was answered
 * @count: at most TMEM_MAX_REPORT_RANGES, and at most what the host takes
 *
 * One at a time. The caller keeps the memory isolated until this returns. May sleep: 200 ms if the
 * host does not begin, without limit once it has begun.
 *
 * Return: 0: answered, dropped is what has TMEM_STATUS_OK; -EOPNOTSUPP: the host does not take
 * reports, or not now; -EBUSY: no room; -ETIMEDOUT: withdrawn; -EPERM: refused, not again for a
 * while; -ECONNRESET: the channel was lost, anything may be dropped; -EIO: refused.
 */
int tmem_report(struct tmem_client *client, struct tmem_report_range *ranges, u32 count)
{
	struct tmem_reporting reporting = {
		.client = client,
		.lane = &client->lanes[client->key_lanes],
		.registration = tmem_load_acquire(&client->ready),
	};
	int error;

	reporting.batch.calls = &reporting.call;
	if (!tmem_may_report(client) || !count || count > TMEM_MAX_REPORT_RANGES ||
	    count > tmem_read(&client->window.header->host.max_report_ranges))
		return -EOPNOTSUPP;
	tmem_fault_late_report(client, reporting.lane);
	reporting.resets = tmem_read(&client->resets);
	error = stage(&reporting, ranges, count);
	if (error) {
		/* What the host has done with the one before may come back with a doorbell only. */
		tmem_client_probe(client);
		return error;
	}
	tmem_count(client, TMEM_COUNT_reports);
	if (tmem_fault(TMEM_FAULT_REPORT_RETURNS_EARLY)) {
		let_go(&reporting);
		return -ETIMEDOUT;
	}
	tmem_batch_hand_over(client, &reporting.batch, TMEM_KICK_OTHER);
	if (wait(&reporting)) {
		tmem_count(client, TMEM_COUNT_reports_withdrawn);
		error = -ETIMEDOUT;
	} else {
		error = outcome_of(&reporting, ranges, count);
	}
	let_go(&reporting);
	return error;
}
