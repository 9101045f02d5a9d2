/* SPDX-License-Identifier: GPL-2.0-only */
/* Copies between a guest's window and the module; one call of a vCPU and its bounds. */
#ifndef KVM_TMEM_WINDOW_H
#define KVM_TMEM_WINDOW_H

#include <linux/ktime.h>
#include <linux/types.h>

struct kvm_vcpu;
struct tmem_channel;
struct tmem_registration;
struct tmem_vm;

/* A vCPU sleeps and takes no interrupts while it is here. */
#define TMEM_ENTRY_NS NSEC_PER_MSEC

/* The dirty ring of a vCPU keeps room for 64 pages; each write takes one. */
#define TMEM_ENTRY_WRITES 60u

/* One hypercall. */
struct tmem_entry {
	struct kvm_vcpu *vcpu;
	struct tmem_vm *vm; /* NULL: never registered */
	u64 operation;
	u64 argument[2];
	ktime_t deadline;
	unsigned int writes; /* that are left */
	bool took; /* something from a lane: no entry is without progress */
	bool moved; /* that has gone to the daemon */
};

static inline bool entry_is_late(const struct tmem_entry *entry)
{
	return ktime_after(ktime_get(), entry->deadline);
}

/* Within one page of the guest's window. The caller holds kvm->srcu, as every vCPU here. */
int window_read(struct tmem_entry *entry, struct tmem_channel *channel, u64 offset, void *data,
		unsigned int bytes);
/* Takes one of entry->writes, which the caller knows to be there. */
int window_write(struct tmem_entry *entry, struct tmem_channel *channel, u64 offset,
		 const void *data, unsigned int bytes);

/* The answers of a registration's checks that are not an answer of the ABI by themselves. */
enum window_check {
	WINDOW_GOOD,
	WINDOW_BAD_ADDRESS,
	WINDOW_OVERLAP,
	WINDOW_BAD_VERSION,
	WINDOW_BAD_GEOMETRY,
	WINDOW_NO_MEMORY,
};

/* Copies list, geometry and guest page once and checks them; frames are the caller's to free. */
enum window_check window_copy_registration(struct kvm_vcpu *vcpu,
					   struct tmem_registration *registration);

/* Reads only the first page's number and the request in it. */
int window_peek_request(struct kvm_vcpu *vcpu, u64 list_address, u64 *frame, u64 *request);

/*
 * Copies the channel's host page to the guest's if it changed. `register_answer` goes only with
 * `answer`, after all else. Returns 0, -EINTR or -EFAULT.
 */
int window_send_host_page(struct tmem_entry *entry, struct tmem_channel *channel);
int window_answer_registration(struct tmem_entry *entry, struct tmem_channel *channel);

#endif /* KVM_TMEM_WINDOW_H */
