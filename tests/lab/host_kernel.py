# SPDX-License-Identifier: GPL-2.0-only
"""Which kernel the lab's KVM host runs: Debian's, with TMEM_LAB_HOST=debug one full of checks."""

import functools
import os

from lab import debug_host, stock


@functools.cache  # apt is asked once
def kernel():
    return debug_host.kernel() if os.environ.get("TMEM_LAB_HOST") == "debug" else stock.kernel()
