// SPDX-License-Identifier: GPL-2.0-only
/* Figures: /sys/kernel/tmem/stats, one value a file. */
#include <linux/kobject.h>
#include <linux/sysfs.h>

#include "guest.h"

static struct tmem_client *the_client;

struct counter_file {
	struct kobj_attribute attribute;
	enum tmem_counter counter;
};

static ssize_t show_counter(struct kobject *kobject, struct kobj_attribute *attribute,
			    char *buffer)
{
	struct counter_file *file = container_of(attribute, struct counter_file, attribute);

	return sysfs_emit(buffer, "%llu\n", tmem_client_count_of(the_client, file->counter));
}

#define COUNTER_FILE(name)                                                                    \
	static struct counter_file file_##name = {                                            \
		.attribute = __ATTR(name, 0444, show_counter, NULL),                          \
		.counter = TMEM_COUNT_##name,                                                 \
	};
TMEM_COUNTERS(COUNTER_FILE)

static ssize_t quarantined_slots_show(struct kobject *kobject, struct kobj_attribute *attribute,
				      char *buffer)
{
	return sysfs_emit(buffer, "%u\n", tmem_client_quarantined(the_client));
}

static ssize_t credits_show(struct kobject *kobject, struct kobj_attribute *attribute,
			    char *buffer)
{
	return sysfs_emit(buffer, "%llu\n", tmem_credit_available(&the_client->credit));
}

static ssize_t table_keys_show(struct kobject *kobject, struct kobj_attribute *attribute,
			       char *buffer)
{
	u64 keys = 0;
	u32 at;

	for (at = 0; at < the_client->key_lanes; at++)
		keys += READ_ONCE(the_client->lanes[at].table.used);
	return sysfs_emit(buffer, "%llu\n", keys);
}

static struct kobj_attribute quarantined_slots = __ATTR_RO(quarantined_slots);
static struct kobj_attribute credits = __ATTR_RO(credits);
static struct kobj_attribute table_keys = __ATTR_RO(table_keys);

#define COUNTER_ATTRIBUTE(name) &file_##name.attribute.attr,
static struct attribute *attributes[] = {
	&quarantined_slots.attr,
	&credits.attr,
	&table_keys.attr,
	TMEM_COUNTERS(COUNTER_ATTRIBUTE)
	NULL,
};

static const struct attribute_group stats = {
	.name = "stats",
	.attrs = attributes,
};

/**
 * tmem_stats_create - make the files
 * @client: whose figures they show
 * @directory: set to where they are
 *
 * Return: 0 or an error.
 */
int tmem_stats_create(struct tmem_client *client, struct kset **directory)
{
	/* A set, because uevents come from members of sets only. */
	struct kset *set = kset_create_and_add("tmem", NULL, kernel_kobj);
	int error;

	if (!set)
		return -ENOMEM;
	the_client = client;
	error = sysfs_create_group(&set->kobj, &stats);
	if (error)
		kset_unregister(set);
	else
		*directory = set;
	return error;
}
