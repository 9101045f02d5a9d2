/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The lane part that the models share: two lanes, each a first-in first-out ring of descriptors.
 *
 * A descriptor is staged when it is in the ring (counted by `appended`) and published when `posted`
 * covers it. The host executes the oldest published one and completes it. The real counters run
 * free and the entries stay where they are; here the entries move up on completion, so that states
 * which differ only in the counters are one state.
 *
 * Data is not numbered. A copy of a page is FRESH (what a reader must see) or STALE (it was once);
 * a write to the page ages every copy of it. So the models run for ever over few states.
 *
 * Parameters of inlines have names of their own all through: the tool substitutes by name, and an
 * argument that has the name of a parameter further in recurses without end.
 */
#ifndef RING
#define RING 2
#endif
#define LANES 2
#define CPUS 2
#define NOBODY 9

#define NONE 0
#define FRESH 1
#define STALE 2
#define WAITING 3 /* an answer that has not come */
#define WRONG 4   /* bytes of another key */

mtype = {NOP, PUT, GET, FLUSH, FLUSH_ALL};

typedef Desc {
  mtype op;
  byte key;
  byte data; /* of a put: the payload; elsewhere what the including model says */
  byte who;  /* of a get: the CPU that waits */
};

typedef Lane {
  Desc d[RING];
  byte appended;
  byte posted;
};

Lane lane[LANES];
byte ix; /* loop counters: zero between steps, so they add no state */
byte iy;

#define ROOM(l) (lane[l].appended < RING)
#define HEAD(l) lane[l].d[0]
#define PUBLISH(l) lane[l].posted = lane[l].appended

inline append(to, what, about, bytes, asker) {
  lane[to].d[lane[to].appended].op = what;
  lane[to].d[lane[to].appended].key = about;
  lane[to].d[lane[to].appended].data = bytes;
  lane[to].d[lane[to].appended].who = asker;
  lane[to].appended++
}

inline clear_desc(where, place) {
  lane[where].d[place].op = NOP;
  lane[where].d[place].key = 0;
  lane[where].d[place].data = NONE;
  lane[where].d[place].who = NOBODY
}

/* The oldest descriptor is done: its place in the ring is free again. */
inline complete(done) {
  d_step {
    ix = 0;
    do
    :: ix + 1 < RING ->
      lane[done].d[ix].op = lane[done].d[ix + 1].op;
      lane[done].d[ix].key = lane[done].d[ix + 1].key;
      lane[done].d[ix].data = lane[done].d[ix + 1].data;
      lane[done].d[ix].who = lane[done].d[ix + 1].who;
      ix++
    :: else -> break
    od;
    clear_desc(done, RING - 1);
    lane[done].appended--;
    lane[done].posted--;
    ix = 0
  }
}

/* The channel is torn down (or set up): nothing is in any lane. */
inline reset_lanes() {
  d_step {
    ix = 0;
    do
    :: ix < LANES ->
      iy = 0;
      do
      :: iy < RING -> clear_desc(ix, iy); iy++
      :: else -> break
      od;
      lane[ix].appended = 0;
      lane[ix].posted = 0;
      ix++
    :: else -> break
    od;
    ix = 0;
    iy = 0
  }
}

/* The page of key k has changed: payloads of it that are still in a lane are old now. */
inline age_lanes(changed) {
  d_step {
    ix = 0;
    do
    :: ix < LANES ->
      iy = 0;
      do
      :: iy < RING ->
        if
        :: lane[ix].d[iy].key == changed && lane[ix].d[iy].data == FRESH ->
            lane[ix].d[iy].data = STALE
        :: else
        fi;
        iy++
      :: else -> break
      od;
      ix++
    :: else -> break
    od;
    ix = 0;
    iy = 0
  }
}

/* n = place of the last descriptor of key k in lane l if that is a staged put, else RING. */
inline find_staged_put(among, wanted, found) {
  d_step {
    found = RING;
    ix = lane[among].posted;
    do
    :: ix < lane[among].appended ->
      if
      :: lane[among].d[ix].op == PUT && lane[among].d[ix].key == wanted -> found = ix
      :: lane[among].d[ix].op == FLUSH && lane[among].d[ix].key == wanted -> found = RING
      :: lane[among].d[ix].op == FLUSH_ALL -> found = RING
      :: else
      fi;
      ix++
    :: else -> break
    od;
    ix = 0
  }
}
