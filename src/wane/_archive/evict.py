"""Deleting hot rows that are proven and committed, batch by batch.

Each batch is one transaction that reads the gates, checks the lease, checks every row again, takes those that the
archive holds exactly, and records what it did.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

from wane._archive.cold_table import ColdTable
from wane._archive.copies import Copies, pages
from wane._archive.dialects import archive_dialect
from wane._archive.journal import Journal, Journaled, JournaledRange
from wane._archive.range_take import range_take
from wane._archive.sql import ArchiveRows
from wane._archive.sql_evict import Copy, Evicted, evict
from wane._archive.types import KEY, VERSION
from wane._contract.model import Contract, Table
from wane._db import Store
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._ledger import AuditEntry
from wane._prune.batches import Batches, pass_gates, require_running
from wane._prune.dialects import row_taker
from wane._prune.pace import Pace
from wane._prune.take import RowTaker
from wane._rules.rows import cutoff
from wane._rules.selection import Selection
from wane.errors import Locked, SchemaChanged, TimedOut
from wane.events import Listener

_MOST_TRIES = 40
_WAIT_SECONDS = 0.25
_PIECES = 8
_LEAST_PIECE = 250


class _Changed(Exception):
    """The table is no longer what it was when it was copied."""


class _Differs(Exception):
    """The range has other rows than were copied; the check one by one finds out which."""


def _pieces(batch: Copies) -> list[Copies]:
    """Split a batch whose range has other rows, so that only a few copies have to be checked one by one."""
    step = max(_LEAST_PIECE, -(-len(batch) // _PIECES))
    return [batch.piece(start, min(start + step, len(batch))) for start in range(0, len(batch), step)]


class Eviction:
    """The eviction of one sweep."""

    def __init__(
        self,
        store: Store,
        contract: Contract,
        table: Table,
        archive: ArchiveRows,
        lease: Lease,
        sweep: Journaled,
        *,
        pace: Pace,
        stop: threading.Event,
        listener: Listener,
        rebind: Callable[[], Selection],
        fence: Callable[[Transaction], None] = lambda _: None,
        keeping: bool = False,
        beside: bool = False,
    ) -> None:
        """Set up the eviction of one sweep, or of some of its ranges.

        `rebind` binds the rule to the schema as it is now; it raises if the rule must not take rows any more.
        `keeping`: the table changed since it was copied. `beside`: another evictor writes the sweep's own audit row and
        counts; this one has its own row, and its ranges count what becomes of them.
        """
        self.store = store
        self.contract = contract
        self.table = table
        self.archive = archive
        self.lease = lease
        self.sweep = sweep
        self.rebind = rebind
        self.fence = fence
        self.beside = beside
        self.by_range = None if keeping else range_take(archive)
        """How whole batches are taken; None if every row is checked on its own."""
        self.committed = 0
        self.range: JournaledRange | None = None
        """The range whose copies are checked, as the last batch left it."""
        rule = archive.selection.rule
        audit = AuditEntry(
            kind="archive",
            table=str(table.name),
            actor=sweep.actor,
            inputs={"rule": sweep.rule, "sweep": sweep.id},
            counts={} if beside else dict(sweep.evicted),
            executed_at=sweep.decided_at,
            rule=sweep.rule,
            run=f"archive-{sweep.id}-{uuid.uuid4().hex[:8]}" if beside else f"archive-{sweep.id}",
            cutoff=cutoff(rule, sweep.decided_at),
            id=None if beside else sweep.audit_id,
        )
        self.batches = Batches(store, pace, audit, self._begin, stop, listener, table.scheduler, table.label(rule))
        self.keeping = keeping
        """The table is no longer what it was when it was copied: rows that exist stay."""

    def run(self, cold: Sequence[ColdTable], ranges: Sequence[JournaledRange]) -> None:
        """Check every copy that has not been checked yet, and delete the rows that may leave."""
        folders = [one.folder for one in cold]
        active = [one.active() for one in cold]
        compared = self.archive.dialect.checksums and not self.keeping
        shapes = [part.shape for part in self.archive.parts] if compared else None
        columns = [KEY, VERSION] if self.by_range is None else self.by_range.columns
        for piece in ranges:
            self.range = piece
            for page in pages(folders, active, piece.manifest, columns, shapes):
                self._page(page)
        if self.batches.audit.id is None and not self.beside:
            # A sweep that took nothing is recorded in the audit trail too.
            self._transaction((), lambda *_: self._evicted(0))

    def _page(self, page: Copies) -> None:
        assert self.range is not None
        start = max(0, self.range.evicted - page.first)
        left_out = [one - page.first for one in sorted(self.range.waiting) if one in page.positions]
        if left_out:
            copies = [copy for one in left_out for copy in self._each(page.piece(one, one + 1))]
            self._one_by_one(copies, skip_locked=True)
        while start < len(page):
            end = self._end(page, start)
            self._batch(page.piece(start, end))
            start = end

    def _each(self, batch: Copies) -> list[Copy]:
        return batch.each(archive_dialect(self.store).read_key)

    def _end(self, page: Copies, start: int) -> int:
        """Return where a batch ends that begins here: at least one copy, and as many as fit with what follows them."""
        most = min(start + self.batches.size, len(page))
        if not page.sizes:
            return most
        end, rows = start + 1, page.sizes[start]
        while end < most and (rows := rows + page.sizes[end]) <= self.batches.size:
            end += 1
        return end

    def _batch(self, batch: Copies) -> None:
        pieces = _pieces(batch)
        try:
            if self._take_range(batch):
                return
        except Locked as problem:
            self.batches.slow_down(problem, _WAIT_SECONDS)
            self._one_by_one(self._each(batch), skip_locked=True)
            return
        if len(pieces) == 1 or self.by_range is None or self.keeping:
            self._one_by_one(self._each(batch), skip_locked=False)
            return
        for piece in pieces:
            self._batch(piece)

    def _take_range(self, batch: Copies) -> bool:
        """Delete a whole batch in one statement by its range, as nearly all of them can be.

        Delete nothing if it has other rows than the copies, the table changed, or it takes too long. Return whether it
        was deleted.
        """
        taking = self.by_range
        if taking is None or self.keeping:
            return False

        def take(taker: RowTaker, now: datetime) -> Evicted:
            statement = taking.statement(batch, now)
            if not taking.same(taker.transaction.execute(statement.text, statement.parameters), batch):
                raise _Differs
            return self._evicted(len(batch))

        try:
            self._paced(partial(self._transaction, batch.positions, take))
        except (_Differs, _Changed, TimedOut):
            return False
        return True

    def _one_by_one(self, batch: list[Copy], *, skip_locked: bool) -> None:
        left, tries = batch, 0
        while True:
            try:
                evicted = self._paced(partial(self._check, left, skip_locked=skip_locked))
            except _Changed:
                self.keeping = True
                continue
            except (Locked, TimedOut) as problem:
                tries += 1
                if tries > _MOST_TRIES:
                    raise
                self.batches.slow_down(problem, _WAIT_SECONDS)
                if isinstance(problem, TimedOut) and len(left) > 1:
                    middle = len(left) // 2
                    self._one_by_one(left[:middle], skip_locked=skip_locked)
                    left = left[middle:]
                skip_locked = True
                continue
            if not evicted.locked:
                return
            left, tries = list(evicted.locked), tries + 1
            if tries > _MOST_TRIES:
                raise Locked(f"{self.table.name}: rows that are archived are locked by others", "run again later")
            self.batches.stop.wait(_WAIT_SECONDS)

    def _check(self, batch: list[Copy], *, skip_locked: bool) -> Evicted:
        def take(taker: RowTaker, now: datetime) -> Evicted:
            if self.keeping:
                return self._keep(taker.transaction, batch)
            return evict(taker, self.archive, batch, now, skip_locked=skip_locked)

        return self._transaction([copy.position for copy in batch], take)

    def _paced(self, work: Callable[[], Evicted]) -> Evicted:
        """Run a batch, emit its event, and pause."""
        require_running(self.batches.stop)
        evicted = work()
        if evicted.locked:
            self.batches.emit()
        else:
            self.batches.adapt()
            self.batches.pause()
        return evicted

    def _begin(self, transaction: Transaction) -> datetime:
        def fence(transaction: Transaction) -> None:
            Journal(transaction).require(self.lease)
            self.fence(transaction)

        return pass_gates(transaction, self.archive.selection, self.contract.sweep, fence)

    def _transaction(self, positions: Sequence[int], take: Callable[[RowTaker, datetime], Evicted]) -> Evicted:
        with suppress(SchemaChanged):
            return self._try_transaction(positions, take)
        self.archive.selection = self.rebind()
        self.by_range = range_take(self.archive)
        return self._try_transaction(positions, take)

    def _try_transaction(self, positions: Sequence[int], take: Callable[[RowTaker, datetime], Evicted]) -> Evicted:
        with self.batches.open() as batch:
            transaction, taker = batch.transaction, row_taker(batch.transaction)
            evicted = take(taker, self.sweep.decided_at)
            if not self.keeping and self.archive.changed(transaction, self.sweep.layout):
                raise _Changed
            if any(evicted.counts.values()):
                taker.require_bound(self.archive.selection)
            batch.record(evicted.counts)
            after = self.range
            if after is not None and positions:
                after = after.after(positions, [copy.position for copy in evicted.locked])
                if self.beside:
                    after = after.counting(evicted.counts, len(evicted.stale), evicted.absent)
            Journal(transaction).progress(
                self.sweep,
                after,
                batch.audit.counts,
                absent=evicted.absent,
                stale=evicted.stale,
                audit_id=None if self.beside else batch.audit_id,
            )
        self.committed += 1
        self.range = after
        return evicted

    def _evicted(self, rows: int) -> Evicted:
        return Evicted({str(self.table.name): rows}, (), 0, ())

    def _keep(self, transaction: Transaction, batch: list[Copy]) -> Evicted:
        """Keep every row that exists, because the table changed since it was copied, and report its copy as stale."""
        statement = self.archive.keys_present([copy.key for copy in batch])
        found = transaction.execute(statement.text, statement.parameters)
        known = {copy.text: copy.archived for copy in batch}
        stale = tuple((text, known[text], "the table changed") for (text,) in found if text in known)
        return Evicted({str(self.table.name): 0}, stale, len(batch) - len(stale), ())
