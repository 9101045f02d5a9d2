// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that the host wants back: clean page cache, and swapped-out pages that are to go home.
 *
 * With the kernel patches the kernel is asked for both. Without them, or with tmem.shrink=user, a
 * program is asked for the page cache, by a uevent of /sys/kernel/tmem/shrink that carries
 * TMEM_SHRINK_BYTES; it answers by writing to given_bytes there.
 */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kobject.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

#ifdef CONFIG_TMEM_HOOKS
#include <linux/tmem.h>
#endif

#include "guest.h"

/* Steps follow each other so closely without going through the work queue, for so long. */
#define CLOSE_NS (2 * NSEC_PER_MSEC)
#define ROUND_NS (100 * NSEC_PER_MSEC)

/* A program is asked for more at once: it has to be started. */
#define USER_STEP_PAGES (64U << (20 - PAGE_SHIFT))
#define USER_PATIENCE (20 * HZ)

enum shrink_mode {
	SHRINK_OFF,
	SHRINK_KERNEL,
	SHRINK_USER,
};

static enum shrink_mode mode;
static uint floor_mb = 32;

static struct tmem_client *the_client; /* set once */

static struct {
	struct kobject kobject;
	struct completion answered;
	u64 given_bytes;
	bool complained;
} user;

static int shrink_set(const char *text, const struct kernel_param *param)
{
	if (sysfs_streq(text, "0"))
		mode = SHRINK_OFF;
	else if (sysfs_streq(text, "1"))
		mode = IS_ENABLED(CONFIG_TMEM_HOOKS) ? SHRINK_KERNEL : SHRINK_USER;
	else if (sysfs_streq(text, "user"))
		mode = SHRINK_USER;
	else
		return -EINVAL;
	return 0;
}

static int shrink_get(char *buffer, const struct kernel_param *param)
{
	static const char * const names[] = { "0", "1", "user" };

	return sysfs_emit(buffer, "%s\n", names[mode]);
}

static const struct kernel_param_ops shrink_ops = {
	.set = shrink_set,
	.get = shrink_get,
};
module_param_cb(shrink, &shrink_ops, NULL, 0444);
MODULE_PARM_DESC(shrink, "let the host ask for page cache and take swapped pages home (0|1|user)");
module_param_named(shrink_floor_mb, floor_mb, uint, 0644);
MODULE_PARM_DESC(shrink_floor_mb, "page cache that is kept whatever the host asks for");

/**
 * tmem_shrink_enabled - did the command line ask for it?
 */
bool tmem_shrink_enabled(void)
{
	return mode != SHRINK_OFF;
}

/* ---- what the kernel or a program can do -------------------------------------------------- */

/* Of file pages, those above the floor. */
static u64 above_floor(u64 pages)
{
	u64 file = global_node_page_state(NR_ACTIVE_FILE) +
		   global_node_page_state(NR_INACTIVE_FILE);
	u64 floor = (u64)READ_ONCE(floor_mb) << (20 - PAGE_SHIFT);

	return file <= floor ? 0 : min(pages, file - floor);
}

static u64 reclaim_by_user(u64 pages)
{
	char bytes[48];
	char *environment[2] = { bytes };

	snprintf(bytes, sizeof(bytes), "TMEM_SHRINK_BYTES=%llu", pages << PAGE_SHIFT);
	reinit_completion(&user.answered);
	if (!kobject_uevent_env(&user.kobject, KOBJ_CHANGE, environment) &&
	    wait_for_completion_timeout(&user.answered, USER_PATIENCE)) {
		/* A program's word: not more than there was to give. */
		return min(READ_ONCE(user.given_bytes) >> PAGE_SHIFT, pages * 2);
	}
	if (!user.complained)
		pr_err("shrink: no program gives page cache up; see tmem-shrink\n");
	user.complained = true;
	return 0;
}

static u64 reclaim(void *context, u64 pages)
{
	pages = above_floor(pages);
	if (!pages)
		return 0;
#ifdef CONFIG_TMEM_HOOKS
	if (mode == SHRINK_KERNEL)
		return reclaim_clean_file_pages(pages);
#endif
	return reclaim_by_user(pages);
}

static int bring_home(void *context, u32 area, u64 slot)
{
#ifdef CONFIG_TMEM_HOOKS
	return tmem_frontswap_bring_home(area, slot);
#else
	return -ENOENT; /* nothing was ever taken */
#endif
}

static void free_slots(void *context)
{
#ifdef CONFIG_TMEM_HOOKS
	tmem_frontswap_free_slots();
#endif
}

/* ---- the program's side ------------------------------------------------------------------- */

static ssize_t given_bytes_store(struct kobject *kobject, struct kobj_attribute *attribute,
				 const char *text, size_t length)
{
	u64 bytes;
	int error = kstrtou64(text, 0, &bytes);

	if (error)
		return error;
	WRITE_ONCE(user.given_bytes, bytes);
	complete(&user.answered);
	return length;
}

static struct kobj_attribute given_bytes = __ATTR_WO(given_bytes);

static struct attribute *user_attrs[] = {
	&given_bytes.attr,
	NULL,
};
ATTRIBUTE_GROUPS(user);

static void stays(struct kobject *kobject)
{
}

static struct kobj_type user_type = {
	.release = stays, /* never: nor is the module unloaded */
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = user_groups,
};

/* ---- the worker --------------------------------------------------------------------------- */

static struct tmem_shrink_ops ops __ro_after_init = {
	.step_pages = TMEM_SHRINK_STEP_PAGES,
	.reclaim = reclaim,
	.bring_home = bring_home,
	.free_slots = free_slots,
};

static void on_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(work, on_work);

/* Not on the queue of the client's worker, which what is done here may wait for. */
static void on_work(struct work_struct *unused)
{
	u64 until_ns = ktime_get_ns() + ROUND_NS;
	u64 again_ns;

	if (!the_client)
		return;
	do {
		again_ns = tmem_shrink_work(the_client, &ops, NULL);
		if (again_ns && again_ns <= CLOSE_NS)
			usleep_range(again_ns / NSEC_PER_USEC / 2, again_ns / NSEC_PER_USEC);
	} while (again_ns && again_ns <= CLOSE_NS && ktime_get_ns() < until_ns);
	if (again_ns)
		queue_delayed_work(system_unbound_wq, &work, nsecs_to_jiffies(again_ns));
}

/**
 * tmem_shrink_soon - the host wants something back
 */
void tmem_shrink_soon(void)
{
	queue_delayed_work(system_unbound_wq, &work, 0);
}

/**
 * tmem_shrink_start - do as the host wants, from now on
 * @client: client
 * @parent: directory in sysfs, of which uevents are
 */
void __init tmem_shrink_start(struct tmem_client *client, struct kset *parent)
{
	int error = 0;

	if (mode == SHRINK_OFF)
		return;
	if (mode == SHRINK_USER) {
		ops.step_pages = USER_STEP_PAGES;
		init_completion(&user.answered);
		user.kobject.kset = parent;
		error = parent ? kobject_init_and_add(&user.kobject, &user_type, NULL, "shrink") :
				 -ENOENT;
	}
	if (error) {
		pr_err("shrink is not available (error %d)\n", error);
		return;
	}
	if (mode == SHRINK_USER)
		kobject_uevent(&user.kobject, KOBJ_ADD);
	/* What was asked meanwhile. */
	smp_store_release(&the_client, client);
	tmem_shrink_soon();
}
