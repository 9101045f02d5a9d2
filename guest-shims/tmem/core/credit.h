/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Credits for persistent puts: granted by the host, each consumed by one put.
 *
 * No lock: one atomic count of what was consumed or returned. The host's own count decides, so a
 * notice that cannot be right is taken as no credit.
 */
#ifndef TMEM_CORE_CREDIT_H
#define TMEM_CORE_CREDIT_H

#include "platform.h"

/* More unused credits than this (4 GiB of pages) are taken for rubbish. */
#define TMEM_CREDITS_SANE (1ULL << 20)

struct tmem_credit {
	const struct tmem_host_page *host;
	u64 used; /* consumed or returned since registration */
};

void tmem_credit_init(struct tmem_credit *credit, const struct tmem_host_page *host);
void tmem_credit_reset(struct tmem_credit *credit);
u64 tmem_credit_available(struct tmem_credit *credit);
bool tmem_credit_take(struct tmem_credit *credit);
void tmem_credit_give_back(struct tmem_credit *credit, u64 number);
u64 tmem_credit_take_excess(struct tmem_credit *credit);

#endif /* TMEM_CORE_CREDIT_H */
