/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The contract between the host module kvm_tmem and the daemon: /dev/kvm_tmem.
 *
 * One process at a time has the device open (EBUSY); when its last fd goes, every channel ends.
 * A guest that registers waits on the device until the daemon accepts or refuses it. An accepted
 * guest is a *channel*: an fd of its own, whose memory is a window laid out as tmem_abi.h says. In
 * it the module plays the guest's part and the daemon the host's, by the rules of abi/README.md
 * without change; what the guest writes into its own window reaches the channel only in a
 * hypercall, as a copy that does not change any more.
 */
#ifndef KVM_TMEM_DEVICE_H
#define KVM_TMEM_DEVICE_H

#ifdef __KERNEL__
#include <linux/ioctl.h>
#include <linux/types.h>
#else
#include <linux/types.h>
#include <sys/ioctl.h>
#endif

/* NOLINTBEGIN(readability-identifier-naming): C */

#define KVM_TMEM_DEVICE_PATH "/dev/kvm_tmem"
#define KVM_TMEM_DEVICE_VERSION 1u

#define KVM_TMEM_CGROUP_BYTES 256
#define KVM_TMEM_LABEL_BYTES 16
#define KVM_TMEM_MAX_SLOTS 64

/* What the module was loaded with; its parameters may change at run time. */
struct kvm_tmem_info {
	__u32 version; /* KVM_TMEM_DEVICE_VERSION */
	__u32 max_guests;
	__u64 pool_limit_bytes; /* what the daemon may hold at most; 0: it decides itself */
	__u64 max_window_bytes;
	__u64 hypercall; /* number in rax */
};

/* A guest that waits, as it was when it registered. Nothing here comes from the guest. */
struct kvm_tmem_guest {
	__u64 channel; /* never used twice while the module is loaded */
	__u64 vm; /* the same for all registrations of one VM, never used twice */
	__u64 window_bytes;
	__u32 uid; /* effective, of the VMM, in the initial user namespace */
	__s32 tgid; /* of the VMM, in the initial pid namespace */
	char cgroup[KVM_TMEM_CGROUP_BYTES]; /* path in the unified hierarchy, "/" its root */
	char label[KVM_TMEM_LABEL_BYTES]; /* what the VMM calls itself: shown, never trusted */
};

struct kvm_tmem_accept {
	__u64 channel;
	__s32 kick_fd; /* eventfd, signalled when a lane has news and `awake` is 0 */
	__u32 zero;
};

/* A memory slot of the VM; `flags` as in KVM_SET_USER_MEMORY_REGION. */
struct kvm_tmem_slot {
	__u64 guest_address;
	__u64 bytes;
	__u32 flags;
	__u32 zero;
};

struct kvm_tmem_slots {
	__u32 count; /* in: room; out: slots of the VM, of which at most the room is filled in */
	__u32 zero;
	struct kvm_tmem_slot slots[KVM_TMEM_MAX_SLOTS];
};

#define KVM_TMEM_IOC 0xb7

/* On the device. It is readable (poll) while a guest waits that was not returned before. */
#define KVM_TMEM_INFO _IOR(KVM_TMEM_IOC, 0, struct kvm_tmem_info)
/* The guest that has waited longest and was not returned before. EAGAIN: none. */
#define KVM_TMEM_NEXT _IOR(KVM_TMEM_IOC, 1, struct kvm_tmem_guest)
/* Returns the channel's fd, close-on-exec. ENOENT: it does not wait any more. */
#define KVM_TMEM_ACCEPT _IOW(KVM_TMEM_IOC, 2, struct kvm_tmem_accept)
/* The guest is answered TMEM_HC_REFUSED. The argument points to the channel's number. */
#define KVM_TMEM_REFUSE _IOW(KVM_TMEM_IOC, 3, __u64)

/*
 * On a channel: mmap of window_bytes at offset 0, shared, read and write. EPOLLHUP (poll) once it
 * has ended: the VM is gone, registered anew, or unregistered; its memory stays mapped and goes
 * with the mapping. Closing and unmapping it ends it. Children do not inherit the mapping.
 */
/* What the daemon calls to notify: wakes the vCPUs that wait for `done`. Never sleeps. */
#define KVM_TMEM_COMPLETE _IO(KVM_TMEM_IOC, 16)
/* ENODEV: the channel has ended. */
#define KVM_TMEM_SLOTS _IOWR(KVM_TMEM_IOC, 17, struct kvm_tmem_slots)

/* NOLINTEND(readability-identifier-naming) */

#endif /* KVM_TMEM_DEVICE_H */
