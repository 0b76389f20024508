"""Batch after batch: how large each is, how long to pause after it, when to stop, and what follows if it fails because
others hold locks or because it took too long.

Everything that changes rows in bulk works so: sweeps, evictions, restores, and what partitions take along, copy or
merge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypedDict, TypeVar, Unpack

from wane._db import Store
from wane._prune.other_users import OtherUsers
from wane._prune.pace import BatchCosts, Pace
from wane._prune.sql_activity import activity_of
from wane.errors import Locked, TimedOut, WaneError
from wane.events import Listener, SlowedDown, ignore_event

R = TypeVar("R")
T = TypeVar("T")

STOPPED = "stop requested"
_MOST_TRIES = 40
"""How often a batch is tried before its work fails."""
RETRY_SECONDS = 0.25
_PROBED_SECONDS = 0.05
"""How often a pause checks whether others are still there."""


class Closed(Exception):
    """A gate is closed, or a stop was requested; the work resumes another time."""


class Stopped(Closed):
    """A stop was requested."""

    def __init__(self) -> None:
        super().__init__(STOPPED)


def require_running(stop: threading.Event) -> None:
    """Raise Stopped if a stop was requested."""
    if stop.is_set():
        raise Stopped


class PacingOptions(TypedDict, total=False):
    """What is known of a piece of work before its first batch."""

    others: OtherUsers | None
    """Who else uses the database, as far as earlier work has seen."""
    least_size: int
    """Rows below which a batch takes hardly less time."""
    retry_seconds: float
    """The wait before a batch is retried."""


class Pacing:
    """The batches of one piece of work: their size, and the pauses between them."""

    def __init__(
        self,
        store: Store,
        pace: Pace,
        stop: threading.Event | None = None,
        listener: Listener = ignore_event,
        *,
        table: str,
        rule: str = "",
        **known: Unpack[PacingOptions],
    ) -> None:
        """Begin with the first batch of the pace."""
        self.store = store
        self.pace = pace
        self.stop = stop or threading.Event()
        self.listener = listener
        self.table = table
        self.rule = rule
        self.others = known.get("others") or OtherUsers(activity_of(store))
        self.least_size = min(known.get("least_size", 0), pace.most_batch)
        self.retry_seconds = known.get("retry_seconds", RETRY_SECONDS)
        self.size = max(pace.first_batch, self.least_size)
        """Rows of the next batch, at the most."""
        self.worked = 0.0
        """How long the last batch worked, without waiting for the transaction and without its commit."""
        self.seconds = 0.0
        """How long the last batch took, with its commit."""
        self._costs = BatchCosts()
        self._pace_now = pace
        """The pace as of the last pause: others may have come or gone since the work began."""
        if pace.pauses:
            self.others.begin()

    def attempt(self, work: Callable[[], R], may_retry: Callable[[Locked | TimedOut], bool] = lambda _: True) -> R:
        """Run a batch; if rows are locked or it takes too long, wait and retry it with half of its size.

        Raise Stopped if a stop was requested, and the problem after too many tries, or if `may_retry` denies
        another one.
        """
        tries = 0
        while True:
            require_running(self.stop)
            try:
                return work()
            except (Locked, TimedOut) as problem:
                tries += 1
                if tries >= _MOST_TRIES or not may_retry(problem):
                    raise
                self.slow_down(problem)

    def attempt_all(
        self,
        items: Sequence[T],
        work: Callable[[Sequence[T]], Sequence[T]],
        splits: Callable[[WaneError], bool] = lambda _: False,
    ) -> None:
        """Run a batch of given items; one that takes too long, or fails otherwise and `splits`, is run in halves.

        `work` returns the items that it had to leave because others hold locks: they are retried. Items are worked on
        in their order.
        """
        left = items

        def run() -> None:
            nonlocal left
            left = work(left)
            if left:
                raise Locked(f"{self.table}: rows are locked by other sessions", "run again later")

        try:
            self.attempt(run, lambda problem: isinstance(problem, Locked) or len(left) == 1)
        except WaneError as problem:
            if len(left) == 1 or not (isinstance(problem, TimedOut) or splits(problem)):
                raise
            if isinstance(problem, TimedOut):
                self.slow_down(problem)
            middle = len(left) // 2
            self.attempt_all(left[:middle], work, splits)
            self.attempt_all(left[middle:], work, splits)

    def run(self, work: Callable[[int], int], may_retry: Callable[[Locked | TimedOut], bool] = lambda _: True) -> int:
        """Run one batch of at most so many rows; return how many it changed. Then adapt the size, and pause."""

        def timed() -> int:
            began = time.monotonic()
            changed = work(self.size)
            self.seconds = self.worked = time.monotonic() - began
            return changed

        rows = self.attempt(timed, may_retry)
        if rows:
            self.resize(rows)
            self.pause()
        return rows

    def resize(self, rows: int) -> None:
        """Choose the size of the next batch, after one that changed or read some rows."""
        self._costs.add(rows, self.worked)
        fixed = self._costs.fixed_seconds(self._pace_now.target_seconds)
        self.size = max(self._pace_now.next_batch(self.size, self.worked, fixed), self.least_size)

    def pause(self) -> None:
        """Leave the database to the application for a while, as the pace requires.

        A long pause beside others ends as soon as they have been quiet for long enough, unless several connections work
        at this pace, which cannot tell each other's probes from use by others. Meanwhile, others are spared what
        follows their own work too.
        """
        if not self.pace.pauses:
            return
        waited = 0.0
        while True:
            self.others.spare()
            quiet = self.others.quiet_seconds(after_batch=not waited)
            self._pace_now = self.pace.after_quiet(quiet, one_writer=self.store.one_writer)
            left = self._pace_now.pause_seconds(self.seconds) - waited
            probes = self.pace.connections == 1 and left > _PROBED_SECONDS
            step = _PROBED_SECONDS if probes else max(left, 0.0)
            if self.stop.wait(step) or not probes:
                return
            waited += step

    def slow_down(self, problem: Locked | TimedOut) -> None:
        """Halve the batch, emit why, and wait: others hold locks, or a batch took too long."""
        cause = "lock contention" if isinstance(problem, Locked) else "a batch took too long"
        self.listener(SlowedDown(self.table, self.rule, cause))
        self.size = max(self.size // 2, self.pace.least_batch)
        self.stop.wait(self.retry_seconds)
