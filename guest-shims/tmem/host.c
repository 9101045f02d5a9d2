// SPDX-License-Identifier: GPL-2.0-only
/* The one host of this guest: its transport, and what drives the client. */
#define pr_fmt(fmt) "tmem: " fmt

#include <linux/err.h>
#include <linux/hrtimer.h>
#include <linux/init.h>
#include <linux/irq_work.h>
#include <linux/workqueue.h>

#include "core/fault.h"
#include "guest.h"
#include "transport.h"

/* What stays staged is kicked after this. */
#define KICK_LATER_NS (1 * NSEC_PER_MSEC)

/*
 * By hypercall each kick is an exit, also one for a few pages: from 320 pages a second on there is
 * at most one for 16. What is staged can be got back all the same.
 */
#define KICK_LATER_HYPERCALL_NS (50 * NSEC_PER_MSEC)

/*
 * Looking at the window before sleeping. A daemon that is awake answers a get in some microseconds,
 * and 64 of them in 100 to 200; being woken by it costs 50 to 150 under emulation.
 */
#define SPIN_NS (20 * NSEC_PER_USEC)
#define SPIN_PAGE_NS (4 * NSEC_PER_USEC)

static struct tmem_client *the_client; /* set once, before the transport may notify */
static const struct tmem_transport *the_transport;
static struct irq_work soon;
static struct hrtimer later;
static struct workqueue_struct *queue;
static struct delayed_work work;

static void queue_work_if_wanted(void)
{
	if (READ_ONCE(the_client->wants_work))
		mod_delayed_work(queue, &work, 0);
}

/*
 * Also where the kick is a hypercall that copies 32 pages: no lock of ours is held, and while the
 * host copies, this processor takes no interrupt whether they are on or off. A worker would come
 * later, when slots may be short.
 */
static void on_soon(struct irq_work *irq_work)
{
	tmem_client_kick_soon(the_client);
	queue_work_if_wanted();
}

static enum hrtimer_restart on_later(struct hrtimer *timer)
{
	tmem_client_kick_later(the_client);
	queue_work_if_wanted();
	return HRTIMER_NORESTART;
}

static void on_work(struct work_struct *unused)
{
	u64 again_ns = tmem_client_work(the_client);

	if (again_ns)
		queue_delayed_work(queue, &work, nsecs_to_jiffies(again_ns) + 1);
	queue_work_if_wanted();
}

static void ring(void *context)
{
	the_transport->ring();
}

static u32 hypercall(void *context, enum tmem_hypercall operation, u64 lanes)
{
	return the_transport->hypercall(operation, lanes);
}

static void kick_soon(void *context)
{
	irq_work_queue(&soon);
}

static void kick_later(void *context)
{
	u64 delay_ns = the_transport->hypercall ? KICK_LATER_HYPERCALL_NS : KICK_LATER_NS;

	/* Debug-only: what stays staged for longer meets more. */
	delay_ns += tmem_fault_delay_us() * NSEC_PER_USEC;
	hrtimer_start(&later, ns_to_ktime(delay_ns), HRTIMER_MODE_REL_SOFT);
}

static void shrink_soon(void *context)
{
	tmem_shrink_soon();
}

static struct tmem_client_ops client_ops __ro_after_init = {
	.ring = ring,
	.kick_soon = kick_soon,
	.kick_later = kick_later,
	.shrink_soon = shrink_soon,
	/* hypercall and copy_page are chosen when the host is found. */
};

/**
 * tmem_host_notified - the host has notified the guest
 *
 * Called by the transport; hard interrupts included.
 */
void tmem_host_notified(void)
{
	/* Pairs with tmem_host_connect(). */
	struct tmem_client *client = smp_load_acquire(&the_client);

	if (client && tmem_client_interrupt(client))
		mod_delayed_work(queue, &work, 0);
}

static struct tmem_client * __init create_client(void *window, u64 bytes)
{
	struct tmem_client_options options = {
		.ops = &client_ops,
		.table_keys = tmem_table_keys(),
		.get_timeout_ns = TMEM_GET_TIMEOUT_NS,
		.load_timeout_ns = (u64)tmem_load_timeout_s() * NSEC_PER_SEC,
		.spin_ns = SPIN_NS,
		.spin_page_ns = SPIN_PAGE_NS,
		.shrink = tmem_shrink_enabled(),
	};
	struct tmem_client *client = tmem_alloc(sizeof(*client));
	int error;

	if (!client)
		return ERR_PTR(-ENOMEM);
	error = tmem_client_create(client, &options, window, bytes);
	if (error) {
		tmem_free(client);
		return ERR_PTR(error);
	}
	return client;
}

/* Returns a client that has asked for registration; @error says with what success. */
static struct tmem_client * __init connect_by(const struct tmem_transport *transport, int *error)
{
	struct tmem_client *client;
	void *window;
	u64 bytes;

	if (!tmem_transport_allowed(transport->name))
		return ERR_PTR(-ENODEV);
	*error = transport->find(&window, &bytes);
	if (*error)
		return ERR_PTR(*error);
	the_transport = transport;
	client_ops.hypercall = transport->hypercall ? hypercall : NULL;
	client = create_client(window, bytes);
	if (IS_ERR(client))
		return client;
	/* Whoever sees the client sees all of it. */
	smp_store_release(&the_client, client);
	*error = tmem_client_register(client);
	return client;
}

/*
 * The hypercall first. A KVM host whose daemon is not there, or does not want this guest, gives way
 * to a device that somebody has put in for it.
 */
static struct tmem_client * __init connect(int *error)
{
	struct tmem_client *client = connect_by(&tmem_hypercall_transport, error);
	struct tmem_client *other;
	int other_error = 0;

	if (!IS_ERR(client) && !*error)
		return client;
	/* Not registered: nobody uses it, and an interrupt of the device is not for it. */
	WRITE_ONCE(the_client, NULL);
	other = connect_by(&tmem_ivshmem, &other_error);
	if (!IS_ERR(other) || IS_ERR(client)) {
		if (!IS_ERR(client)) {
			tmem_client_destroy(client);
			tmem_free(client);
			tmem_hypercall_transport.leave();
		}
		*error = other_error;
		return other;
	}
	the_transport = &tmem_hypercall_transport;
	client_ops.hypercall = hypercall;
	smp_store_release(&the_client, client); /* as in connect_by() */
	return client;
}

/**
 * tmem_host_connect - find a host and register with it
 *
 * Return: the client, registered or trying to, or an error: there is no host.
 */
struct tmem_client * __init tmem_host_connect(void)
{
	struct tmem_client *client;
	const char *copy_name;
	int error;

	queue = alloc_workqueue("tmem", WQ_UNBOUND | WQ_MEM_RECLAIM, 1);
	if (!queue)
		return ERR_PTR(-ENOMEM);
	INIT_DELAYED_WORK(&work, on_work);
	init_irq_work(&soon, on_soon);
	hrtimer_init(&later, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	later.function = on_later;
	client_ops.copy_page = tmem_copy_choose(&copy_name);
	client = connect(&error);
	if (IS_ERR(client)) {
		destroy_workqueue(queue);
		return client;
	}
	pr_info("%s: %u lanes of %u slots, %u keys, copying by %s\n", the_transport->name,
		client->key_lanes, client->window.geometry.lane_slots, client->options.table_keys,
		copy_name);
	if (error) {
		/* It may have us later: until then everything misses. */
		pr_err("the host does not have us yet (error %d), trying again every second\n",
		       error);
		queue_delayed_work(queue, &work, nsecs_to_jiffies(TMEM_PROBE_NS));
	}
	return client;
}
