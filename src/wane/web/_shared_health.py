"""One health report for all pages: reading it takes the longest, and several readers ask for it at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from wane._keeper import Keeper
from wane.observe._health import Health

_FRESH_SECONDS = 5.0
"""How long a report is shown before it is read again."""


class SharedHealth:
    """Reads health at most once in some seconds, however many pages show it; an action makes it read again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turn = threading.Lock()
        self._report: Health | None = None
        self._read_at = 0.0

    def read(self, keeper: Keeper) -> Health:
        """Return the last report if it is fresh, or a new one; readers that come meanwhile wait for that."""
        with self._turn:
            if self._report is None or self._clock() - self._read_at > _FRESH_SECONDS:
                self._report = keeper.health()
                self._read_at = self._clock()
            return self._report

    def forget(self) -> None:
        """Let the next page read health again."""
        with self._turn:
            self._report = None
