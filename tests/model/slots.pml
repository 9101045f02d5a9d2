/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Payload slots and gets that time out: no key ever gets another key's bytes, and a completion that
 * comes late writes nowhere that matters (G3, G5).
 *
 * A lane has SLOTS payload slots. A put's slot is read, a get's slot is written by the daemon some
 * time before the completion. A get may time out at any moment: that is a miss, its key is flushed,
 * its slot is quarantined until its completion or until the channel is torn down.
 */
#ifndef KEYS
#define KEYS 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#include "lane.pml"
#ifdef TWO_LANES
#define LANE_OF(k) ((k) & 1)
#else
#define LANE_OF(k) 0 /* slots belong to a lane: the keys of one lane compete for them */
#endif

mtype = {FREE, BUSY, QUARANTINED, HIT, MISS};

typedef Slot {
  mtype state = FREE;
  byte key;
  byte data;
};
typedef SlotsOf { Slot s[SLOTS]; };
SlotsOf slots[LANES]; /* `data` of a descriptor is its slot here */

byte page[KEYS];
bool locked[KEYS];
bool known[KEYS];
bool pending[KEYS];
byte host[KEYS];
byte phase[LANES]; /* of the oldest descriptor: 0 untouched, 1 taken, 2 slot written */
byte held[LANES];  /* what the daemon has in its hand in phase 1; FRESH for "hit" in phase 2 */
mtype answer[CPUS] = FREE; /* FREE: none awaited; BUSY: awaited */
bool wrong_bytes;

inline find_free(there) {
  n = 0;
  do
  :: n < SLOTS && slots[there].s[n].state != FREE -> n++
  :: n == SLOTS -> break
  :: n < SLOTS && slots[there].s[n].state == FREE -> break
  od
}

inline free_slot(there2, which) {
  slots[there2].s[which].state = FREE;
  slots[there2].s[which].key = 0;
  slots[there2].s[which].data = NONE
}

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
  find_free(LANE_OF(out));
  if
  :: pending[out] -> skip
  :: !pending[out] -> flush_key(out) /* dropped: no slot, no room, or any other reason */
  :: !pending[out] && ROOM(LANE_OF(out)) && n < SLOTS ->
    slots[LANE_OF(out)].s[n].state = BUSY;
    slots[LANE_OF(out)].s[n].key = out;
    slots[LANE_OF(out)].s[n].data = page[out];
    append(LANE_OF(out), PUT, out, n, NOBODY);
    known[out] = true
  fi;
  n = 0;
  page[out] = NONE
}

/* The page has changed: copies of it in the store, in slots and in the daemon's hand are old. */
inline age(changing) {
  d_step {
    host[changing] = (host[changing] == FRESH -> STALE : host[changing]);
    n = 0;
    do
    :: n < SLOTS ->
      if
      :: slots[LANE_OF(changing)].s[n].key == changing &&
         slots[LANE_OF(changing)].s[n].data == FRESH ->
        slots[LANE_OF(changing)].s[n].data = STALE
      :: else
      fi;
      n++
    :: else -> break
    od;
    n = 0;
    if
    :: phase[LANE_OF(changing)] == 1 && HEAD(LANE_OF(changing)).key == changing &&
       held[LANE_OF(changing)] == FRESH ->
      held[LANE_OF(changing)] = STALE
    :: else
    fi
  }
}

/* Nobody waits for the get any more; its descriptor stays where it is. */
inline abandon(lost) {
  d_step {
    ix = 0;
    do
    :: lane[LANE_OF(lost)].d[ix].who == c -> lane[LANE_OF(lost)].d[ix].who = NOBODY; break
    :: lane[LANE_OF(lost)].d[ix].who != c -> ix++
    od;
    ix = 0;
    answer[c] = FREE
  }
}

/* The page of `back` is locked and not filled. Leaves `slot` < SLOTS if there is one to wait on. */
inline ask(back) {
  find_free(LANE_OF(back));
  slot = SLOTS;
  if
  :: true -> skip /* refused: the host is not asked and may keep a copy */
  :: known[back] && !pending[back] && ROOM(LANE_OF(back)) && n < SLOTS ->
    slots[LANE_OF(back)].s[n].state = BUSY;
    append(LANE_OF(back), GET, back, n, c);
    answer[c] = BUSY;
    PUBLISH(LANE_OF(back));
    slot = n
  fi;
  n = 0
}

inline wait(asked) {
  if
  :: atomic { answer[c] == HIT -> answer[c] = FREE };
    atomic { /* copy out, and only then the slot is free */
      got = slots[LANE_OF(asked)].s[slot].data;
      wrong_bytes = got != FRESH || slots[LANE_OF(asked)].s[slot].key != asked;
      assert(!wrong_bytes); /* another key's, or old ones */
      free_slot(LANE_OF(asked), slot);
      known[asked] = pending[asked];
      got = NONE
    }
  :: atomic { answer[c] == MISS -> answer[c] = FREE; known[asked] = pending[asked] }
  :: atomic { /* timed out */
      answer[c] == BUSY -> abandon(asked);
#ifdef FAULT_LATE_GET_INTO_REUSED_SLOT
      free_slot(LANE_OF(asked), slot);
#else
      slots[LANE_OF(asked)].s[slot].state = QUARANTINED;
#endif
      flush_key(asked)
    }
  fi
}

