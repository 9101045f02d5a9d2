// SPDX-License-Identifier: GPL-2.0-only
/*
 * Free-page reporting: memory that the guest has free goes back to the host, which may drop it.
 *
 * The kernel's page reporting collects free pages of an order, isolates them, and asks the one who
 * is registered with it; there is one place for that, and virtio-balloon is the other who wants it.
 * Until reporting is turned on for the first time its static key is off and nothing is paid.
 */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/page_reporting.h>
#include <linux/poison.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/vmstat.h>
#include <linux/workqueue.h>

#include <linux/cc_platform.h>

#include "core/fault.h"
#include "guest.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/* A host that refuses has a reason that will not go away at once: a migration, a device. */
#define REFUSED_PAUSE (10 * HZ)

/* So long after the last report little is being freed any more. */
#define QUIET (5 * HZ)

/* Less than this in the lists of all CPUs is not worth emptying them: 4 MiB. */
#define WORTH_DRAINING (SZ_4M >> PAGE_SHIFT)

/*
 * After a report that came to nothing the kernel tries again only when more memory is freed, which
 * may be never. The first time is when it would look again itself; an idle guest without a host
 * wakes once in the longest.
 */
#define FIRST_RETRY (2 * HZ)
#define LONGEST_RETRY (64 * HZ)

static bool wanted; /* tmem.reporting */
static uint order;
static uint floor_mb;

static struct tmem_client *the_client; /* set once */
static DEFINE_MUTEX(slot_lock); /* guards `holds_slot` and the changes of it; outermost */
static bool holds_slot;
static unsigned long paused_until; /* of reports only, one at a time; 0: not */

static unsigned long retry_after = FIRST_RETRY; /* of reports only */

/* Of reports only, one at a time: too large for a stack. */
static struct tmem_report_range ranges[PAGE_REPORTING_CAPACITY];

static_assert(PAGE_REPORTING_CAPACITY <= TMEM_MAX_REPORT_RANGES);

static bool little_is_free(void)
{
	u64 free_mb = global_zone_page_state(NR_FREE_PAGES) >> (20 - PAGE_SHIFT);

	return free_mb < READ_ONCE(floor_mb);
}

#ifndef MODULE
static unsigned long per_cpu_pages(void)
{
	unsigned long pages = 0;
	struct zone *zone;
	int cpu;

	for_each_populated_zone(zone)
		for_each_online_cpu(cpu)
			pages += READ_ONCE(per_cpu_ptr(zone->per_cpu_pageset, cpu)->count);
	return pages;
}

/*
 * Each CPU keeps freed pages in lists of its own, all CPUs up to the zone's low watermark: tens of
 * MiB where huge pages have raised it. An idle CPU keeps them for good, and nobody reports them.
 * Back among the free pages, they are reported when they make up pieces of that order.
 */
static void empty_per_cpu_lists(struct work_struct *unused)
{
	if (READ_ONCE(wanted) && per_cpu_pages() >= WORTH_DRAINING)
		drain_all_pages(NULL);
}

static DECLARE_DELAYED_WORK(quiet_work, empty_per_cpu_lists);

/* While reports follow each other, memory is being taken and freed, and the lists are of use. */
static void drain_when_quiet(void)
{
	mod_delayed_work(system_long_wq, &quiet_work, QUIET);
}
#else
/* The kernel does not export it. */
static void drain_when_quiet(void)
{
}
#endif

static void trace_range(const struct tmem_report_range *range, int error)
{
	unsigned long pfn = range->address >> PAGE_SHIFT;
	unsigned int range_order = get_order(range->bytes);

	if (error == -ETIMEDOUT)
		trace_tmem_range_withdrawn(pfn, range_order);
	else if (error == -ECONNRESET)
		trace_tmem_range_returned(pfn, range_order);
	else if (error || range->status != TMEM_STATUS_OK)
		trace_tmem_range_refused(pfn, range_order);
	else
		trace_tmem_range_reported(pfn, range_order);
}

static void retry(struct work_struct *unused);
static DECLARE_DELAYED_WORK(retrying, retry);

static int report_once(struct scatterlist *list, unsigned int count)
{
	struct scatterlist *entry;
	unsigned int at;
	int error;

	if (!READ_ONCE(wanted))
		return -ECANCELED;
	if (paused_until && time_before(jiffies, paused_until))
		return -EAGAIN;
	paused_until = 0;
	if (little_is_free()) {
		tmem_client_report_skipped(the_client);
		return -EAGAIN;
	}
	memset(ranges, 0, sizeof(ranges));
	for_each_sg(list, entry, count, at) {
		ranges[at].address = sg_phys(entry);
		ranges[at].bytes = entry->length;
	}
	drain_when_quiet();
	error = tmem_report(the_client, ranges, count);
	for (at = 0; at < count; at++)
		trace_range(&ranges[at], error);
	if (error == -EPERM)
		paused_until = (jiffies + REFUSED_PAUSE) | 1;
	return error;
}

