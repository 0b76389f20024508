"""Evicting the ranges of a sweep over several connections at a time.

Deleting is the database's work, and one connection keeps one of its processors busy. Each evictor has ranges of its
own, a connection, a row of the audit trail and counters of its own, so that none waits for another; all of them show
the sweep's lease and fence in every batch, pass the same gates, and stop together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from wane._archive.journal import JournaledRange
from wane._db import Store
from wane._prune.batches import Closed
from wane._prune.pace import Pace

ROWS_EACH = 100_000
"""Copies for which another connection is worth opening."""


class Halt(threading.Event):
    """Set if the work has to stop: by whoever stops the run, or by an evictor that failed."""

    def __init__(self, run: threading.Event) -> None:
        super().__init__()
        self._run = run

    def is_set(self) -> bool:
        return super().is_set() or self._run.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._run.wait(timeout) or self.is_set()


def shares(store: Store, pace: Pace, ranges: Sequence[JournaledRange], most: int) -> list[list[JournaledRange]]:
    """Divide ranges among evictors: one on SQLite, where one connection writes at a time, and at a pace with pauses.

    A pace says how much of its time the database may work for a sweep, which more connections would exceed.
    """
    rows = sum(file["rows"] for piece in ranges for file in piece.manifest["parts"][0]["files"])
    number = 1 if store.kind == "sqlite" or pace.pauses else max(1, min(most, len(ranges), rows // ROWS_EACH))
    return [list(ranges[first::number]) for first in range(number)]


def evict_together(
    own: Callable[[threading.Event], None], others: Sequence[Callable[[threading.Event], None]], stop: threading.Event
) -> None:
    """Run evictors at the same time, the first in this thread; if one fails, the others stop, and it is raised."""
    if not others:
        own(stop)
        return
    halt, failures = Halt(stop), []

    def attempt(work: Callable[[threading.Event], None]) -> None:
        try:
            work(halt)
        except BaseException as problem:
            failures.append(problem)
            halt.set()

    threads = [threading.Thread(target=attempt, args=(work,), name="wane-evict") for work in others]
    for thread in threads:
        thread.start()
    attempt(own)
    for thread in threads:
        thread.join()
    if failures:
        # Those that were stopped because another one failed say nothing about it.
        raise next((one for one in failures if not isinstance(one, Closed)), failures[0])
