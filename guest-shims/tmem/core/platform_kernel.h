/* SPDX-License-Identifier: GPL-2.0-only */
/* The core's platform in the kernel. */
#ifndef TMEM_CORE_PLATFORM_KERNEL_H
#define TMEM_CORE_PLATFORM_KERNEL_H

#include <linux/bitops.h>
#include <linux/errno.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/random.h>
#include <linux/sched/mm.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/types.h>
#include <linux/wait.h>

#include <asm/cmpxchg.h>

#define tmem_log(...) pr_warn("tmem: " __VA_ARGS__)

struct tmem_spin {
	spinlock_t spin; /* guards what its owner says */
};

/* A macro, so that each place that initialises a lock is a class of lockdep. */
#define tmem_lock_init(lock) spin_lock_init(&(lock)->spin)

static inline unsigned long tmem_lock(struct tmem_spin *lock)
	__acquires(&lock->spin)
{
	unsigned long flags;

	spin_lock_irqsave(&lock->spin, flags);
	return flags;
}

static inline void tmem_unlock(struct tmem_spin *lock, unsigned long flags)
	__releases(&lock->spin)
{
	spin_unlock_irqrestore(&lock->spin, flags);
}

/* May be held while sleeping; outermost. */
struct tmem_mutex {
	struct mutex mutex; /* guards what its owner says */
};

#define tmem_mutex_init(lock) mutex_init(&(lock)->mutex)

static inline void tmem_mutex_lock(struct tmem_mutex *lock)
{
	mutex_lock(&lock->mutex);
}

static inline void tmem_mutex_unlock(struct tmem_mutex *lock)
{
	mutex_unlock(&lock->mutex);
}

/* Never starts I/O: the worker allocates on the way of reclaim. */
static inline void *tmem_alloc(size_t bytes)
{
	unsigned int noio = memalloc_noio_save();
	void *memory = kvzalloc(bytes, GFP_KERNEL | __GFP_NOWARN);

	memalloc_noio_restore(noio);
	return memory;
}

static inline void tmem_free(void *memory)
{
	kvfree(memory);
}

#define tmem_popcount(bits) hweight32(bits)

/* What pairs with what stands where they are used. */
#define tmem_load_acquire(pointer) smp_load_acquire(pointer)
/* The same. */
#define tmem_store_release(pointer, value) smp_store_release(pointer, value)
#define tmem_read(pointer) READ_ONCE(*(pointer))
#define tmem_write(pointer, value) WRITE_ONCE(*(pointer), value)
#define tmem_fetch_add(pointer, value) atomic64_fetch_add(value, (atomic64_t *)(pointer))

static inline bool tmem_compare_swap(u64 *pointer, u64 old_value, u64 new_value)
{
	return atomic64_cmpxchg((atomic64_t *)pointer, old_value, new_value) == old_value;
}

/*
 * In memory that the host changes too. Not cmpxchg: a kernel that finds itself on one processor
 * takes the lock prefix out of that.
 */
static inline bool tmem_compare_swap_shared(u32 *pointer, u32 old_value, u32 new_value)
{
	return sync_cmpxchg(pointer, old_value, new_value) == old_value;
}

/* mb, not smp_mb: the other side is another processor even if this guest has one. */
static inline void tmem_full_fence(void)
{
	mb(); /* the caller says with what it pairs */
}

static inline u64 tmem_now_ns(void)
{
	return ktime_get_ns();
}

static inline void tmem_relax(void)
{
	cpu_relax();
}

/* Lets others run who want to; may sleep. */
static inline void tmem_resched(void)
{
	cond_resched();
}

static inline u64 tmem_random(void)
{
	return get_random_u64();
}

struct tmem_waitq {
	wait_queue_head_t head;
};

#define tmem_waitq_init(waitq) init_waitqueue_head(&(waitq)->head)

static inline void tmem_wake(struct tmem_waitq *waitq)
{
	wake_up_all(&waitq->head);
}

/* Sleeps until ready(argument) holds, at most `timeout_ns`; says whether it does. */
static inline bool tmem_wait(struct tmem_waitq *waitq, bool (*ready)(void *), void *argument,
			     u64 timeout_ns)
{
	return wait_event_timeout(waitq->head, ready(argument), nsecs_to_jiffies(timeout_ns) + 1);
}

#endif /* TMEM_CORE_PLATFORM_KERNEL_H */
