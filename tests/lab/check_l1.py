#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Tests of tests/lab/l1: what a command does there reaches us, and what goes wrong shows."""

import pathlib
import subprocess
import sys
import traceback

L1 = pathlib.Path(__file__).resolve().parent / "l1"
HERE = pathlib.Path(__file__).resolve()


def _run(script, *options):
    return subprocess.run([L1, "run", *options, "--", "sh", "-c", script], capture_output=True,
                          text=True, check=False, timeout=300, cwd=HERE.parent)


def command_is_passed_through():
    """Exit code, both outputs, the directory, the files of this machine; /dev/kvm is there."""
    done = _run(f"cmp {HERE} /proc/self/cwd/{HERE.name} && test -c /dev/kvm && pwd;"
                " touch written; echo complaint >&2; exit 42")
    assert done.returncode == 42, done
    assert done.stdout == f"{HERE.parent}\n", done
    assert done.stderr.startswith("complaint\n"), done
    assert not (HERE.parent / "written").exists(), "the machine's own file system was written"


def kernel_warning_fails_it():
    done = _run("echo 'WARNING: on purpose' > /dev/kmsg")
    assert done.returncode == 125 and "WARNING: on purpose" in done.stderr, done


def hang_ends_and_shows_the_console():
    done = _run("echo hung on purpose > /dev/kmsg; sleep 1000", "--timeout-s", "3")
    assert done.returncode == 125 and "hung on purpose" in done.stderr, done


def panic_shows_the_console():
    done = _run("echo c > /proc/sysrq-trigger; sleep 1000")
    assert done.returncode == 125 and "Kernel panic" in done.stderr, done


def idle_host_is_interrupted_from_outside():
    """It stood still for good when QEMU had lost the interrupt of its timer."""
    done = _run("device=$(basename /sys/bus/virtio/drivers/virtio_console/virtio*);"
                " count() { grep \"$device-\" /proc/interrupts |"
                " while read -r _ number _; do echo \"$number\"; done | paste -sd+ | bc; };"
                " before=$(count); sleep 4; echo $(($(count) - before))")
    assert done.returncode == 0 and int(done.stdout) >= 2, done


def module_that_does_not_load_fails_it():
    done = _run("echo not reached", "--module", str(HERE))
    assert done.returncode == 125 and "not reached" not in done.stdout, done


CASES = [command_is_passed_through, kernel_warning_fails_it, hang_ends_and_shows_the_console,
         panic_shows_the_console, idle_host_is_interrupted_from_outside,
         module_that_does_not_load_fails_it]


def main():
    failed = 0
    for case in CASES:
        try:
            case()
            print(f"PASS l1 {case.__name__}", flush=True)
        except (AssertionError, subprocess.TimeoutExpired):
            failed += 1
            print(f"FAIL l1 {case.__name__}: {traceback.format_exc()}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
