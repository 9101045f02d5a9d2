/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pool handles: a page of one file system never comes back as another's (K3, K5, C4).
 *
 * There is one handle index, so each mount reuses the one before. CPU 0 mounts (creates a pool),
 * reads and unmounts (destroys it); CPU 1 reclaims, and may have looked up the handle of a pool
 * that is gone by the time it appends. The daemon may die at any moment and come back with no
 * pools; the guest learns it only from the status "stale pool". MOUNTS and DEATHS bound a run.
 */
#define KEYS 2
#ifndef MOUNTS
#define MOUNTS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#include "lane.pml"
#define LANE_OF(k) (k)
#define DESTROY FLUSH_ALL
#define STALE_POOL 50 /* an answer; others are a file system, from 1, or NONE */
#define WAITED 51

/* In descriptors `data` is the file system that a put's page belongs to, `who` the generation. */
byte mounted;       /* file system that is mounted, or NONE: each mount is another one */
byte generation;    /* of the handle the guest holds */
byte mounts;
byte answer;
byte destroying;    /* lanes that have not executed the destroy yet */

bool pool_live;     /* the daemon's only handle index */
byte pool_generation;
byte next_generation = 1;
byte store[KEYS];
byte deaths;
bool wrong_pool;

#ifdef FAULT_HANDLE_WITHOUT_GENERATION
#define VALID(g) pool_live
#else
#define VALID(g) (pool_live && pool_generation == g)
#endif

inline post(at, todo, whose, content, gen) {
  append(at, todo, whose, content, gen);
  PUBLISH(at)
}

/* A call that is answered at once: nothing of the new pool can be in a lane before it. */
inline create() {
  pool_live = true;
  pool_generation = next_generation;
  next_generation++;
  store[0] = NONE;
  store[1] = NONE;
  generation = pool_generation
}

proctype Cpu0() {
  byte k;
  do
  :: atomic { mounted == NONE && mounts < MOUNTS -> mounts++; mounted = mounts; create() }
  :: atomic { /* reads */
      if
      :: k = 0
      :: k = 1
      fi;
      if
      :: mounted != NONE && ROOM(LANE_OF(k)) ->
        answer = WAITED;
        post(LANE_OF(k), GET, k, NONE, generation);
        answer != WAITED;
        wrong_pool = answer != NONE && answer != STALE_POOL && answer != mounted;
        assert(!wrong_pool);
        if
        :: answer == STALE_POOL -> create() /* the daemon is a new one */
        :: else
        fi;
        answer = NONE
      :: else
      fi;
      k = 0
    }
  :: atomic { /* unmounts: posts to every lane, may sleep, waits for all */
      mounted != NONE && ROOM(0) && ROOM(1) -> destroying = 2;
      post(0, DESTROY, 0, NONE, generation);
      post(1, DESTROY, 0, NONE, generation)
    };
    atomic { destroying == 0 -> mounted = NONE }
  :: atomic { mounted == NONE && mounts == MOUNTS -> break }
  od
}

proctype Cpu1() {
  byte k, fs, gen;
  do
  :: atomic { mounted != NONE -> fs = mounted; gen = generation }; /* looks the pool up */
    atomic {
      if
      :: k = 0
      :: k = 1
      fi;
      if
      :: ROOM(LANE_OF(k)) -> post(LANE_OF(k), PUT, k, fs, gen)
      :: true /* dropped */
      fi;
      k = 0;
      fs = NONE;
      gen = 0
    }
  :: mounts == MOUNTS -> break
  od
}

inline execute(by) {
  if
  :: HEAD(by).op == PUT && VALID(HEAD(by).who) -> store[HEAD(by).key] = HEAD(by).data
  :: HEAD(by).op == GET && VALID(HEAD(by).who) ->
    answer = store[HEAD(by).key];
    store[HEAD(by).key] = NONE
  :: HEAD(by).op == GET && !VALID(HEAD(by).who) -> answer = STALE_POOL
  :: HEAD(by).op == PUT && !VALID(HEAD(by).who) -> skip /* stale pool: fails alone */
  :: HEAD(by).op == DESTROY ->
    store[by] = NONE; /* only this lane's keys */
    destroying--;
    if
    :: destroying == 0 && VALID(HEAD(by).who) -> pool_live = false
    :: else
    fi
  fi;
  complete(by)
}

active proctype Daemon() {
end:
  do
  :: atomic { lane[0].posted > 0 -> execute(0) }
  :: atomic { lane[1].posted > 0 -> execute(1) }
  :: atomic { /* another daemon: no pools, and generations that were never used before */
      deaths < DEATHS ->
      deaths++;
      pool_live = false;
      store[0] = NONE;
      store[1] = NONE;
#ifdef FAULT_GENERATIONS_RESTART
      next_generation = 1
#endif
    }
  od
}

init {
  atomic {
    reset_lanes();
    run Cpu0();
    run Cpu1()
  }
}
