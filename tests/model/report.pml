/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Reports: no page is dropped after its report has returned (R1).
 *
 * CPU 0 isolates free pages, two at a time out of three, posts them in one of two lanes' report
 * descriptors and waits. It may withdraw (POSTED -> WITHDRAWN); once the host has won POSTED ->
 * TAKEN it waits for the answer or for the channel to be torn down. CPU 1 allocates any page that
 * is free and not isolated. The daemon drops one page at a time and may die at any moment.
 *
 * The descriptor of a withdrawn report may be used again at once. So the host copies the ranges
 * after it has won them, not before (FAULT_COPIED_BEFORE_TAKEN). If withdrawn descriptors stay
 * until the host has passed them (-DSTAYS_UNTIL_PASSED), either order is right.
 */
#define PAGES 3
#define LANES 2
mtype = {EMPTY, POSTED, TAKEN, WITHDRAWN, ANSWERED};
mtype = {FREE, ISOLATED, IN_USE};

mtype page[PAGES] = FREE;
mtype state[LANES] = EMPTY;
byte first[LANES], second[LANES]; /* the ranges of the descriptor in each lane */
bool registered = true; /* the guest has set up the channel with the daemon that now runs */
bool dying;
bool dropped_late;

inline post_report(l, a, b) {
  atomic {
    page[a] == FREE && page[b] == FREE && state[l] == EMPTY ->
    page[a] = ISOLATED;
    page[b] = ISOLATED;
    first[l] = a;
    second[l] = b;
    state[l] = POSTED;
    lane = l
  }
}

inline give_back() {
  page[first[lane]] = FREE;
  page[second[lane]] = FREE;
  first[lane] = 0;
  second[lane] = 0
}

active proctype Reporter() {
  byte lane;
  do
  :: if
    :: post_report(0, 0, 1)
    :: post_report(0, 1, 2)
    :: post_report(1, 0, 2)
    :: post_report(1, 0, 1)
    fi;
    if
    :: atomic { state[lane] == ANSWERED -> give_back(); state[lane] = EMPTY }
    :: atomic { state[lane] == POSTED -> give_back(); /* one compare-and-swap */
#ifdef STAYS_UNTIL_PASSED
        state[lane] = WITHDRAWN
#else
        state[lane] = EMPTY
#endif
      }
#ifdef FAULT_RETURNED_WHILE_TAKEN
    :: atomic { state[lane] == TAKEN -> give_back(); state[lane] = EMPTY } /* time-out */
#endif
    :: atomic { /* torn down: the old daemon is gone, so whatever it had taken is over */
        !registered ->
        give_back();
        state[0] = EMPTY;
        state[1] = EMPTY;
        registered = true
      }
    fi;
    lane = 0
  :: atomic { !registered -> state[0] = EMPTY; state[1] = EMPTY; registered = true }
  :: break /* may stop, at rest */
  od
}

active proctype Allocator() {
end:
  do
  :: d_step { page[0] == FREE -> page[0] = IN_USE }
  :: d_step { page[1] == FREE -> page[1] = IN_USE }
  :: d_step { page[2] == FREE -> page[2] = IN_USE }
  :: d_step { page[0] == IN_USE -> page[0] = FREE }
  :: d_step { page[1] == IN_USE -> page[1] = FREE }
  :: d_step { page[2] == IN_USE -> page[2] = FREE }
  od
}

inline drop(p) {
  atomic { dropped_late = page[p] != ISOLATED; assert(!dropped_late) }
}

#ifdef FAULT_TAKEN_BEFORE_REGISTRATION
#define SERVES(l) (state[l] == POSTED)
#else
#define SERVES(l) (state[l] == POSTED && registered)
#endif

active proctype Daemon() {
  byte l, a, b;
start:
  {
end:
    do
    :: atomic {
        if
        :: SERVES(0) -> l = 0
        :: SERVES(1) -> l = 1
        fi;
#if defined(FAULT_COPIED_BEFORE_TAKEN) || defined(STAYS_UNTIL_PASSED)
        a = first[l];
        b = second[l]
#endif
      };
      if
#ifdef FAULT_NO_COMPARE_AND_SWAP
      :: atomic { true -> state[l] = TAKEN; a = first[l]; b = second[l] };
#else
      :: atomic { /* one compare-and-swap; what follows is another access */
          state[l] == POSTED -> state[l] = TAKEN };
#if !defined(FAULT_COPIED_BEFORE_TAKEN) && !defined(STAYS_UNTIL_PASSED)
        atomic { a = first[l]; b = second[l] };
#endif
#endif
        drop(a);
        drop(b);
        atomic { state[l] = ANSWERED }
#ifndef FAULT_NO_COMPARE_AND_SWAP
      :: atomic { state[l] != POSTED -> skip }
#endif
      fi;
      atomic { l = 0; a = 0; b = 0 }
#ifdef STAYS_UNTIL_PASSED
    :: atomic { state[0] == WITHDRAWN -> state[0] = EMPTY }
    :: atomic { state[1] == WITHDRAWN -> state[1] = EMPTY }
#endif
    od
  } unless { atomic { dying -> dying = false; registered = false; l = 0; a = 0; b = 0 } };
  goto start
}

active proctype Fate() {
end:
  do
  :: atomic { registered && !dying -> dying = true }
  od
}
