/* SPDX-License-Identifier: GPL-2.0-only */
/* One lane of a channel: descriptors from the guest, results to the guest. */
#ifndef KVM_TMEM_LANE_H
#define KVM_TMEM_LANE_H

#include <linux/types.h>

struct tmem_channel;
struct tmem_entry;

/*
 * Answers of both: 0, also when some is left over because the entry's time or writes are used up;
 * -EFAULT the guest's window is not (all) RAM any more, what was done stays right; -EPROTO the
 * other side broke a rule [X3], the channel is to be torn down; -EINTR a signal.
 */

/* Copies what the guest posted into the channel. `left`: not all of it. */
int lane_take(struct tmem_entry *entry, struct tmem_channel *channel, unsigned int number,
	      bool *left);

/* Copies results up to descriptor `done`, which the daemon has completed, to the guest. */
int lane_complete(struct tmem_entry *entry, struct tmem_channel *channel, unsigned int number,
		  u64 done);

#endif /* KVM_TMEM_LANE_H */
