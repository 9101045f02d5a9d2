// SPDX-License-Identifier: GPL-2.0-only
/* REGISTER: checks what the guest asks for, makes a channel, waits for the daemon's answer. */
#define pr_fmt(fmt) "kvm_tmem: " fmt

#include <linux/hrtimer.h>
#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/ratelimit.h>
#include <linux/sched.h>

#include "channel.h"
#include "hypercall.h"
#include "parts.h"
#include "window.h"

static u64 refuse_check(struct tmem_entry *entry, enum window_check check)
{
	switch (check) {
	case WINDOW_BAD_ADDRESS:
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_address);
	case WINDOW_OVERLAP:
		return hypercall_refuse(entry, TMEM_COUNT_refused_overlap);
	case WINDOW_BAD_VERSION:
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_version);
	case WINDOW_NO_MEMORY:
		return hypercall_refuse(entry, TMEM_COUNT_refused_no_memory);
	default:
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_argument);
	}
}

static u64 refuse_creation(struct tmem_entry *entry, int error)
{
	switch (error) {
	case -ENODEV:
		return hypercall_refuse(entry, TMEM_COUNT_refused_no_daemon);
	case -EUSERS:
		pr_notice_ratelimited("pid %d: too many guests\n", task_tgid_nr(current));
		return hypercall_refuse(entry, TMEM_COUNT_refused_too_many_guests);
	default:
		return hypercall_refuse(entry, TMEM_COUNT_refused_no_memory);
	}
}

static bool is_answered(struct tmem_channel *channel)
{
	/* The rest of the host's page before it; pairs with the daemon's store. */
	return smp_load_acquire(&channel_header(channel)->host.register_answer) ==
	       channel->guest_page.register_request;
}

static bool is_settled(struct tmem_channel *channel)
{
	return channel_state(channel) > CHANNEL_ACCEPTED || is_answered(channel);
}

static u64 wait_for_answer(struct tmem_entry *entry, struct tmem_channel *channel)
{
	ktime_t left = ktime_sub(entry->deadline, ktime_get());
	int error;

	if (left > 0)
		wait_event_interruptible_hrtimeout(channel->vcpus, is_settled(channel), left);
	switch (channel_state(channel)) {
	case CHANNEL_REFUSED:
		return hypercall_refuse(entry, TMEM_COUNT_refused_daemon);
	case CHANNEL_ENDED:
		return hypercall_refuse(entry, TMEM_COUNT_refused_gone);
	default:
		break;
	}
	if (!is_answered(channel))
		return hypercall_pending(entry, 0);
	error = window_answer_registration(entry, channel);
	if (error == -EINTR)
		return hypercall_pending(entry, 0);
	if (error)
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_address);
	return TMEM_HC_TAG | TMEM_HC_OK;
}

/* The channel that this registration has made in an earlier entry. */
static struct tmem_channel *same_registration(struct tmem_entry *entry, u64 frame, u64 request)
{
	struct tmem_channel *channel = vm_channel(entry->vm);

	if (!channel)
		return NULL;
	if (channel->guest_page.register_request == request &&
	    channel->list_address == entry->argument[0] &&
	    channel->pages == entry->argument[1] && channel->frames[0] == frame)
		return channel;
	channel_put(channel);
	return NULL;
}

/* Not now: the daemon has not let go of this VM's former channels, or there were too many. */
static u64 come_again(struct tmem_entry *entry)
{
	ktime_t left = ktime_sub(entry->deadline, ktime_get());

	if (left > 0) {
		set_current_state(TASK_INTERRUPTIBLE);
		schedule_hrtimeout(&left, HRTIMER_MODE_REL);
	}
	return hypercall_pending(entry, 0);
}

static u64 register_anew(struct tmem_entry *entry)
{
	struct tmem_registration registration = {
		.list_address = entry->argument[0],
		.pages = entry->argument[1],
	};
	enum window_check check = window_copy_registration(entry->vcpu, &registration);
	struct tmem_channel *channel = ERR_PTR(-ENOMEM);
	u64 result;

	if (check != WINDOW_GOOD) {
		kvfree(registration.frames);
		return refuse_check(entry, check);
	}
	if (!entry->vm)
		entry->vm = vm_find_or_create(entry->vcpu->kvm);
	if (entry->vm)
		channel = channel_create(entry->vm, &registration);
	kvfree(registration.frames);
	if (channel == ERR_PTR(-EBUSY))
		return come_again(entry);
	if (IS_ERR(channel))
		return refuse_creation(entry, PTR_ERR(channel));
	result = wait_for_answer(entry, channel);
	channel_put(channel);
	return result;
}

u64 hypercall_register(struct tmem_entry *entry)
{
	u64 address = entry->argument[0];
	u64 pages = entry->argument[1];
	struct tmem_channel *channel = NULL;
	u64 frame, request, result;

	if (!pages || !PAGE_ALIGNED(address))
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_argument);
	if (pages > tmem_max_window_bytes() >> PAGE_SHIFT)
		return hypercall_refuse(entry, TMEM_COUNT_refused_window_too_large);
	if (address + pages * sizeof(u64) < address ||
	    window_peek_request(entry->vcpu, address, &frame, &request))
		return hypercall_refuse(entry, TMEM_COUNT_refused_bad_address);
	if (entry->vm) {
		if (request && request == READ_ONCE(entry->vm->refused_request))
			return hypercall_refuse(entry, TMEM_COUNT_refused_daemon);
		channel = same_registration(entry, frame, request);
	}
	if (!channel)
		return register_anew(entry);
	result = wait_for_answer(entry, channel);
	channel_put(channel);
	return result;
}
