// SPDX-License-Identifier: GPL-2.0-only
/* The guest module: finds a host, then offers itself to the kernel's hooks. */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/module.h>

#include "guest.h"

/* A loaded module that would do nothing is not kept; what is built in stays, of course. */
#define DOING_NOTHING (IS_BUILTIN(CONFIG_TMEM) ? 0 : -ENODEV)

static int __init tmem_init(void)
{
	struct kset *directory = NULL;
	struct tmem_client *client;
	int error;

	if (!tmem_cleancache_enabled() && tmem_frontswap_mode() == TMEM_FRONTSWAP_OFF &&
	    !tmem_reporting_enabled() && !tmem_shrink_enabled())
		return DOING_NOTHING;
	client = tmem_host_connect();
	if (IS_ERR(client)) {
		pr_err("no host found (error %ld), doing nothing\n", PTR_ERR(client));
		return PTR_ERR(client) == -ENODEV ? DOING_NOTHING : 0;
	}
	error = tmem_stats_create(client, &directory);
	if (error)
		pr_err("no figures in sysfs (error %d)\n", error);
	if (tmem_cleancache_enabled()) {
		error = tmem_cleancache_start(client);
		if (error)
			pr_err("cleancache is not available (error %d)\n", error);
	}
	if (tmem_frontswap_mode() != TMEM_FRONTSWAP_OFF) {
		error = tmem_frontswap_start(client);
		if (error)
			pr_err("frontswap is not available (error %d)\n", error);
	}
	tmem_reporting_start(client);
	tmem_shrink_start(client, directory);
	return 0;
}

/* No module_exit: the hooks hold on to the module for good. */
module_init(tmem_init);

MODULE_DESCRIPTION("Transcendent memory: gives cold pages and free memory to the host");
MODULE_LICENSE("GPL");
