// SPDX-License-Identifier: GPL-2.0-only
// The ways in which a guest, or the process that speaks for it, may try to do harm.
#ifndef TESTS_HOSTILE_ATTACKS_H_
#define TESTS_HOSTILE_ATTACKS_H_

#include <span>
#include <vector>

#include "tests/hostile/attacker.h"

namespace tmem {

// Runs until the attacker's slice is over, or shorter. It begins connected, mostly registered, and
// may leave both in any state. The scribbler is stopped afterwards by whoever called it.
struct Attack {
  const char* name;
  void (*run)(Attacker& attacker);
  std::uint32_t slices = 1;  // how many at a time: what is to be exhausted takes longer
};

std::span<const Attack> WindowAttacks();   // lies in the header, the counters, the descriptors
std::span<const Attack> LoadAttacks();     // too much of what is allowed
std::span<const Attack> ProcessAttacks();  // what a VMM process may do to sockets and fds

std::vector<Attack> AllAttacks();

}  // namespace tmem

#endif  // TESTS_HOSTILE_ATTACKS_H_
