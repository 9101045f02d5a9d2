/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Channels and the VMs they belong to.
 *
 * A channel is one registration of one VM: a window in host memory that module and daemon share.
 * It is linked (queued, offered, accepted) until the VM ends, registers anew or unregisters, the
 * daemon refuses or closes it, or a broken rule tears it down; whichever comes first unlinks it at
 * once. It is freed later, when nobody holds a reference: the link, the daemon's file with its
 * mappings, and the vCPUs that are in a call.
 *
 * No reference is held on a VM. A VM's record is found by the address of its struct kvm, from the
 * vCPU that makes the call, which keeps the VM; and it is unlinked by the hook on the VM's end.
 *
 * Locks, outermost first:
 *   channel->host_lock, lane->lock  mutexes, held across copies from and to the guest; of a
 *                                   channel a task holds one at a time
 *   vm->punching                    mutex, held across one system call; see punch.h
 *   table.lock                      spinlock in channel.c, taken with preemption off too
 *   channel->waits_lock             spinlock, nothing is taken under it
 * Waiting for the daemon is done with none of them held.
 */
#ifndef KVM_TMEM_CHANNEL_H
#define KVM_TMEM_CHANNEL_H

#include <linux/eventfd.h>
#include <linux/kref.h>
#include <linux/kvm_host.h>
#include <linux/mutex.h>
#include <linux/ratelimit.h>
#include <linux/refcount.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "abi/tmem_abi.h"
#include "host-store/kvm_tmem/device.h"

#define TMEM_MAX_LANES (TMEM_MAX_KEY_LANES + 1)

struct tmem_channel;
struct tmem_punch;

/* A VM that has registered once, until it ends. */
struct tmem_vm {
	struct hlist_node node; /* table.lock */
	struct kvm *kvm; /* the key; table.lock, NULL once it ended */
	u64 number; /* constant */
	struct tmem_channel __rcu *channel; /* table.lock; the linked one */
	u64 refused_request; /* table.lock; the daemon said no to it */
	bool gone; /* table.lock; the last channel ended, and not at the guest's wish */
	unsigned int held; /* table.lock; channels that are not freed */
	struct ratelimit_state registrations; /* table.lock */
	struct mutex punching; /* held while a piece of a report is dropped */
	refcount_t references; /* the table's and its channels' */
	struct rcu_head rcu;
};

enum tmem_channel_state {
	CHANNEL_QUEUED, /* waits for the daemon */
	CHANNEL_OFFERED, /* the daemon knows of it */
	CHANNEL_ACCEPTED,
	/* not linked any more: */
	CHANNEL_REFUSED,
	CHANNEL_ENDED,
};

/* What a taken descriptor named: a slot, or nothing. */
#define TMEM_NAMES_SLOT 0x8000u
#define TMEM_NAMES_GET 0x4000u
#define TMEM_NAMES_MASK 0x0fffu

/* The module's own side of a lane; all but the constants under `lock`. */
struct tmem_lane {
	struct mutex lock; /* see above */
	u64 offset; /* constant: in the window */
	u32 entries; /* constant */
	u32 slots; /* constant */
	u64 taken; /* descriptors copied into the channel */
	u64 done; /* descriptors whose results are in the guest's window; read without the lock */
	u16 *named; /* for each entry: what its descriptor named when it was taken */
	unsigned long *busy; /* slots that a taken descriptor names, until it is done */
	unsigned int waits; /* channel->waits_lock: vCPUs that sleep for this lane */
};

struct tmem_channel {
	struct kref references;
	struct rcu_work free_work;
	struct list_head link; /* table.lock */
	struct tmem_vm *vm; /* holds a reference on it */
	enum tmem_channel_state state; /* table.lock; read without it */
	struct kvm_tmem_guest guest; /* constant */

	/* The registration, as it was copied; constant. */
	struct tmem_geometry geometry;
	struct tmem_guest_page guest_page;
	u64 list_address;
	u64 pages;
	u64 *frames; /* guest frame number of each page of the guest's window */

	/* The shared window; the daemon may change it at any moment. */
	void *window;
	struct eventfd_ctx *kick; /* set before `state` becomes CHANNEL_ACCEPTED */
	wait_queue_head_t vcpus; /* wait for `register_answer` or `done` */
	wait_queue_head_t pollers; /* wait for the end */

	struct mutex host_lock; /* guards what the guest has of the host's page */
	struct tmem_host_page sent; /* host_lock: what the guest's window has */
	bool answered; /* host_lock: the guest has been given the daemon's answer */
	bool registered; /* host_lock; read without it: lanes are looked at */

	/* Of a daemon that owes something; without a lock, since one that is wrong harms nobody. */
	u64 heartbeat;
	u64 heard_ns;

	struct tmem_punch *punch; /* the control lane's lock; NULL before the first report */

	spinlock_t waits_lock; /* guards lane[].waits and the heads' `guest_waits` */
	unsigned int lanes; /* constant: key lanes and the control lane */
	struct tmem_lane lane[];
};

struct tmem_gauges {
	u64 channels;
	u64 guests_waiting;
	u64 channel_bytes;
};

int channels_create(void);
void channels_destroy(void);
void channels_measure(struct tmem_gauges *gauges);

/* From the hook: with preemption off, in any task. */
void channels_vm_ended(struct kvm *kvm);

/* The record of the VM whose vCPU makes the call, valid until the call ends; NULL: none. */
struct tmem_vm *vm_find(struct kvm *kvm);
struct tmem_vm *vm_find_or_create(struct kvm *kvm);
struct tmem_channel *vm_channel(struct tmem_vm *vm);

/* What a registration asks for, as it was copied and checked. */
struct tmem_registration {
	struct tmem_geometry geometry;
	struct tmem_guest_page guest_page;
	u64 list_address;
	u64 pages;
	u64 *frames; /* goes to the channel when one was made */
};

/*
 * Makes a channel, ends the VM's former one and queues the new one for the daemon; the caller has
 * a reference. Errors: -ENODEV no daemon, -EUSERS too many guests, -EBUSY not now (the daemon still
 * holds channels of this VM, or it registers all the time), -ENOMEM.
 */
struct tmem_channel *channel_create(struct tmem_vm *vm, struct tmem_registration *registration);
void channel_put(struct tmem_channel *channel);
void channel_end(struct tmem_channel *channel, bool gone);

static inline enum tmem_channel_state channel_state(const struct tmem_channel *channel)
{
	return smp_load_acquire(&channel->state); /* pairs with channel.c */
}

/* For the daemon (device.c). */
int channels_open(void);
void channels_close(void);
wait_queue_head_t *channels_waiting(void);
bool channels_any_queued(void);
bool channels_next(struct kvm_tmem_guest *guest);
struct tmem_channel *channel_find_waiting(u64 number);
bool channel_accept(struct tmem_channel *channel, struct eventfd_ctx *kick);
bool channel_refuse(struct tmem_channel *channel);
int channel_slots(struct tmem_channel *channel, struct kvm_tmem_slots *slots);

static inline struct tmem_header *channel_header(struct tmem_channel *channel)
{
	return channel->window;
}

static inline struct tmem_lane_head *lane_head(struct tmem_channel *channel,
					       const struct tmem_lane *lane)
{
	return channel->window + lane->offset;
}

#endif /* KVM_TMEM_CHANNEL_H */
