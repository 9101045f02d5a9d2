// SPDX-License-Identifier: GPL-2.0-only
/* What the host wants back: page cache, and promised pages. */
#include "internal.h"

/* Steps without a page after which there is no more cache to give, and the pause between them. */
#define EMPTY_STEPS 3U
#define EMPTY_PAUSE_NS (100 * TMEM_NS_PER_MS)

/* How often a step waits for the host to take the puts of the one before, a millisecond each. */
#define LANES_WAITS 20U

/* Between two looks at all areas: longer than a store that has its credit may take. */
#define LOOK_PAUSE_NS (150 * TMEM_NS_PER_MS)
#define CLEAN_LOOKS 2U

/* Looks in a row that end for want of memory, with reclaim each time, before it is given up. */
#define SHORT_LOOKS 5U

static struct tmem_host_page *host_of(const struct tmem_client *client)
{
	return &client->window.header->host;
}

static bool drain_wanted(const struct tmem_client *client)
{
	u32 number = tmem_read(&host_of(client)->drain);

	return number && number != tmem_read(&client->shrink.drained);
}

static bool something_wanted(const struct tmem_client *client)
{
	return (tmem_read(&client->window.features) & TMEM_FEATURE_SHRINK) &&
	       tmem_is_registered(client) &&
	       (tmem_read(&host_of(client)->shrink_target_pages) || drain_wanted(client));
}

/**
 * tmem_shrink_wanted - does the host want something back that nobody works on yet?
 * @client: client
 */
bool tmem_shrink_wanted(struct tmem_client *client)
{
	return !tmem_read(&client->shrink.busy) && something_wanted(client);
}

/**
 * tmem_shrink_follow - let the driver work if it is wanted
 * @client: client, no lock held but admin
 */
void tmem_shrink_follow(struct tmem_client *client)
{
	if (!tmem_shrink_wanted(client) || !client->options.ops->shrink_soon)
		return;
	tmem_write(&client->shrink.busy, 1U);
	client->options.ops->shrink_soon(client->options.context);
}

/* Another registration: what was under way is of nobody's interest any more. */
static void start_over(struct tmem_client *client, u64 registration)
{
	struct tmem_shrink *shrink = &client->shrink;
	u32 busy = shrink->busy;

	memset(shrink, 0, sizeof(*shrink));
	shrink->registration = registration;
	tmem_write(&shrink->busy, busy);
}

/*
 * How far it is. Returns 0 or an error; then the host may hear of it later, so these pages are not
 * told again.
 */
static int say(struct tmem_client *client, enum tmem_op op, u64 pages,
	       enum tmem_shrink_outcome outcome)
{
	struct tmem_desc desc = tmem_desc_of(op, 0, NULL, 0);
	u64 left;
	int error;

	desc.value = pages;
	desc.count = outcome;
	tmem_mutex_lock(&client->admin);
	error = tmem_control(client, &desc, &left);
	tmem_mutex_unlock(&client->admin);
	client->shrink.unheard = error != 0;
	return error;
}

/* ---- page cache --------------------------------------------------------------------------- */

/* Whether the host has still to take what earlier steps have put. */
static bool lanes_are_full(struct tmem_client *client)
{
	struct tmem_shrink *shrink = &client->shrink;

	tmem_client_kick(client, TMEM_KICK_PUT);
	if (!(tmem_unreaped_lanes(client) & ((1ULL << client->key_lanes) - 1)) ||
	    ++shrink->waited > LANES_WAITS) {
		shrink->waited = 0;
		return false;
	}
	return true;
}

/* One step. */
static u64 give_cache(struct tmem_client *client, const struct tmem_shrink_ops *ops, void *context)
{
	struct tmem_shrink *shrink = &client->shrink;
	u64 target = tmem_read(&host_of(client)->shrink_target_pages);
	enum tmem_shrink_outcome outcome = TMEM_SHRINK_CONTINUES;
	u64 pages;

	/* Nothing more for a host that has not heard of the last step. */
	if (shrink->unheard && say(client, TMEM_OP_SHRUNK, 0, TMEM_SHRINK_CONTINUES))
		return TMEM_PROBE_NS;
	if (lanes_are_full(client))
		return TMEM_NS_PER_MS;
	pages = ops->reclaim(context, target < ops->step_pages ? target : ops->step_pages);
	tmem_count_many(client, TMEM_COUNT_shrunk_pages, pages);
	shrink->empty_steps = pages ? 0 : shrink->empty_steps + 1;
	if (shrink->empty_steps >= EMPTY_STEPS)
		outcome = TMEM_SHRINK_NOTHING_LEFT;
	else if (!pages)
		return EMPTY_PAUSE_NS;
	if (say(client, TMEM_OP_SHRUNK, pages, outcome))
		return TMEM_PROBE_NS;
	if (outcome != TMEM_SHRINK_CONTINUES) {
		shrink->empty_steps = 0;
		tmem_count(client, TMEM_COUNT_shrinks_short);
	}
	return TMEM_NS_PER_MS;
}

/* ---- promised pages ----------------------------------------------------------------------- */

/* The next slot from (area, slot) on that the host holds; false at the end of all areas. */
static bool next_held(struct tmem_client *client)
{
	struct tmem_shrink *shrink = &client->shrink;

	for (; shrink->area < TMEM_SWAP_AREAS; shrink->area++, shrink->slot = 0) {
		struct tmem_swap_area *area;
		bool found = false;

		/* Areas go with admin held. */
		tmem_mutex_lock(&client->admin);
		area = client->swap.areas[shrink->area];
		while (area && shrink->slot < area->slots) {
			u64 word = shrink->slot / TMEM_WORD_SLOTS;
			u32 bits = tmem_read(&area->held[word]) & ~tmem_read(&area->lost[word]);

			bits &= ~0U << (shrink->slot % TMEM_WORD_SLOTS);
			found = bits;
			if (found) {
				shrink->slot = word * TMEM_WORD_SLOTS + (u32)__builtin_ctz(bits);
				break;
			}
			shrink->slot = (word + 1) * TMEM_WORD_SLOTS;
		}
		tmem_mutex_unlock(&client->admin);
		if (found)
			return true;
	}
	return false;
}

