// SPDX-License-Identifier: GPL-2.0-only
/*
 * The doorbell that is a hypercall: the host sees nothing between two of them.
 *
 * It copies what is new in the lanes that a hypercall names, and brings back there what it has done
 * of earlier ones; its notices come with each. So lanes are handed over by a number of operations
 * or, seldom, by time, never by whether the host is awake.
 */
#include "internal.h"

/*
 * After so many milliseconds the host is slow, not busy with this: asking all the time would only
 * keep this guest's other tasks, and its host, from the processor.
 */
#define PENDINGS_IN_A_ROW 3U

/* What has changed with the last hypercall may be something for the worker. */
static void follow_notices(struct tmem_client *client)
{
	if (tmem_notices_want_work(client))
		tmem_want_work(client);
}

/* The registration that this hypercall was made in is over; a later one is not concerned. */
static void lose(struct tmem_client *client, u64 registration, u32 answer)
{
	/* Of the others one does not know whether the host is still at work. */
	if (answer == TMEM_HC_GONE || answer == TMEM_HC_NOT_REGISTERED)
		tmem_store_release(&client->gone, registration);
	if (!tmem_compare_swap(&client->ready, registration, 0))
		return;
	tmem_count(client, TMEM_COUNT_channels_lost);
	tmem_wake(&client->waitq);
	tmem_want_work(client);
}

/**
 * tmem_hypercall - enter the host
 * @client: client, no lock held
 * @operation: TMEM_HC_REGISTER; registered: TMEM_HC_KICK, or TMEM_HC_CALL, which may take a
 *	millisecond
 * @lanes: bit i: lane i
 * @reason: for the counters
 *
 * An answer that says that the channel is lost ends the registration; the worker makes a new one.
 *
 * Return: enum tmem_hypercall_answer, or anything else if there is no host.
 */
u32 tmem_hypercall(struct tmem_client *client, enum tmem_hypercall operation, u64 lanes,
		   enum tmem_kick_reason reason)
{
	u64 registration = tmem_load_acquire(&client->ready);
	u32 answer;

	if (!registration && operation != TMEM_HC_REGISTER)
		return TMEM_HC_NOT_REGISTERED;
	tmem_count_ring(client, reason);
	answer = client->options.ops->hypercall(client->options.context, operation, lanes);
	tmem_write(&client->entered_ns, tmem_now_ns());
	if (answer == TMEM_HC_PENDING)
		tmem_count(client, TMEM_COUNT_hypercalls_pending);
	if (operation == TMEM_HC_REGISTER)
		return answer;
	if (answer == TMEM_HC_OK || answer == TMEM_HC_PENDING)
		follow_notices(client);
	else
		lose(client, registration, answer);
	return answer;
}

/**
 * tmem_unreaped_lanes - lanes of which the host has something
 * @client: client
 */
u64 tmem_unreaped_lanes(const struct tmem_client *client)
{
	u64 lanes = 0;
	u32 at;

	for (at = 0; at <= client->key_lanes; at++) {
		const struct tmem_lane *lane = &client->lanes[at];

		if (tmem_read(&lane->posted) != tmem_read(&lane->reaped))
			lanes |= 1ULL << at;
	}
	return lanes;
}

/**
 * tmem_refresh - see what the host has announced, and what it has done meanwhile
 * @client: client, no lock held
 * @age_ns: not if that was less than this long ago
 *
 * Return: whether the host was asked.
 */
bool tmem_refresh(struct tmem_client *client, u64 age_ns)
{
	u32 answer;

	if (!tmem_entry_is_due(client, age_ns))
		return false;
	answer = tmem_hypercall(client, TMEM_HC_KICK, tmem_unreaped_lanes(client),
				TMEM_KICK_OTHER);
	return answer == TMEM_HC_OK;
}

/**
 * tmem_has_credits - are there so many credits?
 * @client: client, no lock held
 * @count: credits
 *
 * By hypercall the host may have granted some that this guest does not see yet: it looks, not more
 * often than every millisecond.
 */
bool tmem_has_credits(struct tmem_client *client, u64 count)
{
	return tmem_credit_available(&client->credit) >= count ||
	       (tmem_refresh(client, TMEM_NS_PER_MS) &&
		tmem_credit_available(&client->credit) >= count);
}

static bool never(void *argument)
{
	(void)argument;
	return false;
}

/**
 * tmem_pause - between two hypercalls of which the first was not enough
 * @client: client
 * @pendings: how many there were; counted here
 */
void tmem_pause(struct tmem_client *client, u32 *pendings)
{
	if (++*pendings < PENDINGS_IN_A_ROW)
		tmem_resched();
	else
		tmem_wait(&client->waitq, never, NULL, TMEM_NS_PER_MS);
}
