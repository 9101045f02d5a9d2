/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Swapped-out pages: bits and a tag for each slot of a swap area, and what they promise.
 *
 * 1. held: the host has the page, or will have it once the ring entry is executed.
 *    device: the swap device has it too (C7). lost: held, but a reset took it: an error.
 *    pending: the slot was freed, its flush is not posted yet.
 * 2. A page's key is (pool, {area number, 0, 0}, slot). A word of 32 slots lies in one lane, so a
 *    word of pending bits becomes range flushes of that lane.
 * 3. The pool is persistent, where each store takes a credit, or ephemeral (writethrough).
 *
 * area.lock guards bits and tags; it is taken within lane.lock where both are. 4.5 bytes a slot.
 */
#ifndef TMEM_CORE_SWAP_H
#define TMEM_CORE_SWAP_H

#include "platform.h"

struct tmem_client;
struct tmem_completion;
struct tmem_lane;

/* As many as Linux has (MAX_SWAPFILES is at most 32). */
#define TMEM_SWAP_AREAS 32U

/* Most pages of one tmem_swap_load. */
#define TMEM_SWAP_LOAD_MAX 16U

struct tmem_swap_area {
	struct tmem_spin lock;
	u64 slots;
	u32 *tags;
	u32 *held, *device, *lost, *pending; /* a bit a slot */
	u32 has_pending;
};

struct tmem_replay;

struct tmem_swap {
	u32 pool; /* the client's number of it */
	u32 kind; /* enum tmem_pool_kind; 0: no pool yet */
	struct tmem_swap_area *areas[TMEM_SWAP_AREAS];
	struct tmem_replay *replay; /* changed with client.admin held */
};

enum tmem_swap_stored {
	TMEM_SWAP_REFUSED, /* and nothing older is held either */
	TMEM_SWAP_KEPT,
};

enum tmem_swap_loaded {
	TMEM_SWAP_DEVICE, /* not held, or no longer and the device has it */
	TMEM_SWAP_HIT,
	TMEM_SWAP_ERROR,
};

int tmem_swap_start(struct tmem_client *client, u32 kind);
int tmem_swap_on(struct tmem_client *client, u32 area, u64 slots);
void tmem_swap_off(struct tmem_client *client, u32 area);
enum tmem_swap_stored tmem_swap_store(struct tmem_client *client, u32 area, u64 slot,
				      const void *page);
void tmem_swap_load(struct tmem_client *client, u32 area, u32 number, const u64 *slots,
		    void *const *pages, enum tmem_swap_loaded *results);
void tmem_swap_invalidate(struct tmem_client *client, u32 area, u64 slot, u64 number);
bool tmem_swap_offered(struct tmem_client *client, u32 area, u64 slot, u64 number, bool enabled);
void tmem_swap_written(struct tmem_client *client, u32 area, u64 slot, u64 number);

/* For the rest of the core. */
void tmem_swap_put_done(struct tmem_client *client, const struct tmem_completion *completion);
bool tmem_swap_drain(struct tmem_client *client);

void tmem_replay_collect(struct tmem_client *client);
bool tmem_replay_run(struct tmem_client *client, u64 wait_ns);
bool tmem_replay_read(struct tmem_client *client, u32 number, u64 slot, void *page);
void tmem_replay_forget(struct tmem_client *client);

#endif /* TMEM_CORE_SWAP_H */