static bool holds_promises(const struct tmem_client *client)
{
	return tmem_load_acquire(&client->swap.kind) == TMEM_POOL_PERSISTENT;
}

static void begin_look(struct tmem_shrink *shrink)
{
	shrink->area = 0;
	shrink->slot = 0;
	shrink->left = 0;
	shrink->unreadable = 0;
	shrink->unused = 0;
}

/* False: there is no memory for more now. */
static bool bring_one_home(struct tmem_client *client, const struct tmem_shrink_ops *ops,
			   void *context)
{
	struct tmem_shrink *shrink = &client->shrink;
	int error = ops->bring_home(context, shrink->area, shrink->slot);

	if (error == -ENOMEM)
		return false;
	shrink->slot++;
	if (!error) {
		shrink->home_pages++;
		shrink->short_looks = 0;
		tmem_count(client, TMEM_COUNT_drained_pages);
	} else if (error == -ENOENT) {
		shrink->unused++;
	} else if (error == -EIO) {
		shrink->unreadable++;
		tmem_count(client, TMEM_COUNT_drain_errors);
	} else {
		shrink->left++;
	}
	return true;
}

static int say_home(struct tmem_client *client, enum tmem_shrink_outcome outcome)
{
	u64 pages = client->shrink.home_pages;

	client->shrink.home_pages = 0;
	return say(client, TMEM_OP_DRAINED, pages, outcome);
}

/* The drain has ended; a failure to say so is tried again. */
static u64 end_drain(struct tmem_client *client, enum tmem_shrink_outcome outcome)
{
	struct tmem_shrink *shrink = &client->shrink;

	/* Flushes of what came home go before the news. */
	tmem_client_kick(client, TMEM_KICK_FLUSH);
	if (say_home(client, outcome))
		return TMEM_PROBE_NS;
	tmem_write(&shrink->drained, shrink->drain);
	return TMEM_NS_PER_MS;
}

/* A look at all areas has ended. */
static u64 end_look(struct tmem_client *client, const struct tmem_shrink_ops *ops, void *context)
{
	struct tmem_shrink *shrink = &client->shrink;
	bool credits = holds_promises(client) && tmem_credit_available(&client->credit);
	bool clean = !shrink->left && !credits;
	u32 unreadable = shrink->unreadable;

	/* Of slots that nobody uses this system tells us late. */
	if (shrink->unused)
		ops->free_slots(context);
	shrink->clean_looks = clean ? shrink->clean_looks + 1 : 0;
	begin_look(shrink);
	if (shrink->clean_looks < CLEAN_LOOKS)
		return LOOK_PAUSE_NS;
	return end_drain(client,
			 unreadable ? TMEM_SHRINK_UNREADABLE : TMEM_SHRINK_NOTHING_LEFT);
}

/* One step. */
static u64 bring_home(struct tmem_client *client, const struct tmem_shrink_ops *ops, void *context)
{
	struct tmem_shrink *shrink = &client->shrink;
	u32 number = tmem_read(&host_of(client)->drain);
	bool at_end = false;
	bool fits = true;
	u32 steps;

	if (number != shrink->drain) {
		shrink->drain = number;
		shrink->clean_looks = 0;
		shrink->short_looks = 0;
		begin_look(shrink);
	}
	for (steps = 0; steps < TMEM_DRAIN_STEP_PAGES && fits && !at_end; steps++) {
		at_end = !holds_promises(client) || !next_held(client);
		if (!at_end)
			fits = bring_one_home(client, ops, context);
		tmem_resched();
	}
	if (!fits && ++shrink->short_looks >= SHORT_LOOKS)
		return end_drain(client, TMEM_SHRINK_NO_MEMORY);
	tmem_client_kick(client, TMEM_KICK_FLUSH);
	/* The look that found something was not a clean one. */
	if (shrink->home_pages) {
		shrink->left++;
		if (say_home(client, TMEM_SHRINK_CONTINUES))
			return TMEM_PROBE_NS;
	}
	if (at_end)
		return end_look(client, ops, context);
	return fits ? TMEM_NS_PER_MS : EMPTY_PAUSE_NS;
}

/**
 * tmem_shrink_work - a step towards what the host wants back
 * @client: client, no lock held
 * @ops: what this system can do
 * @context: given to them
 *
 * Return: call it again after so many nanoseconds; 0: when ops->shrink_soon asks for it.
 */
u64 tmem_shrink_work(struct tmem_client *client, const struct tmem_shrink_ops *ops, void *context)
{
	u64 registration = tmem_load_acquire(&client->ready);
	u64 again_ns = 0;

	if (registration && registration != client->shrink.registration)
		start_over(client, registration);
	if (something_wanted(client)) {
		if (tmem_read(&host_of(client)->shrink_target_pages))
			again_ns = give_cache(client, ops, context);
		if (drain_wanted(client)) {
			u64 drain_ns = bring_home(client, ops, context);

			if (!again_ns || drain_ns < again_ns)
				again_ns = drain_ns;
		}
		return again_ns;
	}
	tmem_write(&client->shrink.busy, 0U);
	tmem_full_fence(); /* whoever saw `busy` has written the figure before this look at it */
	if (!tmem_shrink_wanted(client))
		return 0;
	tmem_write(&client->shrink.busy, 1U);
	return TMEM_NS_PER_MS;
}
