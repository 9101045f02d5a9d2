/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Kick suppression and sleeping: nobody sleeps while work or an answer waits for him.
 *
 * Memory is x86-TSO: each CPU and the daemon have a store buffer that drains to memory at any later
 * time, and a load may pass the stores in it. A full fence waits until the own buffer is empty.
 *
 *   guest:  posted = n;        FENCE;  awake? else ring the bell
 *   host:   awake = 0;         FENCE;  posted of all lanes unchanged? then sleep on the bell
 *   host:   done = n;          FENCE;  guest_waits? then ring the lane's interrupt
 *   guest:  guest_waits = 1;   FENCE;  done reached? else sleep on the interrupt
 *
 * CPU n makes OPSn calls on lanes of its choice and waits for each; the daemon may die DEATHS
 * times (0 or 1) and come back. There is no time-out here, so a lost wake-up is an invalid end
 * state; and no execution is infinite (searched for cycles too).
 */
#ifndef OPS0
#define OPS0 2
#endif
#ifndef OPS1
#define OPS1 1
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#define CPUS 2
#define HOST 2 /* the daemon's store buffer */

#define POSTED(l) mem[l]
#define DONE(l) mem[2 + (l)]
#define WAITS(l) mem[4 + (l)]
#define AWAKE mem[6]

byte mem[7];                       /* what everybody sees */
bool lane_lock[2];
byte waiters[2];                   /* guest_waits is 1 while there are any */
chan buffer[3] = [2] of {byte, byte}; /* store buffers: address, value */
byte appended[2];                  /* the guest's own copy, under the lane lock */
byte finished[2];                  /* the daemon's own copy */
bool bell;                         /* an eventfd: stays set until read */
bool irq[2];
byte queued[CPUS];                 /* wait queue: lane + 1 while the CPU is on it */
bool dying;

#define STORE(who, address, value) buffer[who]!address, value
#define FENCE(who) empty(buffer[who])
#define REACHED(l, n) (DONE(l) >= n)

/* A store of `posted` or of `guest_waits` has the unlock of its lane right behind it. */
inline drain() {
  mem[a] = v;
  if
  :: a < 2 -> lane_lock[a] = false
  :: a == 4 || a == 5 -> lane_lock[a - 4] = false
  :: else
  fi;
  a = 0;
  v = 0
}

/* Store buffers drain, oldest first. */
active proctype Memory() {
  byte a, v;
end:
  do
  :: d_step { nempty(buffer[0]) -> buffer[0]?a, v; drain() }
  :: d_step { nempty(buffer[1]) -> buffer[1]?a, v; drain() }
  :: d_step { nempty(buffer[2]) -> buffer[2]?a, v; drain() }
  od
}

proctype Cpu(byte c) {
  byte i, l, n;
  do
  :: i < (c == 0 -> OPS0 : OPS1) ->
    if
    :: l = 0
    :: l = 1
    fi;
    atomic { /* append and publish under the lane lock */
      !lane_lock[l] -> lane_lock[l] = true;
      appended[l]++;
      n = appended[l];
      STORE(c, l, n)
    };
#ifndef FAULT_NO_FENCE_AFTER_POSTED
    FENCE(c);
#endif
    if
    :: AWAKE == 0 -> bell = true
    :: AWAKE != 0 -> skip
    fi;
    if
    :: atomic { REACHED(l, n) } /* seen while it spins */
    :: atomic { /* watches: under the lane lock, counted, so that the last one clears the flag */
        !lane_lock[l] -> lane_lock[l] = true;
        waiters[l]++;
        STORE(c, 4 + l, 1)
      };
#ifndef FAULT_NO_FENCE_AFTER_WAITS
      FENCE(c);
#endif
      do
#ifdef FAULT_LOOKS_BEFORE_QUEUEING
      :: REACHED(l, n) -> break
      :: !REACHED(l, n) -> queued[c] = l + 1; queued[c] == 0
#else
      :: queued[c] = l + 1; /* on the wait queue first, then looks */
        if
        :: atomic { REACHED(l, n) -> queued[c] = 0 } -> break
        :: atomic { !REACHED(l, n) -> queued[c] == 0 } /* sleeps until the interrupt wakes it */
        fi
#endif
      od;
      atomic {
        !lane_lock[l] -> lane_lock[l] = true;
        waiters[l]--;
#ifdef FAULT_WAITER_CLEARS_SHARED_FLAG
        STORE(c, 4 + l, 0)
#else
        STORE(c, 4 + l, waiters[l] > 0)
#endif
      }
    fi;
    atomic { n = 0; l = 0; i++ }
  :: else -> break
  od
}

inline wake(woken) {
  queued[0] = (queued[0] == woken + 1 -> 0 : queued[0]);
  queued[1] = (queued[1] == woken + 1 -> 0 : queued[1])
}

/* The guest's interrupt wakes all who wait on the lane. */
active proctype Interrupt() {
end:
  do
  :: d_step { irq[0] -> irq[0] = false; wake(0) }
  :: d_step { irq[1] -> irq[1] = false; wake(1) }
  od
}

inline serve(served) {
  atomic {
    POSTED(served) != finished[served] ->
    STORE(HOST, 2 + served, finished[served] + 1);
    finished[served]++
  };
#ifndef FAULT_NO_FENCE_AFTER_DONE
  FENCE(HOST);
#endif
  irq[served] = irq[served] || WAITS(served)
}

active proctype Daemon() {
start:
  {
    /* Comes up, for the first time or again. What its predecessor owed it cannot know: it looks at
       all lanes and rings all of them once. */
    atomic {
      FENCE(HOST);
      finished[0] = DONE(0);
      finished[1] = DONE(1);
#ifndef FAULT_NO_RING_AT_START
      irq[0] = true;
      irq[1] = true;
#endif
      STORE(HOST, 6, 1)
    };
    do
    :: serve(0)
    :: serve(1)
    :: atomic { POSTED(0) == finished[0] && POSTED(1) == finished[1] -> STORE(HOST, 6, 0) };
#ifndef FAULT_NO_FENCE_BEFORE_SLEEP
      FENCE(HOST);
#endif
      if
      :: POSTED(0) == finished[0] ->
        if
        :: POSTED(1) == finished[1] ->
end_asleep:
          d_step { bell -> bell = false }
        :: else
        fi
      :: else
      fi;
      STORE(HOST, 6, 1)
    od
  } unless { dying };
  d_step { dying = false; bell = false };
  goto start
}

/* The daemon dies at any moment and comes back. */
#if DEATHS
active proctype Fate() {
  if
  :: dying = true
  :: skip
  fi
}
#endif

init {
  atomic {
    run Cpu(0);
    run Cpu(1)
  }
}
