// SPDX-License-Identifier: GPL-2.0-only
/* Transport over KVM: a window in this guest's own RAM, and hypercalls that hand its lanes over. */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/cc_platform.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include <asm/alternative.h>
#include <asm/asm.h>
#include <asm/cpufeature.h>
#include <asm/processor.h>

#include "guest.h"
#include "transport.h"

/* The usual window: abi/README.md, section 1. */
#define WINDOW_BYTES (4UL << 20)
#define KEY_LANES 8
#define RING_ENTRIES 256
#define LANE_SLOTS 120
#define CONTROL_RING_ENTRIES 64
#define CONTROL_SLOTS 8
#define WINDOW_PAGES (WINDOW_BYTES >> PAGE_SHIFT)

static struct {
	u64 number; /* in rax */
	void *window;
	u64 *pages; /* their physical addresses, WINDOW_PAGES of them; physically contiguous */
} host;

/*
 * KVM would have to patch the instruction of the other vendor, and kernel text is read-only. Where
 * the instruction is not known at all, after a migration to another hypervisor, rax stays as it is.
 */
static u64 hypercall(u64 operation, u64 argument, u64 argument2)
{
	u64 answer = host.number;

	asm volatile("1: " ALTERNATIVE("vmcall", "vmmcall", X86_FEATURE_VMMCALL) "\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : "+a" (answer)
		     : "b" (operation), "c" (argument), "d" (argument2), "S" (0UL)
		     : "memory");
	return answer;
}

/* A Hyper-V interface gives the registers another meaning. */
static bool under_kvm(void)
{
	return boot_cpu_has(X86_FEATURE_HYPERVISOR) &&
	       !hypervisor_cpuid_base("Microsoft Hv", 0) &&
	       hypervisor_cpuid_base("KVMKVMKVM\0\0\0", 0);
}

static bool host_answers(void)
{
	u64 answer = hypercall(TMEM_HC_NEGOTIATE, 0, 0);

	return (answer & ~0xffffffffULL) == TMEM_HC_MAGIC && (u32)answer >= TMEM_ABI_VERSION;
}

static void write_geometry(struct tmem_geometry *geometry)
{
	geometry->magic = TMEM_MAGIC;
	geometry->version = TMEM_ABI_VERSION;
	geometry->version_min = TMEM_ABI_VERSION;
	geometry->window_bytes = WINDOW_BYTES;
	geometry->page_bytes = TMEM_PAGE_BYTES;
	geometry->key_lanes = KEY_LANES;
	geometry->ring_entries = RING_ENTRIES;
	geometry->lane_slots = LANE_SLOTS;
	geometry->control_ring_entries = CONTROL_RING_ENTRIES;
	geometry->control_slots = CONTROL_SLOTS;
}

/* Contiguous memory is mapped by huge pages; any will do. */
static void *allocate_window(void)
{
	void *window = alloc_pages_exact(WINDOW_BYTES, GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN);

	return window ? window : vzalloc(WINDOW_BYTES);
}

static u64 address_of(const void *memory)
{
	return is_vmalloc_addr(memory) ? (u64)vmalloc_to_pfn(memory) << PAGE_SHIFT :
					 virt_to_phys(memory);
}

/* Once: it stays for as long as the kernel runs. */
static int create_window(void)
{
	unsigned long at;

	host.pages = alloc_pages_exact(WINDOW_PAGES * sizeof(u64), GFP_KERNEL);
	if (!host.pages)
		return -ENOMEM;
	host.window = allocate_window();
	if (!host.window) {
		free_pages_exact(host.pages, WINDOW_PAGES * sizeof(u64));
		return -ENOMEM;
	}
	for (at = 0; at < WINDOW_PAGES; at++)
		host.pages[at] = address_of(host.window + (at << PAGE_SHIFT));
	write_geometry(host.window);
	return 0;
}

static int find(void **window, u64 *bytes)
{
	int error;

	host.number = tmem_hypercall_number();
	/* The host could not read the memory of an encrypted guest. */
	if (!under_kvm() || cc_platform_has(CC_ATTR_MEM_ENCRYPT) || !host_answers())
		return -ENODEV;
	error = create_window();
	if (error)
		return error;
	*window = host.window;
	*bytes = WINDOW_BYTES;
	return 0;
}

static void leave(void)
{
	hypercall(TMEM_HC_UNREGISTER, 0, 0);
	free_pages_exact(host.pages, WINDOW_PAGES * sizeof(u64));
	if (is_vmalloc_addr(host.window))
		vfree(host.window);
	else
		free_pages_exact(host.window, WINDOW_BYTES);
}

static u32 enter(enum tmem_hypercall operation, u64 lanes)
{
	u64 answer;

	if (operation == TMEM_HC_REGISTER)
		answer = hypercall(operation, virt_to_phys(host.pages), WINDOW_PAGES);
	else
		answer = hypercall(operation, lanes, 0);
	/* Restored on a host without tmem, say. */
	if ((answer & ~0xffffffffULL) != TMEM_HC_TAG)
		return TMEM_HC_GONE;
	return (u32)answer;
}

const struct tmem_transport tmem_hypercall_transport = {
	.name = "hypercall",
	.find = find,
	.leave = leave,
	.hypercall = enter,
};
