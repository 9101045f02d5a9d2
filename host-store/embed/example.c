/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A VMM in small that embeds the store, and a guest in it: pages go in, come back, are flushed.
 *
 * The guest's half speaks abi/README.md with one descriptor at a time. Exits with 0 if every byte
 * came back right.
 */
#define _DEFAULT_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "abi/tmem_abi.h"
#include "host-store/embed/tmem_embed.h"

enum { PAGES = 256 };
#define SECOND_NS 1000000000ULL

static void check(enum tmem_error error, const char* what) {
  if (error == TMEM_ERROR_NONE) return;
  fprintf(stderr, "%s: %s: %s\n", what, tmem_error_name(error), tmem_error_details());
  exit(1);
}

static void demand(int right, const char* what) {
  if (right) return;
  fprintf(stderr, "wrong: %s\n", what);
  exit(1);
}

/* ---- the VMM: what happens at an exit of the guest, and an interrupt for it ----------------- */

static struct tmem_guest* vmm_guest;

static void exit_call(uint64_t lanes) {
  check(tmem_guest_call(vmm_guest, lanes, 10 * SECOND_NS), "call");
}

static void inject_interrupt(void* context) {
  __atomic_fetch_add((int*)context, 1, __ATOMIC_SEQ_CST);
}

/* ---- the guest ----------------------------------------------------------------------------- */

static unsigned char* window;         /* in its memory */
static struct tmem_geometry geometry; /* its own copy */
static uint64_t posted[TMEM_MAX_KEY_LANES + 1];

static void guest_register(const int* interrupts) {
  struct tmem_header* header = (struct tmem_header*)window;
  geometry = header->geometry; /* a real guest checks it: abi/README.md section 1 */
  demand(geometry.magic == TMEM_MAGIC, "magic");
  header->guest.boot_id[0] = 1; /* a real guest takes random ones */
  header->guest.version_chosen = TMEM_ABI_VERSION;
  header->guest.features_chosen = TMEM_FEATURE_EPHEMERAL;
  __atomic_store_n(&header->guest.register_request, 1, __ATOMIC_SEQ_CST);
  check(tmem_guest_kick(vmm_guest), "kick");
  while (__atomic_load_n(interrupts, __ATOMIC_SEQ_CST) == 0) continue; /* a real guest sleeps */
  demand(__atomic_load_n(&header->host.register_answer, __ATOMIC_ACQUIRE) == 1, "answer");
  demand(header->host.register_status == TMEM_STATUS_OK, "registration");
}

static unsigned char* slot_of(uint32_t lane) { /* slot 0: one operation at a time needs one */
  return window + tmem_lane_offset(&geometry, lane) + tmem_slots_offset(geometry.ring_entries);
}

/* Posts one descriptor, waits, returns it as the host left it. */
static struct tmem_desc guest_do(uint32_t lane, struct tmem_desc desc) {
  unsigned char* start = window + tmem_lane_offset(&geometry, lane);
  struct tmem_lane_head* head = (struct tmem_lane_head*)start;
  struct tmem_desc* ring = (struct tmem_desc*)(start + TMEM_PAGE_BYTES);
  const uint32_t entries =
      lane == geometry.key_lanes ? geometry.control_ring_entries : geometry.ring_entries;
  struct tmem_desc* entry = &ring[posted[lane]++ & (entries - 1)];
  *entry = desc;
  __atomic_store_n(&head->posted, posted[lane], __ATOMIC_RELEASE);
  exit_call(1ULL << lane);
  demand(__atomic_load_n(&head->done, __ATOMIC_ACQUIRE) == posted[lane], "done");
  return *entry;
}

static struct tmem_desc key(enum tmem_op op, uint64_t pool, uint64_t index, uint32_t* lane) {
  struct tmem_desc desc = {.op = (uint8_t)op, .pool = pool, .object = {42}, .index = index};
  *lane = tmem_lane_of(pool, desc.object, index, geometry.key_lanes);
  return desc;
}

static void make_page(unsigned char* page, unsigned number) {
  for (unsigned i = 0; i < TMEM_PAGE_BYTES; ++i) page[i] = (unsigned char)(i / 64 * number + i % 7);
}

static void guest_run(uint64_t pool) {
  unsigned char expected[TMEM_PAGE_BYTES];
  uint32_t lane;
  for (unsigned i = 0; i < PAGES; ++i) {
    const struct tmem_desc put = key(TMEM_OP_PUT, pool, i, &lane);
    make_page(slot_of(lane), i);
    demand(guest_do(lane, put).status == TMEM_STATUS_OK, "put");
  }
  for (unsigned i = 0; i < PAGES / 2; ++i) {
    const struct tmem_desc get = key(TMEM_OP_GET, pool, i, &lane);
    demand(guest_do(lane, get).status == TMEM_STATUS_OK, "get");
    make_page(expected, i);
    demand(memcmp(slot_of(lane), expected, sizeof expected) == 0, "bytes of a page");
  }
  struct tmem_desc flush = key(TMEM_OP_FLUSH, pool, PAGES - 1, &lane);
  flush.count = 1;
  demand(guest_do(lane, flush).status == TMEM_STATUS_OK, "flush");
  const struct tmem_desc gone = key(TMEM_OP_GET, pool, PAGES - 1, &lane);
  demand(guest_do(lane, gone).status == TMEM_STATUS_MISS, "a flushed page is gone");
}

int main(void) {
  struct tmem_store_options options = {
      .version = TMEM_EMBED_VERSION, .threads = 1, .limit_bytes = 32u << 20};
  struct tmem_store* store;
  check(tmem_store_create(&options, &store), "store");

  /* A part of the guest's memory, as the VMM has it mapped. */
  int interrupts = 0;
  window = mmap(NULL, TMEM_EMBED_WINDOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
  demand(window != MAP_FAILED, "mmap");
  struct tmem_guest_options guest_options = {.name = "vm1",
                                             .window = window,
                                             .window_bytes = TMEM_EMBED_WINDOW_BYTES,
                                             .notify = inject_interrupt,
                                             .context = &interrupts};
  check(tmem_guest_add(store, &guest_options, &vmm_guest), "guest");

  guest_register(&interrupts);
  struct tmem_desc create = {.op = TMEM_OP_POOL_CREATE, .value = TMEM_POOL_EPHEMERAL};
  create = guest_do(geometry.key_lanes, create);
  demand(create.status == TMEM_STATUS_OK, "pool");
  guest_run(create.value);

  struct tmem_store_status status;
  check(tmem_store_read_status(store, &status), "status");
  printf("the store holds %llu pages of vm1 in %llu KiB of %llu\n",
         (unsigned long long)status.pages, (unsigned long long)status.used_bytes >> 10,
         (unsigned long long)status.limit_bytes >> 10);
  demand(status.pages == PAGES / 2 - 1, "pages held");

  check(tmem_guest_remove(vmm_guest), "remove");
  check(tmem_store_destroy(store), "destroy");
  return 0;
}
