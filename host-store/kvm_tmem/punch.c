// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reports of free memory.
 *
 * The ranges are copied once, after the report was taken from the guest by compare-and-swap [R1].
 * Each piece is resolved anew, from the guest's address over KVM's memory slot and the VMM's
 * mapping to a file, and dropped by punching that file, if it may be [R4, R6]. Nothing of a
 * resolution is kept. A piece is what lies in 2 MiB of the guest, so that huge pages are dropped
 * whole and neighbours together [R2]; between two pieces the clock is looked at.
 */

#include <linux/bits.h>
#include <linux/falloc.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/kvm_host.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sort.h>
#include <linux/uaccess.h>

#include "channel.h"
#include "counters.h"
#include "punch.h"
#include "trace.h"
#include "window.h"

#define PIECE_BYTES (2ULL << 20)

/* No physical address of x86-64 is above. */
#define ADDRESS_END BIT_ULL(52)

/* Pages of the guest that a report writes: its state twice, its slot. */
#define WRITES_OF_REPORT 3u

/**
 * struct tmem_punch - the report that the control lane is at; guarded by that lane's lock
 * @active: there is one
 * @slot: of the lane, with the ranges
 * @count: ranges
 * @good: of these, to be dropped: the first of @order
 * @next: which of @order is next
 * @position: address in it
 * @dropped: bytes
 * @order: numbers of the good ranges, by address
 * @ranges: copied from the guest; their statuses are ours
 */
struct tmem_punch {
	bool active;
	u32 slot;
	u32 count;
	u32 good;
	u32 next;
	u64 position;
	u64 dropped;
	u8 order[TMEM_MAX_REPORT_RANGES];
	struct tmem_report_range ranges[TMEM_MAX_REPORT_RANGES];
};

bool punch_is_active(const struct tmem_channel *channel)
{
	return channel->punch && channel->punch->active;
}

void punch_barrier(struct tmem_vm *vm)
{
	if (!vm)
		return;
	mutex_lock(&vm->punching);
	mutex_unlock(&vm->punching);
}

static struct tmem_report_range *range_at(struct tmem_punch *punch, u32 at)
{
	return &punch->ranges[punch->order[at]];
}

static u64 end_of(const struct tmem_report_range *range)
{
	return range->address + range->bytes;
}

/*
 * Memory of this process that is the guest's at an address: where in which file it lies. Without
 * VM_WRITE the guest may not change it, though the file may be open for writing: a file that the
 * VMM shows it, as virtio-fs does.
 */
static enum tmem_status find_file(struct mm_struct *mm, unsigned long hva, u64 bytes,
				  struct file **file, loff_t *offset)
{
	const unsigned long not = VM_LOCKED | VM_IO | VM_PFNMAP | VM_HUGETLB | VM_UFFD_MISSING |
				  VM_UFFD_WP | VM_UFFD_MINOR;
	enum tmem_status status = TMEM_STATUS_INHIBITED;
	struct vm_area_struct *vma;

	if (mmap_read_lock_killable(mm))
		return status;
	vma = vma_lookup(mm, hva);
	if (vma && bytes <= vma->vm_end - hva && vma->vm_flags & VM_SHARED &&
	    vma->vm_flags & VM_WRITE && !(vma->vm_flags & not) && vma->vm_file &&
	    file_inode(vma->vm_file)->i_sb->s_magic == TMPFS_MAGIC) {
		*file = get_file(vma->vm_file);
		*offset = hva - vma->vm_start + ((loff_t)vma->vm_pgoff << PAGE_SHIFT);
		status = TMEM_STATUS_OK;
	}
	mmap_read_unlock(mm);
	return status;
}

/* Locked memory is VFIO's too: it accounts what it pins there. */
static bool has_pinned_memory(const struct kvm *kvm)
{
	struct mm_struct *mm = current->mm;

	return kvm_arch_has_assigned_device((struct kvm *)kvm) || READ_ONCE(mm->locked_vm) ||
	       atomic64_read(&mm->pinned_vm);
}

