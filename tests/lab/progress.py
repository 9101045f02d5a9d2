# SPDX-License-Identifier: GPL-2.0-only
"""The progress line on standard error: what runs, in which phase, for how long."""

import sys
import threading
import time


class Progress:
    """One line, rewritten in place on a terminal; a new line a phase elsewhere. Thread-safe."""

    def __init__(self, title, stream=sys.stderr):
        self._title = title
        self._stream = stream
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._tty = stream.isatty()

    def elapsed(self):
        return time.monotonic() - self._start

    def phase(self, text):
        line = f"[{self.elapsed():6.1f} s] {self._title}: {text}"
        with self._lock:
            if self._tty:
                self._stream.write(f"\r\x1b[K{line[:160]}")
            else:
                self._stream.write(line + "\n")
            self._stream.flush()

    def done(self):
        with self._lock:
            if self._tty:
                self._stream.write("\r\x1b[K")
                self._stream.flush()


class Silent(Progress):
    """For callers that print lines of their own."""

    def __init__(self):
        super().__init__("")

    def phase(self, text):
        pass

    def done(self):
        pass
