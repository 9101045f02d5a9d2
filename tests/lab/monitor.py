# SPDX-License-Identifier: GPL-2.0-only
"""How long QEMU's monitor lets one wait, asked every 50 ms."""

import time

from lab import background
from lab import guest as lab_guest


class Sampler(background.Background):
    """Asks a guest's monitor in a thread; `waits_s` are the times until it had answered."""

    def __init__(self, guest, period_s=0.05):
        super().__init__()
        self.waits_s = []
        self._guest = guest
        self._period_s = period_s

    def _run(self):
        while not self._stop.is_set():
            try:
                self.measure(self._guest.ask_monitor)
            except lab_guest.GuestError:
                return
            self._stop.wait(max(0.0, self._period_s - self.waits_s[-1]))

    def measure(self, ask):
        """One more sample, of another kind."""
        begin = time.monotonic()
        ask()
        self.waits_s.append(time.monotonic() - begin)

    @property
    def worst_ms(self):
        return 1000 * max(self.waits_s)

    @property
    def median_ms(self):
        return 1000 * sorted(self.waits_s)[len(self.waits_s) // 2]

    def __str__(self):
        return f"{self.median_ms:.0f} ms, at worst {self.worst_ms:.0f}"
