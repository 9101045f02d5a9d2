/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Direct writes: what the page cache serves after a direct write has returned is not older (C3).
 *
 * Two CPUs read through the page cache, reclaim, and write directly: the disk changes at one moment
 * within the write, with or without pages in the cache. A read that overlaps the write may return
 * either; nothing old may be readable once the write is over.
 *
 * The model showed that flushing before and after dropping the cached pages is not enough
 * (FAULT_NO_MARK): reclaim puts an old page after the first flush, a reader takes it from the host
 * after the drop, and the second flush comes too late. So the keys are marked from before the test
 * for cached pages until the flush after the drop: while marked, gets miss in the guest.
 */
#define KEYS 2
#include "lane.pml"

#define LANE_OF(k) ((k) & (LANES_USED - 1))
#ifndef LANES_USED
#define LANES_USED 1 /* both keys in lane 0 by default: they compete for its room */
#endif

byte page[KEYS];
bool locked[KEYS];  /* also: a locked page is in the page tree, filled or not */
bool known[KEYS];
bool pending[KEYS];
byte marked[KEYS];  /* direct writes that have written and not yet flushed */
byte writing[KEYS]; /* direct writes that have not returned */
byte host[KEYS];
byte answer[KEYS];  /* one get a key, by the page lock */
bool stale_read;

#define IN_TREE(k) (locked[k] || page[k] != NONE)

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

inline put(out) {
  if
  :: pending[out] -> skip
  :: !pending[out] -> flush_key(out) /* dropped */
  :: !pending[out] && ROOM(LANE_OF(out)) ->
    append(LANE_OF(out), PUT, out, page[out], NOBODY);
    known[out] = true
  fi;
  page[out] = NONE
}

/* The page is locked and in the tree, not filled. */
inline fill(back) {
  atomic {
    find_staged_put(LANE_OF(back), back, n);
    if
#ifdef FAULT_NO_MARK
    :: !known[back] || pending[back] -> n = RING
    :: else ->
#else
    :: !known[back] || pending[back] || marked[back] -> n = RING
    :: known[back] && !pending[back] && !marked[back] ->
#endif
      if
      :: n < RING ->
        page[back] = lane[LANE_OF(back)].d[n].data;
        lane[LANE_OF(back)].d[n].op = FLUSH;
        lane[LANE_OF(back)].d[n].data = NONE;
        n = RING
      :: n == RING && !ROOM(LANE_OF(back)) -> flush_key(back)
      :: n == RING && ROOM(LANE_OF(back)) ->
        append(LANE_OF(back), GET, back, NONE, c);
        answer[back] = WAITING;
        PUBLISH(LANE_OF(back));
        answer[back] != WAITING;
        page[back] = answer[back];
        answer[back] = NONE
      fi;
      if
      :: !pending[back] -> known[back] = false
      :: else
      fi
    fi;
    n = 0
  };
  if
  :: page[back] == NONE -> page[back] = FRESH /* reads the disk as it is at this moment */
  :: else
  fi;
  locked[back] = false
}

inline age(k0) {
  d_step {
    age_lanes(k0);
    host[k0] = (host[k0] == FRESH -> STALE : host[k0]);
    page[k0] = (page[k0] == FRESH -> STALE : page[k0]);
    answer[k0] = (answer[k0] == FRESH -> STALE : answer[k0])
  }
}

/* Drops the page from the cache without a put; a page under I/O is waited for. */
inline drop(k1) {
  atomic {
    if
    :: IN_TREE(k1) -> !locked[k1] -> page[k1] = NONE
    :: else
    fi
  }
}

inline direct_write(k2) {
  atomic { writing[k2]++; flush_key(k2) };
  drop(k2);
  age(k2); /* the disk changes */
#if defined(FAULT_NO_INVALIDATE_AFTER)
  if
  :: IN_TREE(k2) -> atomic { marked[k2]++ }; drop(k2); atomic { flush_key(k2); marked[k2]-- }
  :: else /* the mapping is empty: nothing done */
  fi;
#elif defined(FAULT_NOTHING_AFTER_ERROR)
  if
  :: atomic { marked[k2]++ }; drop(k2); atomic { flush_key(k2); marked[k2]-- }
  :: skip /* failed half-way */
  fi;
#elif defined(FAULT_FLUSH_BEFORE_DROP_ONLY)
  atomic { marked[k2]++; flush_key(k2); marked[k2]-- };
  drop(k2);
#elif defined(FAULT_TEST_BEFORE_MARK)
  if
  :: IN_TREE(k2) -> atomic { marked[k2]++ }; drop(k2)
  :: !IN_TREE(k2) -> atomic { marked[k2]++ }
  fi;
  atomic { flush_key(k2); marked[k2]-- };
#elif defined(FAULT_NO_MARK)
  atomic { flush_key(k2) }; /* however often this is repeated */
  drop(k2);
  atomic { flush_key(k2) };
  drop(k2);
  atomic { flush_key(k2) };
#else
  marked[k2]++;
  drop(k2);
  atomic { flush_key(k2); marked[k2]-- };
#endif
  writing[k2]--
}

proctype Cpu(byte c) {
  byte k, n, then;
  do
  :: atomic {
      if
      :: k = 0
      :: k = 1
      fi;
      if
      :: page[k] != NONE && !locked[k] -> put(k) /* reclaim */
      :: page[k] == STALE && !locked[k] && !writing[k] -> stale_read = true; assert(!stale_read)
      :: !IN_TREE(k) -> locked[k] = true; then = 1
      :: true -> then = 2
      fi
    };
    if
    :: then == 1 -> fill(k)
    :: then == 2 -> direct_write(k)
    :: else
    fi;
    atomic { k = 0; then = 0 }
  :: c == 0 -> break
  od
}

active proctype Shim() {
end:
  do
  :: d_step { lane[0].posted < lane[0].appended -> PUBLISH(0) }
  :: d_step { lane[1].posted < lane[1].appended -> PUBLISH(1) }
  :: atomic { pending[0] && ROOM(LANE_OF(0)) -> flush_key(0); pending[0] = false }
  :: atomic { pending[1] && ROOM(LANE_OF(1)) -> flush_key(1); pending[1] = false }
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
