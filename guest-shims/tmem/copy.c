// SPDX-License-Identifier: GPL-2.0-only
/* Copying a page: what is fastest differs between processors and emulators, so it is measured. */
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/static_call.h>
#include <linux/string.h>

#include "guest.h"

/* Copies a routine is timed over, and runs of which the best counts. */
#define COPIES 64
#define RUNS 3

static void copy_by_memcpy(void *to, const void *from)
{
	memcpy(to, from, PAGE_SIZE);
}

static void copy_by_copy_page(void *to, const void *from)
{
	copy_page(to, (void *)from);
}

static void copy_by_words(void *to, const void *from)
{
	const u64 *source = from;
	u64 *target = to;
	unsigned int at;

	/* WRITE_ONCE keeps the compiler from making a memcpy of it. */
	for (at = 0; at < PAGE_SIZE / sizeof(u64); at += 4) {
		u64 a = source[at], b = source[at + 1];
		u64 c = source[at + 2], d = source[at + 3];

		WRITE_ONCE(target[at], a);
		WRITE_ONCE(target[at + 1], b);
		WRITE_ONCE(target[at + 2], c);
		WRITE_ONCE(target[at + 3], d);
	}
}

DEFINE_STATIC_CALL(tmem_copy, copy_by_memcpy);

static u64 __init best_time(void (*copy)(void *to, const void *from), void *to, void *from)
{
	u64 best_ns = U64_MAX;
	int run, at;

	for (run = 0; run < RUNS; run++) {
		u64 start_ns = ktime_get_ns();

		for (at = 0; at < COPIES; at++)
			copy(to, from);
		best_ns = min(best_ns, ktime_get_ns() - start_ns);
	}
	return best_ns;
}

/**
 * tmem_copy_choose - measure the routines and use the fastest
 *
 * Return: its name.
 */
const char * __init tmem_copy_choose(void)
{
	static const struct {
		const char *name;
		void (*copy)(void *to, const void *from);
	} routines[] = {
		{ "memcpy", copy_by_memcpy },
		{ "copy_page", copy_by_copy_page },
		{ "words", copy_by_words },
	};
	void *pages = (void *)__get_free_pages(GFP_KERNEL, 1);
	u64 best_ns = U64_MAX;
	int best = 0;
	int at;

	if (!pages)
		return routines[best].name;
	memset(pages, 0x5a, 2 * PAGE_SIZE);
	for (at = 0; at < ARRAY_SIZE(routines); at++) {
		u64 took_ns = best_time(routines[at].copy, pages, pages + PAGE_SIZE);

		if (took_ns < best_ns) {
			best_ns = took_ns;
			best = at;
		}
	}
	free_pages((unsigned long)pages, 1);
	static_call_update(tmem_copy, routines[best].copy);
	return routines[best].name;
}

/**
 * tmem_copy_page - copy a page with the routine chosen
 * @to: page
 * @from: page
 */
void tmem_copy_page(void *to, const void *from)
{
	static_call(tmem_copy)(to, from);
}
