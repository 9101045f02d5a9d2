/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Faults on purpose: each switch brings one known bug back, so that a test that claims to find it
 * can be shown to. One at a time, by name: the parameter tmem.fault in a guest, tmem_fault_set in
 * user space. Without CONFIG_TMEM_FAULTS (there: with TMEM_NO_FAULTS) nothing of it is compiled.
 *
 * A switch stands where the code is that it breaks: `if (tmem_fault(TMEM_FAULT_...))`.
 */
#ifndef TMEM_CORE_FAULT_H
#define TMEM_CORE_FAULT_H

#include "platform.h"

struct tmem_client;
struct tmem_key;
struct tmem_lane;

/*
 * name, number, what is broken. The numbers of the three that the kernel's hooks have stand in
 * <linux/tmem_fault.h> too.
 */
#define TMEM_FAULTS(X)                                                                            \
	/* A put that is dropped, or a store that is refused, leaves the older copy (P2). */      \
	X(DROPPED_PUT_KEEPS_OLD, 1, "dropped-put-keeps-old")                                      \
	/* A direct write ends and what was stored meanwhile stays (C3). */                       \
	X(DIRECT_WRITE_NO_INVALIDATE, 2, "direct-write-no-invalidate")                            \
	/* The same, but only when nothing of the file is cached then (C3). */                    \
	X(DIRECT_WRITE_EMPTY_MAPPING, 3, "direct-write-empty-mapping")                            \
	/* A flush overtakes the put that is staged before it (F2). */                            \
	X(STALE_STAGED_PUT, 4, "stale-staged-put")                                                \
	/* A flush of a whole object reaches the first lane only (F1). */                         \
	X(OBJECT_FLUSH_ONE_LANE, 5, "object-flush-one-lane")                                      \
	/* The flush of a swap area comes after stores of the area's next life (F3). */           \
	X(AREA_FLUSH_LATE, 6, "area-flush-late")                                                  \
	/* A get names another pool than the file's (K1). */                                      \
	X(GET_OTHER_POOL, 7, "get-other-pool")                                                    \
	/* The lane of a file's page follows from the CPU as well (F2). */                        \
	X(LANE_PER_CPU, 8, "lane-per-cpu")                                                        \
	/* Removing a key hides those of its bucket until one is inserted there (C13). */         \
	X(TABLE_FORGETS_COLLISION, 9, "table-forgets-collision")                                  \
	/* The slot of a get that gave up is free at once (G5). */                                \
	X(LATE_COMPLETION_REUSE, 10, "late-completion-reuse")                                     \
	/* All pages of a large folio are stored, one bit is set (C12). */                        \
	X(THP_ONE_BIT, 11, "thp-one-bit")                                                         \
	/* A page that the host cannot give is read from the swap disk (C7). */                   \
	X(FAILED_LOAD_READS_DEVICE, 12, "failed-load-reads-device")                               \
	/* A get fills a page whose buffers are newer (C14). */                                   \
	X(GET_OVER_BUFFERS, 13, "get-over-buffers")                                               \
	/* A new pool has the very handle of the one that had its number, which lives on (K3). */ \
	X(HANDLE_WITHOUT_GENERATION, 14, "handle-without-generation")                             \
	/* A report returns at once; the host hears of it when the next one comes (R1). */        \
	X(REPORT_RETURNS_EARLY, 15, "report-returns-early")

enum tmem_fault {
	TMEM_FAULT_NONE,
#define TMEM_FAULT_NUMBER(name, number, text) TMEM_FAULT_##name = (number),
	TMEM_FAULTS(TMEM_FAULT_NUMBER)
#undef TMEM_FAULT_NUMBER
	TMEM_FAULT_END
};

/* The swap area that a late flush is due for has had so many new stores: flush it now. */
#define TMEM_FAULT_LATE_STORES 64U

#ifdef __KERNEL__
#define TMEM_HAS_FAULTS IS_ENABLED(CONFIG_TMEM_FAULTS)
#elif defined(TMEM_NO_FAULTS)
#define TMEM_HAS_FAULTS 0
#else
#define TMEM_HAS_FAULTS 1
#endif

#if TMEM_HAS_FAULTS

/**
 * struct tmem_inject - failures that are no bugs, without which some bugs would not show
 * @fail_loads: every so many loads of promised pages the host seems to have lost the page; 0: none
 * @late_gets: every so many calls of tmem_get_pages give up before the host is told; 0: none
 */
struct tmem_inject {
	u32 fail_loads;
	u32 late_gets;
};

extern struct tmem_inject tmem_inject;

#ifdef __KERNEL__
#include <linux/smp.h>
#include <linux/tmem_fault.h>

static inline u32 tmem_fault_cpu(void)
{
	return raw_smp_processor_id();
}

static inline u32 tmem_fault_delay_us(void)
{
	return tmem_faults_on() ? READ_ONCE(tmem_faults.delay_us) : 0;
}
#else
extern u32 tmem_fault_now; /* enum tmem_fault */
extern u32 tmem_fault_on_cpu; /* a test plays being on it */

static inline bool tmem_faults_on(void)
{
	return true;
}

static inline bool tmem_fault(u32 fault)
{
	return tmem_read(&tmem_fault_now) == fault;
}

static inline u32 tmem_fault_cpu(void)
{
	return tmem_fault_on_cpu;
}

static inline void tmem_delay(void)
{
}
#endif

/* Memory of switches only. */
static inline void *tmem_fault_alloc(size_t bytes)
{
	return tmem_alloc(bytes);
}

const char *tmem_fault_name(u32 fault);
int tmem_fault_of_name(const char *name);

void tmem_fault_forget_tail(struct tmem_client *client, u32 area, u64 slot, u64 count);
u32 tmem_fault_lane(const struct tmem_client *client, u64 handle, u32 lane);
bool tmem_fault_hold_area_flush(u32 area);
void tmem_fault_late_area_flush(struct tmem_client *client, u32 area);
void tmem_fault_late_report(struct tmem_client *client, struct tmem_lane *lane);
u64 tmem_fault_other_handle(struct tmem_client *client, const struct tmem_lane *lane,
			    const struct tmem_key *key, u64 handle);

bool tmem_inject_failed_load(void);
bool tmem_inject_late_get(void);

#else /* !TMEM_HAS_FAULTS: all that is asked is answered here */

#define tmem_fault(fault) false
#define tmem_fault_alloc(bytes) NULL
#define tmem_fault_lane(client, handle, lane) (lane)
#define tmem_fault_delay_us() 0U
#define tmem_fault_hold_area_flush(area) false
#define tmem_fault_late_area_flush(client, area) do { } while (0)
#define tmem_fault_late_report(client, lane) do { } while (0)
#define tmem_fault_forget_tail(client, area, slot, count) do { } while (0)
#define tmem_fault_other_handle(client, lane, key, handle) (handle)
#define tmem_inject_failed_load() false
#define tmem_inject_late_get() false
#define tmem_delay() do { } while (0)

#endif /* TMEM_HAS_FAULTS */

#endif /* TMEM_CORE_FAULT_H */
