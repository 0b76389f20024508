"""Whether other users work in the database: sweeps pause for them, and hardly pause where there are none."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from wane._prune.sql_activity import Activity, ActivityCounters

_WINDOW_SECONDS = 2.0
_MOST_TRANSACTIONS = 8
"""Transactions in a window that change nothing and count as no use: monitoring, and Wane's own heartbeats."""


@dataclass(slots=True)
class OtherUsers:
    """Compares what happened in the database between two batches with what this sweep did itself."""

    counters: ActivityCounters
    clock: Callable[[], float] = time.monotonic
    _last: Activity | None = field(default=None, init=False)
    _seen: float = field(default=0.0, init=False)
    _window: deque[tuple[float, int]] = field(default_factory=deque, init=False)

    def begin(self) -> None:
        """Read what happened before the first batch, so that it does not count as the work of others."""
        before, quiet = self._last, self.clock() - self._seen
        self.counters.read()  # What this session did so far is counted now.
        self._last = self.counters.read()
        self._window.clear()
        if self._last is None:
            self._seen = self.clock()
            return
        same = before is not None and before.changes == self._last.changes
        self._seen = self.clock() - max(self.counters.quiet_seconds(), quiet if same else 0.0)

    def quiet_seconds(self, *, after_batch: bool = True) -> float:
        """Return for how long no other user has used the database; called once after each batch, or between two."""
        now, found, last = self.clock(), self.counters.read(), self._last
        self._last = found
        if found is None or last is None:
            self._seen = now
            return 0.0
        own = self.counters.own if after_batch else self.counters.reading
        self._window.append((now, found.transactions - last.transactions - own.transactions))
        while self._window[0][0] < now - _WINDOW_SECONDS:
            self._window.popleft()
        many = sum(transactions for _, transactions in self._window) > _MOST_TRANSACTIONS
        if many or found.changes - last.changes > own.changes:
            self._seen = now
        return now - self._seen

    def spare(self) -> None:
        """Spare others, if any use the database now, the work that follows a batch of this sweep, or their own."""
        if self.clock() - self._seen < _WINDOW_SECONDS:
            self.counters.finish_writing()
