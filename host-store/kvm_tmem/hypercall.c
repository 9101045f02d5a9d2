// SPDX-License-Identifier: GPL-2.0-only
/*
 * What a hypercall with our number does. Runs on the vCPU's thread, in the VMM's memory, with
 * vcpu->mutex and kvm->srcu held; may sleep. The VM cannot end while it is here.
 */
#define pr_fmt(fmt) "kvm_tmem: " fmt

#include <linux/kvm_host.h>
#include <linux/kvm_para.h>
#include <linux/ratelimit.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "channel.h"
#include "counters.h"
#include "hypercall.h"
#include "lane.h"
#include "parts.h"
#include "punch.h"
#include "window.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/* Waking a task costs tens of microseconds; as long as KVM polls for a halted vCPU. */
#define POLL_NS (200 * NSEC_PER_USEC)

/* What the daemon has not answered with a heartbeat after this long it is rung for again. */
#define RING_AGAIN_NS (10 * NSEC_PER_MSEC)

#define CPUID_MEMORY_ENCRYPTION 0x8000001f
#define CPUID_SEV BIT(1)

struct refusal {
	const char *name;
	u32 answer;
};

#define REFUSAL(reason, code) \
	[TMEM_COUNT_refused_##reason] = { #reason, code },

static const struct refusal refusals[] = {
	TMEM_REFUSALS(REFUSAL)
};

static u64 answer(enum tmem_hypercall_answer code)
{
	return TMEM_HC_TAG | code;
}

static u64 waited_ns(const struct tmem_entry *entry)
{
	return ktime_sub(ktime_get(), ktime_sub_ns(entry->deadline, TMEM_ENTRY_NS));
}

u64 hypercall_refuse(struct tmem_entry *entry, enum tmem_count reason)
{
	tmem_count(reason);
	trace_kvm_tmem_refused(entry->vm ? entry->vm->number : 0, entry->operation,
			       refusals[reason].name);
	return answer(refusals[reason].answer);
}

u64 hypercall_pending(struct tmem_entry *entry, u64 lanes)
{
	tmem_count(TMEM_COUNT_pendings);
	if (trace_kvm_tmem_pending_enabled())
		trace_kvm_tmem_pending(entry->vm->number, lanes, waited_ns(entry));
	return answer(TMEM_HC_PENDING);
}

/* What a copy from or to a lane came to, if that ends the call. */
static u64 failed(struct tmem_entry *entry, struct tmem_channel *channel, u64 lanes, int error)
{
	switch (error) {
	case -EINTR:
		return hypercall_pending(entry, lanes);
	case -EFAULT:
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_address);
	default:
		tmem_count(TMEM_COUNT_torn_down);
		pr_notice_ratelimited("guest %llu (pid %d): a lane's counters differ, torn down\n",
				      channel->guest.vm, channel->guest.tgid);
		channel_end(channel, true);
		return hypercall_refuse(entry, TMEM_COUNT_refused_gone);
	}
}

static bool has_lane(u64 lanes, unsigned int number)
{
	return lanes >> number & 1;
}

static void ring(struct tmem_channel *channel)
{
	tmem_count(TMEM_COUNT_rings);
	eventfd_signal(channel->kick, 1);
}

/* All lanes first, then one signal. */
static int take_lanes(struct tmem_entry *entry, struct tmem_channel *channel, u64 lanes,
		      bool *left)
{
	bool rings = false;
	unsigned int i;
	int error = 0;

	for (i = 0; i < channel->lanes && !error; i++)
		if (has_lane(lanes, i))
			error = lane_take(entry, channel, i, left);
	if (entry->moved) {
		/* `posted` before `awake`; pairs with the daemon going to sleep. */
		smp_mb();
		rings = !READ_ONCE(channel_header(channel)->host.awake);
	}
	if (rings)
		ring(channel);
	if (entry->moved || !lanes)
		trace_kvm_tmem_kick(entry->vm->number, lanes, rings);
	return error;
}

/*
 * The host's notices go between its `done`, read first, and the guest's `done`: the guest never
 * sees a result before what the daemon had said when it wrote it.
 */
