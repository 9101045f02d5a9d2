/* SPDX-License-Identifier: GPL-2.0-only */
/* A page store inside a VMM: keeps its guests' pages, compressed and stored once, in one limit. */
/*
 * A guest puts descriptors into its window (abi/README.md) and makes the VMM call
 * tmem_guest_kick() or tmem_guest_call(), by whatever it has: an I/O port, an ioeventfd, an exit.
 * docs/embedding.md goes through it, example.c is such a VMM.
 *
 * Guests are hostile: what one writes into its window can fail its own operations, and nothing
 * else.
 *
 * Threads: every function from any thread at any time, but nothing else may use a guest that is
 * being removed or a store that is being destroyed, and `notify` must call none of them.
 */
#ifndef HOST_STORE_EMBED_TMEM_EMBED_H_
#define HOST_STORE_EMBED_TMEM_EMBED_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(readability-identifier-naming): C */

/* Grows when something is added to these structs or functions. */
#define TMEM_EMBED_VERSION 1u

/* Bounds of a window; its size is a power of two. */
#define TMEM_EMBED_MIN_WINDOW_BYTES (1u << 20)
#define TMEM_EMBED_MAX_WINDOW_BYTES (256u << 20)
#define TMEM_EMBED_WINDOW_BYTES (4u << 20) /* unless another size is asked for */

enum tmem_error {
  TMEM_ERROR_NONE = 0,
  TMEM_ERROR_INVALID = 1,  /* an argument that cannot be right */
  TMEM_ERROR_EXISTS = 2,   /* a guest of this name is there */
  TMEM_ERROR_FULL = 3,     /* does not fit the limit, or too many guests */
  TMEM_ERROR_IN_USE = 4,   /* the store still has guests */
  TMEM_ERROR_NOT_DONE = 5, /* the time is over, or the guest's channel was reset meanwhile */
  TMEM_ERROR_SYSTEM = 6,   /* the kernel refused something: memory, threads, files */
};

/* The error in a few words; never NULL. */
const char* tmem_error_name(enum tmem_error error);

/*
 * What was wrong with the last call of this thread that failed, in a sentence; "" before the first
 * one. Valid until the next call of this thread fails.
 */
const char* tmem_error_details(void);

/* ---- the store ---------------------------------------------------------------------------- */

struct tmem_store;

struct tmem_store_options {
  uint32_t version; /* TMEM_EMBED_VERSION */
  /*
   * Threads that serve the guests; one is enough for some guests. 0: a guest's operations run
   * inside its kicks and calls, in the VMM's thread, for as long as the guest posts. That is
   * deterministic, for tests and for VMMs whose guests have one vCPU.
   */
  uint32_t threads;
  uint32_t max_guests;     /* 0: 64 */
  uint32_t zero;           /* must be 0 */
  uint64_t limit_bytes;    /* all that the store holds at most, windows included */
  uint64_t pool_min_bytes; /* the part of it that may hold swapped pages, which never go; 0: none */
};

struct tmem_store_status {
  uint64_t limit_bytes;
  uint64_t used_bytes;           /* at most limit_bytes */
  uint64_t pages;                /* pages of 4096 bytes that guests have there */
  uint64_t saved_by_dedup_bytes; /* stored bytes that equal pages share */
};

/* Errors: INVALID, FULL (limit_bytes is too small for an empty store), SYSTEM. */
enum tmem_error tmem_store_create(const struct tmem_store_options* options,
                                  struct tmem_store** store);

/* Errors: INVALID, IN_USE. All pages are gone afterwards. */
enum tmem_error tmem_store_destroy(struct tmem_store* store);

/* Errors: INVALID. */
enum tmem_error tmem_store_read_status(const struct tmem_store* store,
                                       struct tmem_store_status* status);

/* ---- its guests --------------------------------------------------------------------------- */

struct tmem_guest;

struct tmem_guest_options {
  const char* name;   /* unique in the store; copied */
  const char* domain; /* trust domain: its guests share equal pages. NULL: a domain of its own */
  uint32_t weight;    /* share of the threads' time, against other guests' weights; 0: 1 */
  uint32_t zero;      /* must be 0 */
  /*
   * The window: memory that the guest sees too, page-aligned, zeroed or last served by another
   * store, and left alone until the guest is removed. NULL: the store allocates it. Its geometry is
   * written by the store.
   */
  void* window;
  uint64_t window_bytes; /* 0 without a window: TMEM_EMBED_WINDOW_BYTES */
  /*
   * Interrupts the guest: called when a task in it waits for an answer that is there now, in a
   * thread of the store, or in that of the kick without threads. Must not block. NULL: never.
   */
  void (*notify)(void* context);
  void* context;
};

struct tmem_guest_status {
  uint64_t ephemeral_pages;  /* may go at any time */
  uint64_t persistent_pages; /* promised */
  uint64_t stored_bytes;     /* what they take; of equal pages each guest is charged all */
  /* free-running since the guest was added */
  uint64_t puts;    /* accepted */
  uint64_t hits;    /* gets that brought their page */
  uint64_t misses;  /* gets that did not */
  uint64_t evicted; /* ephemeral pages that went for room */
  uint64_t resets;  /* of its channel, because its counters were wrong */
};

/* Errors: INVALID, EXISTS, FULL, SYSTEM. */
enum tmem_error tmem_guest_add(struct tmem_store* store, const struct tmem_guest_options* options,
                               struct tmem_guest** guest);

/* Its pages and credits are given back; a window that was given may be used again. Errors: INVALID.
 */
enum tmem_error tmem_guest_remove(struct tmem_guest* guest);

/* The start of the window; NULL for NULL. */
void* tmem_guest_window(const struct tmem_guest* guest);

/* The guest rang. With threads it costs one system call. Errors: INVALID. */
enum tmem_error tmem_guest_kick(struct tmem_guest* guest);

/*
 * The guest rang and waits: returns when all that was posted in `lanes` (bit i: lane i, the control
 * lane last) is done, or after `timeout_ns`. Errors: INVALID (no such lane), NOT_DONE.
 */
enum tmem_error tmem_guest_call(struct tmem_guest* guest, uint64_t lanes, uint64_t timeout_ns);

/* Errors: INVALID. */
enum tmem_error tmem_guest_read_status(const struct tmem_guest* guest,
                                       struct tmem_guest_status* status);

/* NOLINTEND(readability-identifier-naming) */
#ifdef __cplusplus
}
#endif

#endif /* HOST_STORE_EMBED_TMEM_EMBED_H_ */
