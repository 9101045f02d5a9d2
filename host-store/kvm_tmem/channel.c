// SPDX-License-Identifier: GPL-2.0-only
/* Life of channels: the table of VMs, made and ended from four sides, freed when nobody looks. */
#define pr_fmt(fmt) "kvm_tmem: " fmt

#include <linux/cgroup.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <linux/vmalloc.h>

#include "channel.h"
#include "counters.h"
#include "parts.h"

#define VM_HASH_BITS 6

/* Of one VM: the linked channel and one that the daemon has not let go of yet. */
#define HELD_PER_VM 2

/* Registrations of one VM in a second: each costs the daemon a mapping. One a boot is usual. */
#define REGISTRATIONS_PER_S 50

static struct {
	spinlock_t lock; /* guards all below */
	DECLARE_HASHTABLE(vms, VM_HASH_BITS); /* read under RCU */
	struct list_head linked; /* channels, the oldest first */
	unsigned int linked_count; /* and what is reserved */
	unsigned int held; /* channels that are not freed */
	u64 held_bytes;
	u64 last_vm;
	u64 last_channel;
	bool open; /* there is a daemon */
	wait_queue_head_t waiting; /* the daemon, for guests */
	struct workqueue_struct *frees;
} table = {
	.lock = __SPIN_LOCK_UNLOCKED(table.lock),
	.linked = LIST_HEAD_INIT(table.linked),
	.waiting = __WAIT_QUEUE_HEAD_INITIALIZER(table.waiting),
};

int channels_create(void)
{
	hash_init(table.vms);
	table.frees = alloc_workqueue("kvm_tmem", WQ_UNBOUND, 0);
	return table.frees ? 0 : -ENOMEM;
}

static void vm_put(struct tmem_vm *vm)
{
	if (refcount_dec_and_test(&vm->references))
		kfree_rcu(vm, rcu);
}

static void unreserve(struct tmem_vm *vm, u64 bytes)
{
	spin_lock(&table.lock);
	table.held--;
	table.held_bytes -= bytes;
	vm->held--;
	spin_unlock(&table.lock);
	vm_put(vm);
}

static void free_parts(struct tmem_channel *channel)
{
	if (channel->kick)
		eventfd_ctx_put(channel->kick);
	vfree(channel->window);
	kvfree(channel->frames);
	kvfree(channel->punch);
	kvfree(channel->lane[0].named);
	kvfree(channel->lane[0].busy);
	kfree(channel);
}

/* In a worker, because the last reference may go where nothing may sleep. */
static void free_channel(struct work_struct *work)
{
	struct tmem_channel *channel = container_of(to_rcu_work(work), struct tmem_channel,
						    free_work);
	struct tmem_vm *vm = channel->vm;
	u64 bytes = channel->guest.window_bytes;

	free_parts(channel);
	unreserve(vm, bytes);
}

static void release_channel(struct kref *references)
{
	struct tmem_channel *channel = container_of(references, struct tmem_channel, references);

	INIT_RCU_WORK(&channel->free_work, free_channel);
	queue_rcu_work(table.frees, &channel->free_work);
}

void channel_put(struct tmem_channel *channel)
{
	kref_put(&channel->references, release_channel);
}

static bool is_linked(const struct tmem_channel *channel)
{
	lockdep_assert_held(&table.lock);
	return channel->state < CHANNEL_REFUSED;
}

/* Unlinks; the link's reference goes, so the caller has one of its own or does not look again. */
static void end_locked(struct tmem_channel *channel, enum tmem_channel_state state, bool gone)
{
	struct tmem_vm *vm = channel->vm;

	lockdep_assert_held(&table.lock);
	if (!is_linked(channel))
		return;
	smp_store_release(&channel->state, state); /* pairs with channel_state() */
	list_del(&channel->link);
	table.linked_count--;
	RCU_INIT_POINTER(vm->channel, NULL);
	WRITE_ONCE(vm->gone, gone);
	wake_up_interruptible_all(&channel->vcpus);
	wake_up_interruptible_poll(&channel->pollers, EPOLLHUP);
	channel_put(channel);
}

/**
 * channel_end() - unlinks a channel, wakes who waits for it
 * @channel: on which the caller has a reference; may have ended already
 * @gone: the guest is told that the host went, rather than that it is not registered
 */
void channel_end(struct tmem_channel *channel, bool gone)
{
	spin_lock(&table.lock);
	end_locked(channel, CHANNEL_ENDED, gone);
	spin_unlock(&table.lock);
}

