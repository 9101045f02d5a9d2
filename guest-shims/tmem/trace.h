/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints of free-memory reports: one event a range. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM tmem

#if !defined(TMEM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TMEM_TRACE_H

#include <linux/tracepoint.h>

DECLARE_EVENT_CLASS(tmem_range,
	TP_PROTO(unsigned long pfn, unsigned int order),
	TP_ARGS(pfn, order),
	TP_STRUCT__entry(
		__field(unsigned long, pfn)
		__field(unsigned int, order)
	),
	TP_fast_assign(
		__entry->pfn = pfn;
		__entry->order = order;
	),
	TP_printk("pfn=0x%lx order=%u", __entry->pfn, __entry->order)
);

/* The host has dropped it. */
DEFINE_EVENT(tmem_range, tmem_range_reported,
	TP_PROTO(unsigned long pfn, unsigned int order),
	TP_ARGS(pfn, order)
);

/* The host does not drop it. */
DEFINE_EVENT(tmem_range, tmem_range_refused,
	TP_PROTO(unsigned long pfn, unsigned int order),
	TP_ARGS(pfn, order)
);

/* The host had not begun when the guest took it back. */
DEFINE_EVENT(tmem_range, tmem_range_withdrawn,
	TP_PROTO(unsigned long pfn, unsigned int order),
	TP_ARGS(pfn, order)
);

/* The channel was lost: it may be dropped or not. */
DEFINE_EVENT(tmem_range, tmem_range_returned,
	TP_PROTO(unsigned long pfn, unsigned int order),
	TP_ARGS(pfn, order)
);

#endif /* TMEM_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
