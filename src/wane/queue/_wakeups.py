"""Waiting for pools' wakeups, across processes, for any number of threads over one connection.

One of the waiting threads watches the database for all; when its own wait is over, another takes over. A thread that
begins to wait reads the sequence itself, after the watch began, or begins the watch with a read, so nothing is missed
between read and wait.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress

from wane._db import Store
from wane._db.watch import Watch
from wane.errors import StoreError
from wane.queue._dialects import messages_of
from wane.queue._sql import CROWDED

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
        self._closed = False

    def wait(self, pool: str, after: int, seconds: float | None) -> int | None:
        """Return the pool's sequence as soon as it is newer, or None when the time is over."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._condition:
            self._pools[pool] += 1
        try:
            return self._wait(pool, after, deadline)
        finally:
            with self._condition:
                self._pools[pool] -= 1
                if not self._pools[pool]:
                    del self._pools[pool]
                    self._sequences.pop(pool, None)

    def _wait(self, pool: str, after: int, deadline: float | None) -> int | None:
        polled = False
        while True:
            left = _LONGEST_WATCH_SECONDS if deadline is None else deadline - time.monotonic()
            seconds = max(min(left, _LONGEST_WATCH_SECONDS), 0.0)
            with self._condition:
                if self._closed:
                    raise StoreError("the queue is closed: its wakeups cannot be awaited", "open another one")
                if self._sequences.get(pool, after) > after:
                    return self._sequences[pool]
                watches = not self._watching
                if watches:
                    self._watching = True
                elif polled and left > 0:
                    self._condition.wait(seconds)
                    continue
            if watches:
                self._lead(seconds if polled else 0.0)
            elif (sequence := self._poll(pool)) > after:
                return sequence
            polled = True
            if left <= 0:
                with self._condition:
                    sequence = self._sequences.get(pool, after)
                return sequence if sequence > after else None

    def _poll(self, pool: str) -> int:
        """Read the sequence while another thread watches, which may take a while: first and last in a wait."""
        return messages_of(self.store).sequences(self.store.run, [pool])[pool]

    def _lead(self, seconds: float) -> None:
        """Wait for a change, then read the sequences of all pools that are waited for, and notify the other threads."""
        try:
            if self._watch is None:
                self._watch = self.store.watch()  # What happened before it began counts too: read at once.
            elif seconds:
                self._watch.wait(seconds)
            with self._condition:
                pools = list(self._pools)
            found = messages_of(self.store).bumps(self._watch.read, pools)
            with self._condition:
                self._sequences.update({pool: bumps for pool, (bumps, _) in found.items()})
        except BaseException:
            self._drop()
            raise
        finally:
            with self._condition:
                self._watching = False
                if self._closed:
                    self._drop()
                self._condition.notify_all()
        for pool, (_, rows) in found.items():
            if rows > CROWDED:
                with suppress(StoreError):
                    messages_of(self.store).fold(self.store.run, pool)

    def _drop(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def close(self) -> None:
        """Close the connection that watches.

        A waiting thread gets an error: at once, or when the watching thread wakes up.
        """
        with self._condition:
            self._closed = True
            if not self._watching:
                self._drop()
            self._condition.notify_all()
