// SPDX-License-Identifier: GPL-2.0-only
/* Clean page-cache pages: between the kernel's hooks and the client. */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/tmem.h>

#include "guest.h"

/* Pages of a large folio that one put copies: about 16 us with interrupts off (C12). */
#define LARGE_PUT_PAGES 16

static struct tmem_client *the_client;

/* A pool is its number and one, so that it is never NULL. */
static void *pool_of(int number)
{
	return (void *)(unsigned long)(number + 1);
}

static struct tmem_key key_of(void *pool, const struct tmem_object *object, u64 index)
{
	struct tmem_key key = {
		.pool = (u32)(unsigned long)pool - 1,
		.object = { object->id[0], object->id[1], object->id[2] },
		.index = index,
	};

	return key;
}

static void *init_fs(struct super_block *sb)
{
	int number;

	if (!tmem_fs_allowed(sb->s_type->name))
		return NULL;
	if (tmem_sb_encrypted(sb) && !tmem_plaintext_allowed()) {
		pr_info("%s is encrypted: its pages stay here\n", sb->s_id);
		return NULL;
	}
	number = tmem_pool_create(the_client, TMEM_POOL_EPHEMERAL);
	if (number < 0) {
		pr_info("too many file systems: pages of %s stay here\n", sb->s_id);
		return NULL;
	}
	return pool_of(number);
}

static void umount_fs(void *pool, struct super_block *sb)
{
	tmem_pool_destroy(the_client, (u32)(unsigned long)pool - 1);
}

/* Pages at the folio's start that are put; the rest is flushed. */
static unsigned long pages_to_put(struct folio *folio)
{
	if (!tmem_cleancache_enabled())
		return 0;
	/* Set on pages that were active and on those that refaulted. */
	if (tmem_admits_workingset_only() && !folio_test_workingset(folio))
		return 0;
	return min_t(unsigned long, folio_nr_pages(folio), LARGE_PUT_PAGES);
}

static void put(void *pool, const struct tmem_object *object, pgoff_t index, struct folio *folio)
{
	struct tmem_key key = key_of(pool, object, index);
	unsigned long number = pages_to_put(folio);
	unsigned long at;

	for (at = 0; at < number; at++, key.index++)
		tmem_put_page(the_client, &key, page_address(folio_page(folio, at)));
	if (number == folio_nr_pages(folio))
		return;
	tmem_client_not_admitted(the_client);
	tmem_flush_range(the_client, &key, index + folio_nr_pages(folio) - 1);
}

static bool may_hold(void *pool, const struct tmem_object *object, pgoff_t index, unsigned int nr)
{
	struct tmem_key key = key_of(pool, object, index);

	return tmem_may_hold(the_client, &key, nr);
}

/* Which folios are filled, of which pages are. Most folios are one page. */
static unsigned long filled_folios(struct folio **folios, unsigned int nr, u64 pages)
{
	unsigned long filled = 0;
	unsigned int at;

	for (at = 0; at < nr; at++) {
		u64 all = (2ULL << (folio_nr_pages(folios[at]) - 1)) - 1;

		if ((pages & all) == all)
			filled |= 1UL << at;
		pages >>= folio_nr_pages(folios[at]);
	}
	return filled;
}

static void get(void *pool, const struct tmem_object *object, struct folio **folios,
		unsigned int nr, unsigned long *hits)
{
	struct tmem_key key = key_of(pool, object, folios[0]->index);
	void *pages[TMEM_GET_MAX];
	unsigned int number = 0;
	unsigned int at;
	u64 found;

	BUILD_BUG_ON(TMEM_GET_BATCH > TMEM_GET_MAX);
	for (at = 0; at < nr; at++) {
		void *page = folio_address(folios[at]);
		void *end = page + folio_size(folios[at]);

		for (; page < end && number < TMEM_GET_MAX; page += PAGE_SIZE)
			pages[number++] = page;
	}
	if (!tmem_get_pages(the_client, &key, number, pages, &found))
		return;
	hits[0] = number == nr ? found : filled_folios(folios, nr, found);
}

static void invalidate(void *pool, const struct tmem_object *object, pgoff_t index,
		       unsigned long nr)
{
	struct tmem_key key = key_of(pool, object, index);

	if (nr)
		tmem_flush_range(the_client, &key, index + nr - 1);
}

static void invalidate_object(void *pool, const struct tmem_object *object)
{
	tmem_flush_object(the_client, (u32)(unsigned long)pool - 1, object->id);
}

static void invalidate_fs(void *pool)
{
	tmem_flush_pool(the_client, (u32)(unsigned long)pool - 1);
}

static const struct tmem_cleancache_ops ops = {
	.owner = THIS_MODULE,
	.init_fs = init_fs,
	.umount_fs = umount_fs,
	.put = put,
	.may_hold = may_hold,
	.get = get,
	.invalidate = invalidate,
	.invalidate_object = invalidate_object,
	.invalidate_fs = invalidate_fs,
};

/**
 * tmem_cleancache_start - become the store of clean pages
 * @client: of the host
 *
 * Return: 0 or an error.
 */
int tmem_cleancache_start(struct tmem_client *client)
{
	if (!(client->window.features & TMEM_FEATURE_EPHEMERAL))
		return -EOPNOTSUPP;
	the_client = client;
	return tmem_register_cleancache(&ops);
}
