// SPDX-License-Identifier: GPL-2.0-only
/* Swapped-out pages come back: one batch of loads, each compared with its tag. */
#include "internal.h"

/* How often a load that waits for a new registration looks. */
#define READY_NAP_NS TMEM_NS_PER_MS

struct load {
	struct tmem_client *client;
	struct tmem_swap_area *area;
	u32 number;
	u32 pages;
	const u64 *slots;
	void *const *buffers;
	enum tmem_swap_loaded *results;
	u64 handle;
	u64 deadline_ns;
	bool persistent;
};

/* The host cannot give the page: the device may, if it has it too. */
static enum tmem_swap_loaded not_from_host(struct load *load, u64 slot)
{
	unsigned long flags = tmem_lock(&load->area->lock);
	bool device = tmem_bit_is_set(load->area->device, slot);

	tmem_unlock(&load->area->lock, flags);
	if (tmem_fault(TMEM_FAULT_FAILED_LOAD_READS_DEVICE))
		return TMEM_SWAP_DEVICE;
	return device ? TMEM_SWAP_DEVICE : TMEM_SWAP_ERROR;
}

enum staged_load {
	LOAD_ANSWERED,
	LOAD_IN_BATCH,
	LOAD_NO_ROOM,
};

/* What the bits say before the host is asked. */
static bool answer_from_bits(struct load *load, u32 page)
{
	struct tmem_swap_area *area = load->area;
	u64 slot = load->slots[page];
	unsigned long flags = tmem_lock(&area->lock);
	bool held = tmem_bit_is_set(area->held, slot);
	bool lost = tmem_bit_is_set(area->lost, slot);

	tmem_unlock(&area->lock, flags);
	if (held && !lost)
		return false;
	load->results[page] = !held ? TMEM_SWAP_DEVICE : not_from_host(load, slot);
	return true;
}

/* Lane locked. */
static enum staged_load stage_load(struct load *load, struct tmem_lane *lane,
				   struct tmem_batch *batch, u32 page)
{
	struct tmem_client *client = load->client;
	const u64 object[3] = { load->number, 0, 0 };
	u64 index = load->slots[page];
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_GET, load->handle, object, index);

	if (answer_from_bits(load, page))
		return LOAD_ANSWERED;
	if (tmem_read(&client->pools[client->swap.pool].handle) != load->handle) {
		load->results[page] = not_from_host(load, index);
		return LOAD_ANSWERED;
	}
	if (!tmem_batch_get(client, lane, batch, &desc, page))
		return LOAD_NO_ROOM;
	if (!load->persistent) {
		unsigned long flags = tmem_lock(&load->area->lock);

		tmem_bit_clear(load->area->held, index); /* exclusive: G1 */
		tmem_unlock(&load->area->lock, flags);
	}
	return LOAD_IN_BATCH;
}

static void lose(struct load *load, u64 slot)
{
	unsigned long flags;

	if (!load->persistent)
		return;
	flags = tmem_lock(&load->area->lock);
	tmem_bit_set(load->area->lost, slot);
	tmem_unlock(&load->area->lock, flags);
}

/* Is the answer the page that was stored there? G3, and the tag of C7. */
static bool answer_is_right(struct load *load, const struct tmem_call *call, u64 slot)
{
	unsigned long flags;
	u32 tag;

	if (load->persistent && tmem_inject_failed_load()) {
		lose(load, slot);
		return false;
	}
	if (call->status != TMEM_STATUS_OK) {
		/* Late is not lost; a host that says it has nothing, or what we do not know, is. */
		if (call->status != TMEM_STATUS_NONE)
			lose(load, slot);
		return false;
	}
	if (!load->persistent)
		return true;
	flags = tmem_lock(&load->area->lock);
	tag = load->area->tags[slot];
	tmem_unlock(&load->area->lock, flags);
	if (call->tag == tag)
		return true;
	tmem_count(load->client, TMEM_COUNT_frontswap_tag_mismatches);
	lose(load, slot);
	return false;
}

static void finish_loads(struct load *load, struct tmem_batch *batch)
{
	struct tmem_client *client = load->client;
	u32 at;

	for (at = 0; at < batch->count; at++) {
		struct tmem_call *call = &batch->calls[at];
		u64 slot = load->slots[call->page];

		if (!answer_is_right(load, call, slot) ||
		    (call->slot == TMEM_NO_SLOT && !(call->flags & TMEM_DESC_FILL))) {
			load->results[call->page] = not_from_host(load, slot);
			continue;
		}
		if (call->flags & TMEM_DESC_FILL)
			tmem_page_fill(load->buffers[call->page], call->value);
		else
			client->options.ops->copy_page(load->buffers[call->page],
						       tmem_lane_page(&client->lanes[call->lane],
								      call->slot));
		load->results[call->page] = TMEM_SWAP_HIT;
	}
	tmem_batch_give_slots(client, batch);
}

static bool is_ready(void *argument)
{
	struct tmem_client *client = argument;

	return tmem_is_registered(client) && !tmem_load_acquire(&client->replaying);
}

