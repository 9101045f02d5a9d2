# SPDX-License-Identifier: GPL-2.0-only
"""Boots real guests under QEMU and runs named workloads in them."""
