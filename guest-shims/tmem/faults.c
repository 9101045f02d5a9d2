// SPDX-License-Identifier: GPL-2.0-only
/* Parameters of faults on purpose: tmem.fault and what widens races for it. Debug-only. */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/module.h>
#include <linux/string.h>

#include "core/fault.h"

static_assert((int)TMEM_HOOK_FAULT_NO_INVALIDATE == TMEM_FAULT_DIRECT_WRITE_NO_INVALIDATE);
static_assert((int)TMEM_HOOK_FAULT_EMPTY_MAPPING == TMEM_FAULT_DIRECT_WRITE_EMPTY_MAPPING);
static_assert((int)TMEM_HOOK_FAULT_OVER_BUFFERS == TMEM_FAULT_GET_OVER_BUFFERS);

/* All switches stand behind one key. Setters run one at a time. */
static void turn_key(void)
{
	if (tmem_faults.fault || tmem_faults.delay_us || tmem_faults.fail_direct_writes ||
	    tmem_inject.fail_loads || tmem_inject.late_gets)
		static_branch_enable(&tmem_faults_key);
	else
		static_branch_disable(&tmem_faults_key);
}

static int fault_set(const char *text, const struct kernel_param *param)
{
	char name[32];
	int fault;

	if (strscpy(name, text, sizeof(name)) < 0)
		return -EINVAL;
	fault = tmem_fault_of_name(strim(name));
	if (fault < 0)
		return fault;
	WRITE_ONCE(tmem_faults.fault, fault);
	turn_key();
	if (fault)
		pr_err("fault %s is on: data will be wrong\n", tmem_fault_name(fault));
	return 0;
}

static int fault_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", tmem_fault_name(READ_ONCE(tmem_faults.fault)));
}

static const struct kernel_param_ops fault_ops = {
	.set = fault_set,
	.get = fault_get,
};
module_param_cb(fault, &fault_ops, NULL, 0644);
MODULE_PARM_DESC(fault, "fault on purpose, for tests of the tests (none|see core/fault.h)");

static int number_set(const char *text, const struct kernel_param *param)
{
	int error = param_set_uint(text, param);

	turn_key();
	return error;
}

static const struct kernel_param_ops number_ops = {
	.set = number_set,
	.get = param_get_uint,
};
module_param_cb(delay_us, &number_ops, &tmem_faults.delay_us, 0644);
MODULE_PARM_DESC(delay_us, "longest delay where races live, debug-only");
module_param_cb(fail_direct_writes, &number_ops, &tmem_faults.fail_direct_writes, 0644);
MODULE_PARM_DESC(fail_direct_writes, "every so many direct writes seem to fail, debug-only");
module_param_cb(fail_loads, &number_ops, &tmem_inject.fail_loads, 0644);
MODULE_PARM_DESC(fail_loads, "every so many swap-ins the host seems to have lost, debug-only");
module_param_cb(late_gets, &number_ops, &tmem_inject.late_gets, 0644);
MODULE_PARM_DESC(late_gets, "every so many gets give up before they are sent, debug-only");
