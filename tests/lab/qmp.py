# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's machine protocol: one JSON object a line, a reply to each command, events in between."""

import json
import re
import threading


class QmpError(Exception):
    """QEMU refused a command."""


class Qmp:
    """Several threads may use it; a command waits for the one before."""

    def __init__(self, connection):
        connection.settimeout(60)
        self._lock = threading.Lock()
        self._file = connection.makefile("rw", encoding="utf-8", newline="\n")
        self._read()  # the greeting
        self.command("qmp_capabilities")

    def _read(self):
        try:
            line = self._file.readline()
        except OSError as error:
            raise QmpError(f"QEMU's monitor: {error}") from None
        if not line:
            raise QmpError("QEMU closed its monitor")
        return json.loads(line)

    def command(self, name, **arguments):
        with self._lock:
            return self._command(name, arguments)

    def _command(self, name, arguments):
        try:
            self._file.write(json.dumps({"execute": name, "arguments": arguments}) + "\n")
            self._file.flush()
        except OSError as error:
            raise QmpError(f"QEMU's monitor: {error}") from None
        while True:
            reply = self._read()
            if "return" in reply:
                return reply["return"]
            if "error" in reply:
                raise QmpError(f"{name}: {reply['error'].get('desc')}")

    def vcpu_threads(self):
        return [cpu["thread-id"] for cpu in self.command("query-cpus-fast")]

    def where(self):
        """The address each vCPU is at, and whether it is halted."""
        text = self.command("human-monitor-command", **{"command-line": "info registers -a"})
        return re.findall(r"(?:RIP=([0-9a-f]+)|HLT=(\d))", text)

    def disk_bytes(self):
        """A list of (bytes read, bytes written), one a disk in the order of their numbers."""
        stats = {
            entry.get("device"): entry["stats"] for entry in self.command("query-blockstats")
        }
        return [
            (stats[name]["rd_bytes"], stats[name]["wr_bytes"])
            for name in sorted(stats, key=lambda text: int(text.removeprefix("disk")))
        ]
