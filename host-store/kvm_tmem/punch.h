/* SPDX-License-Identifier: GPL-2.0-only */
/* Reports of free memory: resolved and dropped in the call that brings them. */
#ifndef KVM_TMEM_PUNCH_H
#define KVM_TMEM_PUNCH_H

#include <linux/types.h>

struct tmem_channel;
struct tmem_desc;
struct tmem_entry;
struct tmem_lane;
struct tmem_vm;

/* Whether the control lane is in the middle of a report. Its lock is held. */
bool punch_is_active(const struct tmem_channel *channel);

/*
 * Goes on with the report at the control lane's `taken`, or begins it. `desc`: as it was copied,
 * in the channel, at `offset` of the window; rewritten for the daemon, which only counts. `named`:
 * its slot, busy from then on. Answers 0: done; -EAGAIN: the call's time is over, the pages stay
 * the host's; -EFAULT. The lane's lock is held.
 */
int punch_report(struct tmem_entry *entry, struct tmem_channel *channel, struct tmem_lane *lane,
		 struct tmem_desc *desc, u64 offset, u16 *named);

/*
 * Returns when no other vCPU drops anything for a channel of this VM that has ended: the guest may
 * be told so then. At most as long as one piece takes.
 */
void punch_barrier(struct tmem_vm *vm);

#endif /* KVM_TMEM_PUNCH_H */