proctype Cpu(byte c) {
  byte k, n, got;
  byte slot = SLOTS;
  bool reading;
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
      :: page[k] != NONE && !locked[k] -> put(k)         /* reclaim */
      :: page[k] != NONE && !locked[k] -> age(k); put(k) /* written, then reclaim */
      :: page[k] == NONE && !locked[k] -> locked[k] = true; reading = true; ask(k)
      :: else
      fi
    };
    if
    :: slot < SLOTS -> wait(k)
    :: else
    fi;
    atomic {
      if
      :: reading -> page[k] = FRESH; locked[k] = false /* as read */
      :: else
      fi;
      slot = SLOTS;
      reading = false;
      k = 0
    }
  :: c == 0 -> break
  od
}

#ifdef FAULT_SLOT_REUSED_BEFORE_COMPLETION
/* The guest takes back the slots of what it publishes. */
#define PUBLISH_LANE(l) \
  if \
  :: HEAD(l).op == PUT && lane[l].posted == 0 -> slots[l].s[HEAD(l).data].state = FREE \
  :: else \
  fi; \
  PUBLISH(l)
#else
#define PUBLISH_LANE(l) PUBLISH(l)
#endif

active proctype Shim() {
  byte k;
end:
  do
  :: atomic { lane[0].posted < lane[0].appended -> PUBLISH_LANE(0) }
  :: atomic { lane[1].posted < lane[1].appended -> PUBLISH_LANE(1) }
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

#define SLOT_OF_HEAD(l) slots[l].s[HEAD(l).data]

inline serve(by) {
  if
  :: atomic { lane[by].posted > 0 && HEAD(by).op == FLUSH ->
       host[HEAD(by).key] = NONE; complete(by) }
  :: atomic { /* copies the payload */
      lane[by].posted > 0 && HEAD(by).op == PUT && phase[by] == 0 -> phase[by] = 2;
      host[HEAD(by).key] = (SLOT_OF_HEAD(by).key == HEAD(by).key -> SLOT_OF_HEAD(by).data : WRONG)
    }
  :: atomic { /* takes the page out */
      lane[by].posted > 0 && HEAD(by).op == GET && phase[by] == 0 -> phase[by] = 1;
      if
      :: held[by] = host[HEAD(by).key]
      :: held[by] = NONE /* evicted meanwhile */
      fi;
      host[HEAD(by).key] = NONE
    }
  :: atomic { /* writes the slot */
      phase[by] == 1 -> phase[by] = 2;
      if
      :: held[by] != NONE ->
        SLOT_OF_HEAD(by).key = HEAD(by).key;
        SLOT_OF_HEAD(by).data = held[by];
        held[by] = FRESH
      :: else
      fi
    }
  :: atomic { /* completes */
      phase[by] == 2 -> phase[by] = 0;
      if
      :: HEAD(by).op == GET && HEAD(by).who != NOBODY && held[by] != NONE ->
        answer[HEAD(by).who] = HIT
      :: HEAD(by).op == GET && HEAD(by).who != NOBODY && held[by] == NONE ->
        answer[HEAD(by).who] = MISS;
        free_slot(by, HEAD(by).data)
      :: HEAD(by).op == GET && HEAD(by).who == NOBODY -> /* the quarantine ends */
        if
        :: SLOT_OF_HEAD(by).state == QUARANTINED -> free_slot(by, HEAD(by).data)
        :: else
        fi
      :: HEAD(by).op == PUT ->
#ifndef FAULT_SLOT_REUSED_BEFORE_COMPLETION
        free_slot(by, HEAD(by).data)
#endif
      fi;
      held[by] = NONE;
      complete(by)
    }
  fi
}

inline tear_down_slots(torn) {
  n = 0;
  do
  :: n < lane[torn].appended ->
    if
    :: lane[torn].d[n].op != FLUSH -> free_slot(torn, lane[torn].d[n].data)
    :: else
    fi;
    n++
  :: else -> break
  od;
  n = 0
}

active proctype Host() {
  byte n;
end:
  do
  :: serve(0)
  :: serve(1)
  :: atomic { /* dies and comes back empty; slots of answers not yet copied out are not freed */
      d_step {
        tear_down_slots(0);
        tear_down_slots(1);
        n = 0;
        do
        :: n < KEYS -> host[n] = NONE; known[n] = false; pending[n] = false; n++
        :: else -> break
        od;
        n = 0;
        phase[0] = 0; phase[1] = 0; held[0] = NONE; held[1] = NONE;
        answer[0] = (answer[0] == BUSY -> MISS : answer[0]);
        answer[1] = (answer[1] == BUSY -> MISS : answer[1])
      };
      reset_lanes()
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
