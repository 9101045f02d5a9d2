/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The guest side of one window: pools, pages, flushes, and what keeps them going.
 *
 * Who calls what: put, flush and invalidate functions from any context, under any lock of the
 * caller's, they do not sleep (C1). get, load, store, pool functions and tmem_client_work may
 * sleep. tmem_client_kick comes from a timer or interrupt, tmem_client_interrupt from the host's.
 *
 * Lock order, outermost first:
 *   client.admin (sleeps)	registration, pools
 *   lane.lock			a lane's ring, slots, table and debt; interrupts off; never two
 *   area.lock			bits and tags of a swap area; interrupts off
 * No page is copied, nothing is waited for or rung under lane.lock or area.lock.
 */
#ifndef TMEM_CORE_CLIENT_H
#define TMEM_CORE_CLIENT_H

#include "breaker.h"
#include "counters.h"
#include "credit.h"
#include "lane.h"
#include "shrink.h"
#include "swap.h"
#include "window.h"

/*
 * Ring for a lane when this many descriptors are new in it: a doorbell for 32 pages at most. By
 * hypercall, when as many are new in all lanes together: one hands them all over.
 */
#define TMEM_STAGED_MAX 32U

/* Publish a lane when this many descriptors are staged. */
#define TMEM_PUBLISHED_MIN 8U

/* Pages of one call of tmem_get_pages: their calls stand on the stack, 24 bytes each. */
#define TMEM_GET_MAX 32U

/* Ephemeral gets wait this long and a millisecond for each page, then miss. */
#define TMEM_GET_TIMEOUT_NS (100 * TMEM_NS_PER_MS)

/* Registration and pools: these waits sleep and hold up a mount at most. */
#define TMEM_CONTROL_TIMEOUT_NS (2 * TMEM_NS_PER_S)

/* While the host is lost the worker rings this often. */
#define TMEM_PROBE_NS TMEM_NS_PER_S

/* Hypercall: an idle guest looks this often what the host has announced. */
#define TMEM_REFRESH_NS TMEM_NS_PER_S

enum tmem_page_kind {
	TMEM_KIND_EPHEMERAL,
	TMEM_KIND_PERSISTENT,
	/* Stores give up after milliseconds, which must not fail loads: a slow host is not lost. */
	TMEM_KIND_STORE,
	TMEM_KINDS
};

/* Why the doorbell was rung. */
enum tmem_kick_reason {
	TMEM_KICK_PUT,
	TMEM_KICK_GET,
	TMEM_KICK_FLUSH,
	TMEM_KICK_OTHER,
};

/**
 * struct tmem_client_ops - what the core needs done by who drives it
 * @ring: ring the host's doorbell. No lock is held; any context. Not used with @hypercall.
 * @hypercall: NULL unless the doorbell is a hypercall. Enters the host for TMEM_HC_REGISTER,
 *	TMEM_HC_KICK or TMEM_HC_CALL with a set of lanes, and returns enum tmem_hypercall_answer, or
 *	anything else if there is no host. No lock is held; TMEM_HC_KICK in any context.
 * @kick_soon: call tmem_client_kick as soon as the caller's locks are gone. Any context.
 * @kick_later: call tmem_client_kick in about a millisecond; with @hypercall later, since each
 *	costs an exit. Any context.
 * @shrink_soon: call tmem_shrink_work in a context that may sleep for long; NULL: not able to. May
 *	come from tmem_client_work only.
 * @copy_page: copy 4096 bytes
 */
struct tmem_client_ops {
	void (*ring)(void *context);
	u32 (*hypercall)(void *context, enum tmem_hypercall operation, u64 lanes);
	void (*kick_soon)(void *context);
	void (*kick_later)(void *context);
	void (*shrink_soon)(void *context);
	void (*copy_page)(void *to, const void *from);
};

