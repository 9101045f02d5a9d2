/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages with buffers: a get never puts an old block over a newer one (C14).
 *
 * A file system may write a block of a page that is not uptodate through its buffers (partial
 * write, partial truncate). The page is then newer than the host's copy, though not yet filled.
 * With a data journal the page is marked dirty only when the transaction commits, so the flush at
 * the first dirtying comes late; and once written back, the buffers may be stripped while the
 * page stays, so asking for buffers is not enough. Each half of C14 is needed; each has its
 * fault.
 */
#ifndef KEYS
#define KEYS 3
#endif
#define RING 2
#include "lane.pml"
#define LANE_OF(k) ((k) & 1)

#define HOLLOW 5 /* of a page: in the tree, not uptodate */
mtype = {NO_BUFFERS, CLEAN, JOURNALLED, DIRTY};

byte page[KEYS];
mtype buffers[KEYS] = NO_BUFFERS;
bool locked[KEYS];
bool known[KEYS];
bool pending[KEYS];
byte host[KEYS];
byte answer[KEYS];
bool stale_read;

inline flush_key(gone) {
  if
  :: !known[gone] -> skip
  :: known[gone] && ROOM(LANE_OF(gone)) ->
    append(LANE_OF(gone), FLUSH, gone, NONE, NOBODY);
    known[gone] = false;
    pending[gone] = false
  :: known[gone] && !ROOM(LANE_OF(gone)) -> pending[gone] = true
  fi
}

inline first_dirtied(dirty) {
#ifndef FAULT_NO_FLUSH_ON_DIRTY
  flush_key(dirty);
#endif
  buffers[dirty] = DIRTY
}

inline put(out) {
  if
  :: pending[out] -> skip
  :: !pending[out] -> flush_key(out) /* dropped */
  :: !pending[out] && ROOM(LANE_OF(out)) ->
    append(LANE_OF(out), PUT, out, page[out], NOBODY);
    known[out] = true
  fi;
  page[out] = NONE;
  buffers[out] = NO_BUFFERS
}

/* The host's copy and those under way are old: the page has changed. */
inline age(changing) {
  age_lanes(changing);
  host[changing] = (host[changing] == FRESH -> STALE : host[changing])
}

#ifdef FAULT_GET_OVER_BUFFERS
#define MAY_GET(k) (known[k] && !pending[k] && ROOM(LANE_OF(k)))
#else
#define MAY_GET(k) (known[k] && !pending[k] && ROOM(LANE_OF(k)) && buffers[k] == NO_BUFFERS)
#endif

/* Reads into a locked page that is not uptodate. Staged puts are left out: they are published. */
inline fill(back) {
  if
  :: MAY_GET(back) ->
    append(LANE_OF(back), GET, back, NONE, NOBODY);
    answer[back] = WAITING;
    lane[LANE_OF(back)].posted = lane[LANE_OF(back)].appended;
    answer[back] != WAITING;
    known[back] = pending[back];
    if
    :: answer[back] != NONE -> page[back] = answer[back]
    :: answer[back] == NONE -> page[back] = FRESH /* reads the blocks that have no buffer */
    fi;
    answer[back] = NONE
  :: !MAY_GET(back) -> page[back] = FRESH
  fi;
  locked[back] = false;
  stale_read = page[back] == STALE;
  assert(!stale_read)
}

proctype Cpu(byte c) {
  byte k;
  do
  :: atomic {
      if
      :: k = 0
      :: k = 1
#if KEYS > 2
      :: k = 2
#endif
      fi;
      if
      :: locked[k]
      :: !locked[k] && page[k] == NONE -> page[k] = HOLLOW
      :: !locked[k] && page[k] == HOLLOW -> locked[k] = true; fill(k)
      :: !locked[k] && page[k] == HOLLOW -> /* a block is written through its buffer */
        age(k);
        if
        :: buffers[k] == DIRTY -> skip
        :: buffers[k] != DIRTY -> first_dirtied(k)
        :: buffers[k] != DIRTY -> buffers[k] = JOURNALLED
        fi
      :: !locked[k] && page[k] == FRESH && buffers[k] != JOURNALLED -> /* written in the cache */
        age(k);
        if
        :: buffers[k] == DIRTY -> skip
        :: buffers[k] != DIRTY -> first_dirtied(k)
        fi
      :: !locked[k] && page[k] == FRESH && (buffers[k] == CLEAN || buffers[k] == NO_BUFFERS) ->
        put(k)
      :: !locked[k] && page[k] == HOLLOW && (buffers[k] == CLEAN || buffers[k] == NO_BUFFERS) ->
        flush_key(k); /* leaves unfilled: not a put, so an invalidate (C2) */
        page[k] = NONE;
        buffers[k] = NO_BUFFERS
      :: !locked[k] && buffers[k] == JOURNALLED -> first_dirtied(k) /* the transaction commits */
      :: !locked[k] && buffers[k] == DIRTY -> buffers[k] = CLEAN    /* write-back */
      :: !locked[k] && buffers[k] == CLEAN -> buffers[k] = NO_BUFFERS /* stripped */
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
  :: d_step { lane[0].posted < lane[0].appended -> PUBLISH(0) }
  :: d_step { lane[1].posted < lane[1].appended -> PUBLISH(1) }
  :: atomic {
      if
      :: pending[0] && ROOM(LANE_OF(0)) -> k = 0
      :: pending[1] && ROOM(LANE_OF(1)) -> k = 1
#if KEYS > 2
      :: pending[2] && ROOM(LANE_OF(2)) -> k = 2
#endif
      fi;
      flush_key(k);
      pending[k] = false;
      k = 0
    }
  od
}

inline execute(by) {
  if
  :: HEAD(by).op == PUT -> host[HEAD(by).key] = HEAD(by).data
  :: HEAD(by).op == GET -> answer[HEAD(by).key] = host[HEAD(by).key]; host[HEAD(by).key] = NONE
  :: HEAD(by).op == FLUSH -> host[HEAD(by).key] = NONE
  fi;
  complete(by)
}

active proctype Host() {
end:
  do
  :: atomic { lane[0].posted > 0 -> execute(0) }
  :: atomic { lane[1].posted > 0 -> execute(1) }
  od
}

init {
  atomic {
    reset_lanes();
    run Cpu(0);
    run Cpu(1)
  }
}
