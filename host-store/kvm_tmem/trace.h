/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints: kick, call, pending, drop, refused. A VM is its number as the daemon sees it. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM kvm_tmem

#if !defined(KVM_TMEM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define KVM_TMEM_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(kvm_tmem_kick,
	TP_PROTO(u64 vm, u64 lanes, bool rang),
	TP_ARGS(vm, lanes, rang),
	TP_STRUCT__entry(
		__field(u64, vm)
		__field(u64, lanes)
		__field(bool, rang)
	),
	TP_fast_assign(
		__entry->vm = vm;
		__entry->lanes = lanes;
		__entry->rang = rang;
	),
	TP_printk("vm %llu lanes %#llx%s", __entry->vm, __entry->lanes,
		  __entry->rang ? " rang" : "")
);

DECLARE_EVENT_CLASS(kvm_tmem_wait,
	TP_PROTO(u64 vm, u64 lanes, u64 waited_ns),
	TP_ARGS(vm, lanes, waited_ns),
	TP_STRUCT__entry(
		__field(u64, vm)
		__field(u64, lanes)
		__field(u64, waited_ns)
	),
	TP_fast_assign(
		__entry->vm = vm;
		__entry->lanes = lanes;
		__entry->waited_ns = waited_ns;
	),
	TP_printk("vm %llu lanes %#llx waited %llu ns", __entry->vm, __entry->lanes,
		  __entry->waited_ns)
);

DEFINE_EVENT(kvm_tmem_wait, kvm_tmem_call,
	TP_PROTO(u64 vm, u64 lanes, u64 waited_ns),
	TP_ARGS(vm, lanes, waited_ns)
);

/* Any operation; of a registration `lanes` is 0. */
DEFINE_EVENT(kvm_tmem_wait, kvm_tmem_pending,
	TP_PROTO(u64 vm, u64 lanes, u64 waited_ns),
	TP_ARGS(vm, lanes, waited_ns)
);

TRACE_EVENT(kvm_tmem_drop,
	TP_PROTO(u64 vm, u64 address, u64 bytes, u32 status),
	TP_ARGS(vm, address, bytes, status),
	TP_STRUCT__entry(
		__field(u64, vm)
		__field(u64, address)
		__field(u64, bytes)
		__field(u32, status)
	),
	TP_fast_assign(
		__entry->vm = vm;
		__entry->address = address;
		__entry->bytes = bytes;
		__entry->status = status;
	),
	TP_printk("vm %llu address %#llx bytes %#llx status %u", __entry->vm, __entry->address,
		  __entry->bytes, __entry->status)
);

TRACE_EVENT(kvm_tmem_refused,
	TP_PROTO(u64 vm, u64 operation, const char *reason),
	TP_ARGS(vm, operation, reason),
	TP_STRUCT__entry(
		__field(u64, vm)
		__field(u64, operation)
		__string(reason, reason)
	),
	TP_fast_assign(
		__entry->vm = vm;
		__entry->operation = operation;
		__assign_str(reason, reason);
	),
	TP_printk("vm %llu operation %llu: %s", __entry->vm, __entry->operation,
		  __get_str(reason))
);

#endif /* KVM_TMEM_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
