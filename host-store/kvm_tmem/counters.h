/* SPDX-License-Identifier: GPL-2.0-only */
/* What happened, one number a file in /sys/class/misc/kvm_tmem/counters/. */
#ifndef KVM_TMEM_COUNTERS_H
#define KVM_TMEM_COUNTERS_H

#include <linux/atomic.h>
#include <linux/percpu.h>
#include <linux/types.h>

/* Reasons of refusal: name, what the guest is answered. */
#define TMEM_REFUSALS(reason) \
	reason(bad_argument, TMEM_HC_BAD_ARGUMENT) \
	reason(bad_address, TMEM_HC_BAD_ADDRESS) \
	reason(bad_version, TMEM_HC_BAD_VERSION) \
	reason(overlap, TMEM_HC_BAD_ARGUMENT) \
	reason(window_too_large, TMEM_HC_BAD_ARGUMENT) \
	reason(too_many_guests, TMEM_HC_REFUSED) \
	reason(no_memory, TMEM_HC_REFUSED) \
	reason(no_daemon, TMEM_HC_GONE) \
	reason(daemon, TMEM_HC_REFUSED) \
	reason(gone, TMEM_HC_GONE) \
	reason(not_registered, TMEM_HC_NOT_REGISTERED)

/* What KVM's own answer stands for: nothing is written over it. */
#define TMEM_UNANSWERED(reason) \
	reason(cpl) \
	reason(mode) \
	reason(hyperv)

#define TMEM_EVENTS(event) \
	event(hypercalls) \
	event(negotiates) \
	event(registers) \
	event(kicks) \
	event(calls) \
	event(unregisters) \
	event(pendings) \
	event(rings) \
	event(pages_in) \
	event(pages_out) \
	event(descs_in) \
	event(descs_out) \
	event(reports) \
	event(reports_refused) \
	event(report_bytes) \
	event(torn_down)

enum tmem_count {
#define TMEM_COUNT_EVENT(name) TMEM_COUNT_##name,
#define TMEM_COUNT_REFUSAL(name, answer) TMEM_COUNT_refused_##name,
#define TMEM_COUNT_UNANSWERED(name) TMEM_COUNT_refused_##name,
	TMEM_EVENTS(TMEM_COUNT_EVENT)
	TMEM_REFUSALS(TMEM_COUNT_REFUSAL)
	TMEM_UNANSWERED(TMEM_COUNT_UNANSWERED)
	TMEM_COUNTS
};

struct tmem_counts {
	u64 count[TMEM_COUNTS];
};

DECLARE_PER_CPU(struct tmem_counts, tmem_counts);

/**
 * tmem_count() - one more of something
 * @what: of what
 */
static inline void tmem_count(enum tmem_count what)
{
	this_cpu_inc(tmem_counts.count[what]);
}

/**
 * tmem_count_add() - more of something
 * @what: of what
 * @amount: how many
 */
static inline void tmem_count_add(enum tmem_count what, u64 amount)
{
	this_cpu_add(tmem_counts.count[what], amount);
}

/* The longest call since the module was loaded, and the longest without its waits for a CPU. */
extern atomic64_t tmem_entry_max_ns;
extern atomic64_t tmem_entry_run_max_ns;

/**
 * tmem_note_max() - raises a maximum
 * @max: since the module was loaded
 * @value: seen now
 */
static inline void tmem_note_max(atomic64_t *max, s64 value)
{
	s64 seen = atomic64_read(max);

	while (value > seen && !atomic64_try_cmpxchg(max, &seen, value))
		;
}

/* For the misc device: the folder counters/. */
extern const struct attribute_group *tmem_counter_groups[];

#endif /* KVM_TMEM_COUNTERS_H */
