/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Swap slots, tags and promises: a stored page comes back as it was, or with an error that has a
 * cause; never as another page, and never lost for no cause (P3, C6, C7, F2, F3, M4).
 *
 * Two CPUs store, store again, load and invalidate three swap slots (k0 and k2 in lane 0, k1 in
 * lane 1), and switch the area off and on. The daemon may die between executing and
 * acknowledging, with its store or without, or come back with an older set of pages. Descriptors
 * that are not acknowledged stay in the lanes: that is the replay. What is appended is published
 * at once here (order.pml has the staging).
 */
#ifndef KEYS
#define KEYS 3
#endif
#include "lane.pml"
#define LANE_OF(k) ((k) & 1)

#if KEYS > 2
#define THIRD(l, statement) if :: l == 0 -> statement :: else fi
#else
#define THIRD(l, statement) skip
#endif

bool held[KEYS];    /* the kernel was told "stored" */
bool busy[KEYS];    /* page lock, over a load */
bool pending[KEYS];
bool excused[KEYS]; /* its page was acknowledged and then lost, or replaced by an old one */
byte host[KEYS];
bool executed[LANES]; /* the oldest descriptor, not acknowledged yet */
bool waiting[CPUS];
bool alive = true;
bool area_pending;
bool stale_read;
bool promise_lost;
bool leaked;

inline post(at, todo, whose, content, waiter) {
  append(at, todo, whose, content, waiter);
  PUBLISH(at)
}

inline flush_key(gone) {
  if
  :: ROOM(LANE_OF(gone)) ->
    post(LANE_OF(gone), FLUSH, gone, NONE, NOBODY);
    pending[gone] = false
  :: !ROOM(LANE_OF(gone)) -> pending[gone] = true
  fi;
  held[gone] = false
}

#ifdef FAULT_PUT_OVER_PENDING
#define MAY_STORE(k) ROOM(LANE_OF(k))
#else
#define MAY_STORE(k) (ROOM(LANE_OF(k)) && !pending[k])
#endif

inline age(older) {
  age_lanes(older);
  host[older] = (host[older] == FRESH -> STALE : host[older])
}

inline store(out) {
  if
  :: MAY_STORE(out) ->
    age(out);
    post(LANE_OF(out), PUT, out, FRESH, NOBODY);
    held[out] = true;
    excused[out] = false
  :: held[out] -> /* refused: goes to the device; what was stored before must not be readable */
    age(out);
    flush_key(out)
  :: !held[out] -> skip /* refused */
  fi
}

inline abandon(lost) {
  d_step {
    ix = 0;
    do
    :: ix < RING ->
      if
      :: lane[LANE_OF(lost)].d[ix].who == c -> lane[LANE_OF(lost)].d[ix].who = NOBODY
      :: else
      fi;
      ix++
    :: else -> break
    od;
    ix = 0
  }
}

inline load(back) {
  if
  :: ROOM(LANE_OF(back)) ->
    post(LANE_OF(back), GET, back, NONE, c);
    waiting[c] = true;
    if
    :: !waiting[c]
    :: waiting[c] && !alive -> abandon(back); waiting[c] = false /* host lost: bounded wait */
    fi
  :: !ROOM(LANE_OF(back)) -> skip /* asks again */
  fi;
  busy[back] = false
}

inline answer(asked, by_whom) {
#ifdef FAULT_NO_TAG
  stale_read = host[asked] == STALE;
  assert(!stale_read);
#endif
  /* a tag that does not match is an error like a page that is not there */
  promise_lost = host[asked] != FRESH && !excused[asked];
  assert(!promise_lost);
  waiting[by_whom] = false;
  by_whom = NOBODY
}

/* The whole area in one lane: only that lane's keys, and nothing if none is held there (F3). */
inline flush_area_in(part) {
  if
  :: !held[part] && !(part == LANE_OF(KEYS - 1) && held[KEYS - 1])
  :: else ->
    if
    :: ROOM(part) -> post(part, FLUSH_ALL, 0, NONE, NOBODY)
    :: else ->
      pending[part] = pending[part] || held[part];
      THIRD(part, pending[2] = pending[2] || held[2])
    fi
  fi
}

proctype Cpu(byte c) {
  byte k;
  do
  :: atomic {
      if
      :: k = 0
      :: k = 1
      :: THIRD(0, k = 2)
      fi;
      if
      :: !busy[k] -> store(k)
      :: held[k] && !busy[k] -> flush_key(k) /* the slot is freed */
      :: held[k] && !busy[k] -> busy[k] = true; load(k)
      :: busy[k]
      :: !busy[0] && !busy[1] && !busy[KEYS - 1] -> /* swapoff; swapon may follow at once */
#ifdef FAULT_AREA_FLUSH_LATE
        area_pending = true;
#else
        flush_area_in(0);
        flush_area_in(1);
#endif
        held[0] = false;
        held[1] = false;
        held[KEYS - 1] = false
      fi;
      k = 0
    }
  :: c == 0 -> break
  od
}

