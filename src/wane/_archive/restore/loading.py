"""Loading pieces of a restore: the work of one Spark task.

It reads the staged rows of a piece, with what left with them, and writes them batch by batch, each batch one
transaction with its audit entry, its holds and its position in the journal.

At a pace with pauses, tasks that load at a time share the duty, and recognize other users of the database by what the
restore has not committed itself: see `evictors`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice, repeat
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.delta.failure import answering
from wane._archive.delta.paths import ColdPath, cold_path, source
from wane._archive.journal import Journal
from wane._archive.query.staging import DIGEST, files
from wane._archive.restore.dialects import restore_dialect
from wane._archive.restore.journal import JournaledPiece, OnConflict, RestoreJournal, batches_of
from wane._archive.restore.sql import (
    ColdRow,
    Loaded,
    RestoreRows,
    RowFamily,
    Target,
    barred_rows,
    conflict,
    is_rows_fault,
    load,
    stored_digests,
)
from wane._archive.rows import content
from wane._archive.rows.content import Shape
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.types import KEY, PARENT, SWEEP, VERSION, ArchiveDialect
from wane._archive.spark.connect import opened
from wane._archive.spark.reader import Source
from wane._db import Store
from wane._db.schema import qualified
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._ledger import AuditEntry, Hold, Ledger
from wane._prune.batches import Batches
from wane._prune.other_users import OtherUsers
from wane._prune.pace import Pace
from wane._prune.sql_activity import activity_of
from wane._rules.rows import rows_of
from wane.errors import ArchiveBusy, ArchiveError, Locked, StoreError, TimedOut, Unproven, WaneError

_AT_ONCE = 1_000
_READ_SECONDS = 60.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class LoadJob:
    """The job description that all tasks of a restore share."""

    source: Source
    folder: str
    targets: Sequence[Target]
    lacking: Sequence[Mapping[int, frozenset[str]]]
    """For each target: columns that rows of older sweeps did not have."""
    archived: Sequence[Shape]
    """For each target: every column that archived rows have, of which their versions are made."""
    on_conflict: OnConflict
    pace: Pace
    restore: int = 0
    table: str = ""
    lease: Lease | None = None
    actor: str = ""
    inputs: Mapping[str, Any] | None = None
    protect_until: datetime | None = None


def compare_piece(job: LoadJob, number: int) -> str:
    """Compare a piece with the rows in the database, and change nothing; return what a restore would do, as JSON."""
    return answering(lambda: _compare(job, number))


def load_pieces(job: LoadJob, numbers: Sequence[int]) -> str:
    """Load some pieces, each from where it was left; return their numbers, as JSON."""
    return answering(lambda: _load(job, numbers))


def _compare(job: LoadJob, number: int) -> dict[str, Any]:
    would: Counter[str] = Counter()
    existing = conflicts = 0
    first: list[tuple[str, str]] = []
    with opened(job.source) as store:
        statements = RestoreRows(rows_of(store), archive_dialect(store), restore_dialect(store))
        waiting = _families(job, number, archive_dialect(store))
        while some := list(islice(waiting, _AT_ONCE)):
            rows = [row for family in some for row in family.rows]
            read = partial(store.read, seconds=_READ_SECONDS)
            found = stored_digests(read, statements, job.targets, rows, lock=False)
            replacing = job.on_conflict is OnConflict.REPLACE
            barred = barred_rows(read, statements, job.targets, rows, found) if replacing else {}
            for family in some:
                reason = conflict(family, found, barred, job.on_conflict)
                if reason:
                    conflicts += 1
                    first.append((family.key, reason))
                    continue
                for row in family.rows:
                    if found.get((row.target, row.key)) == row.digest:
                        existing += 1
                    else:
                        would[job.targets[row.target].name] += 1
    return {"would": dict(would), "existing": existing, "conflicts": conflicts, "first": first[:_SHOWN]}


def _load(job: LoadJob, numbers: Sequence[int]) -> dict[str, Any]:
    with opened(job.source) as store:
        store.require_migrated()
        team = batches_of(store.dialect, job.restore) if job.pace.connections > 1 else None
        others = OtherUsers(activity_of(store, team))
        with store.transaction() as transaction:
            pieces = {piece.number: piece for piece in RestoreJournal(transaction).pieces(job.restore)}
        for number in numbers:
            _load_piece(_PieceLoad(job, store, pieces[number], others))
    return {"pieces": list(numbers)}


def _load_piece(loading: _PieceLoad) -> None:
    job, piece = loading.job, loading.piece
    if piece.looked_at == piece.rows:
        return  # By an earlier attempt of this task.
    waiting = islice(_families(job, piece.number, archive_dialect(loading.store)), piece.looked_at, None)
    ahead = next(waiting, None)
    while ahead is not None:
        batch, ahead = _fill(ahead, waiting, loading.batches.size)
        loading.batch(batch)
    if loading.piece.looked_at != piece.rows:
        raise ArchiveError(
            f"a piece of restore {job.restore} has {loading.piece.looked_at:,} rows, not {piece.rows:,}",
            "the staged rows were changed by another session; run again",
        )


def _fill(first: RowFamily, waiting: Iterator[RowFamily], size: int) -> tuple[list[RowFamily], RowFamily | None]:
    """Return as many families as fit into a batch, and the first that does not."""
    batch, rows = [first], len(first.rows)
    for family in waiting:
        rows += len(family.rows)
        if rows > size:
            return batch, family
        batch.append(family)
    return batch, None


class _PieceLoad:
    """Loads one piece."""

    def __init__(self, job: LoadJob, store: Store, piece: JournaledPiece, others: OtherUsers | None = None) -> None:
        self.job = job
        self.store = store
        self.piece = piece
        self.statements = RestoreRows(rows_of(store), archive_dialect(store), restore_dialect(store))
        self.batches = Batches(store, job.pace, self._audit(), self._begin, durable=True, others=others)

    def _audit(self) -> AuditEntry:
        """Return the audit row of this piece so far."""
        return AuditEntry.begun(
            "restore",
            self.job.table,
            self.job.actor,
            {**(self.job.inputs or {}), "restore": self.job.restore},
            self.store.now(),
            run=f"restore-{self.job.restore}-{self.piece.number}",
            counts=dict(self.piece.counts),
            number=self.piece.audit_id,
        )

    def batch(self, families: Sequence[RowFamily]) -> None:
        """Load some families; one that the database refuses stays in the archive."""
        self.batches.attempt_all(families, self._batch, _is_refused)

    def _batch(self, families: Sequence[RowFamily]) -> Sequence[RowFamily]:
        try:
            self._transaction(families)
        except (StoreError, Unproven) as problem:
            if len(families) > 1 or not _is_refused(problem):
                raise
            self._refused(families)
        self.batches.adapt()
        self.batches.pause()
        return ()

    def _refused(self, families: Sequence[RowFamily]) -> None:
        """Load one family that was refused a second time: the application may have inserted a row of its key first."""
        try:
            self._transaction(families)
        except (StoreError, Unproven) as problem:
            if not _is_refused(problem):
                raise
            self._transaction(families, refused=problem.message)

    def _begin(self, transaction: Transaction) -> datetime:
        """Raise unless the lease is held, and unless this task alone works on the piece."""
        assert self.job.lease is not None
        Journal(transaction).require(self.job.lease)
        if RestoreJournal(transaction).lock_piece(self.job.restore, self.piece.number) != self.piece:
            raise ArchiveBusy("another task restores the same rows", "it continues with them")
        return transaction.now()

    def _transaction(self, families: Sequence[RowFamily], *, refused: str = "") -> None:
        job = self.job
        with self.batches.open() as batch:
            transaction = batch.transaction
            if refused:
                loaded = Loaded(unrestored=[(family.key, refused) for family in families])
            else:
                loaded = load(transaction, self.statements, job.targets, families, job.on_conflict)
                self._protect(transaction, families, loaded, batch.clock)
            if loaded.replaced:
                transaction.owe_record(loaded.replaced)
                replaced = replace(self.batches.audit, kind="replace", run=None, executed_at=batch.clock)
                Ledger.of(transaction).record(replace(replaced, counts={job.table: 0, **loaded.replaced}))
            batch.record(dict(loaded.counts + loaded.replaced))
            piece = JournaledPiece(
                self.piece.number,
                self.piece.rows,
                self.piece.looked_at + len(families),
                self.piece.there + loaded.existing,
                self.piece.replaced + sum(loaded.replaced.values()),
                batch.audit.counts,
                batch.audit_id,
            )
            RestoreJournal(transaction).progress(job.restore, piece, loaded.unrestored)
        self.piece = piece

    def _protect(self, transaction: Transaction, families: Sequence[RowFamily], loaded: Loaded, now: datetime) -> None:
        """Hold every row that is back, so that no sweep takes it before its time."""
        if self.job.protect_until is None:
            return
        unrestored = {key for key, _ in loaded.unrestored}
        for number, target in enumerate(self.job.targets):
            keys = [
                row.key for one in families if one.key not in unrestored for row in one.rows if row.target == number
            ]
            reason = f"restored from the archive (restore {self.job.restore})"
            hold = Hold(qualified(target.table), None, reason, self.job.actor, now, self.job.protect_until)
            most = max(1, self.statements.restore.most_values // len(target.key))
            for start in range(0, len(keys), most):
                transaction.change(self.statements.hold(target, keys[start : start + most], hold))


def _is_refused(problem: WaneError) -> bool:
    """Check whether the database refuses a row, so that another try would not help."""
    return not isinstance(problem, Locked | TimedOut) and is_rows_fault(problem)


def _families(job: LoadJob, number: int, archive: ArchiveDialect) -> Iterator[RowFamily]:
    """Yield the rows of a piece in the order of their keys, each with what left with it."""
    folder, checked = cold_path(job.folder), archive.checksums
    following = [_FollowingRows(_rows(job, folder, part, number, checked)) for part in range(1, len(job.targets))]
    for _, row in _rows(job, folder, 0, number, checked):
        yield RowFamily((row, *(one for stream in following for one in stream.of(row.key))))


class _FollowingRows:
    """Rows in the order of the keys of those that they left with, read in step with those."""

    def __init__(self, rows: Iterator[tuple[str, ColdRow]]) -> None:
        self._rows = rows
        self._ahead = next(rows, None)

    def of(self, key: str) -> Iterator[ColdRow]:
        while self._ahead is not None and self._ahead[0] <= key:
            if self._ahead[0] == key:
                yield self._ahead[1]
            self._ahead = next(self._rows, None)


def _versions(batch: pa.RecordBatch, shape: Shape) -> list[str]:
    """Compute what the versions of rows must be; older archives have their digests instead."""
    typed = {name: batch.column(name).cast(content.arrow_type(kind)) for name, kind in shape}
    return list(content.checksums(pa.table(typed), shape).to_pylist())


def _rows(job: LoadJob, folder: ColdPath, part: int, piece: int, checked: bool) -> Iterator[tuple[str, ColdRow]]:
    """Yield the rows of one part of a piece, each with the key that it is sorted by.

    `checked`: whether a row's version is made of the values that it was archived with; then raise Unproven for a row
    that differs from it.
    """
    target, lacking = job.targets[part], job.lacking[part]
    archived = job.archived[part] if checked else ()
    names = [*(one.name for one in target.columns), KEY, *([PARENT] if part else []), SWEEP, VERSION, DIGEST]
    names += [name for name, _ in archived if name not in names]
    columns = {
        sweep: tuple(one for one in target.columns if one.name not in missing) for sweep, missing in lacking.items()
    }
    for file in files(folder, part, piece):
        with pq.ParquetFile(source(file)) as opened:
            for batch in opened.iter_batches(_AT_ONCE, columns=names):
                versions = _versions(batch, archived) if checked else repeat(None)
                columns_of = (batch.column(name).to_pylist() for name in names)
                for version, *values in zip(versions, *columns_of, strict=checked):
                    row = dict(zip(names, values, strict=True))
                    if checked and row[VERSION] not in (version, row[DIGEST]):
                        raise Unproven(
                            f"{target.name}: the row {row[KEY]} is not what was archived",
                            "its file was changed; it stays in the archive, and nothing came back",
                        )
                    had = columns.get(row[SWEEP], target.columns)
                    yield row[PARENT if part else KEY], ColdRow(part, row[KEY], row[DIGEST], row, had)
