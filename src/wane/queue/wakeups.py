"""Waiting for a pool's wakeups, across processes, for any number of threads over one connection.

One of the waiting threads watches the database for all; when its own wait is over, another takes its place. The sequence is read
from the database after the watch began, so nothing is missed between look and wait.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

from wane.store import Store
from wane.store.base import Watch

_LONGEST_WATCH_SECONDS = 1.0


class Wakeups:
    """Where the threads of one process wait."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._condition = threading.Condition()
        self._pools: Counter[str] = Counter()
        self._sequences: dict[str, int] = {}
        self._watching = False
        self._watch: Watch | None = None

    def wait(self, pool: str, after: int, seconds: float | None) -> int | None:
        """The pool's sequence as soon as it is newer, or None when the time is over."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._condition:
            self._pools[pool] += 1
            self._sequences.pop(pool, None)  # What was read before this call began is not news.
        try:
            return self._wait(pool, after, deadline)
        finally:
            with self._condition:
                self._pools[pool] -= 1
                if not self._pools[pool]:
                    del self._pools[pool]

    def _wait(self, pool: str, after: int, deadline: float | None) -> int | None:
        looked = False
        while True:
            with self._condition:
                sequence = self._sequences.get(pool)
                if sequence is not None and sequence > after:
                    return sequence
                left = _LONGEST_WATCH_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0 and looked:
                    return None
                if self._watching:
                    looked = sequence is not None or looked
                    self._condition.wait(max(left, 0.001))
                    continue
                self._watching = True
            try:
                self._look(0.0 if sequence is None else max(min(left, _LONGEST_WATCH_SECONDS), 0.0))
                looked = True
            finally:
                with self._condition:
                    self._watching = False
                    self._condition.notify_all()

    def _look(self, seconds: float) -> None:
        """Wait for news, then read the sequences of all pools that somebody waits for."""
        try:
            if self._watch is None:
                self._watch = self.store.watch()
            if seconds:
                self._watch.wait(seconds)
            with self._condition:
                pools = list(self._pools)
            found = self.store.messages.sequences(self._watch.read, pools)
        except BaseException:
            self._drop()
            raise
        with self._condition:
            self._sequences.update(found)

    def _drop(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def close(self) -> None:
        """Close the connection that watches. Whoever waits is told that it is gone."""
        self._drop()
