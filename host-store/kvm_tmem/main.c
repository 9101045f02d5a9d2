// SPDX-License-Identifier: GPL-2.0-only
/*
 * kvm_tmem: the hypercall doorbell. Adds one hypercall number to an unmodified KVM and hands what
 * guests post in their windows to the daemon, as copies. Holds no policy of its own.
 */
#define pr_fmt(fmt) "kvm_tmem: " fmt

#include <linux/module.h>
#include <linux/moduleparam.h>

#include "abi/tmem_abi.h"

#include "channel.h"
#include "parts.h"

/* Linux counts its own numbers up from 1 (kvm_para.h); ours stays well away from them. */
#define LOWEST_HYPERCALL 0x10000UL

static unsigned long hypercall = TMEM_HYPERCALL_DEFAULT;
module_param(hypercall, ulong, 0444);
MODULE_PARM_DESC(hypercall, "number in rax that is ours");

static unsigned long pool_limit_mb;
module_param(pool_limit_mb, ulong, 0644);
MODULE_PARM_DESC(pool_limit_mb, "what the daemon may hold at most; 0: it decides itself");

static unsigned int max_guests = 64;
module_param(max_guests, uint, 0644);
MODULE_PARM_DESC(max_guests, "guests registered at once");

static unsigned int max_window_kb = 16384;
module_param(max_window_kb, uint, 0644);
MODULE_PARM_DESC(max_window_kb, "size of a guest's window, at most 262144");

unsigned long tmem_hypercall_number(void)
{
	return hypercall;
}

u64 tmem_pool_limit_bytes(void)
{
	return (u64)READ_ONCE(pool_limit_mb) << 20;
}

unsigned int tmem_max_guests(void)
{
	return READ_ONCE(max_guests);
}

u64 tmem_max_window_bytes(void)
{
	return min_t(u64, (u64)READ_ONCE(max_window_kb) << 10, TMEM_MAX_WINDOW_BYTES);
}

static int __init tmem_init(void)
{
	int error;

	if (hypercall < LOWEST_HYPERCALL) {
		pr_err("hypercall=%lu is not away from KVM's own numbers, want at least %lu\n",
		       hypercall, LOWEST_HYPERCALL);
		return -EINVAL;
	}
	error = channels_create();
	if (error)
		return error;
	error = hooks_install();
	if (error)
		goto destroy_channels;
	/* Last: what user space can open must not go again. */
	error = tmem_device_create();
	if (error)
		goto remove_hooks;
	pr_info("answers hypercall %#lx\n", hypercall);
	return 0;

remove_hooks:
	hooks_remove();
destroy_channels:
	channels_destroy();
	return error;
}

/* Nobody has the device or a channel open: each such file holds a reference on the module. */
static void __exit tmem_exit(void)
{
	tmem_device_remove();
	hooks_remove();
	channels_destroy();
}

module_init(tmem_init);
module_exit(tmem_exit);
MODULE_DESCRIPTION("tmem for KVM: the hypercall doorbell");
MODULE_AUTHOR("The tmem authors");
MODULE_VERSION("1");
MODULE_LICENSE("GPL");
