/* SPDX-License-Identifier: GPL-2.0-only */
/* The parts of the module: parameters, and who begins and ends what. */
#ifndef KVM_TMEM_PARTS_H
#define KVM_TMEM_PARTS_H

#include <linux/types.h>

struct kvm_vcpu;

/* Parameters (main.c), read anew at each use. */
unsigned long tmem_hypercall_number(void);
u64 tmem_pool_limit_bytes(void);
unsigned int tmem_max_guests(void);
u64 tmem_max_window_bytes(void);

/* hook.c: the only way in from KVM. After hooks_remove() no task is in the module's text. */
int hooks_install(void);
void hooks_remove(void);

/* hypercall.c: acts on a hypercall with our number that KVM has answered already. */
void hypercall_act(struct kvm_vcpu *vcpu);

/* device.c: /dev/kvm_tmem. */
int tmem_device_create(void);
void tmem_device_remove(void);

#endif /* KVM_TMEM_PARTS_H */
