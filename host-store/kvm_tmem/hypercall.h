/* SPDX-License-Identifier: GPL-2.0-only */
/* The operations of the hypercall: each gives what goes into rax. */
#ifndef KVM_TMEM_HYPERCALL_H
#define KVM_TMEM_HYPERCALL_H

#include "host-store/kvm_tmem/counters.h"
#include "host-store/kvm_tmem/window.h"

/* Counts and traces a refusal; the answer that belongs to it. */
u64 hypercall_refuse(struct tmem_entry *entry, enum tmem_count reason);
u64 hypercall_pending(struct tmem_entry *entry, u64 lanes);

/* register.c */
u64 hypercall_register(struct tmem_entry *entry);

#endif /* KVM_TMEM_HYPERCALL_H */