active proctype Shim() {
  byte k;
end:
  do
  :: atomic {
      if
      :: pending[0] && ROOM(0) -> k = 0
      :: pending[1] && ROOM(1) -> k = 1
      :: pending[KEYS - 1] && ROOM(LANE_OF(KEYS - 1)) -> k = KEYS - 1
      fi;
      post(LANE_OF(k), FLUSH, k, NONE, NOBODY);
      pending[k] = false;
      k = 0
    }
#ifdef FAULT_AREA_FLUSH_LATE
  :: atomic { area_pending && ROOM(0) && ROOM(1) ->
      area_pending = false; post(0, FLUSH_ALL, 0, NONE, NOBODY);
       post(1, FLUSH_ALL, 0, NONE, NOBODY) }
#endif
  od
}

#ifdef FAULT_AREA_FLUSH_CROSSES_LANES
#define COVERS(l, k) true
#else
#define COVERS(l, k) (LANE_OF(k) == l)
#endif

inline execute(by) {
  if
  :: HEAD(by).op == PUT -> host[HEAD(by).key] = HEAD(by).data
  :: HEAD(by).op == GET && HEAD(by).who != NOBODY -> answer(HEAD(by).key, HEAD(by).who)
  :: HEAD(by).op == GET && HEAD(by).who == NOBODY -> skip
  :: HEAD(by).op == FLUSH -> host[HEAD(by).key] = NONE
  :: HEAD(by).op == FLUSH_ALL ->
    host[0] = (COVERS(by, 0) -> NONE : host[0]);
    host[1] = (COVERS(by, 1) -> NONE : host[1]);
    host[KEYS - 1] = (COVERS(by, KEYS - 1) -> NONE : host[KEYS - 1])
  fi;
  executed[by] = true
}

#define LEAKED(k) (host[k] != NONE && !held[k] && !pending[k])

inline acknowledge(by2) {
  executed[by2] = false;
  complete(by2);
  /* what the guest has given up is gone once the lane is empty, or credits run out */
  leaked = lane[by2].appended == 0 && !area_pending &&
    (LEAKED(by2) || (by2 == LANE_OF(KEYS - 1) && LEAKED(KEYS - 1)));
  assert(!leaked)
}

/* True if a put of k that nobody acknowledged is still in its lane. */
#define UNACKNOWLEDGED(k, i) (i < lane[LANE_OF(k)].appended && lane[LANE_OF(k)].d[i].op == PUT && \
                              lane[LANE_OF(k)].d[i].key == k && lane[LANE_OF(k)].d[i].data == FRESH)

inline lose(k1) {
  excused[k1] = held[k1] && !UNACKNOWLEDGED(k1, 0) && !UNACKNOWLEDGED(k1, 1);
  host[k1] = NONE
}

inline roll_back(k2) {
  if
  :: host[k2] == FRESH -> host[k2] = STALE; excused[k2] = true
  :: else
  fi
}

#ifdef FAULT_NO_REPLAY
inline forget_lane(fl) {
  do
  :: lane[fl].appended > 0 ->
    if
    :: HEAD(fl).op == GET && HEAD(fl).who != NOBODY -> waiting[HEAD(fl).who] = false
    :: else
    fi;
    complete(fl)
  :: lane[fl].appended == 0 -> break
  od
}
#endif
#ifdef FAULT_REPLAY_WITHOUT_FLUSHES
inline forget_flush(ff, at) {
  if
  :: at < lane[ff].posted && lane[ff].d[at].op == FLUSH ->
    lane[ff].d[at].op = GET /* of nobody: does nothing */
  :: else
  fi
}
#endif

#if KEYS > 2
#define lose_third() lose(2)
#define roll_back_third() roll_back(2)
#else
#define lose_third() skip
#define roll_back_third() skip
#endif

active proctype Daemon() {
end:
  do
  :: atomic { alive && lane[0].posted > 0 && !executed[0] -> execute(0) }
  :: atomic { alive && lane[1].posted > 0 && !executed[1] -> execute(1) }
  :: atomic { alive && executed[0] -> acknowledge(0) }
  :: atomic { alive && executed[1] -> acknowledge(1) }
  :: atomic { /* dies; its successor has its store, or nothing, or an older set */
      alive ->
      alive = false;
      executed[0] = false;
      executed[1] = false;
      if
      :: true
      :: lose(0); lose(1); lose_third()
      :: roll_back(0); roll_back(1); roll_back_third()
      fi
    }
  :: atomic {
      !alive ->
      alive = true;
#ifdef FAULT_NO_REPLAY
      forget_lane(0);
      forget_lane(1)
#endif
#ifdef FAULT_REPLAY_WITHOUT_FLUSHES
      forget_flush(0, 0); forget_flush(0, 1); forget_flush(1, 0); forget_flush(1, 1)
#endif
    }
  od
}

init {
  atomic {
    reset_lanes();
    run Cpu(0);
    run Cpu(1)
  }
}