/* Waits for a registration under way, but not for a host that is known to be lost. */
static bool wait_ready(struct load *load)
{
	struct tmem_client *client = load->client;
	const struct tmem_host_page *host = &client->window.header->host;

	while (!is_ready(client)) {
		if (!load->persistent ||
		    tmem_breaker_is_open(&client->breakers[TMEM_KIND_PERSISTENT], host))
			return false;
		if (tmem_now_ns() >= load->deadline_ns) {
			tmem_trip(client, TMEM_KIND_PERSISTENT);
			return false;
		}
		tmem_want_work(client);
		tmem_wait(&client->waitq, is_ready, client, READY_NAP_NS);
	}
	return !tmem_host_lost(client, load->persistent ? TMEM_KIND_PERSISTENT :
							  TMEM_KIND_EPHEMERAL);
}

static enum staged_load stage_one(struct load *load, struct tmem_lane *lane,
				  struct tmem_batch *batch, u32 page)
{
	unsigned long flags = tmem_lock(&lane->lock);
	enum staged_load staged = stage_load(load, lane, batch, page);

	tmem_client_unlock(load->client, lane, flags);
	return staged;
}

static void load_batch(struct load *load)
{
	struct tmem_client *client = load->client;
	const u64 object[3] = { load->number, 0, 0 };
	struct tmem_call calls[TMEM_SWAP_LOAD_MAX];
	struct tmem_batch batch = { .calls = calls };
	u32 page = 0;

	for (;;) {
		struct tmem_lane *lane = NULL;
		bool room = true;

		for (; page < load->pages && room; page += room) {
			lane = tmem_lane_of_key(client, load->handle, object, load->slots[page]);
			room = stage_one(load, lane, &batch, page) != LOAD_NO_ROOM;
		}
		if (batch.count) {
			if (!tmem_batch_wait(client, &batch, load->deadline_ns, TMEM_KICK_GET))
				tmem_trip(client, load->persistent ? TMEM_KIND_PERSISTENT :
								     TMEM_KIND_EPHEMERAL);
			finish_loads(load, &batch);
		} else if (!room && !tmem_wait_slot(client, lane, load->deadline_ns)) {
			/* Puts that nobody takes fill the slots: the host is lost as well. */
			tmem_trip(client, load->persistent ? TMEM_KIND_PERSISTENT :
							     TMEM_KIND_EPHEMERAL);
			load->results[page] = not_from_host(load, load->slots[page]);
			page++;
		}
		if (page == load->pages)
			return;
	}
}

/* What the host never acknowledged is still here (P3). */
static void answer_unacknowledged(struct load *load)
{
	u32 page;

	for (page = 0; load->persistent && page < load->pages; page++) {
		if (load->results[page] != TMEM_SWAP_ERROR ||
		    !tmem_replay_read(load->client, load->number, load->slots[page],
				      load->buffers[page]))
			continue;
		load->results[page] = TMEM_SWAP_HIT;
		tmem_count(load->client, TMEM_COUNT_frontswap_load_unacknowledged);
	}
}

static void count_results(struct load *load)
{
	u32 page;

	for (page = 0; page < load->pages; page++) {
		tmem_count(load->client, TMEM_COUNT_frontswap_loads);
		if (load->results[page] == TMEM_SWAP_ERROR)
			tmem_count(load->client, TMEM_COUNT_frontswap_load_errors);
		else if (load->results[page] == TMEM_SWAP_DEVICE)
			tmem_count(load->client, TMEM_COUNT_frontswap_load_device);
	}
}

/**
 * tmem_swap_load - pages are swapped in
 * @client: client
 * @number: area
 * @pages: how many, at most TMEM_SWAP_LOAD_MAX
 * @slots: swap slot of each
 * @buffers: where each goes
 * @results: set for each
 *
 * A page of a persistent pool stays held until it is invalidated; of an ephemeral one it is gone.
 * May sleep, for options.load_timeout_ns at most.
 */
void tmem_swap_load(struct tmem_client *client, u32 number, u32 pages, const u64 *slots,
		    void *const *buffers, enum tmem_swap_loaded *results)
{
	struct load load = { client, tmem_load_acquire(&client->swap.areas[number]), number,
			     pages, slots, buffers, results, 0, 0,
			     client->swap.kind == TMEM_POOL_PERSISTENT };
	bool ready;
	u32 page;

	for (page = 0; page < pages; page++)
		results[page] = TMEM_SWAP_DEVICE;
	if (!load.area)
		return;
	load.deadline_ns = tmem_now_ns() + (load.persistent ? client->options.load_timeout_ns :
					    client->options.get_timeout_ns +
					    pages * TMEM_NS_PER_MS);
	/* Slots that are not held do not wait for anybody. */
	for (page = 0; page < pages && answer_from_bits(&load, page); page++)
		;
	if (page < pages) {
		ready = wait_ready(&load);
		load.handle = tmem_load_acquire(&client->pools[client->swap.pool].handle);
		if (ready && load.handle) {
			load_batch(&load);
		} else {
			for (page = 0; page < pages; page++) {
				if (!answer_from_bits(&load, page))
					results[page] = not_from_host(&load, slots[page]);
			}
		}
	}
	answer_unacknowledged(&load);
	count_results(&load);
}