/* All of it in one slot that the guest may write. */
static bool is_ram(const struct kvm_memory_slot *slot, gfn_t frame, u64 bytes)
{
	return slot && slot->id < KVM_USER_MEM_SLOTS &&
	       !(slot->flags & (KVM_MEMSLOT_INVALID | KVM_MEM_READONLY)) &&
	       (bytes >> PAGE_SHIFT) <= slot->base_gfn + slot->npages - frame;
}

static enum tmem_status resolve(struct kvm *kvm, u64 address, u64 bytes, struct file **file,
				loff_t *offset)
{
	gfn_t frame = address >> PAGE_SHIFT;
	struct kvm_memory_slot *slot = gfn_to_memslot(kvm, frame);

	if (!is_ram(slot, frame, bytes))
		return TMEM_STATUS_BAD_RANGE;
	if (slot->flags & KVM_MEM_LOG_DIRTY_PAGES || has_pinned_memory(kvm))
		return TMEM_STATUS_INHIBITED;
	return find_file(current->mm, __gfn_to_hva_memslot(slot, frame), bytes, file, offset);
}

static enum tmem_status drop(struct tmem_entry *entry, u64 address, u64 bytes)
{
	enum tmem_status status;
	struct file *file;
	loff_t offset;

	status = resolve(entry->vcpu->kvm, address, bytes, &file, &offset);
	if (status == TMEM_STATUS_OK) {
		if (vfs_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes))
			status = TMEM_STATUS_INHIBITED;
		fput(file);
	}
	trace_kvm_tmem_drop(entry->vm->number, address, bytes, status);
	return status;
}

/* One piece, and which range is next. */
static void step(struct tmem_entry *entry, struct tmem_punch *punch)
{
	u64 from = punch->position;
	u64 boundary = (from | (PIECE_BYTES - 1)) + 1;
	u32 first = punch->next;
	u32 last = first;
	u64 end = min(end_of(range_at(punch, last)), boundary);
	enum tmem_status status;

	while (end < boundary && last + 1 < punch->good &&
	       range_at(punch, last + 1)->address == end)
		end = min(end_of(range_at(punch, ++last)), boundary);
	status = drop(entry, from, end - from);
	if (status == TMEM_STATUS_OK)
		punch->dropped += end - from;
	else
		for (; first <= last; first++)
			range_at(punch, first)->status = status;
	punch->next = last;
	punch->position = end;
	if (end != end_of(range_at(punch, last)))
		return;
	if (++punch->next < punch->good)
		punch->position = range_at(punch, punch->next)->address;
}

static int proceed(struct tmem_entry *entry, struct tmem_channel *channel)
{
	struct tmem_punch *punch = channel->punch;
	struct tmem_vm *vm = channel->vm;
	int error = 0;

	while (punch->next < punch->good && !error) {
		if (entry->took && (entry_is_late(entry) || signal_pending(current)))
			return -EAGAIN;
		mutex_lock(&vm->punching);
		/* Ended: whoever says so to the guest has waited, or will wait, for the lock. */
		if (channel_state(channel) == CHANNEL_ACCEPTED)
			step(entry, punch);
		else
			error = -EAGAIN;
		mutex_unlock(&vm->punching);
		entry->took = true;
		cond_resched();
	}
	return error;
}

static int compare_ranges(const void *left, const void *right, const void *private)
{
	const struct tmem_report_range *ranges = private;
	u64 a = ranges[*(const u8 *)left].address;
	u64 b = ranges[*(const u8 *)right].address;

	return a < b ? -1 : a > b;
}

/* As a whole: no part of a bad range is dropped [R5]. */
static bool is_good(struct kvm *kvm, const struct tmem_report_range *range)
{
	gfn_t frame = range->address >> PAGE_SHIFT;

	return range->bytes && PAGE_ALIGNED(range->address | range->bytes) &&
	       range->address < ADDRESS_END && range->bytes <= ADDRESS_END - range->address &&
	       !range->status && !range->zero0 && !range->zero1 &&
	       is_ram(gfn_to_memslot(kvm, frame), frame, range->bytes);
}

