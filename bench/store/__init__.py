# SPDX-License-Identifier: GPL-2.0-only
"""Figures of the store: the peer, the table, the plots."""