struct tmem_client_options {
	const struct tmem_client_ops *ops;
	void *context;
	u32 table_keys; /* of all lanes together */
	u64 get_timeout_ns;
	u64 load_timeout_ns;
	u64 spin_ns; /* look at the window for this long before sleeping ... */
	u64 spin_page_ns; /* ... and this long more for each page */
	bool shrink; /* the host may ask for memory */
	u64 probe_ns; /* how often a lost host is tried again; 0: TMEM_PROBE_NS */
};

/* A pool by the client's number; the host's handle changes with each epoch. */
struct tmem_pool {
	u64 handle; /* 0: not usable now */
	u32 kind; /* enum tmem_pool_kind; 0: free */
};

struct tmem_client {
	struct tmem_client_options options;
	struct tmem_window window;
	u32 key_lanes;
	struct tmem_lane *lanes; /* key_lanes, and the control lane */
	struct tmem_pool pools[TMEM_MAX_POOLS];
	struct tmem_credit credit;
	struct tmem_breaker breakers[TMEM_KINDS];
	struct tmem_swap swap;
	struct tmem_shrink shrink;
	struct tmem_mutex admin;
	struct tmem_waitq waitq;
	u64 ready; /* registered: the how-many-th time; 0: not now */
	u64 registrations;
	u64 register_failed_ns; /* when the worker's last try failed; 0: it did not */
	u32 replaying; /* registered, but persistent puts of before come first */
	u32 wants_work;
	u32 later_armed;
	u32 later_reason, soon_reason; /* enum tmem_kick_reason */
	u32 rung; /* and the host has not woken since: */
	u64 rung_heartbeat, rung_ns;
	u64 unsent; /* hypercall: of all lanes */
	u64 entered_ns; /* hypercall: the last one */
	u64 gone; /* hypercall: the registration that it said is over; 0: none */
	u64 epoch, resets;
	u64 counters[TMEM_COUNT_END];
};

/* client.c: life and upkeep */
int tmem_client_create(struct tmem_client *client, const struct tmem_client_options *options,
		       void *memory, u64 bytes);
void tmem_client_destroy(struct tmem_client *client);
int tmem_client_register(struct tmem_client *client);
u64 tmem_client_work(struct tmem_client *client);

/* kick.c: handing over and being told */
void tmem_client_kick(struct tmem_client *client, enum tmem_kick_reason reason);
void tmem_client_kick_soon(struct tmem_client *client);
void tmem_client_kick_later(struct tmem_client *client);
void tmem_client_ring(struct tmem_client *client, enum tmem_kick_reason reason);
bool tmem_client_interrupt(struct tmem_client *client);

/* pool.c */
int tmem_pool_create(struct tmem_client *client, enum tmem_pool_kind kind);
void tmem_pool_destroy(struct tmem_client *client, u32 pool);

/* page.c: ephemeral pages by key */
void tmem_put_page(struct tmem_client *client, const struct tmem_key *key, const void *page);
u32 tmem_get_pages(struct tmem_client *client, const struct tmem_key *first, u32 number,
		   void *const *pages, u64 *hits);

/* flush.c */
void tmem_flush_range(struct tmem_client *client, const struct tmem_key *first, u64 last);
void tmem_flush_object(struct tmem_client *client, u32 pool, const u64 object[3]);
void tmem_flush_pool(struct tmem_client *client, u32 pool);
bool tmem_may_hold(struct tmem_client *client, const struct tmem_key *first, u32 number);

/* report.c: ranges of free memory, which the caller keeps isolated meanwhile */
int tmem_report(struct tmem_client *client, struct tmem_report_range *ranges, u32 count);
bool tmem_may_report(const struct tmem_client *client);
bool tmem_is_connected(const struct tmem_client *client);
void tmem_client_report_skipped(struct tmem_client *client);

void tmem_client_not_admitted(struct tmem_client *client);
u64 tmem_client_count_of(struct tmem_client *client, enum tmem_counter counter);
u32 tmem_client_quarantined(struct tmem_client *client);

/* Same-filled pages travel as one word. */
bool tmem_page_is_filled(const void *page, u64 *word);
void tmem_page_fill(void *page, u64 word);

#endif /* TMEM_CORE_CLIENT_H */