static int complete_lanes(struct tmem_entry *entry, struct tmem_channel *channel, u64 lanes)
{
	u64 done[TMEM_MAX_LANES];
	unsigned int i;
	int error;

	for (i = 0; i < channel->lanes; i++)
		/* Results after `done`; pairs with the daemon's store. */
		done[i] = smp_load_acquire(&lane_head(channel, &channel->lane[i])->done);
	error = window_send_host_page(entry, channel);
	for (i = 0; i < channel->lanes && !error; i++)
		if (has_lane(lanes, i))
			error = lane_complete(entry, channel, i, done[i]);
	return error;
}

/* Whether counter `now` has come to `target`; both are free-running. */
static bool has_come(u64 now, u64 target)
{
	return (s64)(now - target) >= 0;
}

/* The daemon has done all; its figures are checked when the results are copied. */
static bool daemon_is_done(struct tmem_channel *channel, u64 lanes, const u64 *target)
{
	unsigned int i;

	for (i = 0; i < channel->lanes; i++)
		if (has_lane(lanes, i) &&
		    !has_come(READ_ONCE(lane_head(channel, &channel->lane[i])->done), target[i]))
			return false;
	return true;
}

/* Whether the daemon has something of these lanes that it has not done. */
static bool daemon_owes(struct tmem_channel *channel, u64 lanes)
{
	unsigned int i;

	for (i = 0; i < channel->lanes; i++)
		if (has_lane(lanes, i) && READ_ONCE(lane_head(channel, &channel->lane[i])->done) !=
					  READ_ONCE(channel->lane[i].taken))
			return true;
	return false;
}

/*
 * A guest that asks again brings nothing new, so it would not ring; but a daemon that gives no
 * heartbeat may be asleep, whatever its `awake` says.
 */
static void ring_again(struct tmem_entry *entry, struct tmem_channel *channel, u64 lanes)
{
	u64 heartbeat = READ_ONCE(channel_header(channel)->host.heartbeat);
	u64 now_ns = ktime_get_ns();

	if (!entry->moved && !daemon_owes(channel, lanes))
		return;
	if (entry->moved || heartbeat != READ_ONCE(channel->heartbeat)) {
		WRITE_ONCE(channel->heartbeat, heartbeat);
		WRITE_ONCE(channel->heard_ns, now_ns);
	} else if (now_ns - READ_ONCE(channel->heard_ns) >= RING_AGAIN_NS) {
		WRITE_ONCE(channel->heard_ns, now_ns);
		ring(channel);
	}
}

static bool guest_has_all(struct tmem_channel *channel, u64 lanes, const u64 *target)
{
	unsigned int i;

	for (i = 0; i < channel->lanes; i++)
		if (has_lane(lanes, i) && !has_come(READ_ONCE(channel->lane[i].done), target[i]))
			return false;
	return true;
}

/* Tells the daemon in the lanes' heads whether somebody sleeps; the last one to leave clears it. */
static void set_waits(struct tmem_channel *channel, u64 lanes, bool sleeps)
{
	unsigned int i;

	spin_lock(&channel->waits_lock);
	for (i = 0; i < channel->lanes; i++) {
		struct tmem_lane *lane = &channel->lane[i];

		if (!has_lane(lanes, i))
			continue;
		lane->waits += sleeps ? 1 : -1;
		WRITE_ONCE(lane_head(channel, lane)->guest_waits, !!lane->waits);
	}
	spin_unlock(&channel->waits_lock);
}

static bool poll_done(struct tmem_entry *entry, struct tmem_channel *channel, u64 lanes,
		      const u64 *target)
{
	ktime_t end = ktime_add_ns(ktime_get(), POLL_NS);

	if (num_online_cpus() == 1)
		return daemon_is_done(channel, lanes, target);
	while (!daemon_is_done(channel, lanes, target)) {
		if (need_resched() || signal_pending(current) || ktime_after(ktime_get(), end) ||
		    entry_is_late(entry) || channel_state(channel) != CHANNEL_ACCEPTED)
			return false;
		cpu_relax();
	}
	return true;
}

