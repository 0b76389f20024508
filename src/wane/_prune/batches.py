"""Batches: how rows leave, and come back, in bulk.

A batch is one transaction: pass the gates, check the lease, read the clock, change rows, add to the audit row, commit.
Then `Pacing` decides how large the next one is, how long to pause before it, and whether one that failed is retried.
Sweeps, evictions and restores differ in what they change, and in nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Unpack

from wane._contract.model import Table
from wane._contract.names import TableName
from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.transaction import Transaction
from wane._ledger import AuditEntry, Flag, Ledger, add_counts
from wane._prune.dialects import row_taker
from wane._prune.gates import append_only_gate, closed_gate
from wane._prune.pace import Pace
from wane._prune.pacing import Closed, Pacing, PacingOptions
from wane._rules.selection import Selection
from wane.events import BatchTaken, Listener, ignore_event

BATCH_SECONDS = 30.0
"""How long a batch may take, before it is retried smaller."""


def require_open(flags: Mapping[str, Flag], table: TableName | str, settings: SweepSettings) -> None:
    """Raise Closed if a gate of the table is closed."""
    closed = closed_gate(flags, table, settings)
    if closed:
        raise Closed(closed)


def require_not_append_only(table: Table) -> None:
    """Raise Closed if a table is append-only."""
    if table.append_only:
        raise Closed(append_only_gate(table.name))


def pass_gates(
    transaction: Transaction,
    selection: Selection,
    settings: SweepSettings,
    fence: Callable[[Transaction], None],
) -> datetime:
    """Begin a batch of a rule: raise Closed if a gate is closed, check the fence, and return the database's time."""
    opening = row_taker(transaction).open_batch(selection)
    require_open(opening.flags, selection.name, settings)
    fence(transaction)
    return opening.clock


class OpenBatch:
    """A batch whose transaction is open. It cannot be committed before `record` was called."""

    def __init__(self, transaction: Transaction, clock: datetime, audit: AuditEntry, began: float) -> None:
        self.transaction = transaction
        self.clock = clock
        self.began = began
        self._before = audit
        transaction.owe_record({audit.table: 0})
        self.entry: AuditEntry
        """What this batch changed."""
        self.audit: AuditEntry
        """The audit row with this batch in it."""
        self.audit_id: int

    def record(self, counts: dict[str, int]) -> None:
        """Record what this batch changed, by table. The first one writes the audit row."""
        before, seconds = self._before, round(time.monotonic() - self.began, 6)
        entry = before.changed(before.id, {before.table: 0, **counts}, self.clock, seconds)
        if before.id is None:
            self.audit_id = Ledger.of(self.transaction).record(entry)
            entry = replace(entry, id=self.audit_id)
        else:
            self.audit_id = before.id
            self.transaction.recorded(entry.counts)  # `finish` adds them to the row.
        self.entry = entry
        sums = add_counts(before.counts, entry.counts)
        self.audit = before.changed(self.audit_id, sums, before.executed_at, before.seconds)

    def finish(self) -> AuditEntry:
        """Add to the audit row of earlier batches; return it as it is after the commit."""
        self.transaction.require_recorded()
        if self._before.id is not None:
            # Last, because it fails if the audit row does not cover every batch before: a crashed server may have
            # lost some.
            trail = Ledger(self.transaction.dialect, self.transaction.finish)
            trail.add_to_record(self.audit_id, self.entry, self.audit.counts)
        return self.audit


class Batches(Pacing):
    """The batches of one piece of work, under one row of the audit trail."""

    def __init__(
        self,
        store: Store,
        pace: Pace,
        audit: AuditEntry,
        begin: Callable[[Transaction], datetime],
        stop: threading.Event | None = None,
        listener: Listener = ignore_event,
        scheduler: str | None = None,
        label: str = "",
        *,
        durable: bool = False,
        **known: Unpack[PacingOptions],
    ) -> None:
        """Begin without a batch.

        `begin`: called first in each transaction; raises if the batch must not run, and returns the database's time.

        `durable`: whether a commit waits for the disk. If not, a power cut takes rows and audit row back together, and
        the next sweep takes them again: nothing that is emitted about a batch may have to outlive that.
        """
        super().__init__(store, pace, stop, listener, table=audit.table, rule=audit.rule or "", **known)
        self.audit = audit
        """The audit row so far. Without an `id`, the first batch writes it."""
        self.begin = begin
        self.scheduler = scheduler
        self.label = label
        self.durable = durable
        self.last: AuditEntry
        """What the last batch changed."""

    @contextmanager
    def open(self) -> Iterator[OpenBatch]:
        """Run one batch: the body changes rows and calls `record`."""
        with self.store.transaction(durable=self.durable) as transaction:
            began = time.monotonic()
            transaction.limit(BATCH_SECONDS)
            batch = OpenBatch(transaction, self.begin(transaction), self.audit, began)
            yield batch
            audit = batch.finish()
            self.worked = time.monotonic() - began
        # Counted after the commit: what did not happen is not reported.
        self.seconds = time.monotonic() - began
        self.audit, self.last = audit, batch.entry

    def add(self, number: int, counts: dict[str, int], seconds: float, worked: float | None = None) -> None:
        """Add a batch that is committed already, with its part of the audit row of this number."""
        audit = self.audit.changed(number, self.audit.counts, self.audit.executed_at, self.audit.seconds)
        self.last = audit.changed(audit.id, {audit.table: 0, **counts}, audit.executed_at, seconds)
        self.audit = audit.with_batch(self.last.counts)
        self.seconds, self.worked = seconds, seconds if worked is None else worked

    def adapt(self, rows: int | None = None) -> None:
        """Choose the size of the next batch, and emit what this one changed; `rows`: those that it read, if known."""
        self.resize(self.last.rows if rows is None else rows)
        self.emit()

    def emit(self) -> None:
        """Emit what the last batch changed."""
        last, seconds, size = self.last, self.seconds, self.size
        rule = last.rule or ""
        self.listener(BatchTaken(self.scheduler, last.table, rule, self.label, last.kind, last.counts, seconds, size))
