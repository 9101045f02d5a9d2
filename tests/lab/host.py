# SPDX-License-Identifier: GPL-2.0-only
"""One daemon for the guests of a test: tmemd, its sockets, its figures."""

import json
import subprocess
import time

from lab import doorbells, paths, processes


class HostError(Exception):
    """The daemon did not come up, went away, or does not answer."""


class Host(processes.Supervised):
    """A context manager around one tmemd that serves the named guests."""

    def __init__(self, guests, limit_mib, pool_min_mib=None, directory=None, doorbell=None,
                 cgroups=(), groups_below=None, budget_mib=None):
        super().__init__(directory)
        self._guests = guests
        self._limit_mib = limit_mib  # None: none, with a budget
        self._pool_min_mib = pool_min_mib
        self._budget_mib = budget_mib
        self._doorbell = doorbell or doorbells.kind()
        self._cgroups = cgroups  # that tmemd runs in
        self._groups_below = groups_below  # where the guests' own are made, by hypercall
        self._log = None
        self._groups = None
        self.killed = False

    def _start(self):
        arguments = [paths.binary("tmemd"), "--run-dir", self._directory]
        for option, mib in [("--memory-limit", self._limit_mib),
                            ("--pool-min", self._pool_min_mib),
                            ("--host-budget", self._budget_mib)]:
            if mib is not None:
                arguments += [option, f"{mib}M"]
        if self._doorbell == "hypercall" and self._groups is None:
            self._groups = doorbells.ControlGroups(
                [_name(guest) for guest in self._guests], self._groups_below)
        for guest in self._guests:
            rule = self._groups.rule(_name(guest)) if self._groups else ""
            arguments += ["--guest", guest + rule]
        self._log = self._directory / "tmemd.log"
        with open(self._log, "wb") as log:
            self._process = processes.start(arguments, self._cgroups, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        wanted = [self.socket(guest) for guest in self._guests]
        wanted.append(self._directory / "control.sock")
        while not all(path.exists() for path in wanted):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise HostError(f"tmemd did not start:\n{self.log()}")
            time.sleep(0.02)

    def socket(self, guest):
        """The socket that a guest's ivshmem device connects to."""
        return self._directory / f"{_name(guest)}.sock"

    def doorbell(self, guest):
        """What a guest of this name is to be started with."""
        if self._groups:
            return doorbells.Hypercall(self._groups.group(guest))
        return doorbells.Ivshmem(self.socket(guest))

    def _close(self):
        super()._close()
        if self._groups:
            self._groups.remove()

    def log(self):
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def kill(self):
        self.killed = True
        super().kill()

    def start_again(self, guests=None):
        """A new daemon in place of the one that was killed; for `guests`, of the same names."""
        self._guests = guests or self._guests
        self._start()
        self.killed = False

    def cpu_ns(self):
        return processes.process_cpu_ns(self.pid)

    def memory_bytes(self):
        return processes.memory_bytes(self.pid)

    def ctl(self, *words):
        """What tmemctl says and ends with."""
        return subprocess.run([paths.binary("tmemctl"), "--run-dir", self._directory, *words],
                              capture_output=True, text=True, timeout=150, check=False)

    def status(self):
        done = self.ctl("status", "--json")
        if done.returncode != 0:
            raise HostError(f"tmemctl: {done.stderr.strip()}\ntmemd's log ends:\n{self.log()}")
        return json.loads(done.stdout)

    def await_guest(self, name="guest", connected=True, timeout_s=20):
        """Returns the status of a guest once it is registered, or gone with all it had."""
        deadline = time.monotonic() + timeout_s
        while True:
            row = self.guest_status(name)
            if row["connected"] == connected and not row["leaving"]:
                return row
            if time.monotonic() > deadline:
                raise HostError(f"guest {name}: {json.dumps(self.status())}\n{self.log()}")
            time.sleep(0.1)

    def guest_status(self, name):
        for guest in self.status()["guests"]:
            if guest["name"] == name:
                return guest
        raise HostError(f"tmemd does not know guest {name}")


def _name(guest):
    """Of `NAME,OPTION=VALUE...`."""
    return guest.partition(",")[0]
