# SPDX-License-Identifier: GPL-2.0-only
"""What a healthy kernel never prints on its console."""

import re

_TROUBLE = re.compile(
    r"WARNING:|BUG:|BUG at|Oops|Kernel panic|general protection|blocked for more than"
    r"|soft lockup|hard LOCKUP|detected stalls?|self-detected stall|possible recursive locking"
    r"|possible circular locking|inconsistent lock state|suspicious RCU|Out of memory:"
    r"|refcount_t:|list_(add|del) corruption|Bad page|bad swap|scheduling while atomic"
    r"|sleeping function called|Call Trace|new suspected memory leaks"
)


def trouble(text):
    """Lines of a console that a healthy kernel does not print."""
    return [line for line in text.splitlines() if _TROUBLE.search(line)]


def around_trouble(text):
    """The first such line with what stands around it."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if _TROUBLE.search(line))
    return "\n".join(lines[max(0, first - 12):first + 30])
