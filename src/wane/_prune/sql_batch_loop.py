"""Batches of a sweep that does not pause, one after the other (SQLite), each one a transaction of its own.

The statements that take rows are those of every other batch, and so are the checks: gates, lease, schema, audit row.
What is left out is what a sweep does between two batches. A batch that meets anything unexpected is rolled back, and
the same batch is then taken by itself, which decides: a closed gate, a lost lease, a hold, a changed schema.
"""

from __future__ import annotations

import time

from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Dialect, Parameters, Statement
from wane._db.transaction import Transaction
from wane._leases import Fence
from wane._ledger import AuditEntry, Ledger
from wane._prune.call_results import MOST_SECONDS, BatchSizes, CalledBatch, CalledBatches
from wane._prune.primitive import take_all_scopes
from wane._prune.sql_gates import gates_are_open
from wane._prune.take import Batch, Taken
from wane._rules.selection import Selection

_Committed = tuple[Taken, AuditEntry, float]
"""What a batch took, the audit row with it, and when it began."""


class BatchLoop:
    """Takes the batches of one rule's sweep, from the second on: the first one writes the audit row."""

    def __init__(self, store: SqliteStore, selection: Selection, settings: SweepSettings, fence: Fence | None) -> None:
        """Write the statement that opens a batch."""
        self._store, self._fence = store, fence
        self._open_gates = _open_gates(store.dialect, selection, settings)
        self._sizes = BatchSizes()
        self._wasteful = False
        """Whether most of the rows up to the end of a batch stayed: others find its end among rows that leave."""

    def take(self, audit: AuditEntry, batch: Batch, most_batches: int) -> CalledBatches | None:
        """Take and commit batches; None if nothing was taken, and the batch is to be taken by itself."""
        if audit.id is None or not self._sizes.are_steady(batch.limit) or most_batches <= 1 or self._wasteful:
            return None
        batches: list[CalledBatch] = []
        next_one, until = (audit, batch.after(batch.floor, batch.edge)), time.monotonic() + MOST_SECONDS

        def take_next(transaction: Transaction) -> _Committed | None:
            return self._take_one(transaction, *next_one)

        for taken, added, began in self._store.repeat(take_next):
            now = time.monotonic()
            batches.append(CalledBatch(taken.counts, now - began))
            next_one = added, batch.after(taken.floor, taken.edge)
            self._wasteful = not batch.selection.per and 2 * sum(taken.counts.values()) < batch.most
            if taken.done or self._wasteful or now >= until or len(batches) >= most_batches:
                return CalledBatches(audit.id, batches, taken.floor, taken.done, taken.edge)
        if not batches:
            return None
        return CalledBatches(audit.id, batches, next_one[1].floor, done=False, edge=next_one[1].edge)

    def _take_one(self, transaction: Transaction, audit: AuditEntry, batch: Batch) -> _Committed | None:
        """Take one batch; None if it is to be taken by itself."""
        began = time.monotonic()
        if not transaction.read(self._open_gates):
            return None
        if self._fence is not None:
            self._fence(transaction)
        found = take_all_scopes(transaction, batch)
        assert audit.id is not None
        counts, seconds = {audit.table: 0, **found.counts}, round(time.monotonic() - began, 6)
        added = audit.with_batch(counts)
        trail = Ledger(transaction.dialect, transaction.finish)
        trail.add_to_record(audit.id, audit.changed(audit.id, counts, audit.executed_at, seconds), added.counts)
        transaction.recorded(counts)
        return found, added, began


def batch_loop(store: Store, selection: Selection, settings: SweepSettings, fence: Fence | None) -> BatchLoop:
    """Return what takes the batches of a rule's sweep one after the other."""
    assert isinstance(store, SqliteStore)
    return BatchLoop(store, selection, settings, fence)


def _open_gates(dialect: Dialect, selection: Selection, settings: SweepSettings) -> Statement:
    """Write the statement that returns a row if the gates are open."""
    p = Parameters(dialect)
    return p.statement(f"SELECT 1 WHERE {gates_are_open(dialect, selection.name, settings, p.bind)}")
