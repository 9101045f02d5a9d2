// SPDX-License-Identifier: GPL-2.0-only
/* A client's life: window, registration, and the worker that keeps it going. */
#include "internal.h"

/* How long registration looks for its answer between two naps. */
#define ANSWER_NAP_NS TMEM_NS_PER_MS

/*
 * How long stores and loads wait for a replay. What it could not put by then, for lack of credits,
 * is kept and tried again; loads are answered from it.
 */
#define REPLAY_WAIT_NS (2 * TMEM_NS_PER_S)

/* Hosts that may take the window over while a guest registers, before it tries later. */
#define ASKED_MAX 3U

/* Keys of forgotten objects that the worker frees under one hold of a lane's lock. */
#define RECLAIM_STEPS 128U

static int init_lanes(struct tmem_client *client)
{
	const struct tmem_geometry *geometry = &client->window.geometry;
	u8 *memory = (u8 *)client->window.header;
	u32 at;
	int error;

	for (at = 0; at <= client->key_lanes; at++) {
		bool control = at == client->key_lanes;

		error = tmem_lane_init(&client->lanes[at],
				       memory + tmem_lane_offset(geometry, at), at,
				       control ? geometry->control_ring_entries :
						 geometry->ring_entries,
				       control ? geometry->control_slots : geometry->lane_slots);
		if (!error && !control)
			error = tmem_table_init(&client->lanes[at].table,
						client->options.table_keys / client->key_lanes);
		if (error)
			return error;
	}
	return 0;
}

/**
 * tmem_client_create - take a window over
 * @client: set; zeroed by the caller
 * @options: copied
 * @memory: the window
 * @bytes: how much of it is mapped
 *
 * Return: 0; errors of tmem_window_attach; -ENOMEM.
 */
int tmem_client_create(struct tmem_client *client, const struct tmem_client_options *options,
		       void *memory, u64 bytes)
{
	int error;

	client->options = *options;
	tmem_mutex_init(&client->admin);
	tmem_waitq_init(&client->waitq);
	error = tmem_window_attach(&client->window, memory, bytes);
	if (error)
		return error;
	if (options->shrink)
		client->window.wanted |= TMEM_FEATURE_SHRINK;
	tmem_credit_init(&client->credit, &client->window.header->host);
	client->key_lanes = client->window.geometry.key_lanes;
	client->lanes = tmem_alloc(sizeof(*client->lanes) * (client->key_lanes + 1));
	if (!client->lanes)
		return -ENOMEM;
	error = init_lanes(client);
	if (error)
		tmem_client_destroy(client);
	return error;
}

/**
 * tmem_client_destroy - free what the client remembers
 * @client: client that nobody uses any more
 */
void tmem_client_destroy(struct tmem_client *client)
{
	u32 at;

	tmem_replay_forget(client);
	for (at = 0; client->lanes && at <= client->key_lanes; at++)
		tmem_lane_destroy(&client->lanes[at]);
	tmem_free(client->lanes);
	client->lanes = NULL;
	for (at = 0; at < TMEM_SWAP_AREAS; at++)
		tmem_swap_off(client, at);
}

static void on_each_lane(struct tmem_client *client, void (*action)(struct tmem_lane *lane))
{
	u32 at;

	for (at = 0; at <= client->key_lanes; at++) {
		struct tmem_lane *lane = &client->lanes[at];
		unsigned long flags = tmem_lock(&lane->lock);

		action(lane);
		tmem_client_unlock(client, lane, flags);
	}
}

static bool never(void *argument)
{
	(void)argument;
	return false;
}

static int wait_for_answer(struct tmem_client *client, u64 request)
{
	u64 deadline_ns = tmem_now_ns() + TMEM_CONTROL_TIMEOUT_NS;
	int error = -EAGAIN;

	/* The ring may have been lost on a host that was just starting. */
	while (error == -EAGAIN && tmem_now_ns() < deadline_ns) {
		tmem_client_probe(client);
		tmem_wait(&client->waitq, never, NULL, ANSWER_NAP_NS);
		error = tmem_window_answer(&client->window, request);
	}
	return error;
}

static int error_of_answer(u32 answer)
{
	switch (answer) {
	case TMEM_HC_PENDING:
		return -EAGAIN;
	case TMEM_HC_REFUSED:
		return -EPERM;
	case TMEM_HC_BAD_VERSION:
		return -EPROTO;
	case TMEM_HC_BAD_ARGUMENT:
	case TMEM_HC_BAD_ADDRESS:
		return -EINVAL;
	default:
		return -ENOTCONN;
	}
}