static void end_vm_channel_locked(struct tmem_vm *vm)
{
	struct tmem_channel *channel = rcu_dereference_protected(vm->channel,
								 lockdep_is_held(&table.lock));

	if (channel)
		end_locked(channel, CHANNEL_ENDED, true);
}

static struct tmem_vm *find_locked(struct kvm *kvm)
{
	struct tmem_vm *vm;

	lockdep_assert_held(&table.lock);
	hash_for_each_possible(table.vms, vm, node, (unsigned long)kvm)
		if (vm->kvm == kvm)
			return vm;
	return NULL;
}

static void unlink_vm_locked(struct tmem_vm *vm)
{
	lockdep_assert_held(&table.lock);
	end_vm_channel_locked(vm);
	hash_del_rcu(&vm->node);
	WRITE_ONCE(vm->kvm, NULL);
	vm_put(vm);
}

/**
 * channels_vm_ended() - the VM is about to be taken apart; no vCPU of it runs any more
 * @kvm: any VM
 */
void channels_vm_ended(struct kvm *kvm)
{
	struct tmem_vm *vm;

	spin_lock(&table.lock);
	vm = find_locked(kvm);
	if (vm)
		unlink_vm_locked(vm);
	spin_unlock(&table.lock);
}

struct tmem_vm *vm_find(struct kvm *kvm)
{
	struct tmem_vm *vm;

	rcu_read_lock();
	hash_for_each_possible_rcu(table.vms, vm, node, (unsigned long)kvm)
		if (READ_ONCE(vm->kvm) == kvm)
			goto found;
	vm = NULL;
found:
	rcu_read_unlock();
	return vm;
}

struct tmem_vm *vm_find_or_create(struct kvm *kvm)
{
	struct tmem_vm *vm = kzalloc(sizeof(*vm), GFP_KERNEL_ACCOUNT);
	struct tmem_vm *other;

	if (!vm)
		return NULL;
	vm->kvm = kvm;
	mutex_init(&vm->punching);
	refcount_set(&vm->references, 1);
	ratelimit_state_init(&vm->registrations, HZ, REGISTRATIONS_PER_S);
	ratelimit_set_flags(&vm->registrations, RATELIMIT_MSG_ON_RELEASE); /* that is, no message */
	spin_lock(&table.lock);
	other = find_locked(kvm);
	if (!other) {
		vm->number = ++table.last_vm;
		hash_add_rcu(table.vms, &vm->node, (unsigned long)kvm);
	}
	spin_unlock(&table.lock);
	if (!other)
		return vm;
	kfree(vm);
	return other;
}

/**
 * vm_channel() - the channel of a VM now
 * @vm: valid because its vCPU is in a call
 *
 * Return: with a reference; NULL if there is none
 */
struct tmem_channel *vm_channel(struct tmem_vm *vm)
{
	struct tmem_channel *channel;

	rcu_read_lock();
	channel = rcu_dereference(vm->channel);
	if (channel && !kref_get_unless_zero(&channel->references))
		channel = NULL;
	rcu_read_unlock();
	return channel;
}

/* What a VMM cannot choose, and a label. A path that does not fit is none: no rule may match it. */
static void describe(struct kvm_tmem_guest *guest)
{
	unsigned int length;

	guest->uid = from_kuid(&init_user_ns, current_euid());
	guest->tgid = task_tgid_nr(current);
	rcu_read_lock();
	/* An error is negative, so too long as well. */
	length = cgroup_path(task_dfl_cgroup(current), guest->cgroup, sizeof(guest->cgroup));
	rcu_read_unlock();
	if (length >= sizeof(guest->cgroup))
		memset(guest->cgroup, 0, sizeof(guest->cgroup));
	BUILD_BUG_ON(sizeof(guest->label) != TASK_COMM_LEN);
	__get_task_comm(guest->label, sizeof(guest->label), current->group_leader);
}

static int reserve(struct tmem_vm *vm, u64 bytes)
{
	unsigned int most = tmem_max_guests();
	int error = 0;

	spin_lock(&table.lock);
	end_vm_channel_locked(vm);
	if (!table.open)
		error = -ENODEV;
	else if (vm->held >= HELD_PER_VM)
		error = -EBUSY;
	else if (table.linked_count >= most || table.held / HELD_PER_VM >= most)
		error = -EUSERS;
	else if (!__ratelimit(&vm->registrations))
		error = -EBUSY;
	if (!error) {
		table.linked_count++;
		table.held++;
		table.held_bytes += bytes;
		vm->held++;
		refcount_inc(&vm->references);
	}
	spin_unlock(&table.lock);
	return error;
}

