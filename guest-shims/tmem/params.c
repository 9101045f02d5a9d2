// SPDX-License-Identifier: GPL-2.0-only
/* The command line, and the switches that can be turned while the guest runs. */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/mm.h>
#include <linux/module.h>
#include <linux/string.h>

#include "guest.h"

/* Below the kernel's hung-task limit of 120 s. */
#define LOAD_TIMEOUT_MAX_S 100U

/* Keys for each page of RAM: files of up to four times the RAM can be held. 5 % of RAM. */
#define TABLE_KEYS_PER_PAGE 4

static bool cleancache;
module_param(cleancache, bool, 0644);
MODULE_PARM_DESC(cleancache, "give clean page-cache pages to the host (0|1)");

static enum tmem_frontswap_mode frontswap_mode; /* as it was when the module started */
static bool frontswap_on;

static int frontswap_set(const char *text, const struct kernel_param *param)
{
	bool started = param->arg && *(bool *)param->arg;

	if (sysfs_streq(text, "0")) {
		WRITE_ONCE(frontswap_on, false);
		return 0;
	}
	if (sysfs_streq(text, "writethrough")) {
		if (started && frontswap_mode != TMEM_FRONTSWAP_WRITETHROUGH)
			return -EBUSY;
		frontswap_mode = TMEM_FRONTSWAP_WRITETHROUGH;
	} else if (sysfs_streq(text, "1")) {
		if (started && frontswap_mode == TMEM_FRONTSWAP_OFF)
			return -EBUSY;
		if (!started)
			frontswap_mode = TMEM_FRONTSWAP_PERSISTENT;
	} else {
		return -EINVAL;
	}
	WRITE_ONCE(frontswap_on, true);
	return 0;
}

static int frontswap_get(char *buffer, const struct kernel_param *param)
{
	static const char * const names[] = { "0", "1", "writethrough" };

	return sysfs_emit(buffer, "%s\n", READ_ONCE(frontswap_on) ? names[frontswap_mode] : "0");
}

static const struct kernel_param_ops frontswap_ops = {
	.set = frontswap_set,
	.get = frontswap_get,
};

/* Set once the mode has been read: from then on it is a switch. */
static bool frontswap_started;
module_param_cb(frontswap, &frontswap_ops, &frontswap_started, 0644);
MODULE_PARM_DESC(frontswap, "give swapped-out pages to the host (0|1|writethrough)");

static char *transport = "auto";
module_param(transport, charp, 0444);
MODULE_PARM_DESC(transport, "way to the host (auto|hypercall|ivshmem)");

static ulong hypercall = TMEM_HYPERCALL_DEFAULT;
module_param(hypercall, ulong, 0444);
MODULE_PARM_DESC(hypercall, "number of the hypercall, as the host's kvm_tmem has it");

static bool workingset_only;

static int admission_set(const char *text, const struct kernel_param *param)
{
	workingset_only = sysfs_streq(text, "workingset");
	return workingset_only || sysfs_streq(text, "all") ? 0 : -EINVAL;
}

static int admission_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", workingset_only ? "workingset" : "all");
}

static const struct kernel_param_ops admission_ops = {
	.set = admission_set,
	.get = admission_get,
};

module_param_cb(admission, &admission_ops, NULL, 0444);
MODULE_PARM_DESC(admission, "clean pages to give (all|workingset)");

static uint load_timeout_s = 60;
module_param(load_timeout_s, uint, 0444);
MODULE_PARM_DESC(load_timeout_s, "seconds a swap-in waits for the host");

static char *fs = "ext4,xfs,btrfs";
module_param(fs, charp, 0444);
MODULE_PARM_DESC(fs, "file systems whose clean pages are given, of ext4,xfs,btrfs");

static bool plaintext;
module_param(plaintext, bool, 0444);
MODULE_PARM_DESC(plaintext, "also what lies encrypted on its device (0|1)");

static uint table_keys;
module_param(table_keys, uint, 0444);
MODULE_PARM_DESC(table_keys, "clean pages the host may hold (0: four times the RAM)");

/**
 * tmem_cleancache_enabled - may clean pages be given now?
 */
bool tmem_cleancache_enabled(void)
{
	return READ_ONCE(cleancache);
}

/**
 * tmem_frontswap_mode - what the command line asked for; fixed from the first call on
 */
enum tmem_frontswap_mode tmem_frontswap_mode(void)
{
	frontswap_started = true;
	return frontswap_mode;
}

/**
 * tmem_frontswap_enabled - may swapped-out pages be given now?
 */
bool tmem_frontswap_enabled(void)
{
	return READ_ONCE(frontswap_on);
}

/**
 * tmem_admits_workingset_only - C8
 */
bool tmem_admits_workingset_only(void)
{
	return workingset_only;
}

/**
 * tmem_plaintext_allowed - may the host see what lies encrypted on its device?
 */
bool tmem_plaintext_allowed(void)
{
	return plaintext;
}

static bool list_has(const char *list, const char *name)
{
	size_t length = strlen(name);

	while (list && *list) {
		if (!strncmp(list, name, length) && (list[length] == ',' || !list[length]))
			return true;
		list = strchr(list, ',');
		if (list)
			list++;
	}
	return false;
}

/**
 * tmem_fs_allowed - is this file system on the list? (C5)
 * @name: of its type
 */
bool tmem_fs_allowed(const char *name)
{
	return list_has("ext4,xfs,btrfs", name) && list_has(fs, name);
}

/**
 * tmem_load_timeout_s - how long a swap-in may wait
 */
u32 tmem_load_timeout_s(void)
{
	return clamp(load_timeout_s, 1U, LOAD_TIMEOUT_MAX_S);
}

/**
 * tmem_table_keys - clean pages that the host may hold
 */
u32 tmem_table_keys(void)
{
	u64 keys = table_keys ? table_keys : (u64)totalram_pages() * TABLE_KEYS_PER_PAGE;

	/* Cleancache cannot be turned on later. */
	if (!cleancache)
		keys = 0;
	return clamp_t(u64, keys, TMEM_TABLE_MIN_KEYS * TMEM_MAX_KEY_LANES, TMEM_TABLE_MAX_KEYS);
}

/**
 * tmem_transport_allowed - may this way to a host be tried?
 * @name: of the transport
 */
bool tmem_transport_allowed(const char *name)
{
	return sysfs_streq(transport, "auto") || sysfs_streq(transport, name);
}

/**
 * tmem_hypercall_number - what the host's module listens to
 */
u64 tmem_hypercall_number(void)
{
	return hypercall;
}
