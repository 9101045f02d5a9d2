// SPDX-License-Identifier: GPL-2.0-only
/* Pools by the client's number, and the control lane. */
#include "internal.h"

/**
 * tmem_control - one operation of the control lane, waited for
 * @client: client, admin held
 * @desc: descriptor
 * @value: set to the result's value
 *
 * Return: 0; -EIO: refused; -ETIMEDOUT: not answered.
 */
int tmem_control(struct tmem_client *client, const struct tmem_desc *desc, u64 *value)
{
	struct tmem_lane *lane = &client->lanes[client->key_lanes];
	struct tmem_record record = tmem_record_of(desc->op);
	struct tmem_call call;
	struct tmem_batch batch = { .calls = &call };
	unsigned long flags;

	if (!tmem_is_registered(client))
		return -ENODEV;
	flags = tmem_lock(&lane->lock);
	if (!tmem_make_room(client, lane, 0)) {
		tmem_client_unlock(client, lane, flags);
		return -ETIMEDOUT;
	}
	record.call = tmem_batch_add(&batch, lane);
	tmem_lane_stage(lane, desc, &record);
	tmem_client_unlock(client, lane, flags);
	tmem_batch_wait(client, &batch, tmem_now_ns() + TMEM_CONTROL_TIMEOUT_NS, TMEM_KICK_OTHER);
	if (call.status == TMEM_STATUS_NONE)
		return -ETIMEDOUT;
	*value = call.value;
	return call.status == TMEM_STATUS_OK ? 0 : -EIO;
}

/* Gives a pool its handle. */
static int open_pool(struct tmem_client *client, struct tmem_pool *pool)
{
	struct tmem_desc desc = tmem_desc_of(TMEM_OP_POOL_CREATE, 0, NULL, 0);
	u64 handle;
	int error;

	desc.value = pool->kind;
	error = tmem_control(client, &desc, &handle);
	if (!error)
		tmem_store_release(&pool->handle, handle);
	return error;
}

/* Lets every lane forget a pool that has lost its handle; afterwards nobody uses the old one. */
static void forget_pool(struct tmem_client *client, u32 pool)
{
	u32 at;

	for (at = 0; at < client->key_lanes; at++) {
		struct tmem_lane *lane = &client->lanes[at];
		unsigned long flags = tmem_lock(&lane->lock);

		tmem_table_forget_pool(&lane->table, pool);
		tmem_debt_forget_pool(&lane->debt, pool);
		lane->hints |= TMEM_HINT_WORK;
		tmem_client_unlock(client, lane, flags);
	}
}

/**
 * tmem_pools_close - the host has dropped pools
 * @client: client, admin held
 * @persistent_too: after a reset; an epoch ends ephemeral pools only
 */
void tmem_pools_close(struct tmem_client *client, bool persistent_too)
{
	u32 at;

	for (at = 0; at < TMEM_MAX_POOLS; at++) {
		struct tmem_pool *pool = &client->pools[at];

		if (!pool->kind || (pool->kind == TMEM_POOL_PERSISTENT && !persistent_too))
			continue;
		tmem_store_release(&pool->handle, 0ULL);
		forget_pool(client, at);
	}
}

/**
 * tmem_pools_open - create every pool that has no handle
 * @client: client, admin held
 */
void tmem_pools_open(struct tmem_client *client)
{
	u32 at;

	for (at = 0; at < TMEM_MAX_POOLS; at++) {
		struct tmem_pool *pool = &client->pools[at];

		if (pool->kind && !pool->handle && open_pool(client, pool))
			tmem_log("the host refuses a pool\n");
	}
}

/**
 * tmem_pool_create - a new pool
 * @client: client
 * @kind: of its pages
 *
 * Without a host it stays empty until one has registered. May sleep.
 *
 * Return: its number, or -ENOSPC.
 */
int tmem_pool_create(struct tmem_client *client, enum tmem_pool_kind kind)
{
	int number = -ENOSPC;
	u32 at;

	tmem_mutex_lock(&client->admin);
	for (at = 0; at < TMEM_MAX_POOLS && number < 0; at++) {
		if (client->pools[at].kind)
			continue;
		client->pools[at].kind = kind;
		number = (int)at;
		if (client->pools[at].handle && tmem_fault(TMEM_FAULT_HANDLE_WITHOUT_GENERATION))
			break;
		if (tmem_is_registered(client) && open_pool(client, &client->pools[at]))
			tmem_log("the host refuses a pool\n");
	}
	tmem_mutex_unlock(&client->admin);
	/* From now on it looks at the host now and then. */
	if (tmem_by_hypercall(client))
		tmem_want_work(client);
	return number;
}

/**
 * tmem_pool_destroy - the end of a pool and all it holds
 * @client: client
 * @pool: its number, free afterwards
 *
 * No put can land after this (C4). May sleep.
 */
void tmem_pool_destroy(struct tmem_client *client, u32 pool)
{
	u64 handle, value;
	struct tmem_desc desc;

	tmem_mutex_lock(&client->admin);
	if (tmem_fault(TMEM_FAULT_HANDLE_WITHOUT_GENERATION)) {
		client->pools[pool].kind = 0;
		tmem_mutex_unlock(&client->admin);
		return;
	}
	handle = client->pools[pool].handle;
	desc = tmem_desc_of(TMEM_OP_POOL_DESTROY, handle, NULL, 0);
	tmem_store_release(&client->pools[pool].handle, 0ULL);
	forget_pool(client, pool);
	if (handle)
		tmem_control(client, &desc, &value);
	client->pools[pool].kind = 0;
	tmem_mutex_unlock(&client->admin);
}
