/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the host wants back: page cache (shrink), and promised pages that are to go home (drain).
 *
 * 1. The host's figures are wishes. This side bounds each step, and its driver knows a floor.
 * 2. One driver, a worker that may sleep, calls tmem_shrink_work until it returns 0, and again when
 *    ops->shrink_soon asks for it. `busy` is set from that call until the 0.
 * 3. A drain is over when two looks at all areas, a store's longest wait apart, found nothing.
 */
#ifndef TMEM_CORE_SHRINK_H
#define TMEM_CORE_SHRINK_H

#include "platform.h"

struct tmem_client;

/* Clean pages of a step: half of what the usual window has slots for, so that few puts are lost. */
#define TMEM_SHRINK_STEP_PAGES 512U

/* Promised pages that one step brings home. */
#define TMEM_DRAIN_STEP_PAGES 64U

/**
 * struct tmem_shrink_ops - what this system can do; all of it may sleep
 * @step_pages: most that @reclaim is asked for at once
 * @reclaim: give up about so many pages of clean cache; returns how many. 0: none may go now.
 * @bring_home: take the page of a swap slot back and invalidate it. 0; -ENOENT: it is not in use;
 *	-EAGAIN: it changed meanwhile; -ENOMEM; -EIO: it cannot be read.
 * @free_slots: let slots that are not in use be invalidated
 */
struct tmem_shrink_ops {
	u32 step_pages;
	u64 (*reclaim)(void *context, u64 pages);
	int (*bring_home)(void *context, u32 area, u64 slot);
	void (*free_slots)(void *context);
};

struct tmem_shrink {
	u32 busy; /* the driver is at work, or asked to be */
	/* The driver's: */
	u64 registration; /* that the rest is of */
	bool unheard; /* the host has not answered the last news */
	u32 empty_steps; /* in a row */
	u32 waited; /* for the lanes, times */
	u32 drain; /* number of the one at work */
	u32 drained; /* number of the last one that has ended */
	u32 area; /* where its look at all areas is */
	u64 slot;
	u64 home_pages; /* not told yet */
	u32 left, unreadable, unused; /* slots of this look */
	u32 clean_looks; /* in a row */
	u32 short_looks; /* in a row that ended for want of memory */
};

bool tmem_shrink_wanted(struct tmem_client *client);
void tmem_shrink_follow(struct tmem_client *client);
u64 tmem_shrink_work(struct tmem_client *client, const struct tmem_shrink_ops *ops, void *context);

#endif /* TMEM_CORE_SHRINK_H */