/* The good ranges by address; one that begins in another is bad. */
static void sort_ranges(struct kvm *kvm, struct tmem_punch *punch)
{
	u32 good = 0;
	u64 end = 0;
	u32 at;

	for (at = 0; at < punch->count; at++) {
		bool takes = is_good(kvm, &punch->ranges[at]);

		punch->ranges[at].status = takes ? TMEM_STATUS_OK : TMEM_STATUS_BAD_RANGE;
		if (takes)
			punch->order[good++] = at;
	}
	sort_r(punch->order, good, sizeof(*punch->order), compare_ranges, NULL, punch->ranges);
	punch->good = 0;
	for (at = 0; at < good; at++) {
		struct tmem_report_range *range = &punch->ranges[punch->order[at]];

		if (range->address < end) {
			range->status = TMEM_STATUS_BAD_RANGE;
			continue;
		}
		end = end_of(range);
		punch->order[punch->good++] = punch->order[at];
	}
}

/* The last good range that begins at or before an address, if it reaches over it. */
static struct tmem_report_range *range_over(struct tmem_punch *punch, u64 address)
{
	u32 low = 0;
	u32 high = punch->good;

	while (low < high) {
		u32 middle = (low + high) / 2;

		if (range_at(punch, middle)->address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || end_of(range_at(punch, low - 1)) <= address)
		return NULL;
	return range_at(punch, low - 1);
}

/* The window is in use, whatever the guest says [R5]. */
static void spare_window(struct tmem_channel *channel)
{
	struct tmem_punch *punch = channel->punch;
	u32 good = 0;
	u64 page;
	u32 at;

	for (page = 0; page < channel->pages; page++) {
		struct tmem_report_range *range;

		range = range_over(punch, channel->frames[page] << PAGE_SHIFT);
		if (range)
			range->status = TMEM_STATUS_BAD_RANGE;
	}
	for (at = 0; at < punch->good; at++)
		if (range_at(punch, at)->status == TMEM_STATUS_OK)
			punch->order[good++] = punch->order[at];
	punch->good = good;
}

/* POSTED -> TAKEN in the guest's ring; 1: it was not POSTED. */
static int take_state(struct tmem_entry *entry, struct tmem_channel *channel, u64 offset)
{
	u64 frame = channel->frames[offset >> PAGE_SHIFT];
	unsigned long hva = kvm_vcpu_gfn_to_hva(entry->vcpu, frame);
	u32 old = TMEM_REPORT_POSTED;
	u32 __user *state;
	int error;

	if (kvm_is_error_hva(hva))
		return -EFAULT;
	state = (u32 __user *)(hva + offset_in_page(offset) + offsetof(struct tmem_desc, state));
	error = __try_cmpxchg_user(state, &old, TMEM_REPORT_TAKEN, fault);
	if (error < 0)
		return error;
	entry->writes--;
	kvm_vcpu_mark_page_dirty(entry->vcpu, frame);
	return error;
}

static enum tmem_status check(const struct tmem_channel *channel, const struct tmem_lane *lane,
			      const struct tmem_desc *desc)
{
	if (!(channel->guest_page.features_chosen & TMEM_FEATURE_REPORT))
		return TMEM_STATUS_UNSUPPORTED;
	if (desc->flags || desc->status || desc->tag || desc->pool || desc->index ||
	    desc->object[0] || desc->object[1] || desc->object[2] || !desc->count ||
	    desc->count > TMEM_MAX_REPORT_RANGES ||
	    (desc->state != TMEM_REPORT_POSTED && desc->state != TMEM_REPORT_WITHDRAWN))
		return TMEM_STATUS_BAD_FIELD;
	if (desc->value >= lane->slots || test_bit(desc->value, lane->busy))
		return TMEM_STATUS_BAD_SLOT;
	return TMEM_STATUS_OK;
}

static u64 offset_of_slot(const struct tmem_lane *lane, u32 slot)
{
	return lane->offset + tmem_slots_offset(lane->entries) + ((u64)slot << TMEM_PAGE_SHIFT);
}

/* Answers a status to be given at once, or 0 with a report begun, or an error. */
static int begin(struct tmem_entry *entry, struct tmem_channel *channel, struct tmem_lane *lane,
		 const struct tmem_desc *desc, u64 offset)
{
	enum tmem_status status = check(channel, lane, desc);
	struct tmem_punch *punch;
	int error;

	if (status != TMEM_STATUS_OK)
		return status;
	if (entry->writes < WRITES_OF_REPORT)
		return -EAGAIN;
	if (!channel->punch)
		channel->punch = kvzalloc(sizeof(*channel->punch), GFP_KERNEL_ACCOUNT);
	punch = channel->punch;
	if (!punch)
		return TMEM_STATUS_INHIBITED;
	error = take_state(entry, channel, offset);
	if (error)
		return error < 0 ? error : TMEM_STATUS_NOT_TAKEN;
	punch->slot = array_index_nospec(desc->value, lane->slots);
	punch->count = desc->count;
	error = window_read(entry, channel, offset_of_slot(lane, punch->slot), punch->ranges,
			    punch->count * sizeof(*punch->ranges));
	if (error)
		return error;
	sort_ranges(entry->vcpu->kvm, punch);
	spare_window(channel);
	punch->next = 0;
	punch->position = punch->good ? range_at(punch, 0)->address : 0;
	punch->dropped = 0;
	punch->active = true;
	return 0;
}

/* For the daemon: what became of it, in fields that a guest's descriptor has otherwise. */
static void tell_daemon(struct tmem_desc *desc, enum tmem_status status, u64 dropped, bool taken)
{
	struct tmem_desc told = {
		.op = TMEM_OP_REPORT,
		.state = taken ? TMEM_REPORT_ANSWERED : TMEM_REPORT_WITHDRAWN,
		.tag = status,
		.value = dropped,
	};

	memcpy(desc, &told, sizeof(told));
}

/* Whether the host was not willing to drop anything that could be. */
static bool is_inhibited(const struct tmem_punch *punch)
{
	u32 at;

	for (at = 0; at < punch->good; at++)
		if (punch->ranges[punch->order[at]].status != TMEM_STATUS_INHIBITED)
			return false;
	return punch->good;
}

/* Statuses, then the state, then the descriptor is done. */
static int answer(struct tmem_entry *entry, struct tmem_channel *channel, struct tmem_lane *lane,
		  u64 offset)
{
	struct tmem_punch *punch = channel->punch;
	u32 state = TMEM_REPORT_ANSWERED;
	int error;

	error = window_write(entry, channel, offset_of_slot(lane, punch->slot), punch->ranges,
			     punch->count * sizeof(*punch->ranges));
	if (!error)
		error = window_write(entry, channel, offset + offsetof(struct tmem_desc, state),
				     &state, sizeof(state));
	return error;
}

int punch_report(struct tmem_entry *entry, struct tmem_channel *channel, struct tmem_lane *lane,
		 struct tmem_desc *desc, u64 offset, u16 *named)
{
	struct tmem_punch *punch;
	struct tmem_desc copy;
	int error;

	lockdep_assert_held(&lane->lock);
	*named = 0;
	if (!punch_is_active(channel)) {
		/* The daemon may write there; what is checked is what is used. */
		memcpy(&copy, desc, sizeof(copy));
		error = begin(entry, channel, lane, &copy, offset);
		if (error < 0)
			return error;
		if (error) {
			tmem_count(TMEM_COUNT_reports_refused);
			tell_daemon(desc, error, 0, false);
			return 0;
		}
		tmem_count(TMEM_COUNT_reports);
	}
	punch = channel->punch;
	error = proceed(entry, channel);
	if (!error && entry->writes < WRITES_OF_REPORT)
		error = -EAGAIN;
	if (!error)
		error = answer(entry, channel, lane, offset);
	if (error)
		return error;
	punch->active = false;
	__set_bit(punch->slot, lane->busy);
	*named = TMEM_NAMES_SLOT | punch->slot;
	tmem_count_add(TMEM_COUNT_report_bytes, punch->dropped);
	tell_daemon(desc, is_inhibited(punch) ? TMEM_STATUS_INHIBITED : TMEM_STATUS_OK,
		    punch->dropped, true);
	return 0;
}
