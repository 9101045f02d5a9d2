// SPDX-License-Identifier: GPL-2.0-only
/* Persistent puts that no host has acknowledged: put again to the next one, and read (P3). */
#include "internal.h"

/* What one host did not acknowledge. The oldest is the first of client.swap.replay. */
struct tmem_replay {
	struct tmem_replay *next;
	u32 count;
	u32 room;
	u32 from; /* what stands before is put, or was withdrawn */
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

/* Is this put still what its slot holds? */
static bool promised_now(struct tmem_client *client, u32 number, u64 slot, u32 tag)
{
	struct tmem_swap_area *area = tmem_load_acquire(&client->swap.areas[number]);
	unsigned long flags;
	bool promised;

	if (!area)
		return false;
	flags = tmem_lock(&area->lock);
	promised = tmem_bit_is_set(area->held, slot) && area->tags[slot] == tag;
	tmem_unlock(&area->lock, flags);
	return promised;
}

/* Lane locked. */
static bool is_promise(struct tmem_client *client, const struct tmem_record *record)
{
	return record->area && record->persistent &&
	       promised_now(client, record->area - 1U, record->index, record->tag);
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
			count += is_promise(client, &lane->records[entry & (lane->entries - 1)]);
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
		bool promised = is_promise(client, record);

		tmem_client_unlock(client, lane, flags);
		if (promised && replay->count < replay->room)
			save_put(replay, lane, record);
	}
}

static struct tmem_replay *allocate(u32 count)
{
	struct tmem_replay *replay;

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
	return replay;
}

static void free_first(struct tmem_client *client)
{
	struct tmem_replay *first = client->swap.replay;

	tmem_write(&client->swap.replay, first->next);
	tmem_free(first->pages);
	tmem_free(first);
}

/**
 * tmem_replay_collect - keep what was promised and not acknowledged
 * @client: client, admin held, not ready, its lanes not reset yet
 *
 * Every other persistent page counts as lost from here on.
 */
void tmem_replay_collect(struct tmem_client *client)
{
	struct tmem_replay *replay = allocate(count_unacknowledged(client));
	struct tmem_replay *last = client->swap.replay;
	u32 at;

	lose_all(client);
	if (!replay)
		return;
	for (at = 0; at < client->key_lanes; at++)
		save_lane(client, replay, &client->lanes[at]);
	while (last && last->next)
		last = last->next;
	if (last)
		last->next = replay;
	else
		tmem_store_release(&client->swap.replay, replay);
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
		tmem_refresh(client, TMEM_NS_PER_MS);
	}
	return true;
}

/* Puts a page again, if it is still wanted. False: not now. */
static bool put_again(struct tmem_client *client, const struct tmem_swap_put *put,
		      u64 deadline_ns)
{
	if (!promised_now(client, put->area, put->slot, put->tag))
		return true;
	if (!wait_credit(client, deadline_ns))
		return false;
	if (tmem_swap_push(client, put, deadline_ns) == TMEM_SWAP_KEPT) {
		tmem_count(client, TMEM_COUNT_frontswap_replayed);
		return true;
	}
	tmem_credit_give_back(&client->credit, 1);
	return !promised_now(client, put->area, put->slot, put->tag);
}

/**
 * tmem_replay_run - put again what was collected, in its order
 * @client: client, admin held, registered
 * @wait_ns: how long to wait for credits and room
 *
 * Return: whether some is left, to be tried again.
 */
bool tmem_replay_run(struct tmem_client *client, u64 wait_ns)
{
	struct tmem_replay *replay = client->swap.replay;
	u64 deadline_ns;

	if (!replay)
		return false;
	deadline_ns = tmem_now_ns() + wait_ns;
	while (replay) {
		for (; replay->from < replay->count; replay->from++) {
			if (!put_again(client, &replay->puts[replay->from], deadline_ns))
				return true;
		}
		free_first(client);
		replay = client->swap.replay;
	}
	return false;
}

/**
 * tmem_replay_forget - free what is left
 * @client: client that nobody uses any more
 */
void tmem_replay_forget(struct tmem_client *client)
{
	while (client->swap.replay)
		free_first(client);
}

/* ---- loads of what was not acknowledged -------------------------------------------------- */

/* The slot's tag, if a page is promised there. */
static bool tag_of(struct tmem_client *client, u32 number, u64 slot, u32 *tag)
{
	struct tmem_swap_area *area = tmem_load_acquire(&client->swap.areas[number]);
	unsigned long flags;
	bool held;

	if (!area)
		return false;
	flags = tmem_lock(&area->lock);
	held = tmem_bit_is_set(area->held, slot);
	*tag = area->tags[slot];
	tmem_unlock(&area->lock, flags);
	return held;
}

/* Lane locked. Where the put of this tag waits for the host. */
static bool find_in_lane(const struct tmem_lane *lane, u32 number, u64 slot, u32 tag, u64 *entry)
{
	for (*entry = lane->reaped; *entry != lane->staged; ++*entry) {
		const struct tmem_record *record = &lane->records[*entry & (lane->entries - 1)];

		if (record->persistent && record->area == number + 1 && record->index == slot &&
		    record->tag == tag)
			return true;
	}
	return false;
}

/* A slot is the put's until it is reaped: what was copied before that is its page. */
static bool read_from_lane(struct tmem_client *client, struct tmem_lane *lane, u32 number, u64 slot,
			   u32 tag, void *page)
{
	unsigned long flags = tmem_lock(&lane->lock);
	struct tmem_record record;
	u32 generation = lane->generation;
	u64 entry;
	bool good = find_in_lane(lane, number, slot, tag, &entry);

	if (good)
		record = lane->records[entry & (lane->entries - 1)];
	tmem_client_unlock(client, lane, flags);
	if (!good)
		return false;
	if (record.flags & TMEM_DESC_FILL) {
		tmem_page_fill(page, record.value);
		return true;
	}
	client->options.ops->copy_page(page, tmem_lane_page(lane, record.slot));
	flags = tmem_lock(&lane->lock);
	good = lane->generation == generation && entry - lane->reaped < lane->entries;
	tmem_client_unlock(client, lane, flags);
	return good;
}

static bool read_from_replay(struct tmem_client *client, u32 number, u64 slot, u32 tag, void *page)
{
	const struct tmem_replay *replay;
	bool found = false;
	u32 at;

	if (!tmem_load_acquire(&client->swap.replay))
		return false;
	tmem_mutex_lock(&client->admin);
	for (replay = client->swap.replay; replay && !found; replay = replay->next) {
		for (at = replay->from; at < replay->count && !found; at++) {
			const struct tmem_swap_put *put = &replay->puts[at];

			if (put->area != number || put->slot != slot || put->tag != tag)
				continue;
			if (put->filled)
				tmem_page_fill(page, put->word);
			else
				client->options.ops->copy_page(page, put->page);
			found = true;
		}
	}
	tmem_mutex_unlock(&client->admin);
	return found;
}

/**
 * tmem_replay_read - a promised page that no host has acknowledged
 * @client: client
 * @number: swap area
 * @slot: swap slot
 * @page: set to its bytes
 *
 * For loads that the host did not answer: looks through all lanes. May sleep.
 *
 * Return: false if it is not here.
 */
bool tmem_replay_read(struct tmem_client *client, u32 number, u64 slot, void *page)
{
	u32 at, tag;

	if (!tag_of(client, number, slot, &tag))
		return false;
	for (at = 0; at < client->key_lanes; at++) {
		if (read_from_lane(client, &client->lanes[at], number, slot, tag, page))
			return true;
	}
	return read_from_replay(client, number, slot, tag, page);
}