static int request_by_hypercall(struct tmem_client *client, u64 features)
{
	u64 deadline_ns = tmem_now_ns() + TMEM_CONTROL_TIMEOUT_NS;
	u64 request = tmem_random() | 1;
	u32 pendings = 0;
	u32 answer;

	tmem_window_request(&client->window, request, features);
	for (;;) {
		answer = tmem_hypercall(client, TMEM_HC_REGISTER, 0, TMEM_KICK_OTHER);
		if (answer != TMEM_HC_PENDING || tmem_now_ns() >= deadline_ns)
			break;
		tmem_pause(client, &pendings);
	}
	return answer == TMEM_HC_OK ? tmem_window_answer(&client->window, request) :
				      error_of_answer(answer);
}

/*
 * The host's page comes with the answer: this guest asks for all it knows first, and then for what
 * is offered. There is no other host to be answered by: a channel has one, and ends with it.
 */
static int ask_by_hypercall(struct tmem_client *client)
{
	const struct tmem_host_page *host = &client->window.header->host;
	int error = request_by_hypercall(client, ~0ULL);

	if (error == -EPERM && tmem_read(&host->register_status) == TMEM_STATUS_UNSUPPORTED)
		error = request_by_hypercall(client, tmem_read(&host->features_offered));
	tmem_write(&client->resets, tmem_read(&host->resets));
	return error;
}

/*
 * Asks until it is clear who has answered: a host that takes the window over between its
 * predecessor's answer and our look knows nothing of us.
 */
static int ask_host(struct tmem_client *client)
{
	const struct tmem_host_page *host = &client->window.header->host;
	int error = -EAGAIN;
	u32 attempt;

	for (attempt = 0; attempt < ASKED_MAX && error == -EAGAIN; attempt++) {
		u64 request = tmem_random() | 1;

		tmem_write(&client->resets, tmem_load_acquire(&host->resets));
		tmem_window_request(&client->window, request, tmem_read(&host->features_offered));
		error = wait_for_answer(client, request);
		if (error)
			return error;
		if (tmem_read(&host->resets) != client->resets)
			error = -EAGAIN;
	}
	return error;
}

static int register_locked(struct tmem_client *client)
{
	const struct tmem_host_page *host = &client->window.header->host;
	u32 kind;
	int error;

	tmem_store_release(&client->ready, 0ULL);
	tmem_pools_close(client, true);
	on_each_lane(client, tmem_lane_abort);
	tmem_wake(&client->waitq);
	error = tmem_by_hypercall(client) ? ask_by_hypercall(client) : ask_host(client);
	if (error)
		return error;
	tmem_replay_collect(client);
	on_each_lane(client, tmem_lane_reset);
	tmem_write(&client->unsent, 0ULL);
	tmem_write(&client->epoch, tmem_read(&host->epoch));
	tmem_credit_reset(&client->credit);
	tmem_write(&client->rung, 0U);
	for (kind = 0; kind < TMEM_KINDS; kind++)
		tmem_breaker_close(&client->breakers[kind]);
	tmem_write(&client->replaying, 1U);
	tmem_store_release(&client->ready, ++client->registrations);
	tmem_pools_open(client);
	tmem_replay_run(client, REPLAY_WAIT_NS);
	tmem_store_release(&client->replaying, 0U);
	tmem_wake(&client->waitq);
	return 0;
}

/**
 * tmem_client_register - register, or start again after a reset
 * @client: client
 *
 * Whatever the host held is gone (K5), but for persistent puts it had not acknowledged: they are
 * put again. May sleep, 2 s at most.
 *
 * Return: 0; -EAGAIN: no answer; -EPERM: refused; -ENOTCONN: there is no host now; -EPROTO: no
 * common version; -EINVAL: the host does not like the window.
 */
int tmem_client_register(struct tmem_client *client)
{
	int error;

	tmem_mutex_lock(&client->admin);
	error = register_locked(client);
	tmem_mutex_unlock(&client->admin);
	return error;
}

static void renew_ephemeral_pools(struct tmem_client *client, u64 epoch)
{
	tmem_count(client, TMEM_COUNT_epochs);
	tmem_pools_close(client, false);
	tmem_write(&client->epoch, epoch);
	tmem_pools_open(client);
}

static void return_credits(struct tmem_client *client)
{
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_CREDIT_RETURN, 0, NULL, 0);
	u64 taken;

	desc.value = tmem_credit_take_excess(&client->credit);
	if (!desc.value)
		return;
	if (!tmem_control(client, &desc, &taken))
		tmem_count_many(client, TMEM_COUNT_credits_returned, taken);
}

