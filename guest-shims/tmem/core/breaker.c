// SPDX-License-Identifier: GPL-2.0-only
/* After a time-out nobody waits for the host until it shows life. */
#include "breaker.h"

/**
 * tmem_breaker_trip - a wait for the host timed out
 * @breaker: breaker of the kind of pages
 * @host: the host's page of the window
 *
 * Return: whether it was closed before.
 */
bool tmem_breaker_trip(struct tmem_breaker *breaker, const struct tmem_host_page *host)
{
	if (tmem_read(&breaker->open))
		return false;
	tmem_write(&breaker->heartbeat, tmem_read(&host->heartbeat));
	tmem_write(&breaker->epoch, tmem_read(&host->epoch));
	tmem_store_release(&breaker->open, 1U);
	return true;
}

/**
 * tmem_breaker_stays_open - has the host shown no life since it was taken for lost?
 * @breaker: breaker of the kind of pages, open
 * @host: the host's page of the window
 *
 * Closes it otherwise.
 */
bool tmem_breaker_stays_open(struct tmem_breaker *breaker, const struct tmem_host_page *host)
{
	if (tmem_read(&host->heartbeat) == tmem_read(&breaker->heartbeat) &&
	    tmem_read(&host->epoch) == tmem_read(&breaker->epoch))
		return true;
	tmem_breaker_close(breaker);
	return false;
}

/**
 * tmem_breaker_close - believe in the host again
 * @breaker: breaker
 */
void tmem_breaker_close(struct tmem_breaker *breaker)
{
	tmem_store_release(&breaker->open, 0U);
}
