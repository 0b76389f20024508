"""An outage of the database as all loops of a runner see it: one report when it begins, one when it is over."""

from __future__ import annotations

import threading
import time

from wane.events import Listener, OutageEnded


class Outage:
    """Counts the failed attempts to reach the database, over all threads."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._began: float | None = None
        self._first = 0
        self.attempts = 0
        """The failed attempts so far, of all outages."""

    def failed(self) -> bool:
        """Count a failed attempt; return whether one of the same outage was counted before."""
        with self._lock:
            repeated = self._began is not None
            if not repeated:
                self._began, self._first = time.monotonic(), self.attempts
            self.attempts += 1
            return repeated

    def passed(self, attempts: int) -> None:
        """Report that the outage is over, after a pass in which none failed: `attempts` were counted when it began."""
        with self._lock:
            if self._began is None or attempts != self.attempts:
                return
            ended = OutageEnded(time.monotonic() - self._began, self.attempts - self._first)
            self._began = None
        self._listener(ended)