/* Returns whether a lane needs the worker again. */
static bool tend_lanes(struct tmem_client *client)
{
	bool more = false;
	u32 at;

	for (at = 0; at < client->key_lanes; at++) {
		struct tmem_lane *lane = &client->lanes[at];
		bool reclaiming;

		do {
			unsigned long flags = tmem_lock(&lane->lock);

			tmem_reap(client, lane);
			reclaiming = tmem_table_reclaim(&lane->table, RECLAIM_STEPS);
			more |= tmem_drain_debt(client, lane);
			tmem_client_unlock(client, lane, flags);
		} while (reclaiming);
	}
	return more;
}

/* How long to let a host alone that did not register us. */
static u64 until_next_try(const struct tmem_client *client)
{
	u64 since_ns = tmem_now_ns() - client->register_failed_ns;

	if (!client->register_failed_ns || since_ns >= tmem_probe_ns(client))
		return 0;
	return tmem_probe_ns(client) - since_ns;
}

/* False: not now; again after so long. */
static bool register_again(struct tmem_client *client, u64 *again_ns)
{
	*again_ns = until_next_try(client);
	if (*again_ns)
		return false;
	if (register_locked(client)) {
		client->register_failed_ns = tmem_now_ns();
		*again_ns = tmem_probe_ns(client);
		return false;
	}
	client->register_failed_ns = 0;
	if (client->registrations > 1)
		tmem_count(client, TMEM_COUNT_resets);
	return true;
}

static bool has_pools(const struct tmem_client *client)
{
	u32 at;

	for (at = 0; at < TMEM_MAX_POOLS; at++) {
		if (client->pools[at].kind)
			return true;
	}
	return false;
}

static bool probe_lost_host(struct tmem_client *client)
{
	const struct tmem_host_page *host = &client->window.header->host;
	bool lost = false;
	u32 kind;

	for (kind = 0; kind < TMEM_KINDS; kind++)
		lost |= tmem_breaker_is_open(&client->breakers[kind], host);
	if (lost)
		tmem_client_probe(client);
	return lost;
}

/**
 * tmem_client_work - what has to be done in a context that may sleep
 * @client: client
 *
 * Return: call it again after so many nanoseconds; 0: when it is wanted.
 */
u64 tmem_client_work(struct tmem_client *client)
{
	const struct tmem_host_page *host = &client->window.header->host;
	u64 again_ns = 0;
	u64 epoch;

	tmem_mutex_lock(&client->admin);
	tmem_write(&client->wants_work, 0U);
	if ((!tmem_load_acquire(&client->ready) || tmem_read(&host->resets) != client->resets) &&
	    !register_again(client, &again_ns)) {
		tmem_mutex_unlock(&client->admin);
		return again_ns;
	}
	epoch = tmem_read(&host->epoch);
	if (epoch != client->epoch)
		renew_ephemeral_pools(client, epoch);
	return_credits(client);
	if (tend_lanes(client))
		again_ns = 2 * TMEM_NS_PER_MS;
	if (tmem_swap_drain(client))
		again_ns = 2 * TMEM_NS_PER_MS;
	if (tmem_replay_run(client, 0) && !again_ns)
		again_ns = tmem_probe_ns(client);
	if (probe_lost_host(client))
		again_ns = tmem_probe_ns(client);
	if (tmem_by_hypercall(client) &&
	    (has_pools(client) || (client->window.features & TMEM_FEATURE_SHRINK)) && !again_ns)
		again_ns = TMEM_REFRESH_NS;
	tmem_shrink_follow(client);
	tmem_mutex_unlock(&client->admin);
	tmem_client_kick(client, TMEM_KICK_OTHER);
	tmem_refresh(client, TMEM_REFRESH_NS);
	return again_ns;
}

/**
 * tmem_client_not_admitted - a page was not put although the kernel offered it
 * @client: client
 */
void tmem_client_not_admitted(struct tmem_client *client)
{
	tmem_count(client, TMEM_COUNT_puts_dropped_admission);
}

/**
 * tmem_client_count_of - a counter's value
 * @client: client
 * @counter: which
 */
u64 tmem_client_count_of(struct tmem_client *client, enum tmem_counter counter)
{
	return tmem_read(&client->counters[counter]);
}

/**
 * tmem_client_quarantined - slots whose get timed out and is not done yet
 * @client: client
 */
u32 tmem_client_quarantined(struct tmem_client *client)
{
	u32 quarantined = 0;
	u32 at;

	for (at = 0; at < client->key_lanes; at++)
		quarantined += tmem_read(&client->lanes[at].quarantined);
	return quarantined;
}
