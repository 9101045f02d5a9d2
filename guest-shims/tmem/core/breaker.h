/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One breaker for each kind of pages: after a time-out nobody waits for the host any more.
 *
 * While it is open, gets of that kind miss and puts are refused at once. The worker rings once a
 * second; a heartbeat or an epoch that differs from the one at the trip closes it. Words are read
 * and written without a lock: a late reader waits once more, or misses once more.
 */
#ifndef TMEM_CORE_BREAKER_H
#define TMEM_CORE_BREAKER_H

#include "platform.h"

struct tmem_breaker {
	u32 open;
	u64 heartbeat, epoch; /* of the host when it opened */
};

bool tmem_breaker_trip(struct tmem_breaker *breaker, const struct tmem_host_page *host);
bool tmem_breaker_stays_open(struct tmem_breaker *breaker, const struct tmem_host_page *host);
void tmem_breaker_close(struct tmem_breaker *breaker);

/**
 * tmem_breaker_is_open - is the host taken for lost?
 * @breaker: breaker of the kind of pages
 * @host: the host's page of the window
 */
static inline bool tmem_breaker_is_open(struct tmem_breaker *breaker,
					const struct tmem_host_page *host)
{
	return tmem_load_acquire(&breaker->open) && tmem_breaker_stays_open(breaker, host);
}

#endif /* TMEM_CORE_BREAKER_H */
