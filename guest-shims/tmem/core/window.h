/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The window as the guest trusts it: geometry checked from one copy, and registration.
 *
 * The memory behind it may hold anything; only the copy in this struct is used afterwards.
 */
#ifndef TMEM_CORE_WINDOW_H
#define TMEM_CORE_WINDOW_H

#include "platform.h"

struct tmem_window {
	struct tmem_header *header;
	struct tmem_geometry geometry; /* the one copy, checked */
	u64 boot_id[2];
	u64 wanted; /* features, if the host offers them */
	u64 features; /* chosen */
};

int tmem_window_attach(struct tmem_window *window, void *memory, u64 bytes);
void tmem_window_request(struct tmem_window *window, u64 request, u64 offered);
int tmem_window_answer(struct tmem_window *window, u64 request);

#endif /* TMEM_CORE_WINDOW_H */
