// SPDX-License-Identifier: GPL-2.0-only
/* /dev/kvm_tmem: the daemon takes guests from it; each accepted one is a file of its own. */

#include <linux/anon_inodes.h>
#include <linux/eventfd.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "channel.h"
#include "counters.h"
#include "parts.h"

/* ---- a channel's file: holds a reference on its channel, and so does each mapping of it ---- */

static int channel_file_mmap(struct file *file, struct vm_area_struct *area)
{
	struct tmem_channel *channel = file->private_data;

	if (!(area->vm_flags & VM_SHARED))
		return -EINVAL;
	/* A child of the daemon would keep the channel alive. */
	area->vm_flags |= VM_DONTCOPY;
	return remap_vmalloc_range(area, channel->window, area->vm_pgoff);
}

static __poll_t channel_file_poll(struct file *file, struct poll_table_struct *wait)
{
	struct tmem_channel *channel = file->private_data;

	poll_wait(file, &channel->pollers, wait);
	return channel_state(channel) == CHANNEL_ENDED ? EPOLLHUP : 0;
}

static long get_slots(struct tmem_channel *channel, void __user *where)
{
	struct kvm_tmem_slots *slots = kzalloc(sizeof(*slots), GFP_KERNEL);
	int error;

	if (!slots)
		return -ENOMEM;
	if (copy_from_user(slots, where, offsetof(struct kvm_tmem_slots, slots)))
		error = -EFAULT;
	else
		error = channel_slots(channel, slots);
	if (!error && copy_to_user(where, slots, sizeof(*slots)))
		error = -EFAULT;
	kfree(slots);
	return error;
}

static long channel_file_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct tmem_channel *channel = file->private_data;

	switch (command) {
	case KVM_TMEM_COMPLETE:
		wake_up_interruptible_all(&channel->vcpus);
		return 0;
	case KVM_TMEM_SLOTS:
		return get_slots(channel, (void __user *)argument);
	default:
		return -ENOTTY;
	}
}

static int channel_file_release(struct inode *inode, struct file *file)
{
	struct tmem_channel *channel = file->private_data;

	if (channel) {
		channel_end(channel, true);
		channel_put(channel);
	}
	return 0;
}

static const struct file_operations channel_file = {
	.owner = THIS_MODULE,
	.mmap = channel_file_mmap,
	.poll = channel_file_poll,
	.unlocked_ioctl = channel_file_ioctl,
	.release = channel_file_release,
	.llseek = noop_llseek,
};

/* ---- the device ---- */

static int device_open(struct inode *inode, struct file *file)
{
	return channels_open();
}

static int device_release(struct inode *inode, struct file *file)
{
	channels_close();
	return 0;
}

static __poll_t device_poll(struct file *file, struct poll_table_struct *wait)
{
	poll_wait(file, channels_waiting(), wait);
	return channels_any_queued() ? EPOLLIN | EPOLLRDNORM : 0;
}

static long get_info(void __user *where)
{
	struct kvm_tmem_info info = {
		.version = KVM_TMEM_DEVICE_VERSION,
		.max_guests = tmem_max_guests(),
		.pool_limit_bytes = tmem_pool_limit_bytes(),
		.max_window_bytes = tmem_max_window_bytes(),
		.hypercall = tmem_hypercall_number(),
	};

	return copy_to_user(where, &info, sizeof(info)) ? -EFAULT : 0;
}

static long get_next(void __user *where)
{
	struct kvm_tmem_guest guest;

	if (!channels_next(&guest))
		return -EAGAIN;
	return copy_to_user(where, &guest, sizeof(guest)) ? -EFAULT : 0;
}

/* A file for the channel, with the caller's reference on it if that went well. */
static int accept_channel(struct tmem_channel *channel, struct eventfd_ctx *kick)
{
	int fd = get_unused_fd_flags(O_CLOEXEC);
	struct file *file;

	if (fd < 0)
		return fd;
	file = anon_inode_getfile("[kvm_tmem]", &channel_file, NULL, O_RDWR);
	if (IS_ERR(file)) {
		put_unused_fd(fd);
		return PTR_ERR(file);
	}
	if (!channel_accept(channel, kick)) {
		fput(file);
		put_unused_fd(fd);
		return -ENOENT;
	}
	file->private_data = channel;
	/* Its registration is news already. */
	eventfd_signal(kick, 1);
	fd_install(fd, file);
	return fd;
}

static long accept_guest(const void __user *where)
{
	struct kvm_tmem_accept accept;
	struct tmem_channel *channel;
	struct eventfd_ctx *kick;
	int fd;

	if (copy_from_user(&accept, where, sizeof(accept)))
		return -EFAULT;
	if (accept.zero)
		return -EINVAL;
	kick = eventfd_ctx_fdget(accept.kick_fd);
	if (IS_ERR(kick))
		return PTR_ERR(kick);
	channel = channel_find_waiting(accept.channel);
	fd = channel ? accept_channel(channel, kick) : -ENOENT;
	if (fd < 0) {
		if (channel)
			channel_put(channel);
		eventfd_ctx_put(kick);
	}
	return fd;
}

static long refuse_guest(const void __user *where)
{
	struct tmem_channel *channel;
	__u64 number;
	bool waited;

	if (copy_from_user(&number, where, sizeof(number)))
		return -EFAULT;
	channel = channel_find_waiting(number);
	if (!channel)
		return -ENOENT;
	waited = channel_refuse(channel);
	channel_put(channel);
	return waited ? 0 : -ENOENT;
}

static long device_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *where = (void __user *)argument;

	switch (command) {
	case KVM_TMEM_INFO:
		return get_info(where);
	case KVM_TMEM_NEXT:
		return get_next(where);
	case KVM_TMEM_ACCEPT:
		return accept_guest(where);
	case KVM_TMEM_REFUSE:
		return refuse_guest(where);
	default:
		return -ENOTTY;
	}
}

static const struct file_operations device_file = {
	.owner = THIS_MODULE,
	.open = device_open,
	.release = device_release,
	.poll = device_poll,
	.unlocked_ioctl = device_ioctl,
	.llseek = noop_llseek,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "kvm_tmem",
	.fops = &device_file,
	.groups = tmem_counter_groups,
	.mode = 0600,
};

int tmem_device_create(void)
{
	return misc_register(&device);
}

void tmem_device_remove(void)
{
	misc_deregister(&device);
}