static bool create_lanes(struct tmem_channel *channel)
{
	const struct tmem_geometry *geometry = &channel->geometry;
	u32 entries = geometry->key_lanes * geometry->ring_entries +
		      geometry->control_ring_entries;
	size_t longs = geometry->key_lanes * BITS_TO_LONGS(geometry->lane_slots) +
		       BITS_TO_LONGS(geometry->control_slots);
	u16 *named = kvcalloc(entries, sizeof(*named), GFP_KERNEL_ACCOUNT);
	unsigned long *busy = kvcalloc(longs, sizeof(*busy), GFP_KERNEL_ACCOUNT);
	unsigned int i;

	channel->lane[0].named = named; /* free_parts() frees all by the first */
	channel->lane[0].busy = busy;
	if (!named || !busy)
		return false;
	for (i = 0; i < channel->lanes; i++) {
		struct tmem_lane *lane = &channel->lane[i];
		bool control = i == geometry->key_lanes;

		mutex_init(&lane->lock);
		lane->offset = tmem_lane_offset(geometry, i);
		lane->entries = control ? geometry->control_ring_entries : geometry->ring_entries;
		lane->slots = control ? geometry->control_slots : geometry->lane_slots;
		lane->named = named;
		lane->busy = busy;
		named += lane->entries;
		busy += BITS_TO_LONGS(lane->slots);
	}
	return true;
}

static struct tmem_channel *allocate(struct tmem_vm *vm, struct tmem_registration *registration)
{
	unsigned int lanes = registration->geometry.key_lanes + 1;
	struct tmem_channel *channel = kzalloc(struct_size(channel, lane, lanes),
					       GFP_KERNEL_ACCOUNT);
	struct tmem_header *header;

	if (!channel)
		return NULL;
	kref_init(&channel->references); /* the link's */
	mutex_init(&channel->host_lock);
	spin_lock_init(&channel->waits_lock);
	init_waitqueue_head(&channel->vcpus);
	init_waitqueue_head(&channel->pollers);
	channel->state = CHANNEL_QUEUED;
	channel->vm = vm;
	channel->lanes = lanes;
	channel->geometry = registration->geometry;
	channel->guest_page = registration->guest_page;
	channel->list_address = registration->list_address;
	channel->pages = registration->pages;
	channel->guest.vm = vm->number;
	channel->guest.window_bytes = registration->geometry.window_bytes;
	describe(&channel->guest);
	channel->window = vmalloc_user(channel->guest.window_bytes);
	if (!channel->window || !create_lanes(channel)) {
		free_parts(channel);
		return NULL;
	}
	channel->frames = registration->frames;
	registration->frames = NULL;
	header = channel->window;
	header->geometry = channel->geometry;
	header->guest = channel->guest_page;
	return channel;
}

struct tmem_channel *channel_create(struct tmem_vm *vm, struct tmem_registration *registration)
{
	u64 bytes = registration->geometry.window_bytes;
	struct tmem_channel *channel;
	int error = reserve(vm, bytes);

	if (error)
		return ERR_PTR(error);
	channel = allocate(vm, registration);
	spin_lock(&table.lock);
	if (!channel || !table.open) {
		table.linked_count--;
		spin_unlock(&table.lock);
		if (channel)
			free_parts(channel);
		unreserve(vm, bytes);
		return ERR_PTR(channel ? -ENODEV : -ENOMEM);
	}
	end_vm_channel_locked(vm); /* another vCPU's, made in the meantime */
	kref_get(&channel->references); /* the caller's */
	channel->guest.channel = ++table.last_channel;
	list_add_tail(&channel->link, &table.linked);
	WRITE_ONCE(vm->gone, false);
	WRITE_ONCE(vm->refused_request, 0);
	rcu_assign_pointer(vm->channel, channel);
	spin_unlock(&table.lock);
	wake_up_interruptible_poll(&table.waiting, EPOLLIN);
	return channel;
}

int channels_open(void)
{
	int error = 0;

	spin_lock(&table.lock);
	if (table.open)
		error = -EBUSY;
	table.open = true;
	spin_unlock(&table.lock);
	return error;
}

void channels_close(void)
{
	struct tmem_channel *channel, *next;

	spin_lock(&table.lock);
	table.open = false;
	list_for_each_entry_safe(channel, next, &table.linked, link)
		end_locked(channel, CHANNEL_ENDED, true);
	spin_unlock(&table.lock);
}

wait_queue_head_t *channels_waiting(void)
{
	return &table.waiting;
}

static struct tmem_channel *first_queued_locked(void)
{
	struct tmem_channel *channel;

