// SPDX-License-Identifier: GPL-2.0-only
/* Persistent puts that a host had not acknowledged are put again to the next one (P3). */
#include "internal.h"

/* How long all of a replay may wait for credits and slots. */
#define REPLAY_WAIT_NS (2 * TMEM_NS_PER_S)

struct tmem_replay {
	u32 count;
	u32 room;
	u8 *pages; /* `room` pages */
	struct tmem_swap_put puts[];
};

/* A reset took every persistent page. What is replayed is found again. */
static void lose_all(struct tmem_client *client)
{
	u32 number;
	u64 word;

	if (tmem_load_acquire(&client->swap.kind) != TMEM_POOL_PERSISTENT)
		return;
	for (number = 0; number < TMEM_SWAP_AREAS; number++) {
		struct tmem_swap_area *area = client->swap.areas[number];

		for (word = 0; area && word < tmem_area_words(area); word++) {
			unsigned long flags = tmem_lock(&area->lock);
			u32 newly = area->held[word] & ~area->lost[word];

			area->lost[word] |= newly;
			tmem_unlock(&area->lock, flags);
			tmem_count_many(client, TMEM_COUNT_frontswap_lost,
					tmem_popcount(newly));
		}
	}
}

/* Lane locked. Is this unacknowledged put still what its slot holds? */
static bool promised_now(struct tmem_client *client, const struct tmem_record *record)
{
	struct tmem_swap_area *area;
	unsigned long flags;
	bool promised;

	if (!record->area || !record->persistent)
		return false;
	area = client->swap.areas[record->area - 1];
	if (!area)
		return false;
	flags = tmem_lock(&area->lock);
	promised = tmem_bit_is_set(area->held, record->index) &&
		   area->tags[record->index] == record->tag;
	tmem_unlock(&area->lock, flags);
	return promised;
}

static u32 count_unacknowledged(struct tmem_client *client)
{
	u32 count = 0;
	u32 at;

	for (at = 0; at < client->key_lanes; at++) {
		struct tmem_lane *lane = &client->lanes[at];
		unsigned long flags = tmem_lock(&lane->lock);
		u64 entry;

		for (entry = lane->reaped; entry != lane->staged; entry++)
			count += promised_now(client,
						    &lane->records[entry & (lane->entries - 1)]);
		tmem_client_unlock(client, lane, flags);
	}
	return count;
}

/* Not registered: the lane's slots stay what they are without its lock. */
static void save_put(struct tmem_replay *replay, const struct tmem_lane *lane,
		     const struct tmem_record *record)
{
	u8 *page = replay->pages + ((size_t)replay->count << TMEM_PAGE_SHIFT);
	struct tmem_swap_put *put = &replay->puts[replay->count++];

	put->area = record->area - 1U;
	put->slot = record->index;
	put->tag = record->tag;
	put->filled = record->flags & TMEM_DESC_FILL;
	put->word = record->value;
	put->page = page;
	put->replay = true;
	if (!put->filled)
		memcpy(page, tmem_lane_page(lane, record->slot), TMEM_PAGE_BYTES);
}

static void save_lane(struct tmem_client *client, struct tmem_replay *replay,
		      struct tmem_lane *lane)
{
	u64 entry;

	for (entry = lane->reaped; entry != lane->staged; entry++) {
		const struct tmem_record *record = &lane->records[entry & (lane->entries - 1)];
		unsigned long flags = tmem_lock(&lane->lock);
		bool promised = promised_now(client, record);

		tmem_client_unlock(client, lane, flags);
		if (promised && replay->count < replay->room)
			save_put(replay, lane, record);
	}
}

/**
 * tmem_replay_collect - keep what was promised and not acknowledged
 * @client: client, admin held, not ready, its lanes not reset yet
 *
 * Every other persistent page counts as lost from here on.
 *
 * Return: for tmem_replay_run; NULL if there is nothing.
 */
struct tmem_replay *tmem_replay_collect(struct tmem_client *client)
{
	u32 count = count_unacknowledged(client);
	struct tmem_replay *replay;
	u32 at;

	lose_all(client);
	if (!count)
		return NULL;
	replay = tmem_alloc(sizeof(*replay) + count * sizeof(replay->puts[0]));
	if (!replay)
		return NULL;
	replay->room = count;
	replay->pages = tmem_alloc((size_t)count << TMEM_PAGE_SHIFT);
	if (!replay->pages) {
		tmem_free(replay);
		return NULL;
	}
	for (at = 0; at < client->key_lanes; at++)
		save_lane(client, replay, &client->lanes[at]);
	return replay;
}

static bool never(void *argument)
{
	(void)argument;
	return false;
}

static bool wait_credit(struct tmem_client *client, u64 deadline_ns)
{
	while (!tmem_credit_take(&client->credit)) {
		if (tmem_now_ns() >= deadline_ns)
			return false;
		tmem_wait(&client->waitq, never, NULL, TMEM_NS_PER_MS);
	}
	return true;
}

/**
 * tmem_replay_run - put again what was collected, in its order
 * @client: client, admin held, registered
 * @replay: freed; may be NULL
 */
void tmem_replay_run(struct tmem_client *client, struct tmem_replay *replay)
{
	u64 deadline_ns = tmem_now_ns() + REPLAY_WAIT_NS;
	u32 at;

	if (!replay)
		return;
	for (at = 0; at < replay->count && wait_credit(client, deadline_ns); at++) {
		if (tmem_swap_push(client, &replay->puts[at], deadline_ns) == TMEM_SWAP_KEPT)
			tmem_count(client, TMEM_COUNT_frontswap_replayed);
		else
			tmem_credit_give_back(&client->credit, 1);
	}
	tmem_free(replay->pages);
	tmem_free(replay);
}
