/* SPDX-License-Identifier: GPL-2.0-only */
/* The core's platform in user space: for tests and for VMM authors' simulations. */
#ifndef TMEM_CORE_PLATFORM_USER_H
#define TMEM_CORE_PLATFORM_USER_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint8_t u8;

/* The kernel keeps its frames small with it; here they may be large. */
#define noinline

#define tmem_log(...) fprintf(stderr, "tmem: " __VA_ARGS__)

struct tmem_spin {
	pthread_mutex_t mutex;
};

static inline void tmem_lock_init(struct tmem_spin *lock)
{
	pthread_mutex_init(&lock->mutex, NULL);
}

static inline unsigned long tmem_lock(struct tmem_spin *lock)
{
	pthread_mutex_lock(&lock->mutex);
	return 0;
}

static inline void tmem_unlock(struct tmem_spin *lock, unsigned long flags)
{
	(void)flags;
	pthread_mutex_unlock(&lock->mutex);
}

/* May be held while sleeping; outermost. */
struct tmem_mutex {
	pthread_mutex_t mutex;
};

static inline void tmem_mutex_init(struct tmem_mutex *mutex)
{
	pthread_mutex_init(&mutex->mutex, NULL);
}

static inline void tmem_mutex_lock(struct tmem_mutex *mutex)
{
	pthread_mutex_lock(&mutex->mutex);
}

static inline void tmem_mutex_unlock(struct tmem_mutex *mutex)
{
	pthread_mutex_unlock(&mutex->mutex);
}

static inline void *tmem_alloc(size_t bytes)
{
	return calloc(1, bytes);
}

static inline void tmem_free(void *memory)
{
	free(memory);
}

static inline u32 tmem_popcount(u32 bits)
{
	return (u32)__builtin_popcount(bits);
}

#define tmem_load_acquire(pointer) __atomic_load_n(pointer, __ATOMIC_ACQUIRE)
#define tmem_store_release(pointer, value) __atomic_store_n(pointer, value, __ATOMIC_RELEASE)
#define tmem_read(pointer) __atomic_load_n(pointer, __ATOMIC_RELAXED)
#define tmem_write(pointer, value) __atomic_store_n(pointer, value, __ATOMIC_RELAXED)
#define tmem_fetch_add(pointer, value) __atomic_fetch_add(pointer, value, __ATOMIC_SEQ_CST)

static inline bool tmem_compare_swap(u64 *pointer, u64 old_value, u64 new_value)
{
	return __atomic_compare_exchange_n(pointer, &old_value, new_value, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

static inline bool tmem_compare_swap_shared(u32 *pointer, u32 old_value, u32 new_value)
{
	return __atomic_compare_exchange_n(pointer, &old_value, new_value, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

/* A read-modify-write is a full fence on x86 and, unlike a bare fence, known to TSan. */
static inline void tmem_full_fence(void)
{
	u32 word = 0;

	__atomic_fetch_add(&word, 1, __ATOMIC_SEQ_CST);
}

static inline u64 tmem_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (u64)now.tv_sec * 1000000000ULL + (u64)now.tv_nsec;
}

static inline void tmem_relax(void)
{
	sched_yield();
}

static inline void tmem_resched(void)
{
	sched_yield();
}

static inline u64 tmem_random(void)
{
	static u64 state;
	u64 hash = __atomic_add_fetch(&state, 0x9e3779b97f4a7c15ULL, __ATOMIC_RELAXED);

	hash ^= tmem_now_ns();
	hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
	hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
	return hash ^ (hash >> 31);
}

struct tmem_waitq {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
};

static inline void tmem_waitq_init(struct tmem_waitq *waitq)
{
	pthread_condattr_t attributes;

	pthread_mutex_init(&waitq->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&waitq->changed, &attributes);
	pthread_condattr_destroy(&attributes);
}

static inline void tmem_wake(struct tmem_waitq *waitq)
{
	pthread_mutex_lock(&waitq->mutex);
	pthread_cond_broadcast(&waitq->changed);
	pthread_mutex_unlock(&waitq->mutex);
}

/* Sleeps until ready(argument) holds, at most `timeout_ns`; says whether it does. */
static inline bool tmem_wait(struct tmem_waitq *waitq, bool (*ready)(void *), void *argument,
			     u64 timeout_ns)
{
	u64 deadline_ns = tmem_now_ns() + timeout_ns;
	struct timespec deadline = { (time_t)(deadline_ns / 1000000000ULL),
				     (long)(deadline_ns % 1000000000ULL) };
	bool is_ready;

	pthread_mutex_lock(&waitq->mutex);
	while (!(is_ready = ready(argument))) {
		if (pthread_cond_timedwait(&waitq->changed, &waitq->mutex, &deadline) == ETIMEDOUT)
			break;
	}
	pthread_mutex_unlock(&waitq->mutex);
	return is_ready || ready(argument);
}

#endif /* TMEM_CORE_PLATFORM_USER_H */
