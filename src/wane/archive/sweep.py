"""A sweep of the archive: planned → written → verified → committed → evicted → done.

What a step did is in the journal, in the hot database; what it does can be done again. A process that dies anywhere leaves rows that are hot, or hot
and archived, and never a row that is in neither place; whoever runs next goes on where the journal says.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane.archive.evict import Eviction
from wane.archive.extract import CopyJob, PartJob, copy_range
from wane.archive.failure import answers
from wane.archive.model import ArchivedRule
from wane.archive.place import ColdTable, place_of
from wane.archive.ranges import bounds, cut
from wane.archive.secret import require_reachable, told
from wane.archive.session import Progress, run
from wane.archive.verify import ProofJob, files_of, prove
from wane.contract.model import Rule, Table
from wane.errors import ArchiveError, Unproven
from wane.events import (
    ArchiveProgress,
    ArchiveStep,
    RowsArchived,
    archived_name,
)
from wane.prune.sweep import Outcome
from wane.store.archive_evict import total
from wane.store.archive_journal import Journal, Journaled, State
from wane.store.archive_rows import ArchiveRows, bind_archive
from wane.store.due import cutoff
from wane.store.outbox import tell
from wane.store.own import AuditEntry
from wane.store.timetable import Lease

if TYPE_CHECKING:
    from wane.archive.archiver import Archiver

_STALE_AT_ONCE = 10_000


class Tally:
    """What was done for one rule, over all its sweeps."""

    def __init__(self, table: Table, rule: Rule) -> None:
        self.table = table
        self.rule = rule
        self.sweeps: list[int] = []
        self.more = False
        """Whether more was due than it was to move."""
        self.archived: dict[str, int] = {str(table.name): 0}
        self.evicted: dict[str, int] = {str(table.name): 0}
        self.stale = self.batches = 0
        self.seconds: dict[str, float] = defaultdict(float)

    def told(self, outcome: Outcome, message: str = "") -> ArchivedRule:
        return ArchivedRule(
            str(self.table.name),
            self.rule.name,
            outcome,
            tuple(self.sweeps),
            self.archived,
            self.evicted,
            self.stale,
            {step: round(seconds, 3) for step, seconds in self.seconds.items()},
            message,
        )


class Sweep:
    """One sweep of one rule, under a lease."""

    def __init__(self, archiver: Archiver, table: Table, rule: Rule, lease: Lease, done: Tally) -> None:
        self.archiver = archiver
        self.store = archiver.store
        self.contract = archiver.contract
        self.table = table
        self.rule = rule
        self.lease = lease
        self.done = done
        selection = archiver.bindings.selection(table, rule)
        kept = next(one for one in self.contract.archive if one.table == table.name)
        self.rows: ArchiveRows = bind_archive(self.store.rows, self.store.archive, selection, kept, self._file())
        require_reachable(self.store.source(), self.contract.spark)
        self.origin = archiver.origin()
        assert self.contract.archive_url is not None
        root = place_of(self.contract.archive_url, None if self.contract.path is None else self.contract.path.parent)
        self.cold = [ColdTable(root, part.name, self.origin) for part in self.rows.parts]

    def _file(self) -> str:
        return "" if self.contract.path is None else str(self.contract.path)

    @property
    def _shapes(self) -> list[list[list[str]]]:
        return [part.shape for part in self.rows.parts]

    def begin(self) -> bool:
        """Plan a sweep and see it through; whether there may be more to do."""
        began = time.monotonic()
        for cold, part in zip(self.cold, self.rows.parts, strict=True):
            cold.require_fitting(part.shape)
            cold.require_writable()
        settings = self.contract.spark
        now = self.store.now()
        pieces, rows = cut(
            self.store,
            self.rows,
            now,
            range_rows=settings.range_rows,
            sweep_rows=settings.sweep_rows,
            going_on=lambda: not self.archiver.stop.is_set(),
        )
        if not pieces:
            self._tell_nothing(now)
            return False
        for cold, part in zip(self.cold, self.rows.parts, strict=True):
            cold.ensure(part.shape, follows=bool(part.path))
        last = max(cold.last_sweep(self._writer) for cold in self.cold)
        with self.store.transaction() as transaction:
            journal = Journal(transaction, self.store.timetable)
            journal.require(self.lease)
            _, proven = journal.known(str(self.table.name))
            number = journal.plan(
                str(self.table.name),
                self.rule.name,
                strict=self.archiver.strict or proven != _fingerprint(self._shapes),
                decided_at=now,
                actor=self.archiver.actor,
                columns=self._shapes,
                ranges=pieces,
            )
            if last >= number:
                raise ArchiveError(
                    f"the archive of {self.table.name} has sweep {last}, and this database is only at {number}",
                    "the database was restored from a backup: name another folder as the archive's url",
                )
            sweep = journal.sweep(number)
        self._tell(sweep, began)
        self._advance(sweep)
        return rows >= settings.sweep_rows

    def _tell_nothing(self, now: datetime) -> None:
        """Nothing is due: told in the trail once a run, like every sweep that took nothing."""
        if self.done.sweeps:
            return
        with self.store.transaction() as transaction:
            transaction.own.record(
                AuditEntry(
                    kind="archive",
                    table=str(self.table.name),
                    actor=self.archiver.actor,
                    inputs={"rule": self.rule.name},
                    counts={str(self.table.name): 0},
                    executed_at=now,
                    rule=self.rule.name,
                    cutoff=cutoff(self.rule, now),
                )
            )

    def resume(self, sweep: Journaled) -> None:
        """Go on with a sweep that another process, or an earlier run, left unfinished."""
        committed = [cold.last_sweep(self._writer) >= sweep.id for cold in self.cold]
        if sweep.state is State.VERIFIED and all(committed):
            sweep = self._move(sweep, State.COMMITTED)
        if sweep.state in (State.WRITTEN, State.VERIFIED):
            # Whatever was proven, a clean-up or a fault may have come since.
            sweep = self._move(sweep, State.WRITTEN if self._files_there(sweep) else State.PLANNED)
        again = sweep.state is State.PLANNED
        if (again and any(committed)) or ((again or sweep.state is State.WRITTEN) and sweep.columns != self._shapes):
            self._abandon(sweep)
        else:
            self._advance(sweep)

    def _files_there(self, sweep: Journaled) -> bool:
        manifests = self._manifests(sweep)
        return all(Path(file.place).is_file() for file in files_of([cold.folder for cold in self.cold], manifests))

    def _abandon(self, sweep: Journaled) -> None:
        """The table changed, or files vanished, before all copies were committed: nothing left, so nothing is lost. What was
        committed is removed, because a sweep commits once, and the next sweep begins anew."""
        for cold, part in zip(self.cold, self.rows.parts, strict=True):
            if cold.last_sweep(self._writer) >= sweep.id:
                cold.remove(sweep.id, None, follows=bool(part.path))
        self._move(sweep, State.DONE, archived={})

    @property
    def _writer(self) -> str:
        return str(self.table.name)

    def _advance(self, sweep: Journaled) -> None:
        self.done.sweeps.append(sweep.id)
        steps: dict[State, Callable[[Journaled], Journaled]] = {
            State.PLANNED: self._write,
            State.WRITTEN: self._verify,
            State.VERIFIED: self._commit,
            State.COMMITTED: self._evict,
            State.EVICTED: self._finish,
        }
        while sweep.state is not State.DONE:
            self.archiver.require_open(self.table)
            began = time.monotonic()
            before = sweep.state
            sweep = steps[before](sweep)
            self.done.seconds[before.value] += time.monotonic() - began
            self._tell(sweep, began)

    def _tell(self, sweep: Journaled, began: float) -> None:
        seconds = time.monotonic() - began
        self.archiver.listener(
            ArchiveStep(sweep.table, sweep.rule, sweep.id, sweep.state.value, sweep.archived, sweep.evicted, seconds)
        )

    def _progress(self, sweep: Journaled) -> Progress:
        def tell(done: int, of: int) -> None:
            self.archiver.listener(ArchiveProgress(sweep.table, sweep.rule, sweep.id, sweep.state.value, done, of))

        return tell

    def _move(self, sweep: Journaled, state: State, *, archived: dict[str, int] | None = None) -> Journaled:
        with self.store.transaction() as transaction:
            journal = Journal(transaction, self.store.timetable)
            journal.require(self.lease)
            journal.move(sweep.id, state, archived=archived)
            if state is State.COMMITTED:
                proven = _fingerprint(sweep.columns) if sweep.strict else None
                journal.remember(str(self.table.name), sweep.columns, proven)
            moved = journal.sweep(sweep.id)
            if state is State.DONE and self._is_told(moved):
                tell(
                    transaction,
                    self.contract.events.outbox,
                    archived_name(moved.table),
                    moved.table,
                    moved.archived.get(moved.table, 0) - moved.stale,
                    moved.audit_id,
                    transaction.now(),
                    rule=moved.rule,
                    sweep=moved.id,
                )
            return moved

    def _is_told(self, sweep: Journaled) -> bool:
        return any(sweep.archived.values()) and self.contract.events.tells_archived(sweep.table)

    def _manifests(self, sweep: Journaled) -> list[Any]:
        with self.store.transaction() as transaction:
            return [piece.manifest for piece in Journal(transaction, self.store.timetable).ranges(sweep.id)]

    # The steps

    def _write(self, sweep: Journaled) -> Journaled:
        with self.store.transaction() as transaction:
            pieces = Journal(transaction, self.store.timetable).ranges(sweep.id)
        manifests = self._copy(sweep, [piece.bounds for piece in pieces])
        archived: Counter[str] = Counter()
        for manifest in manifests:
            for part, written in zip(self.rows.parts, manifest["parts"], strict=True):
                archived[part.name] += sum(file["rows"] for file in written["files"])
        with self.store.transaction() as transaction:
            journal = Journal(transaction, self.store.timetable)
            journal.require(self.lease)
            journal.write(sweep.id, [(manifest["range"], manifest) for manifest in manifests])
            journal.move(sweep.id, State.WRITTEN, archived=dict(archived))
            return journal.sweep(sweep.id)

    def _copy(self, sweep: Journaled, pieces: list[Any]) -> list[Any]:
        literal = self.store.literal
        spark = self.archiver.spark()
        parts = [
            PartJob(
                part.name,
                str(cold.folder),
                part.shape,
                bool(part.path),
                literal(self.rows.copy(part, sweep.decided_at)),
                literal(self.rows.checks(part, sweep.decided_at, strict=sweep.strict)),
            )
            for part, cold in zip(self.rows.parts, self.cold, strict=True)
        ]
        with told(self.store.source(), self.contract.spark) as source:
            job = CopyJob(sweep.id, source, parts, [bounds(self.rows, piece, self.store) for piece in pieces])
            return answers(run(spark, partial(copy_range, job), len(pieces), self._progress(sweep)))

    def _verify(self, sweep: Journaled) -> Journaled:
        manifests = self._manifests(sweep)
        files = files_of([cold.folder for cold in self.cold], manifests)
        job = ProofJob(sweep.columns, files, sweep.strict)
        try:
            names = [part.name for part in self.rows.parts]
            prove(self.archiver.spark(), job, manifests, names, self._progress(sweep))
        except Unproven:
            self._move(sweep, State.PLANNED)  # What cannot be trusted is copied again, the next time.
            raise
        return self._move(sweep, State.VERIFIED)

    def _commit(self, sweep: Journaled) -> Journaled:
        manifests = self._manifests(sweep)
        # What follows a row first, the row last: whoever sees the row in the archive sees what left with it.
        for number in reversed(range(len(self.cold))):
            files = [file for manifest in manifests for file in manifest["parts"][number]["files"]]
            self.cold[number].commit(self._writer, sweep.id, files)
        return self._move(sweep, State.COMMITTED)

    def _evict(self, sweep: Journaled) -> Journaled:
        with self.store.transaction() as transaction:
            ranges = Journal(transaction, self.store.timetable).ranges(sweep.id)
        eviction = Eviction(
            self.store,
            self.contract,
            self.table,
            self.rows,
            self.lease,
            sweep,
            pace=self.archiver.pace,
            stop=self.archiver.stop,
            listener=self.archiver.listener,
            fence=self.archiver.fence,
        )
        try:
            eviction.run(self.cold, ranges)
        finally:
            gone = {name: rows - sweep.evicted.get(name, 0) for name, rows in eviction.counts.items()}
            self.done.evicted = total(self.done.evicted, gone)
            self.done.batches += eviction.batches
        return self._move(sweep, State.EVICTED)

    def _finish(self, sweep: Journaled) -> Journaled:
        """Copies of rows that stayed hot leave the archive; then the sweep is done."""
        while True:
            with self.store.transaction() as transaction:
                keys = Journal(transaction, self.store.timetable).stale(sweep.id, _STALE_AT_ONCE)
            if not keys:
                break
            for cold, part in zip(self.cold, self.rows.parts, strict=True):
                cold.remove(sweep.id, keys, follows=bool(part.path))
            with self.store.transaction() as transaction:
                journal = Journal(transaction, self.store.timetable)
                journal.require(self.lease)
                journal.removed(sweep.id, keys)
        sweep = self._move(sweep, State.DONE)
        self.done.archived = total(self.done.archived, sweep.archived)
        self.done.stale += sweep.stale
        if self._is_told(sweep):
            self.archiver.listener(
                RowsArchived(sweep.table, sweep.rule, sweep.id, sweep.archived, sweep.evicted, sweep.stale)
            )
        return sweep


def _fingerprint(shapes: Any) -> str:
    return hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]
