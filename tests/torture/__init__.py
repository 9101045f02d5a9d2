# SPDX-License-Identifier: GPL-2.0-only
"""Coherency torture in real guests: what is read must be what was written last."""
