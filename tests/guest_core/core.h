// SPDX-License-Identifier: GPL-2.0-only
// The guest core, which is C, as these tests see it.
#ifndef TESTS_GUEST_CORE_CORE_H_
#define TESTS_GUEST_CORE_CORE_H_

extern "C" {
#include "guest-shims/tmem/core/client.h"
}

#endif  // TESTS_GUEST_CORE_CORE_H_
