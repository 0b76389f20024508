"""Batches: how rows leave, and come back, in bulk.

A batch is one transaction: pass the gates, check the lease, read the clock, change rows, add to the audit row, commit.
Then the pace decides how large the next one is, and how long to pause before it. Sweeps, evictions and restores differ
in what they change, and in nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from wane._contract.model import Table
from wane._contract.names import TableName
from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.transaction import Transaction
from wane._ledger import AuditEntry, Flag, Ledger, add_counts
from wane._prune.dialects import row_taker
from wane._prune.gates import append_only_gate, closed_gate
from wane._prune.others import OtherUsers
from wane._prune.pace import BatchCosts, Pace
from wane._prune.sql_activity import activity_of
from wane._rules.selection import Selection
from wane.errors import Locked, TimedOut
from wane.events import BatchTaken, Listener, SlowedDown, ignore_event

STOPPED = "stop requested"
BATCH_SECONDS = 30.0
"""How long a batch may take, before it is retried smaller."""
_PROBED_SECONDS = 0.05
"""How often a pause checks whether other writers are still there."""


class Closed(Exception):
    """A gate is closed, or a stop was requested; the work resumes another time."""


def require_running(stop: threading.Event) -> None:
    """Raise Closed if a stop was requested."""
    if stop.is_set():
        raise Closed(STOPPED)


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


@dataclass(slots=True)
class Batches:
    """The batches of one piece of work, under one row of the audit trail."""

    store: Store
    pace: Pace
    audit: AuditEntry
    """The audit row so far. Without an `id`, the first batch writes it."""
    begin: Callable[[Transaction], datetime]
    """Called first in each transaction: raises if the batch must not run, and returns the database's time."""
    stop: threading.Event = field(default_factory=threading.Event)
    listener: Listener = ignore_event
    scheduler: str | None = None
    label: str = ""
    durable: bool = False
    """Whether a commit waits for the disk. If not, a power cut takes rows and audit row back together, and the next
    sweep takes them again: nothing that is emitted about a batch may have to outlive that."""
    others: OtherUsers | None = None
    """Who else uses the database, as far as earlier batches have seen."""
    least_size: int = 0
    """Rows below which a batch takes hardly less time, as far as that is known before the first one."""
    size: int = field(init=False)
    """Rows of the next batch, at the most."""
    last: AuditEntry = field(init=False)
    """What the last batch changed."""
    worked: float = field(default=0.0, init=False)
    """How long the last batch worked, without waiting for the transaction and without its commit."""
    seconds: float = field(default=0.0, init=False)
    """How long the last batch took, with its commit."""
    _costs: BatchCosts = field(default_factory=BatchCosts, init=False)

    def __post_init__(self) -> None:
        self.least_size = min(self.least_size, self.pace.most_batch)
        self.size = max(self.pace.first_batch, self.least_size)
        self.others = self.others or OtherUsers(activity_of(self.store))
        if self.pace.pauses:
            self.others.begin()

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

    def add(self, counts: dict[str, int], seconds: float, worked: float | None = None) -> None:
        """Add a batch that is committed already, with its part of the audit row."""
        audit = self.audit
        self.last = audit.changed(audit.id, {audit.table: 0, **counts}, audit.executed_at, seconds)
        self.audit = audit.with_batch(self.last.counts)
        self.seconds, self.worked = seconds, seconds if worked is None else worked

    def adapt(self, rows: int | None = None) -> None:
        """Choose the size of the next batch, and emit what this one changed; `rows`: those that it read, if known."""
        self._costs.add(self.last.rows if rows is None else rows, self.worked)
        size = self.pace.next_batch(self.size, self.worked, self._costs.fixed_seconds())
        self.size = max(size, self.least_size)
        self.emit()

    def emit(self) -> None:
        """Emit what the last batch changed."""
        last, seconds, size = self.last, self.seconds, self.size
        rule = last.rule or ""
        self.listener(BatchTaken(self.scheduler, last.table, rule, self.label, last.kind, last.counts, seconds, size))

    def pause(self) -> None:
        """Leave the database to the application for a while, as the pace says.

        A long pause beside another writer ends as soon as that writer has been quiet for long enough.
        """
        if not self.pace.pauses:
            return
        waited = 0.0
        while True:
            left = self._pace_now().pause_seconds(self.seconds) - waited
            probes = self.store.one_writer and left > _PROBED_SECONDS
            step = _PROBED_SECONDS if probes else max(left, 0.0)
            if self.stop.wait(step) or not probes:
                return
            waited += step

    def _pace_now(self) -> Pace:
        assert self.others is not None
        return self.pace.after_quiet(self.others.quiet_seconds(), one_writer=self.store.one_writer)

    def slow_down(self, problem: Locked | TimedOut, seconds: float) -> None:
        """Halve the batch, emit why, and wait: others hold locks, or a batch took too long."""
        cause = "rows are locked by others" if isinstance(problem, Locked) else "a batch took too long"
        self.listener(SlowedDown(self.audit.table, self.audit.rule or "", cause))
        self.size = max(self.size // 2, self.pace.least_batch)
        self.stop.wait(seconds)
