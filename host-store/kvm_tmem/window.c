// SPDX-License-Identifier: GPL-2.0-only
/* Copies between a guest's window and the module: registration, host page, pieces of lanes. */

#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/sort.h>

#include "channel.h"
#include "counters.h"
#include "window.h"

/* Addresses read at once; a page's worth, so that no read crosses one. */
#define LIST_CHUNK (PAGE_SIZE / sizeof(u64))

int window_read(struct tmem_entry *entry, struct tmem_channel *channel, u64 offset, void *data,
		unsigned int bytes)
{
	return kvm_vcpu_read_guest_page(entry->vcpu, channel->frames[offset >> PAGE_SHIFT], data,
					offset_in_page(offset), bytes);
}

int window_write(struct tmem_entry *entry, struct tmem_channel *channel, u64 offset,
		 const void *data, unsigned int bytes)
{
	entry->writes--;
	return kvm_vcpu_write_guest_page(entry->vcpu, channel->frames[offset >> PAGE_SHIFT], data,
					 offset_in_page(offset), bytes);
}

/* Memory of the VM's own that may be written; SMM is refused, so address space 0 is the vCPU's. */
static bool is_ram(struct kvm_vcpu *vcpu, u64 frame)
{
	struct kvm_memory_slot *slot = gfn_to_memslot(vcpu->kvm, frame);

	return slot && slot->id < KVM_USER_MEM_SLOTS &&
	       !(slot->flags & (KVM_MEMSLOT_INVALID | KVM_MEM_READONLY));
}

static int compare_frames(const void *left, const void *right)
{
	u64 a = *(const u64 *)left;
	u64 b = *(const u64 *)right;

	return a < b ? -1 : a > b;
}

static bool has_duplicates(u64 *sorted, u64 pages)
{
	u64 i;

	sort(sorted, pages, sizeof(*sorted), compare_frames, NULL);
	for (i = 1; i < pages; i++)
		if (sorted[i] == sorted[i - 1])
			return true;
	return false;
}

static enum window_check copy_list(struct kvm_vcpu *vcpu, u64 address, u64 pages, u64 *frames)
{
	u64 at, i, count;

	for (at = 0; at < pages; at += count) {
		count = min_t(u64, pages - at, LIST_CHUNK);
		if (kvm_vcpu_read_guest(vcpu, address + at * sizeof(u64), frames + at,
					count * sizeof(u64)))
			return WINDOW_BAD_ADDRESS;
		for (i = at; i < at + count; i++) {
			if (frames[i] & ~PAGE_MASK)
				return WINDOW_BAD_ADDRESS;
			frames[i] >>= PAGE_SHIFT;
			if (!is_ram(vcpu, frames[i]))
				return WINDOW_BAD_ADDRESS;
		}
		cond_resched();
	}
	return WINDOW_GOOD;
}

static bool is_count(u32 value, u32 least, u32 most)
{
	return value >= least && value <= most;
}

static bool is_power(u32 value, u32 least, u32 most)
{
	return is_count(value, least, most) && is_power_of_2(value);
}

/* abi/README.md section 1; every number is bounded before one is computed from it. */
static enum window_check check_geometry(const struct tmem_geometry *geometry, u64 pages)
{
	if (geometry->magic != TMEM_MAGIC || geometry->version < TMEM_ABI_VERSION ||
	    geometry->version_min > TMEM_ABI_VERSION)
		return WINDOW_BAD_VERSION;
	if (geometry->page_bytes != TMEM_PAGE_BYTES ||
	    geometry->window_bytes != pages << TMEM_PAGE_SHIFT ||
	    !is_power(geometry->key_lanes, 1, TMEM_MAX_KEY_LANES) ||
	    !is_power(geometry->ring_entries, TMEM_MIN_RING_ENTRIES, TMEM_MAX_RING_ENTRIES) ||
	    !is_power(geometry->control_ring_entries, TMEM_MIN_RING_ENTRIES,
		      TMEM_MAX_RING_ENTRIES) ||
	    !is_count(geometry->lane_slots, 1, TMEM_MAX_LANE_SLOTS) ||
	    !is_count(geometry->control_slots, 1, TMEM_MAX_LANE_SLOTS))
		return WINDOW_BAD_GEOMETRY;
	if (tmem_window_bytes_needed(geometry) > geometry->window_bytes)
		return WINDOW_BAD_GEOMETRY;
	return WINDOW_GOOD;
}

static enum window_check copy_header(struct kvm_vcpu *vcpu, struct tmem_registration *registration)
{
	struct tmem_header header;
	enum window_check check;

	if (kvm_vcpu_read_guest_page(vcpu, registration->frames[0], &header, 0, sizeof(header)))
		return WINDOW_BAD_ADDRESS;
	check = check_geometry(&header.geometry, registration->pages);
	if (check != WINDOW_GOOD)
		return check;
	if (!header.guest.register_request)
		return WINDOW_BAD_GEOMETRY;
	registration->geometry = header.geometry;
	memset(registration->geometry.zero, 0, sizeof(registration->geometry.zero));
	registration->guest_page = header.guest;
	return WINDOW_GOOD;
}

