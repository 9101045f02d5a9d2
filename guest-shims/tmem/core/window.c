// SPDX-License-Identifier: GPL-2.0-only
/* The window as the guest trusts it: geometry checked from one copy, and registration. */
#include "window.h"

/* What this guest knows how to use, and everybody may know it for. */
#define FEATURES_WANTED                                                                       \
	(TMEM_FEATURE_EPHEMERAL | TMEM_FEATURE_PERSISTENT | TMEM_FEATURE_FILL |               \
	 TMEM_FEATURE_REPORT)

static bool is_power_of_two(u32 number)
{
	return number && !(number & (number - 1));
}

static bool ring_size_ok(u32 entries)
{
	return is_power_of_two(entries) && entries >= TMEM_MIN_RING_ENTRIES &&
	       entries <= TMEM_MAX_RING_ENTRIES;
}

static int check_geometry(const struct tmem_geometry *geometry, u64 bytes)
{
	if (geometry->magic != TMEM_MAGIC)
		return -ENODEV;
	if (geometry->version_min > TMEM_ABI_VERSION || geometry->version < TMEM_ABI_VERSION)
		return -EPROTO;
	if (geometry->page_bytes != TMEM_PAGE_BYTES ||
	    geometry->window_bytes > bytes || geometry->window_bytes > TMEM_MAX_WINDOW_BYTES ||
	    geometry->window_bytes % TMEM_PAGE_BYTES)
		return -EINVAL;
	if (!is_power_of_two(geometry->key_lanes) || geometry->key_lanes > TMEM_MAX_KEY_LANES ||
	    !ring_size_ok(geometry->ring_entries) || !ring_size_ok(geometry->control_ring_entries))
		return -EINVAL;
	if (!geometry->lane_slots || geometry->lane_slots > TMEM_MAX_LANE_SLOTS ||
	    geometry->control_slots > TMEM_MAX_LANE_SLOTS)
		return -EINVAL;
	if (tmem_window_bytes_needed(geometry) > geometry->window_bytes)
		return -EINVAL;
	return 0;
}

/**
 * tmem_window_attach - take a copy of the window's geometry and check it
 * @window: set
 * @memory: the window
 * @bytes: how much of it is mapped
 *
 * Return: 0; -ENODEV: no tmem there; -EPROTO: no common version; -EINVAL: impossible geometry.
 */
int tmem_window_attach(struct tmem_window *window, void *memory, u64 bytes)
{
	int error;

	memset(window, 0, sizeof(*window));
	if (bytes < sizeof(struct tmem_header))
		return -ENODEV;
	window->header = memory;
	memcpy(&window->geometry, memory, sizeof(window->geometry));
	error = check_geometry(&window->geometry, bytes);
	if (error)
		return error;
	window->wanted = FEATURES_WANTED;
	window->boot_id[0] = tmem_random() | 1;
	window->boot_id[1] = tmem_random();
	return 0;
}

/**
 * tmem_window_request - write what the guest declares and ask for registration
 * @window: window
 * @request: new random number, not 0; the caller rings after this
 * @offered: features, as far as the guest knows
 */
void tmem_window_request(struct tmem_window *window, u64 request, u64 offered)
{
	struct tmem_guest_page *guest = &window->header->guest;
	u64 features = offered & window->wanted;

	tmem_write(&window->features, features);
	tmem_write(&guest->boot_id[0], window->boot_id[0]);
	tmem_write(&guest->boot_id[1], window->boot_id[1]);
	tmem_write(&guest->features_chosen, features);
	tmem_write(&guest->version_chosen, TMEM_ABI_VERSION);
	tmem_store_release(&guest->register_request, request);
	tmem_full_fence();
}

/**
 * tmem_window_answer - has the host answered?
 * @window: window
 * @request: as given to tmem_window_request
 *
 * Return: -EAGAIN: not yet; 0: registered; -EPERM: refused.
 */
int tmem_window_answer(struct tmem_window *window, u64 request)
{
	struct tmem_host_page *host = &window->header->host;

	if (tmem_load_acquire(&host->register_answer) != request)
		return -EAGAIN;
	return tmem_read(&host->register_status) == TMEM_STATUS_OK ? 0 : -EPERM;
}