/* Called by the kernel with isolated pages. An error leaves them to be reported another time. */
static int report(struct page_reporting_dev_info *unused, struct scatterlist *list,
		  unsigned int count)
{
	int error = report_once(list, count);

	if (!error) {
		retry_after = FIRST_RETRY;
	} else if (error != -ECANCELED && !tmem_fault(TMEM_FAULT_REPORT_RETURNS_EARLY)) {
		/* The fault hands a report over at the next one, when its pages are others'. */
		mod_delayed_work(system_long_wq, &retrying, retry_after);
		retry_after = min_t(unsigned long, 2 * retry_after, LONGEST_RETRY);
	}
	return error;
}

static struct page_reporting_dev_info device = {
	.report = report,
};

/* As the kernel does it when memory is freed, but now. */
static void retry(struct work_struct *unused)
{
	mutex_lock(&slot_lock);
	if (holds_slot && READ_ONCE(wanted))
		mod_delayed_work(system_freezable_wq, &device.work, 0);
	mutex_unlock(&slot_lock);
}

/* What a page reads as after it was dropped, zero, must be what a free page may hold (R3). */
static bool zero_is_legal(void)
{
	return PAGE_POISON == 0 || !page_poisoning_enabled();
}

static int check_host(void)
{
	if (tmem_is_connected(the_client) && !tmem_may_report(the_client)) {
		pr_err("reporting: the host does not take reports of this guest\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

static int check_guest(void)
{
	if (!zero_is_legal()) {
		pr_err("reporting: off, free pages are poisoned and must not read as zero\n");
		return -EINVAL;
	}
	if (cc_platform_has(CC_ATTR_MEM_ENCRYPT)) {
		pr_err("reporting: off, the host cannot drop encrypted memory\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

static int take_slot_locked(void)
{
	int error;

	lockdep_assert_held(&slot_lock);
	if (holds_slot)
		return 0;
	error = check_guest();
	if (!error)
		error = check_host();
	if (error)
		return error;
	device.order = order;
	error = page_reporting_register(&device);
	if (error == -EBUSY)
		pr_err("reporting: virtio-balloon reports free pages already; only one can\n");
	else if (error)
		pr_err("reporting: not available (error %d)\n", error);
	else
		pr_info("reporting: free memory goes back to the host\n");
	holds_slot = !error;
	return error;
}

/* A report that the host has taken is waited for, and nobody who turns a switch should. */
static void leave_slot(struct work_struct *unused)
{
	mutex_lock(&slot_lock);
	if (holds_slot && !READ_ONCE(wanted)) {
		page_reporting_unregister(&device);
		holds_slot = false;
	}
	mutex_unlock(&slot_lock);
}

static DECLARE_WORK(leaving, leave_slot);

/* Before the module has started only the wish is kept. */
static int reporting_set(const char *text, const struct kernel_param *param)
{
	bool on;
	int error = kstrtobool(text, &on);

	if (error)
		return error;
	if (!the_client) {
		wanted = on;
		return 0;
	}
	if (!on) {
		WRITE_ONCE(wanted, false);
		queue_work(system_long_wq, &leaving);
		return 0;
	}
	/* On its way out: a report is waited for. */
	if (!mutex_trylock(&slot_lock))
		return -EBUSY;
	WRITE_ONCE(wanted, true);
	error = take_slot_locked();
	if (error)
		WRITE_ONCE(wanted, false);
	mutex_unlock(&slot_lock);
	return error;
}

static const struct kernel_param_ops reporting_ops = {
	.set = reporting_set,
	.get = param_get_bool,
};
module_param_cb(reporting, &reporting_ops, &wanted, 0644);
MODULE_PARM_DESC(reporting, "give free memory back to the host (0|1)");
module_param_named(reporting_order, order, uint, 0644);
MODULE_PARM_DESC(reporting_order, "smallest pieces, 2^n pages, when turned on (0: huge pages)");
module_param_named(reporting_floor_mb, floor_mb, uint, 0644);
MODULE_PARM_DESC(reporting_floor_mb, "with less free memory than this nothing is reported");

/**
 * tmem_reporting_enabled - did the command line ask for it?
 */
bool tmem_reporting_enabled(void)
{
	return READ_ONCE(wanted);
}

static void start(void)
{
	mutex_lock(&slot_lock);
	if (wanted && take_slot_locked())
		WRITE_ONCE(wanted, false);
	mutex_unlock(&slot_lock);
}

#ifdef MODULE
#define start_now() start()
#else
#define start_now() do { } while (0)

/* After the drivers: a virtio-balloon that does not get the place fails as a whole. */
static int __init start_late(void)
{
	if (the_client)
		start();
	return 0;
}
late_initcall(start_late);
#endif

/**
 * tmem_reporting_start - report free memory to a host, from now on or later
 * @client: client
 */
void __init tmem_reporting_start(struct tmem_client *client)
{
	the_client = client;
	start_now();
}
