// SPDX-License-Identifier: GPL-2.0-only
/* The counters' files: events are summed over the CPUs, gauges come from the table of channels. */

#include <linux/device.h>
#include <linux/sysfs.h>

#include "channel.h"
#include "counters.h"

DEFINE_PER_CPU(struct tmem_counts, tmem_counts);
atomic64_t tmem_entry_max_ns;
atomic64_t tmem_entry_run_max_ns;

struct counter_file {
	struct device_attribute attribute;
	enum tmem_count what;
};

static ssize_t show_count(struct device *device, struct device_attribute *attribute, char *text)
{
	struct counter_file *file = container_of(attribute, struct counter_file, attribute);
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(tmem_counts, cpu).count[file->what]);
	return sysfs_emit(text, "%llu\n", sum);
}

#define COUNTER_FILE(name) \
	static struct counter_file name##_file = { \
		.attribute = __ATTR(name, 0444, show_count, NULL), \
		.what = TMEM_COUNT_##name, \
	};
#define REFUSAL_FILE(name, answer) COUNTER_FILE(refused_##name)
#define UNANSWERED_FILE(name) COUNTER_FILE(refused_##name)

TMEM_EVENTS(COUNTER_FILE)
TMEM_REFUSALS(REFUSAL_FILE)
TMEM_UNANSWERED(UNANSWERED_FILE)

#define GAUGE_FILE(name) \
	static ssize_t name##_show(struct device *device, struct device_attribute *attribute, \
				   char *text) \
	{ \
		struct tmem_gauges gauges; \
\
		channels_measure(&gauges); \
		return sysfs_emit(text, "%llu\n", gauges.name); \
	} \
	static DEVICE_ATTR_RO(name)

GAUGE_FILE(channels);
GAUGE_FILE(guests_waiting);
GAUGE_FILE(channel_bytes);

#define MAXIMUM_FILE(name) \
	static ssize_t name##_us_show(struct device *device, struct device_attribute *attribute, \
				      char *text) \
	{ \
		return sysfs_emit(text, "%llu\n", \
				  atomic64_read(&tmem_##name##_ns) / NSEC_PER_USEC); \
	} \
	static DEVICE_ATTR_RO(name##_us)

MAXIMUM_FILE(entry_max);
MAXIMUM_FILE(entry_run_max);

#define COUNTER_ATTRIBUTE(name) (&name##_file.attribute.attr),
#define REFUSAL_ATTRIBUTE(name, answer) COUNTER_ATTRIBUTE(refused_##name)
#define UNANSWERED_ATTRIBUTE(name) COUNTER_ATTRIBUTE(refused_##name)

static struct attribute *counter_attributes[] = {
	&dev_attr_channels.attr,
	&dev_attr_guests_waiting.attr,
	&dev_attr_channel_bytes.attr,
	&dev_attr_entry_max_us.attr,
	&dev_attr_entry_run_max_us.attr,
	TMEM_EVENTS(COUNTER_ATTRIBUTE)
	TMEM_REFUSALS(REFUSAL_ATTRIBUTE)
	TMEM_UNANSWERED(UNANSWERED_ATTRIBUTE)
	NULL
};

static const struct attribute_group counter_group = {
	.name = "counters",
	.attrs = counter_attributes,
};

const struct attribute_group *tmem_counter_groups[] = { &counter_group, NULL };
