// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two hooks by ftrace in an unmodified KVM.
 *
 * kvm_emulate_hypercall() is redirected for our number only, the original runs first, and only what
 * it answers with -KVM_ENOSYS is ours: privilege, Hyper-V, Xen, statistics and tracepoints stay
 * KVM's. kvm_arch_destroy_vm() is only watched, so that no reference on a VM has to be held.
 *
 * Both are permanent: kernel.ftrace_enabled=0 is refused while we are loaded, instead of taking the
 * hooks away silently. Only one user may redirect a function: a live patch of
 * kvm_emulate_hypercall() and this module exclude each other.
 */
#define pr_fmt(fmt) "kvm_tmem: " fmt

#include <linux/ftrace.h>
#include <linux/kvm_host.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/srcu.h>

#include "channel.h"
#include "parts.h"

#ifndef CONFIG_DYNAMIC_FTRACE_WITH_REGS
#error "kvm_tmem needs a kernel with CONFIG_DYNAMIC_FTRACE_WITH_REGS"
#endif

#define DESTROY_FUNCTION "kvm_arch_destroy_vm"

/* Tasks in hooked_hypercall(), in the call of the original too. */
DEFINE_STATIC_SRCU(in_flight);

/*
 * Instead of kvm_emulate_hypercall(). Irqs are on, kvm->srcu and vcpu->mutex are held; may sleep.
 * What the original returned is returned also when that is 0: under single-step it has moved past
 * the instruction all the same, and rax is written before the VMM looks.
 */
static int hooked_hypercall(struct kvm_vcpu *vcpu)
{
	int index = srcu_read_lock(&in_flight);
	int returned = kvm_emulate_hypercall(vcpu);

	hypercall_act(vcpu);
	srcu_read_unlock(&in_flight, index);
	return returned;
}

/* The number is tested here: a hypercall that is not ours never enters hooked_hypercall(). */
static void notrace on_hypercall(unsigned long ip, unsigned long parent_ip,
				 struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *regs = ftrace_get_regs(fregs);
	struct kvm_vcpu *vcpu;

	/* Our own call of the original. */
	if (!regs || within_module(parent_ip, THIS_MODULE))
		return;
	vcpu = (struct kvm_vcpu *)regs->di;
	/* General registers are always cached there after an exit, on SVM and on VMX. */
	if (vcpu->arch.regs[VCPU_REGS_RAX] == tmem_hypercall_number())
		ftrace_instruction_pointer_set(fregs, (unsigned long)hooked_hypercall);
}

/* Runs with preemption off, in whatever task dropped the last reference on the VM. */
static void notrace on_destroy(unsigned long ip, unsigned long parent_ip,
			       struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	struct pt_regs *regs = ftrace_get_regs(fregs);

	if (regs)
		channels_vm_ended((struct kvm *)regs->di);
}

static struct ftrace_ops hypercall_ops = {
	.func = on_hypercall,
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT,
};

static struct ftrace_ops destroy_ops = {
	.func = on_destroy,
	.flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_PERMANENT,
};

static void remove_hook(struct ftrace_ops *ops)
{
	if (unregister_ftrace_function(ops))
		pr_err("cannot remove a hook\n");
	ftrace_free_filter(ops);
}

int hooks_install(void)
{
	int error;

	/* By name: KVM does not export it. */
	error = ftrace_set_filter(&destroy_ops, DESTROY_FUNCTION, strlen(DESTROY_FUNCTION), 1);
	if (!error)
		error = register_ftrace_function(&destroy_ops);
	if (error) {
		pr_err("cannot watch %s: %d\n", DESTROY_FUNCTION, error);
		goto free_destroy_filter;
	}
	error = ftrace_set_filter_ip(&hypercall_ops, (unsigned long)kvm_emulate_hypercall, 0, 1);
	if (!error)
		error = register_ftrace_function(&hypercall_ops);
	if (error) {
		pr_err("cannot hook kvm_emulate_hypercall: %d%s\n", error,
		       error == -EBUSY ? ", a live patch or kernel.ftrace_enabled=0" : "");
		goto remove_destroy;
	}
	return 0;

remove_destroy:
	ftrace_free_filter(&hypercall_ops);
	remove_hook(&destroy_ops);
	return error;
free_destroy_filter:
	ftrace_free_filter(&destroy_ops);
	return error;
}

void hooks_remove(void)
{
	remove_hook(&hypercall_ops);
	/*
	 * A task may be on its way from the callback to hooked_hypercall(), not counted yet; then
	 * it is counted; then it is on its way out, not counted any more.
	 */
	synchronize_rcu_tasks();
	synchronize_srcu(&in_flight);
	synchronize_rcu_tasks();
	remove_hook(&destroy_ops);
}
