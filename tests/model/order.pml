/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Order and gets: an ephemeral pool is never read stale (P1, P2, F1, F2, F3, C3 for truncate, C13).
 *
 * Two CPUs evict (put), read (get), write and truncate pages of three keys: k0 and k1 are an
 * object A whose keys are in both lanes, k2 is another object in lane 0. The table of a lane
 * holds one key, so k0 and k2 push each other out. The kernel serialises what happens to one page
 * by the page lock.
 *
 * A write here does not flush (C14 says it does), and a get may be refused so that a page is cached
 * while the host has a copy: the lanes must be right without that help.
 */
#ifndef KEYS
#define KEYS 3
#endif
#include "lane.pml"

#ifdef FAULT_PER_CPU_LANES
#define LANE_OF(k) c
#define HAS_LANE(k, l) true
#else
#define LANE_OF(k) ((k) & 1)
#define HAS_LANE(k, l) (((k) & 1) == l)
#endif

#ifdef FAULT_FILTER_FORGETS
#define KNOWN(k) known[(k) & 1] /* k0 and k2 share a place in the filter */
#else
#define KNOWN(k) known[k] /* the exact table: put and neither flushed nor taken since */
#endif

byte page[KEYS];    /* the page cache */
bool locked[KEYS];  /* page lock, held over a get */
bool known[KEYS];
bool pending[KEYS]; /* a flush that found no room and is remembered */
byte host[KEYS];    /* what the daemon holds */
byte answer[CPUS];
bool truncating; /* object A: no read begins beyond the new size */
bool alive = true;
bool stale_read;
bool table_inexact;

/* F1: a flush always takes effect and never needs room. */
inline flush_key(via, gone) {
  if
  :: !KNOWN(gone) -> skip
  :: KNOWN(gone) && ROOM(via) ->
    append(via, FLUSH, gone, NONE, NOBODY);
    KNOWN(gone) = false;
    pending[gone] = false
  :: KNOWN(gone) && !ROOM(via) -> pending[gone] = true
  fi
}

/* Object A in one lane: removes there only that lane's keys (F3). */
inline flush_object_in(part) {
  if
  :: (KNOWN(0) && HAS_LANE(0, part)) || (KNOWN(1) && HAS_LANE(1, part)) ->
    if
    :: ROOM(part) ->
      append(part, FLUSH_ALL, 0, NONE, NOBODY);
      if
      :: HAS_LANE(0, part) -> KNOWN(0) = false; pending[0] = false
      :: else
      fi;
      if
      :: HAS_LANE(1, part) -> KNOWN(1) = false; pending[1] = false
      :: else
      fi
    :: else ->
      pending[0] = pending[0] || (KNOWN(0) && HAS_LANE(0, part));
      pending[1] = pending[1] || (KNOWN(1) && HAS_LANE(1, part))
    fi
  :: else
  fi
}

inline flush_object() {
  atomic {
    flush_object_in(0);
#ifndef FAULT_OBJECT_FLUSH_ONE_LANE
    flush_object_in(1)
#endif
  }
}

/* A full table makes room: its oldest key is flushed first, or the new key is not put. */
#ifdef FAULT_TABLE_FORGETS_OLDEST
#define MUST_DISPLACE(k) false
#define FORGET_OTHER(k) if :: (k) != 1 -> known[2 - (k)] = false :: else fi
#else
#ifdef FAULT_FILTER_FORGETS
#define MUST_DISPLACE(k) false
#else
#define MUST_DISPLACE(k) ((k) != 1 && !known[k] && known[2 - (k)])
#endif
#define FORGET_OTHER(k) skip
#endif

inline put(out) {
  l = LANE_OF(out);
  if
  :: !alive || pending[out] -> skip /* dropped; gets of it miss already */
  :: alive && !pending[out] ->      /* dropped for any reason: P2, no older copy stays readable */
#ifndef FAULT_NO_FLUSH_ON_DROP
    flush_key(l, out)
#endif
  :: alive && !pending[out] && !MUST_DISPLACE(out) && ROOM(l) ->
    append(l, PUT, out, page[out], NOBODY);
    KNOWN(out) = true;
    FORGET_OTHER(out)
  :: alive && !pending[out] && MUST_DISPLACE(out) && lane[l].appended + 2 <= RING ->
    append(l, FLUSH, 2 - out, NONE, NOBODY);
    known[2 - out] = false;
    pending[2 - out] = false;
    append(l, PUT, out, page[out], NOBODY);
    known[out] = true
  fi;
  page[out] = NONE
}