static void wait_done(struct tmem_entry *entry, struct tmem_channel *channel, u64 lanes,
		      const u64 *target)
{
	ktime_t left;

	if (poll_done(entry, channel, lanes, target))
		return;
	left = ktime_sub(entry->deadline, ktime_get());
	if (left <= 0)
		return;
	set_waits(channel, lanes, true);
	/* `guest_waits` before `done`; pairs with the daemon completing. */
	smp_mb();
	wait_event_interruptible_hrtimeout(channel->vcpus,
					   daemon_is_done(channel, lanes, target) ||
					   channel_state(channel) != CHANNEL_ACCEPTED, left);
	set_waits(channel, lanes, false);
}

static u64 kick(struct tmem_entry *entry, struct tmem_channel *channel, u64 lanes)
{
	bool left = false;
	int error = take_lanes(entry, channel, lanes, &left);

	if (!error)
		error = complete_lanes(entry, channel, lanes);
	if (error)
		return failed(entry, channel, lanes, error);
	ring_again(entry, channel, lanes);
	return left ? hypercall_pending(entry, lanes) : answer(TMEM_HC_OK);
}

static u64 call(struct tmem_entry *entry, struct tmem_channel *channel, u64 lanes)
{
	u64 target[TMEM_MAX_LANES];
	bool left = false;
	unsigned int i;
	int error = take_lanes(entry, channel, lanes, &left);

	if (error)
		return failed(entry, channel, lanes, error);
	for (i = 0; i < channel->lanes; i++)
		target[i] = READ_ONCE(channel->lane[i].taken);
	if (!left)
		wait_done(entry, channel, lanes, target);
	if (channel_state(channel) != CHANNEL_ACCEPTED)
		return hypercall_refuse(entry, TMEM_COUNT_refused_gone);
	error = complete_lanes(entry, channel, lanes);
	if (error)
		return failed(entry, channel, lanes, error);
	ring_again(entry, channel, lanes);
	if (left || !guest_has_all(channel, lanes, target))
		return hypercall_pending(entry, lanes);
	if (trace_kvm_tmem_call_enabled())
		trace_kvm_tmem_call(entry->vm->number, lanes, waited_ns(entry));
	return answer(TMEM_HC_OK);
}

/* A guest that is told that a channel is over has its reported pages back [R1]. */
static u64 told(struct tmem_entry *entry, u64 result)
{
	if (result != answer(TMEM_HC_PENDING))
		punch_barrier(vm_find(entry->vcpu->kvm));
	return result;
}

static u64 with_channel(struct tmem_entry *entry,
			u64 (*act)(struct tmem_entry *entry, struct tmem_channel *channel,
				   u64 lanes))
{
	u64 lanes = entry->argument[0];
	struct tmem_channel *channel;
	u64 result;

	if (entry->argument[1])
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_argument);
	channel = entry->vm ? vm_channel(entry->vm) : NULL;
	if (!channel) {
		result = hypercall_refuse(entry, entry->vm && READ_ONCE(entry->vm->gone) ?
					  TMEM_COUNT_refused_gone :
					  TMEM_COUNT_refused_not_registered);
		return told(entry, result);
	}
	/* Lanes as answer_locked() left them. */
	if (!smp_load_acquire(&channel->registered))
		result = hypercall_refuse(entry, TMEM_COUNT_refused_not_registered);
	else if (lanes >> channel->lanes)
		result = hypercall_refuse(entry, TMEM_COUNT_refused_bad_argument);
	else
		result = act(entry, channel, lanes);
	channel_put(channel);
	return result == answer(TMEM_HC_OK) ? result : told(entry, result);
}

static u64 negotiate(struct tmem_entry *entry)
{
	if (entry->argument[0] || entry->argument[1])
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_argument);
	return TMEM_HC_MAGIC | TMEM_ABI_VERSION;
}

static u64 unregister(struct tmem_entry *entry)
{
	struct tmem_channel *channel;

	if (entry->argument[0] || entry->argument[1])
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_argument);
	channel = entry->vm ? vm_channel(entry->vm) : NULL;
	if (!channel)
		return hypercall_refuse(entry, TMEM_COUNT_refused_not_registered);
	channel_end(channel, false);
	channel_put(channel);
	return answer(TMEM_HC_OK);
}

