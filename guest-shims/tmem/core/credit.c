// SPDX-License-Identifier: GPL-2.0-only
/* Credits for persistent puts. */
#include "credit.h"

/**
 * tmem_credit_init - where the host's notices stand
 * @credit: credit
 * @host: the host's page of the window
 */
void tmem_credit_init(struct tmem_credit *credit, const struct tmem_host_page *host)
{
	credit->host = host;
	tmem_credit_reset(credit);
}

/**
 * tmem_credit_reset - start counting after a registration
 * @credit: credit
 */
void tmem_credit_reset(struct tmem_credit *credit)
{
	tmem_write(&credit->used, 0ULL);
}

/**
 * tmem_credit_available - puts that may be made now
 * @credit: credit
 */
u64 tmem_credit_available(struct tmem_credit *credit)
{
	u64 unused = tmem_read(&credit->host->credits_granted) - tmem_read(&credit->used);

	return unused > TMEM_CREDITS_SANE ? 0 : unused;
}

/**
 * tmem_credit_take - consume a credit
 * @credit: credit
 *
 * Return: false if there is none.
 */
bool tmem_credit_take(struct tmem_credit *credit)
{
	if (tmem_read(&credit->host->frozen))
		return false;
	for (;;) {
		u64 used = tmem_read(&credit->used);

		if (!tmem_credit_available(credit))
			return false;
		if (tmem_compare_swap(&credit->used, used, used + 1))
			return true;
	}
}

/**
 * tmem_credit_give_back - credits that were taken were not used
 * @credit: credit
 * @number: how many
 */
void tmem_credit_give_back(struct tmem_credit *credit, u64 number)
{
	tmem_fetch_add(&credit->used, 0 - number);
}

/**
 * tmem_credit_take_excess - take out what the host wants back
 * @credit: credit
 *
 * Return: how many credits the caller is to return to the host.
 */
u64 tmem_credit_take_excess(struct tmem_credit *credit)
{
	u64 excess = 0;

	while (tmem_credit_available(credit) > tmem_read(&credit->host->credits_target)) {
		u64 used = tmem_read(&credit->used);

		if (tmem_compare_swap(&credit->used, used, used + 1))
			excess++;
	}
	return excess;
}