	lockdep_assert_held(&table.lock);
	list_for_each_entry(channel, &table.linked, link)
		if (channel->state == CHANNEL_QUEUED)
			return channel;
	return NULL;
}

bool channels_any_queued(void)
{
	bool any;

	spin_lock(&table.lock);
	any = first_queued_locked();
	spin_unlock(&table.lock);
	return any;
}

bool channels_next(struct kvm_tmem_guest *guest)
{
	struct tmem_channel *channel;

	spin_lock(&table.lock);
	channel = first_queued_locked();
	if (channel) {
		*guest = channel->guest;
		WRITE_ONCE(channel->state, CHANNEL_OFFERED);
	}
	spin_unlock(&table.lock);
	return channel;
}

/**
 * channel_find_waiting() - a guest that the daemon has not decided about
 * @number: the channel's
 *
 * Return: with a reference; NULL if it does not wait (any more)
 */
struct tmem_channel *channel_find_waiting(u64 number)
{
	struct tmem_channel *channel;

	spin_lock(&table.lock);
	list_for_each_entry(channel, &table.linked, link)
		if (channel->guest.channel == number && channel->state < CHANNEL_ACCEPTED) {
			kref_get(&channel->references);
			goto found;
		}
	channel = NULL;
found:
	spin_unlock(&table.lock);
	return channel;
}

/* Takes over `kick` if it returns true. */
bool channel_accept(struct tmem_channel *channel, struct eventfd_ctx *kick)
{
	bool waits;

	spin_lock(&table.lock);
	waits = channel->state < CHANNEL_ACCEPTED;
	if (waits) {
		channel->kick = kick;
		/* `kick` before it; pairs with channel_state(). */
		smp_store_release(&channel->state, CHANNEL_ACCEPTED);
	}
	spin_unlock(&table.lock);
	return waits;
}

bool channel_refuse(struct tmem_channel *channel)
{
	bool waits;

	spin_lock(&table.lock);
	waits = channel->state < CHANNEL_ACCEPTED;
	if (waits) {
		WRITE_ONCE(channel->vm->refused_request, channel->guest_page.register_request);
		end_locked(channel, CHANNEL_REFUSED, false);
	}
	spin_unlock(&table.lock);
	return waits;
}

/*
 * The VM's slots of ordinary memory (address space 0; the other one is SMM's). While the channel is
 * linked the VM's end waits for the lock in our hook, so neither VM nor slots go.
 */
int channel_slots(struct tmem_channel *channel, struct kvm_tmem_slots *slots)
{
	struct kvm_memory_slot *slot;
	u32 room = min_t(u32, slots->count, KVM_TMEM_MAX_SLOTS);
	u32 count = 0;
	int error = -ENODEV;
	struct kvm *kvm;
	int index, bucket;

	spin_lock(&table.lock);
	if (!is_linked(channel))
		goto unlock;
	kvm = channel->vm->kvm;
	index = srcu_read_lock(&kvm->srcu);
	kvm_for_each_memslot(slot, bucket, kvm_memslots(kvm)) {
		if (slot->id >= KVM_USER_MEM_SLOTS || slot->flags & KVM_MEMSLOT_INVALID)
			continue;
		if (count < room) {
			slots->slots[count].guest_address = slot->base_gfn << PAGE_SHIFT;
			slots->slots[count].bytes = (u64)slot->npages << PAGE_SHIFT;
			slots->slots[count].flags = slot->flags;
		}
		count++;
	}
	srcu_read_unlock(&kvm->srcu, index);
	slots->count = count;
	error = 0;
unlock:
	spin_unlock(&table.lock);
	return error;
}

void channels_measure(struct tmem_gauges *gauges)
{
	struct tmem_channel *channel;

	memset(gauges, 0, sizeof(*gauges));
	spin_lock(&table.lock);
	list_for_each_entry(channel, &table.linked, link) {
		if (channel->state == CHANNEL_ACCEPTED)
			gauges->channels++;
		else
			gauges->guests_waiting++;
	}
	gauges->channel_bytes = table.held_bytes;
	spin_unlock(&table.lock);
}

/* Neither daemon nor hook of the hypercall is there any more; nor, after the first lines, VMs. */
void channels_destroy(void)
{
	struct tmem_vm *vm;
	struct hlist_node *next;
	int bucket;

	spin_lock(&table.lock);
	hash_for_each_safe(table.vms, bucket, next, vm, node)
		unlink_vm_locked(vm);
	spin_unlock(&table.lock);
	rcu_barrier(); /* what was put is in the queue of work */
	destroy_workqueue(table.frees);
}
