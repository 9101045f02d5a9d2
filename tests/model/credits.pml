/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Credits: a persistent put made with a credit always finds memory that nobody can take away (P3,
 * X2).
 *
 * The daemon has RESERVE pages of its own and one page that the guest has reported free and may
 * take back. It grants one credit at a time, asks for them back, and may die and come back with
 * or without its store. The guest puts, flushes and returns over two lanes. Real counters are
 * cumulative; here each side keeps the difference that matters.
 */
#define KEYS 3
#ifndef RESERVE
#define RESERVE 2
#endif
#include "lane.pml"
#define LANE_OF(k) ((k) & 1)
#define RETURN NOP /* gives one unused credit back */

byte credits;     /* the guest's: granted, not used, not returned */
byte outstanding; /* the daemon's: granted, and neither consumed by a put nor returned */
bool revoking;    /* the daemon has posted a lower target */
bool held[KEYS];
bool stored[KEYS];
byte used;        /* pages stored */
bool reported = true; /* the page the guest reported free */
bool alive = true;
bool no_memory;

inline post(at, todo, whose) {
  append(at, todo, whose, NONE, NOBODY);
  PUBLISH(at)
}

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
      :: credits > 0 && !revoking && ROOM(LANE_OF(k)) ->
        credits--;
        held[k] = true;
        post(LANE_OF(k), PUT, k)
      :: held[k] && ROOM(LANE_OF(k)) -> held[k] = false; post(LANE_OF(k), FLUSH, k)
      :: credits > 0 && ROOM(0) -> credits--; post(0, RETURN, 0)
      :: reported -> reported = false /* the guest needs its memory */
      :: !reported && used <= RESERVE -> reported = true
      :: else
      fi;
      k = 0
    }
  od
}

inline execute(by) {
  if
  :: HEAD(by).op == PUT ->
    outstanding--;
    used = (stored[HEAD(by).key] -> used : used + 1);
    stored[HEAD(by).key] = true
  :: HEAD(by).op == FLUSH ->
    used = (stored[HEAD(by).key] -> used - 1 : used);
    stored[HEAD(by).key] = false
  :: HEAD(by).op == RETURN ->
#ifndef FAULT_FREED_BEFORE_RETURNED
    outstanding--
#endif
  :: HEAD(by).op == GET -> skip /* a return that is void */
  fi;
  complete(by)
}

/* What is in the lanes is replayed; returns of the old daemon's credits are not. */
inline replay_in(part) {
  ix = 0;
  do
  :: ix < lane[part].appended ->
    if
    :: lane[part].d[ix].op == PUT -> outstanding++
    :: lane[part].d[ix].op == RETURN -> lane[part].d[ix].op = GET
    :: else
    fi;
    ix++
  :: else -> break
  od;
  ix = 0
}

#if defined(FAULT_CREDIT_ON_PROMISED_MEMORY)
#define CAN_GRANT (used < RESERVE && outstanding < RESERVE)
#elif defined(FAULT_CREDIT_ON_REPORTED_MEMORY)
#define CAN_GRANT (used + outstanding < RESERVE + reported)
#else
#define CAN_GRANT (used + outstanding < RESERVE)
#endif

active proctype Daemon() {
end:
  do
  :: atomic { alive && lane[0].posted > 0 -> execute(0) }
  :: atomic { alive && lane[1].posted > 0 -> execute(1) }
  :: d_step { alive && !revoking && CAN_GRANT -> outstanding++; credits++ }
  :: d_step { alive && !revoking ->
      revoking = true;
#ifdef FAULT_FREED_BEFORE_RETURNED
      outstanding = outstanding - credits /* posts the target and takes it as done */
#endif
    }
  :: d_step { alive && revoking -> revoking = false }
  :: d_step { alive -> alive = false }
  :: atomic { /* back, with what it stored or without: old credits are void, replays come first */
      !alive ->
      alive = true;
      credits = 0;
      revoking = false;
      outstanding = 0;
      if
      :: true
      :: stored[0] = false; stored[1] = false; stored[2] = false; used = 0
      fi;
      replay_in(0);
      replay_in(1);
#ifdef FAULT_GRANT_BEFORE_REPLAY
      credits = RESERVE - used; /* grants as if no replay were to come */
      outstanding = outstanding + credits
#endif
    }
  od
}

active proctype Check() {
end:
  atomic { used > RESERVE + reported -> no_memory = true; assert(!no_memory) }
}

init {
  atomic {
    reset_lanes();
    run Cpu();
    run Cpu()
  }
}
