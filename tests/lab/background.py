# SPDX-License-Identifier: GPL-2.0-only
"""A thread that looks at something for as long as a `with` lasts."""

import threading


class Background:
    """Runs `_run` in a thread from `with` on; its end sets `_stop` and waits for the thread."""

    def __init__(self):
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        """Returns soon after `_stop` is set."""
        raise NotImplementedError

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
