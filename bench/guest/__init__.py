# SPDX-License-Identifier: GPL-2.0-only
"""Workloads measured in real guests, and their reports."""
