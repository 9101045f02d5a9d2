# SPDX-License-Identifier: GPL-2.0-only
"""What KVM and the host module count; empty where they are not there, or not for this user."""

import pathlib

_KVM = pathlib.Path("/sys/kernel/debug/kvm")
_MODULE = pathlib.Path("/sys/class/misc/kvm_tmem/counters")
_OF_A_GUEST = ["exits", "hypercalls", "io_exits", "mmio_exits", "halt_exits", "irq_injections"]


def _number(path):
    return int(path.read_text(encoding="ascii"))


def of_process(pid):
    """KVM's statistics of a VMM's guest, all vCPUs together: {name: free-running count}."""
    try:
        directory = next(_KVM.glob(f"{pid}-*"), None)
        return {name: _number(directory / name) for name in _OF_A_GUEST} if directory else {}
    except (OSError, ValueError):
        return {}


def of_module():
    """The counters of kvm_tmem, all guests together."""
    try:
        return {file.name: _number(file) for file in _MODULE.iterdir()}
    except (OSError, ValueError):
        return {}
