/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the module share. */
#ifndef TMEM_GUEST_H
#define TMEM_GUEST_H

#include <linux/errno.h>
#include <linux/types.h>

#include "core/client.h"

struct kset;

/* What the command line asks for; of it, only the switches change afterwards. */
enum tmem_frontswap_mode {
	TMEM_FRONTSWAP_OFF,
	TMEM_FRONTSWAP_PERSISTENT,
	TMEM_FRONTSWAP_WRITETHROUGH,
};

/* params.c */
bool tmem_cleancache_enabled(void);
enum tmem_frontswap_mode tmem_frontswap_mode(void);
bool tmem_frontswap_enabled(void);
bool tmem_admits_workingset_only(void);
bool tmem_plaintext_allowed(void);
bool tmem_fs_allowed(const char *name);
u32 tmem_load_timeout_s(void);
u32 tmem_table_keys(void);
bool tmem_transport_allowed(const char *name);
u64 tmem_hypercall_number(void);

/* host.c */
struct tmem_client *tmem_host_connect(void);
void tmem_host_notified(void);

/* copy.c */
typedef void tmem_copy_function(void *to, const void *from);
tmem_copy_function *tmem_copy_choose(const char **name);

/* stats.c */
int tmem_stats_create(struct tmem_client *client, struct kset **directory);

/* cleancache.c, frontswap.c: only in a kernel with our patches */
#ifdef CONFIG_TMEM_HOOKS
int tmem_cleancache_start(struct tmem_client *client);
int tmem_frontswap_start(struct tmem_client *client);
#else
static inline int tmem_cleancache_start(struct tmem_client *client)
{
	return -EOPNOTSUPP;
}

static inline int tmem_frontswap_start(struct tmem_client *client)
{
	return -EOPNOTSUPP;
}
#endif

/* shrink.c */
bool tmem_shrink_enabled(void);
void tmem_shrink_soon(void);
void tmem_shrink_start(struct tmem_client *client, struct kset *parent);

/* reporting.c */
#ifdef CONFIG_PAGE_REPORTING
bool tmem_reporting_enabled(void);
void tmem_reporting_start(struct tmem_client *client);
#else
static inline bool tmem_reporting_enabled(void)
{
	return false;
}

static inline void tmem_reporting_start(struct tmem_client *client)
{
}
#endif

#endif /* TMEM_GUEST_H */
