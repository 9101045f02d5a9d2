// SPDX-License-Identifier: GPL-2.0-only
/* Copying a page: what is fastest differs between processors and emulators, so it is measured. */
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/ktime.h>
#include <linux/mm.h>
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

/* Eight words a step: the loop itself costs as much as two of them under emulation. */
static void copy_by_words(void *to, const void *from)
{
	const u64 *source = from;
	const u64 *end = from + PAGE_SIZE;
	u64 *target = to;

	/* WRITE_ONCE keeps the compiler from making a memcpy of it. */
	for (; source != end; source += 8, target += 8) {
		u64 a = source[0], b = source[1], c = source[2], d = source[3];

		WRITE_ONCE(target[0], a);
		WRITE_ONCE(target[1], b);
		WRITE_ONCE(target[2], c);
		WRITE_ONCE(target[3], d);
		a = source[4];
		b = source[5];
		c = source[6];
		d = source[7];
		WRITE_ONCE(target[4], a);
		WRITE_ONCE(target[5], b);
		WRITE_ONCE(target[6], c);
		WRITE_ONCE(target[7], d);
	}
}

static u64 __init best_time(tmem_copy_function *copy, void *to, void *from)
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
 * tmem_copy_choose - measure the routines
 * @name: set to the name of the fastest
 *
 * Return: the fastest.
 */
tmem_copy_function __init *tmem_copy_choose(const char **name)
{
	static const struct {
		const char *name;
		tmem_copy_function *copy;
	} routines[] = {
		{ "memcpy", copy_by_memcpy },
		{ "copy_page", copy_by_copy_page },
		{ "words", copy_by_words },
	};
	void *pages = (void *)__get_free_pages(GFP_KERNEL, 1);
	u64 best_ns = U64_MAX;
	int best = 0;
	int at;

	*name = routines[best].name;
	if (!pages)
		return routines[best].copy;
	memset(pages, 0x5a, 2 * PAGE_SIZE);
	for (at = 0; at < ARRAY_SIZE(routines); at++) {
		u64 took_ns = best_time(routines[at].copy, pages, pages + PAGE_SIZE);

		if (took_ns < best_ns) {
			best_ns = took_ns;
			best = at;
		}
	}
	free_pages((unsigned long)pages, 1);
	*name = routines[best].name;
	return routines[best].copy;
}
