// SPDX-License-Identifier: GPL-2.0-only
/* Swapped-out pages: between the kernel's hooks and the client. */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/blkdev.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/swap.h>
#include <linux/swapops.h>
#include <linux/tmem.h>

#include "core/fault.h"
#include "guest.h"

static struct tmem_client *the_client;

/* An area is its number and one, so that it is never NULL. */
static u32 number_of(void *area)
{
	return (u32)(unsigned long)area - 1;
}

static void *swapon(unsigned int type, unsigned long nr_slots, struct block_device *bdev)
{
	int error;

	if (tmem_bdev_encrypted(bdev) && !tmem_plaintext_allowed()) {
		pr_info("swap on %pg is encrypted: its pages stay here\n", bdev);
		return NULL;
	}
	error = tmem_swap_on(the_client, type, nr_slots);
	if (error) {
		pr_info("swap on %pg is not used (error %d)\n", bdev, error);
		return NULL;
	}
	return (void *)(unsigned long)(type + 1);
}

static void swapoff(void *area)
{
	tmem_swap_off(the_client, number_of(area));
}

/* All pages of the folio, or none (C12). */
static bool store_folio(u32 number, struct folio *folio)
{
	unsigned long slot = swp_offset(folio_swap_entry(folio));
	long nr = folio_nr_pages(folio);
	long at;

	for (at = 0; at < nr; at++) {
		if (tmem_swap_store(the_client, number, slot + at,
				    page_address(folio_page(folio, at))) == TMEM_SWAP_REFUSED)
			break;
	}
	if (at == nr) {
		tmem_fault_forget_tail(the_client, number, slot, nr);
		return true;
	}
	if (!tmem_fault(TMEM_FAULT_DROPPED_PUT_KEEPS_OLD))
		tmem_swap_invalidate(the_client, number, slot, nr);
	return false;
}

static enum tmem_store_result store(void *area, struct folio *folio)
{
	u32 number = number_of(area);

	if (!tmem_swap_offered(the_client, number, swp_offset(folio_swap_entry(folio)),
			       folio_nr_pages(folio), tmem_frontswap_enabled()))
		return TMEM_STORE_REFUSED;
	if (!store_folio(number, folio))
		return TMEM_STORE_REFUSED;
	return the_client->swap.kind == TMEM_POOL_PERSISTENT ? TMEM_STORE_KEPT :
							       TMEM_STORE_WRITE_THROUGH;
}

static void load(void *area, struct folio **folios, unsigned int nr,
		 enum tmem_load_result *results)
{
	static const enum tmem_load_result translated[] = {
		[TMEM_SWAP_DEVICE] = TMEM_LOAD_DEVICE,
		[TMEM_SWAP_HIT] = TMEM_LOAD_HIT,
		[TMEM_SWAP_ERROR] = TMEM_LOAD_ERROR,
	};
	enum tmem_swap_loaded loaded[TMEM_SWAP_LOAD_MAX];
	void *pages[TMEM_SWAP_LOAD_MAX];
	u64 slots[TMEM_SWAP_LOAD_MAX];
	unsigned int at;

	BUILD_BUG_ON(TMEM_LOAD_BATCH > TMEM_SWAP_LOAD_MAX);
	for (at = 0; at < nr; at++) {
		slots[at] = swp_offset(folio_swap_entry(folios[at]));
		pages[at] = folio_address(folios[at]);
	}
	tmem_swap_load(the_client, number_of(area), nr, slots, pages, loaded);
	for (at = 0; at < nr; at++)
		results[at] = translated[loaded[at]];
}

static void invalidate(void *area, unsigned long offset, unsigned long nr)
{
	tmem_swap_invalidate(the_client, number_of(area), offset, nr);
}

static void written(void *area, unsigned long offset, unsigned long nr)
{
	tmem_swap_written(the_client, number_of(area), offset, nr);
}

static const struct tmem_frontswap_ops ops = {
	.owner = THIS_MODULE,
	.swapon = swapon,
	.swapoff = swapoff,
	.store = store,
	.load = load,
	.invalidate = invalidate,
	.written = written,
};

/**
 * tmem_frontswap_start - become the store of swapped-out pages
 * @client: of the host
 *
 * Return: 0 or an error.
 */
int tmem_frontswap_start(struct tmem_client *client)
{
	bool persistent = tmem_frontswap_mode() == TMEM_FRONTSWAP_PERSISTENT;
	int error;

	if (!(client->window.features &
	      (persistent ? TMEM_FEATURE_PERSISTENT : TMEM_FEATURE_EPHEMERAL)))
		return -EOPNOTSUPP;
	error = tmem_swap_start(client, persistent ? TMEM_POOL_PERSISTENT : TMEM_POOL_EPHEMERAL);
	if (error)
		return error;
	the_client = client;
	return tmem_register_frontswap(&ops);
}
