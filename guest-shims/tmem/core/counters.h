/* SPDX-License-Identifier: GPL-2.0-only */
/* What the guest counts: one name a reason; each is a file of /sys/kernel/tmem/stats. */
#ifndef TMEM_CORE_COUNTERS_H
#define TMEM_CORE_COUNTERS_H

#define TMEM_COUNTERS(X)                                                             \
	X(puts) /* staged */                                                         \
	X(puts_filled) /* of those, sent as one word */                              \
	X(puts_replaced) /* of those, in place of one not yet published */           \
	X(puts_cancelled) /* of those, taken back before they were published */      \
	X(puts_dropped_no_slot)                                                      \
	X(puts_dropped_no_ring)                                                      \
	X(puts_dropped_table) /* full, and no oldest key could be flushed */         \
	X(puts_dropped_debt) /* a flush of the key waits to be posted */             \
	X(puts_dropped_lost) /* breaker open */                                      \
	X(puts_dropped_no_pool)                                                      \
	X(puts_dropped_admission)                                                    \
	X(puts_refused_no_space) /* by the host */                                   \
	X(puts_refused_frozen)                                                       \
	X(puts_refused_other)                                                        \
	X(gets) /* pages asked for, by cleancache */                                 \
	X(get_hits)                                                                  \
	X(get_hits_local) /* of those, answered from a staged put */                 \
	X(get_misses) /* answered by the host */                                     \
	X(get_misses_local) /* answered by the table */                              \
	X(get_misses_debt) /* answered because a flush is owed */                    \
	X(get_misses_lost) /* answered because the breaker is open */                \
	X(get_misses_no_room)                                                        \
	X(get_failed) /* the host answered with an error */                          \
	X(flushes) /* pages, ranges, objects and pools to be flushed */              \
	X(flushes_posted) /* descriptors */                                          \
	X(flushes_merged) /* into the descriptor before */                           \
	X(flushes_skipped) /* of nothing the host may hold */                        \
	X(flushes_owed) /* could not be posted at once */                            \
	X(table_evictions)                                                           \
	X(doorbells_rung)                                                            \
	X(doorbells_suppressed)                                                      \
	X(doorbells_put)                                                             \
	X(doorbells_get)                                                             \
	X(doorbells_flush)                                                           \
	X(doorbells_other)                                                           \
	X(hypercalls_pending) /* of those, not done within a millisecond */          \
	X(waits_spun) /* batches answered while spinning */                          \
	X(waits_slept)                                                               \
	X(timeouts)                                                                  \
	X(late_completions) /* of gets that had timed out */                         \
	X(unknown_statuses)                                                          \
	X(breaker_trips)                                                             \
	X(insane_windows)                                                            \
	X(channels_lost) /* a hypercall said so */                                   \
	X(resets)                                                                    \
	X(epochs)                                                                    \
	X(frontswap_stores)                                                          \
	X(frontswap_stores_filled)                                                   \
	X(frontswap_large_folios)                                                    \
	X(frontswap_refused_off)                                                     \
	X(frontswap_refused_no_credit)                                               \
	X(frontswap_refused_no_room)                                                 \
	X(frontswap_refused_lost)                                                    \
	X(frontswap_refused_large)                                                   \
	X(frontswap_puts_failed) /* by the host, after they were promised */         \
	X(frontswap_loads)                                                           \
	X(frontswap_load_device) /* left to the device */                            \
	X(frontswap_load_unacknowledged) /* answered from a put the host had not taken */    \
	X(frontswap_load_errors)                                                     \
	X(frontswap_tag_mismatches)                                                  \
	X(frontswap_invalidates) /* slots that were held */                          \
	X(frontswap_invalidates_pending) /* of those, to be posted by the worker */  \
	X(frontswap_lost) /* pages a reset took */                                   \
	X(frontswap_replayed)                                                        \
	X(credits_returned)                                                          \
	X(reports) /* handed over */                                                 \
	X(reports_withdrawn) /* the host did not begin in time */                    \
	X(reports_torn_down) /* the channel was lost meanwhile */                    \
	X(reports_refused) /* all of it, by the host */                              \
	X(reports_floor) /* not made: the guest has little free memory */            \
	X(report_ranges) /* that the host has dropped */                             \
	X(report_ranges_refused) /* by the host, each for itself */                  \
	X(report_bytes) /* that the host says it has dropped */                      \
	X(shrunk_pages) /* of clean cache, because the host wanted them back */      \
	X(shrinks_short) /* ended because there was no more to give */               \
	X(drained_pages) /* promised ones that came home */                          \
	X(drain_errors) /* of those, that could not be read */

enum tmem_counter {
#define TMEM_COUNTER_ENUM(name) TMEM_COUNT_##name,
	TMEM_COUNTERS(TMEM_COUNTER_ENUM)
#undef TMEM_COUNTER_ENUM
	TMEM_COUNT_END
};

#endif /* TMEM_CORE_COUNTERS_H */
