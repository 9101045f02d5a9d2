/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Swap device: a load never takes old bytes from the device (C7, C12).
 *
 * Three swap slots; slots 0 and 1 may be stored together as one large page. Slots hold older data
 * from earlier lives on the device. A store goes to the host, to the device (refused), or with
 * writethrough to both; the host may drop a written-through page, and may lose any page. Order in
 * the lanes does not matter here, so the host answers at once.
 */
#define SLOTS 3
#define NONE 0
#define FRESH 1
#define STALE 2
#define CPUS 2

bool out[SLOTS];     /* the page is not in memory: a load must bring it */
bool held[SLOTS];    /* the bit a slot: the host was given the page */
bool written[SLOTS]; /* the second bit: it is on the device too */
bool writing[SLOTS]; /* write to the device under way; the page is still in memory */
byte host[SLOTS];
byte device[SLOTS] = STALE;
bool stale_read;

inline new_page(k) {
  host[k] = (host[k] == FRESH -> STALE : host[k]);
  device[k] = STALE;
#ifndef FAULT_WRITTEN_BIT_KEPT
  written[k] = false
#endif
}

inline give(k1) {
  host[k1] = FRESH;
  held[k1] = true
}

/* Refused: what was stored before must not be readable (P2). */
inline take_away(k2) {
  held[k2] = false;
  host[k2] = NONE
}

inline store(k3) {
  new_page(k3);
  if
  :: give(k3); out[k3] = true
  :: take_away(k3); device[k3] = FRESH; out[k3] = true
  :: give(k3); writing[k3] = true /* writethrough */
  fi
}

inline store_large() {
  new_page(0);
  new_page(1);
  if
  :: give(0); give(1);
#ifdef FAULT_TWO_PAGES_ONE_BIT
    held[1] = false;
#endif
  :: take_away(0); take_away(1); device[0] = FRESH; device[1] = FRESH
  fi;
  out[0] = true;
  out[1] = true
}

#ifdef FAULT_DEVICE_READ_FOR_FAILED_LOAD
#define MAY_READ_DEVICE(k) true
#else
#define MAY_READ_DEVICE(k) (!held[k] || written[k])
#endif

/* Leaves the page stored; ends with it in memory, or with an error and the page still out. */
inline load(k4) {
  if
  :: held[k4] && host[k4] != NONE -> stale_read = host[k4] != FRESH; out[k4] = false
  :: !(held[k4] && host[k4] != NONE) && MAY_READ_DEVICE(k4) ->
    stale_read = device[k4] != FRESH;
    out[k4] = false
  :: !(held[k4] && host[k4] != NONE) && !MAY_READ_DEVICE(k4) -> skip /* the task gets an error */
  fi;
  assert(!stale_read)
}

#define IN_MEMORY(k) (!out[k] && !writing[k])

proctype Cpu() {
  byte k;
  do
  :: atomic {
      if
      :: k = 0
      :: k = 1
      :: k = 2
      fi;
      if
      :: IN_MEMORY(k) -> store(k)
      :: IN_MEMORY(k) && (held[k] || device[k] == FRESH)
          -> out[k] = true /* unchanged: just dropped */
      :: IN_MEMORY(0) && IN_MEMORY(1) -> store_large()
      :: out[k] -> load(k)
      :: !writing[k] -> take_away(k);
          device[k] = STALE; written[k] = false; out[k] = false /* freed */
      :: writing[k] -> device[k] = FRESH; written[k] = true; writing[k] = false; out[k] = true
      :: writing[k] -> take_away(k); writing[k] = false /* write error: the page stays in memory */
      fi;
      k = 0
    }
  od
}

active proctype Host() {
end:
  do
  :: d_step { host[0] != NONE -> host[0] = NONE } /* dropped, or lost with the daemon */
  :: d_step { host[1] != NONE -> host[1] = NONE }
  :: d_step { host[2] != NONE -> host[2] = NONE }
  od
}

init {
  atomic {
    run Cpu();
    run Cpu()
  }
}
