/* SPDX-License-Identifier: GPL-2.0-only */
/* Ways to a host: each finds a window and rings a doorbell. */
#ifndef TMEM_TRANSPORT_H
#define TMEM_TRANSPORT_H

#include <linux/types.h>

#include "abi/tmem_abi.h"

/**
 * struct tmem_transport - a way to a host
 * @name: as in tmem.transport=
 * @find: find the host's window, once. From then on the transport calls tmem_host_notified() when
 *	the host notifies the guest. Returns 0 or an error; -ENODEV if there is none.
 * @ring: ring the host's doorbell. Any context. NULL with @hypercall.
 * @leave: let the host go, which has not registered us. NULL: it cannot.
 * @hypercall: NULL, or enter the host: see struct tmem_client_ops. The host never notifies then.
 */
struct tmem_transport {
	const char *name;
	int (*find)(void **window, u64 *bytes);
	void (*leave)(void);
	void (*ring)(void);
	u32 (*hypercall)(enum tmem_hypercall operation, u64 lanes);
};

extern const struct tmem_transport tmem_hypercall_transport;
extern const struct tmem_transport tmem_ivshmem;

#endif /* TMEM_TRANSPORT_H */
