# SPDX-License-Identifier: GPL-2.0-only
"""Boots real guests under QEMU and runs named workloads in them."""

import os

# Where Debian keeps mke2fs, debugfs, mkfs.*; not in a user's path.
os.environ["PATH"] = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