/**
 * window_copy_registration() - what a registration says, checked
 * @vcpu: of the guest
 * @registration: its list address and number of pages are set and bounded; the rest is filled in
 *
 * Return: the first check that failed. @registration->frames is the caller's to free in any case.
 */
enum window_check window_copy_registration(struct kvm_vcpu *vcpu,
					   struct tmem_registration *registration)
{
	u64 pages = registration->pages;
	enum window_check check;
	u64 *sorted;

	registration->frames = kvmalloc_array(pages, sizeof(u64), GFP_KERNEL_ACCOUNT);
	if (!registration->frames)
		return WINDOW_NO_MEMORY;
	check = copy_list(vcpu, registration->list_address, pages, registration->frames);
	if (check != WINDOW_GOOD)
		return check;
	sorted = kvmalloc_array(pages, sizeof(u64), GFP_KERNEL_ACCOUNT);
	if (!sorted)
		return WINDOW_NO_MEMORY;
	memcpy(sorted, registration->frames, pages * sizeof(u64));
	check = has_duplicates(sorted, pages) ? WINDOW_OVERLAP : WINDOW_GOOD;
	kvfree(sorted);
	return check == WINDOW_GOOD ? copy_header(vcpu, registration) : check;
}

int window_peek_request(struct kvm_vcpu *vcpu, u64 list_address, u64 *frame, u64 *request)
{
	int error = kvm_vcpu_read_guest(vcpu, list_address, frame, sizeof(*frame));

	if (error)
		return error;
	*frame >>= PAGE_SHIFT;
	return kvm_vcpu_read_guest_page(vcpu, *frame, request,
					offsetof(struct tmem_header, guest.register_request),
					sizeof(*request));
}

/* The daemon may be writing: word by word, each of them whole. */
static void read_host_page(struct tmem_channel *channel, struct tmem_host_page *copy)
{
	const u64 *from = (const u64 *)&channel_header(channel)->host;
	u64 *to = (u64 *)copy;
	size_t i;

	for (i = 0; i < sizeof(*copy) / sizeof(u64); i++)
		to[i] = READ_ONCE(from[i]);
	copy->awake = 0; /* the module has to copy, so the guest has to ring */
	copy->register_answer = channel->sent.register_answer;
}

static int send_locked(struct tmem_entry *entry, struct tmem_channel *channel)
{
	struct tmem_host_page copy;
	int error;

	lockdep_assert_held(&channel->host_lock);
	read_host_page(channel, &copy);
	if (channel->answered && !memcmp(&copy, &channel->sent, sizeof(copy)))
		return 0;
	error = window_write(entry, channel, offsetof(struct tmem_header, host), &copy,
			     sizeof(copy));
	if (!error)
		channel->sent = copy;
	return error;
}

int window_send_host_page(struct tmem_entry *entry, struct tmem_channel *channel)
{
	int error;

	if (mutex_lock_interruptible(&channel->host_lock))
		return -EINTR;
	error = send_locked(entry, channel);
	mutex_unlock(&channel->host_lock);
	return error;
}

static int clear_lane_heads(struct tmem_entry *entry, struct tmem_channel *channel)
{
	static const struct tmem_lane_head zero;
	unsigned int i;
	int error = 0;

	BUILD_BUG_ON(TMEM_MAX_LANES + 2 > TMEM_ENTRY_WRITES);
	for (i = 0; i < channel->lanes && !error; i++)
		error = window_write(entry, channel, channel->lane[i].offset, &zero, sizeof(zero));
	return error;
}

static int answer_locked(struct tmem_entry *entry, struct tmem_channel *channel)
{
	u64 answer = channel->guest_page.register_request;
	int error = 0;

	lockdep_assert_held(&channel->host_lock);
	if (!channel->answered)
		error = clear_lane_heads(entry, channel);
	if (!error)
		error = send_locked(entry, channel);
	if (!error)
		error = window_write(entry, channel,
				     offsetof(struct tmem_header, host.register_answer), &answer,
				     sizeof(answer));
	if (error)
		return error;
	channel->sent.register_answer = answer;
	if (!channel->answered && channel->sent.register_status == TMEM_STATUS_OK)
		smp_store_release(&channel->registered, true); /* pairs with with_channel() */
	channel->answered = true;
	return 0;
}

/**
 * window_answer_registration() - gives the guest what the daemon answered
 * @entry: of a REGISTER
 * @channel: whose `register_answer` has been seen
 *
 * The first time the guest's lane heads become zero with it; asked again, the guest may be using
 * its lanes already.
 *
 * Return: 0, -EINTR or -EFAULT
 */
int window_answer_registration(struct tmem_entry *entry, struct tmem_channel *channel)
{
	int error;

	if (mutex_lock_interruptible(&channel->host_lock))
		return -EINTR;
	error = answer_locked(entry, channel);
	mutex_unlock(&channel->host_lock);
	return error;
}