/* Ends with the page cached and unlocked. */
inline get(back) {
  atomic {
    l = LANE_OF(back);
    find_staged_put(l, back, n);
    if
    :: true -> got = NONE /* refused, for example C14: the host is not asked */
    :: !KNOWN(back) -> got = NONE
#ifndef FAULT_GET_OVER_PENDING
    :: KNOWN(back) && pending[back] -> got = NONE
    :: KNOWN(back) && !pending[back] && n < RING ->
#else
    :: KNOWN(back) && n < RING ->
#endif
      got = lane[l].d[n].data;
#ifdef FAULT_CANCEL_AS_NOP
      lane[l].d[n].op = NOP;
#else
      lane[l].d[n].op = FLUSH; /* an older copy may be on the host */
#endif
      KNOWN(back) = false;
      lane[l].d[n].data = NONE
    :: KNOWN(back) && !pending[back] && n == RING && !ROOM(l) -> got = NONE; flush_key(l, back)
#ifdef FAULT_GET_OVER_PENDING
    :: KNOWN(back) && n == RING && ROOM(l) ->
#else
    :: KNOWN(back) && !pending[back] && n == RING && ROOM(l) ->
#endif
      append(l, GET, back, NONE, c);
      answer[c] = WAITING;
      PUBLISH(l);
      n = 0;
      answer[c] != WAITING; /* the only wait */
      got = answer[c];
      answer[c] = NONE;
      KNOWN(back) = false
    fi;
    n = 0;
    stale_read = got == STALE && !(truncating && back < 2);
    assert(!stale_read);
    page[back] = (got == NONE -> FRESH : got); /* a miss reads the disk */
    locked[back] = false;
    got = NONE
  }
}

inline age(written) {
  age_lanes(written);
  if
  :: host[written] == FRESH -> host[written] = STALE
  :: else
  fi
}

proctype Cpu(byte c) {
  byte k, l, n, got;
  do
  :: atomic {
      if
      :: k = 0
      :: k = 1
      :: k = 2
      fi;
      if
      :: page[k] != NONE && !locked[k] -> put(k) /* reclaim */
      :: page[k] == FRESH && !locked[k] && !(truncating && k < 2)
          -> age(k); put(k) /* written, reclaim */
      :: page[k] == NONE && !locked[k] && !(truncating && k < 2) -> locked[k] = true; get(k)
      :: else
      fi;
      k = 0;
      l = 0
    }
  :: atomic { /* truncate object A */
      !truncating ->
      truncating = true;
      age(0);
      age(1);
      page[0] = (page[0] == FRESH -> STALE : page[0]);
      page[1] = (page[1] == FRESH -> STALE : page[1]);
      flush_object()
    };
    atomic { !locked[0] -> page[0] = NONE };
    atomic { !locked[1] -> page[1] = NONE };
    atomic {
#ifndef FAULT_NO_FLUSH_AFTER_TRUNCATE
      flush_object();
#endif
      truncating = false
    }
  :: c == 0 -> break /* may stop: a CPU that waits for nothing is then a deadlock */
  od
}

/* The worker and the timer of the shim. */
active proctype Shim() {
  byte c; /* a lane of its own, if lanes were per CPU */
end:
  do
  :: atomic { lane[0].posted < lane[0].appended -> PUBLISH(0) }
  :: atomic { lane[1].posted < lane[1].appended -> PUBLISH(1) }
  :: atomic { pending[0] && ROOM(LANE_OF(0)) -> flush_key(LANE_OF(0), 0); pending[0] = false }
  :: atomic { pending[1] && ROOM(LANE_OF(1)) -> flush_key(LANE_OF(1), 1); pending[1] = false }
  :: atomic { pending[2] && ROOM(LANE_OF(2)) -> flush_key(LANE_OF(2), 2); pending[2] = false }
  od
}

inline execute(by) {
  if
  :: HEAD(by).op == PUT -> host[HEAD(by).key] = HEAD(by).data
  :: HEAD(by).op == PUT -> /* refused: P1, the old copy goes too */
#ifndef FAULT_REFUSED_PUT_KEEPS_OLD
    host[HEAD(by).key] = NONE
#endif
  :: HEAD(by).op == GET ->
       answer[HEAD(by).who] = host[HEAD(by).key]; host[HEAD(by).key] = NONE /* G1 */
  :: HEAD(by).op == FLUSH -> host[HEAD(by).key] = NONE
  :: HEAD(by).op == FLUSH_ALL ->
    host[0] = (HAS_LANE(0, by) -> NONE : host[0]);
    host[1] = (HAS_LANE(1, by) -> NONE : host[1])
  :: HEAD(by).op == NOP -> skip
  fi;
  complete(by);
#if !defined(FAULT_PER_CPU_LANES) && !defined(FAULT_FILTER_FORGETS)
  /* C13: with the lane empty, the host holds nothing that the table does not have */
  table_inexact = lane[by].appended == 0 &&
    ((by == 0 && ((host[0] != NONE && !known[0]) || (host[2] != NONE && !known[2]))) ||
     (by == 1 && host[1] != NONE && !known[1]));
  assert(!table_inexact)
#endif
}

active proctype Host() {
end:
  do
  :: atomic { alive && lane[0].posted > 0 -> execute(0) }
  :: atomic { alive && lane[1].posted > 0 -> execute(1) }
  :: d_step { alive && host[0] != NONE -> host[0] = NONE } /* evicts at will */
  :: d_step { alive && host[1] != NONE -> host[1] = NONE }
  :: d_step { alive && host[2] != NONE -> host[2] = NONE }
  :: atomic { /* dies, the channel is torn down: every waiter misses, the epoch ends the pool */
      alive ->
      alive = false;
      reset_lanes();
      d_step {
        host[0] = NONE; host[1] = NONE; host[2] = NONE;
        known[0] = false; known[1] = false; known[2] = false;
        pending[0] = false; pending[1] = false; pending[2] = false;
        answer[0] = NONE;
        answer[1] = NONE
      }
    }
  :: d_step { !alive -> alive = true } /* comes back, with nothing */
  od
}

init {
  atomic {
    reset_lanes();
    run Cpu(0);
    run Cpu(1)
  }
}
