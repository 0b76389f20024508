"""Evicting the ranges of a sweep over several connections at a time, each of them a task.

Deleting is the database's work, and one connection keeps one of its processors busy. Each range has its own entry of
the journal and its own audit row, so that no evictor waits for another; all of them show the sweep's lease and fence in
every batch and pass the same gates. A task that meets a transient failure is run again, and resumes where the journal
ends. If the run stops, it gives up its lease, without which no evictor begins another batch.

At a pace with pauses, each evictor has its part of the duty, and recognizes other users of the database by what the
evictors have not committed themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wane._archive.delta.failure import answering
from wane._archive.journal import Journal, JournaledRange, RangeEviction, batches_of
from wane._archive.pipeline.evict import Eviction, EvictJob
from wane._archive.spark.connect import opened
from wane._archive.spark.reader import Source
from wane._db import Store
from wane._prune.other_users import OtherUsers
from wane._prune.pacing import Closed
from wane._prune.sql_activity import activity_of
from wane.errors import SchemaChanged, StoreError
from wane.events import BatchTaken, Event, Listener, SlowedDown

ROWS_EACH = 100_000
"""Copies for which another task is worth starting."""


def shares(ranges: Sequence[JournaledRange], most: int) -> list[list[int]]:
    """Divide unfinished ranges among evictors."""
    left = [one for one in ranges if not one.finished]
    rows = sum(one.copies - one.evicted for one in left)
    number = max(1, min(most, len(left), rows // ROWS_EACH))
    return [[one.number for one in left[first::number]] for first in range(number)]


@dataclass(frozen=True, slots=True)
class Evictors:
    """What tasks need to evict a sweep together."""

    source: Source
    job: EvictJob
    shares: Sequence[Sequence[int]]


def evict_share(evictors: Evictors, number: int) -> str:
    """Evict some of a sweep's ranges, which is the work of one task; answer whether and why it ended early, as JSON."""
    return answering(lambda: _evict_share(evictors, number))


def _evict_share(evictors: Evictors, number: int) -> dict[str, Any]:
    slowed: list[str] = []

    def listener(event: Event) -> None:
        if isinstance(event, SlowedDown):
            slowed.append(event.cause)

    answer: dict[str, Any] = {"slowed": slowed}
    try:
        with opened(evictors.source) as store:
            job = evictors.job
            others = OtherUsers(activity_of(store, batches_of(store.dialect, job.sweep.id)))
            Eviction(store, job, threading.Event(), listener, others).run(evictors.shares[number])
    except Closed as closed:
        answer["closed"] = str(closed)
    except SchemaChanged:
        answer["schema_changed"] = True
    return answer


class TaskBatches:
    """Emits what tasks have evicted, as the journal records it; batches of a range since the last time are one
    event."""

    def __init__(self, job: EvictJob, ranges: Sequence[JournaledRange], listener: Listener) -> None:
        self._job = job
        self._listener = listener
        self._known = {one.number: one.eviction for one in ranges}

    def emit(self, store: Store) -> None:
        """Read the journal, and emit what is new. If it cannot be read, the next call emits it."""
        try:
            with store.snapshot() as transaction:
                ranges = Journal(transaction).ranges(self._job.sweep.id)
        except StoreError:
            return
        for one in ranges:
            before, after = self._known[one.number], one.eviction
            if after.batches > before.batches:
                self._known[one.number] = after
                self._listener(self._taken(before, after))

    def _taken(self, before: RangeEviction, after: RangeEviction) -> BatchTaken:
        job, table = self._job, self._job.table
        counts = {name: rows - before.evicted.get(name, 0) for name, rows in after.evicted.items()}
        batches = after.batches - before.batches
        rule = job.archive.selection.rule
        return BatchTaken(
            table.scheduler,
            str(table.name),
            rule.name,
            table.label(rule),
            "archive",
            counts,
            (after.seconds - before.seconds) / batches,
            sum(counts.values()) // batches,
        )
