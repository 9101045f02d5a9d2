/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the core needs from where it runs: locks, memory, barriers, time, chance, waiting.
 *
 * Both versions provide:
 *
 *   struct tmem_spin	tmem_lock_init, tmem_lock, tmem_unlock: interrupts off while held
 *   struct tmem_waitq	tmem_waitq_init, tmem_wait, tmem_wake: sleep until a condition holds
 *   memory		tmem_alloc (zeroed, may sleep), tmem_free
 *   barriers		tmem_load_acquire, tmem_store_release, tmem_full_fence,
 *			tmem_read, tmem_write (atomic, unordered)
 *   atomics		tmem_fetch_add, tmem_compare_swap on u64;
 *			tmem_compare_swap_shared on u32 that the host changes too
 *   time and chance	tmem_now_ns, tmem_relax, tmem_resched, tmem_random
 *   tmem_log		a line in the log of this system
 */
#ifndef TMEM_CORE_PLATFORM_H
#define TMEM_CORE_PLATFORM_H

#ifdef __KERNEL__
#include "platform_kernel.h"
#else
#include "platform_user.h"
#endif

#include "abi/tmem_abi.h"

#define TMEM_NS_PER_US 1000ULL
#define TMEM_NS_PER_MS 1000000ULL
#define TMEM_NS_PER_S 1000000000ULL

#endif /* TMEM_CORE_PLATFORM_H */