static u64 dispatch(struct tmem_entry *entry)
{
	switch (entry->operation) {
	case TMEM_HC_NEGOTIATE:
		tmem_count(TMEM_COUNT_negotiates);
		return negotiate(entry);
	case TMEM_HC_REGISTER:
		tmem_count(TMEM_COUNT_registers);
		return told(entry, hypercall_register(entry));
	case TMEM_HC_KICK:
		tmem_count(TMEM_COUNT_kicks);
		return with_channel(entry, kick);
	case TMEM_HC_CALL:
		tmem_count(TMEM_COUNT_calls);
		return with_channel(entry, call);
	case TMEM_HC_UNREGISTER:
		tmem_count(TMEM_COUNT_unregisters);
		return told(entry, unregister(entry));
	default:
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_argument);
	}
}

static bool is_encrypted(const struct kvm_vcpu *vcpu)
{
	return vcpu->arch.guest_state_protected ||
	       READ_ONCE(vcpu->kvm->arch.apicv_inhibit_reasons) & BIT(APICV_INHIBIT_REASON_SEV);
}

/* The guest's memory is ciphertext to us. KVM's own flag is private; the guest needs this one. */
static bool knows_sev(const struct kvm_vcpu *vcpu)
{
	int i;

	for (i = 0; i < vcpu->arch.cpuid_nent; i++)
		if (vcpu->arch.cpuid_entries[i].function == CPUID_MEMORY_ENCRYPTION)
			return vcpu->arch.cpuid_entries[i].eax & CPUID_SEV;
	return false;
}

/* Whether KVM's -KVM_ENOSYS is to stand. */
static bool is_refused(const struct kvm_vcpu *vcpu, u64 operation)
{
	enum tmem_count reason;

	if (vcpu->arch.hyperv_enabled)
		reason = TMEM_COUNT_refused_hyperv;
	else if (vcpu->arch.hflags & (HF_GUEST_MASK | HF_SMM_MASK) || is_encrypted(vcpu) ||
		 (operation <= TMEM_HC_REGISTER && knows_sev(vcpu)))
		reason = TMEM_COUNT_refused_mode;
	else
		return false;
	tmem_count(reason);
	return true;
}

/* All that this thread has waited for a CPU since it began; without sched_info 0. */
static u64 waited_for_cpu_ns(void)
{
#ifdef CONFIG_SCHED_INFO
	return current->sched_info.run_delay;
#else
	return 0;
#endif
}

/**
 * hypercall_act() - serves a hypercall with our number after KVM has seen it
 * @vcpu: the caller; the original has moved it past the instruction
 *
 * Only the full 64 bits of -KVM_ENOSYS mean that KVM knows nothing of it: 32-bit code gets the low
 * half of it, other privilege another error, Hyper-V and Xen something of their own.
 */
void hypercall_act(struct kvm_vcpu *vcpu)
{
	unsigned long *regs = vcpu->arch.regs;
	struct tmem_entry entry = {
		.vcpu = vcpu,
		.operation = regs[VCPU_REGS_RBX],
		.argument = { regs[VCPU_REGS_RCX], regs[VCPU_REGS_RDX] },
		.writes = TMEM_ENTRY_WRITES,
	};

	u64 cpu_wait_ns = waited_for_cpu_ns();
	ktime_t start;
	s64 took_ns;

	if (regs[VCPU_REGS_RAX] == (unsigned long)-KVM_EPERM)
		tmem_count(TMEM_COUNT_refused_cpl);
	if (regs[VCPU_REGS_RAX] != (unsigned long)-KVM_ENOSYS || is_refused(vcpu, entry.operation))
		return;
	tmem_count(TMEM_COUNT_hypercalls);
	start = ktime_get();
	entry.vm = vm_find(vcpu->kvm);
	entry.deadline = ktime_add_ns(start, TMEM_ENTRY_NS);
	if (regs[VCPU_REGS_RSI])
		regs[VCPU_REGS_RAX] = hypercall_refuse(&entry, TMEM_COUNT_refused_bad_argument);
	else
		regs[VCPU_REGS_RAX] = dispatch(&entry);
	took_ns = ktime_sub(ktime_get(), start);
	tmem_note_max(&tmem_entry_max_ns, took_ns);
	tmem_note_max(&tmem_entry_run_max_ns, took_ns - (waited_for_cpu_ns() - cpu_wait_ns));
}
