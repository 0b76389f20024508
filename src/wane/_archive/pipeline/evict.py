"""Deleting hot rows that are proven and committed, batch by batch.

Each batch is one transaction that reads the gates, checks the lease, checks every row again, takes those that the
archive holds exactly, and records what it did, in its range's entry of the journal and in its range's audit row. So a
range that was left anywhere is resumed there, by whichever process is next; the latest attempt has it, and no other.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from wane._archive.delta.paths import cold_path
from wane._archive.journal import Journal, Journaled, JournaledRange
from wane._archive.pipeline.copies import Copies, pages
from wane._archive.pipeline.range_take import range_take
from wane._archive.pipeline.sql_evict import Copy, Evicted, evict
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.sql import ArchiveRows
from wane._archive.rows.types import KEY, VERSION
from wane._contract.fingerprint import rule_fingerprint
from wane._contract.model import Table
from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._ledger import AuditEntry
from wane._prune.batches import Batches, pass_gates
from wane._prune.dialects import row_taker
from wane._prune.other_users import OtherUsers
from wane._prune.pace import Pace
from wane._prune.pacing import require_running
from wane._prune.take import RowTaker
from wane._rules.rows import cutoff
from wane.errors import Locked, TimedOut
from wane.events import Listener

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


@dataclass(frozen=True, slots=True)
class EvictJob:
    """The job description that all evictors of a sweep share. Spark sends it to its tasks: it has nothing secret."""

    table: Table
    archive: ArchiveRows
    settings: SweepSettings
    lease: Lease
    sweep: Journaled
    folders: Sequence[str]
    pace: Pace
    fence: Callable[[Transaction], None]
    """Called inside every transaction that deletes rows; raises if another process may work by now."""
    keeping: bool
    """Whether the table changed since it was copied: then rows that exist stay."""

    def audit(self, journaled: JournaledRange) -> AuditEntry:
        """Return the audit row of a range, as far as there is one."""
        sweep, gone = self.sweep, journaled.eviction
        promise = rule_fingerprint(self.archive.selection.rule)
        inputs = {"rule": sweep.rule, "promise": promise, "sweep": sweep.id, "range": journaled.number}
        return AuditEntry.begun(
            "archive",
            str(self.table.name),
            sweep.actor,
            {**inputs, **({"transform": sweep.transform} if sweep.transform else {})},
            sweep.decided_at,
            rule=sweep.rule,
            run=f"archive-{sweep.id}-{journaled.number}" if journaled.number else f"archive-{sweep.id}",
            cutoff=cutoff(self.archive.selection.rule, sweep.decided_at),
            counts=gone.evicted,
            number=gone.audit_id,
        )


class Eviction:
    """The eviction of some ranges of a sweep over one connection."""

    def __init__(
        self,
        store: Store,
        job: EvictJob,
        stop: threading.Event,
        listener: Listener,
        others: OtherUsers | None = None,
    ) -> None:
        self.store = store
        self.job = job
        self.table = job.table
        self.archive = job.archive
        self.sweep = job.sweep
        self.by_range = None if job.keeping else range_take(store, job.archive)
        """How whole batches are taken; None if every row is checked on its own."""
        self.keeping = job.keeping
        """The table is no longer what it was when it was copied: rows that exist stay."""
        self.attempt = uuid.uuid4().hex
        self.range: JournaledRange
        """The range whose copies are checked, as the last batch left it."""
        label = job.table.label(job.archive.selection.rule)
        nothing = job.audit(JournaledRange(0, None, None, 0))
        scheduler = job.table.scheduler
        self.batches = Batches(store, job.pace, nothing, self._begin, stop, listener, scheduler, label, others=others)

    def run(self, ranges: Sequence[int]) -> None:
        """Check every copy of these ranges that has not been checked yet, and delete the rows that may leave."""
        compared = self.archive.dialect.checksums and not self.keeping
        # The version of a row that Spark made another of is a digest of its values.
        parts = [None if part.projection else part.shape for part in self.archive.parts]
        # Other tables than the contract names by now may have left with the rows of this sweep.
        shapes = parts if compared else [None] * len(self.job.folders)
        columns = [KEY, VERSION] if self.by_range is None else self.by_range.columns
        folders = [cold_path(one) for one in self.job.folders]
        with ExitStack() if self.by_range is None else self.by_range.stack:
            for number in ranges:
                require_running(self.batches.stop)
                self.range = self._claim(number)
                if self.range.finished:
                    continue
                if self.by_range is not None:
                    self.by_range.begin(self.range.copies - self.range.evicted)
                self.batches.audit = self.job.audit(self.range)
                for page in pages(folders, self.range.manifest, columns, shapes):
                    self._page(page)

    def _claim(self, number: int) -> JournaledRange:
        with self.store.transaction() as transaction:
            journal = Journal(transaction)
            journal.require(self.job.lease)
            return journal.claim(self.sweep.id, number, self.attempt)

    def _page(self, page: Copies) -> None:
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
        if page.following is None:
            return most
        rows = np.cumsum(page.sizes(start, most))
        return start + max(1, int(np.searchsorted(rows, self.batches.size, "right")))

    def _batch(self, batch: Copies) -> None:
        """Delete a whole batch in one statement by its range, as nearly all of them can be; otherwise row by row.

        If the range has other rows than the copies, the table changed, or it takes too long, nothing is deleted, and
        the batch is split before its rows are checked.
        """
        taking = None if self.keeping else self.by_range
        if taking is None:
            self._one_by_one(self._each(batch), skip_locked=False)
            return

        def take(taker: RowTaker, now: datetime) -> Evicted:
            if not taking.take(taker.transaction, batch, now):
                raise _Differs
            return Evicted({str(self.table.name): len(batch)}, (), (), ())

        try:
            require_running(self.batches.stop)
            self._transaction(batch.positions, take)
        except (_Differs, _Changed, TimedOut):
            pieces = _pieces(batch)
        except Locked as problem:
            self.batches.slow_down(problem)
            self._one_by_one(self._each(batch), skip_locked=True)
            return
        else:
            return
        if len(pieces) == 1:
            self._one_by_one(self._each(batch), skip_locked=False)
            return
        for piece in pieces:
            self._batch(piece)

    def _one_by_one(self, batch: Sequence[Copy], *, skip_locked: bool) -> None:
        skips = skip_locked

        def check(left: Sequence[Copy]) -> Sequence[Copy]:
            nonlocal skips

            def take(taker: RowTaker, now: datetime) -> Evicted:
                if self.keeping:
                    return self._keep(taker.transaction, left)
                return evict(taker, self.archive, left, now, skip_locked=skips)

            try:
                return self._transaction([copy.position for copy in left], take).locked
            except _Changed:
                self.keeping = True
                return check(left)
            except (Locked, TimedOut):
                skips = True
                raise

        self.batches.attempt_all(batch, check)

    def _begin(self, transaction: Transaction) -> datetime:
        def fence(transaction: Transaction) -> None:
            journal = Journal(transaction)
            journal.require(self.job.lease)
            journal.require_claim(self.sweep.id, self.range)
            self.job.fence(transaction)

        return pass_gates(transaction, self.archive.selection, self.job.settings, fence)

    def _transaction(self, positions: Sequence[int], take: Callable[[RowTaker, datetime], Evicted]) -> Evicted:
        """Take and record a batch, emit its event, and pause."""
        with self.batches.open() as batch:
            transaction, taker = batch.transaction, row_taker(batch.transaction)
            evicted = take(taker, self.sweep.decided_at)
            if not self.keeping and self.archive.changed(transaction, self.sweep.layout):
                raise _Changed
            taker.conclude(self.archive.selection, evicted.counts)
            batch.record(evicted.counts)
            Journal(transaction).note_absent(self.sweep.id, evicted.missing)
            gone = self.range.eviction.after(
                evicted.counts, len(evicted.stale), evicted.absent, batch.entry.seconds, batch.audit_id
            )
            after = self.range.after(positions, [copy.position for copy in evicted.locked], gone)
            Journal(transaction).progress(self.sweep.id, after, evicted.stale)
        self.range = after
        if evicted.locked:
            self.batches.emit()
        else:
            self.batches.adapt()
            self.batches.pause()
        return evicted

    def _keep(self, transaction: Transaction, batch: Sequence[Copy]) -> Evicted:
        """Keep every row that exists, because the table changed since it was copied, and report its copy as stale."""
        statement = self.archive.keys_present([copy.key for copy in batch])
        found = transaction.execute(statement.text, statement.parameters)
        known = {copy.text: copy.archived for copy in batch}
        stale = tuple((text, known[text], "the table changed") for (text,) in found if text in known)
        there = {text for text, _, _ in stale}
        missing = tuple((copy.text, copy.archived) for copy in batch if copy.text not in there)
        return Evicted({str(self.table.name): 0}, stale, missing, ())
