"""A sweep of the archive: planned → written → verified → committed → evicted → done.

What a step did is in the journal, in the hot database, and every step can be repeated. A process that dies at any point
leaves rows that are hot, or hot and archived, and never a row that is neither; the next run resumes where the journal
says.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from wane._archive.commits import record, require_whole, seen
from wane._archive.dialects import archive_dialect, source_of
from wane._archive.evict import Eviction
from wane._archive.evictors import evict_together, shares
from wane._archive.executor import Progress
from wane._archive.extract import CopyJob, PartJob, copy_ranges
from wane._archive.failure import arriving
from wane._archive.journal import Journal, Journaled, JournaledRange, State
from wane._archive.model import ArchivedRule
from wane._archive.paths import cold_path
from wane._archive.range_take import range_take
from wane._archive.ranges import bounds, cut
from wane._archive.removal import GoneCopies, remove_copies
from wane._archive.secret import require_reachable, task_source
from wane._archive.sql import ArchiveRows, bind_archive
from wane._archive.unique import copied_twice
from wane._archive.verify import FileJob, ProofJob, files_of, prove
from wane._contract.duration import format_duration
from wane._contract.model import Rule, Table
from wane._db import Store
from wane._leases import Lease
from wane._ledger import AuditEntry, Ledger, add_counts
from wane._prune.sql_outbox import emit
from wane._prune.sweep import Outcome
from wane._rules.rows import cutoff, rows_of
from wane._rules.selection import Selection
from wane.errors import ArchiveError, Unproven
from wane.events import (
    ArchiveProgress,
    ArchiveStep,
    Event,
    RowsArchived,
    archived_name,
)

if TYPE_CHECKING:
    from wane._archive.archiver import Archiver

_STALE_AT_ONCE = 100_000
_SHOWN = 5
_READ_SECONDS = 600.0


class Tally:
    """What was done for one rule, over all its sweeps."""

    def __init__(self, table: Table, rule: Rule) -> None:
        self.table = table
        self.rule = rule
        self.outcome, self.message, self.busy = Outcome.DONE, "", False
        self.sweeps: list[int] = []
        self.archived: dict[str, int] = {str(table.name): 0}
        self.evicted: dict[str, int] = {str(table.name): 0}
        self.stale = self.batches = 0
        self.seconds: dict[str, float] = defaultdict(float)

    def report(self) -> ArchivedRule:
        return ArchivedRule(
            str(self.table.name),
            self.rule.name,
            self.outcome,
            tuple(self.sweeps),
            self.archived,
            self.evicted,
            self.stale,
            {step: round(seconds, 3) for step, seconds in self.seconds.items()},
            self.message,
        )


class TableSweep:
    """One sweep of one rule, under a lease."""

    def __init__(self, archiver: Archiver, table: Table, rule: Rule, lease: Lease, done: Tally) -> None:
        self.archiver = archiver
        self.context = archiver.context
        self.store = self.context.store
        self.contract = self.context.contract
        self.table = table
        self.rule = rule
        self.lease = lease
        self.done = done
        selection = archiver.bindings.selection(table, rule)
        self.settings = next(one for one in self.contract.archive if one.table == table.name)
        self.rows: ArchiveRows = bind_archive(
            rows_of(self.store), archive_dialect(self.store), selection, self.settings, self._file()
        )
        require_reachable(source_of(self.store), self.contract.spark)
        self.cold = self.context.cold_tables(self._names)
        """The tables that a sweep writes to: the row's own first, then what leaves with it."""
        self._one_at_a_time = threading.RLock()
        """Held by the evictor that reports something."""
        self.copied_again = False
        """Whether all ranges are copied in one snapshot of the database, because copying them in several found a row
        twice."""

    @property
    def _names(self) -> list[str]:
        return [part.name for part in self.rows.parts]

    def _file(self) -> str:
        return "" if self.contract.path is None else str(self.contract.path)

    @property
    def _shapes(self) -> list[list[list[str]]]:
        return [part.shape for part in self.rows.parts]

    def waits(self, now: datetime) -> str:
        """Report that too few rows are due for a sweep, and none of them for too long; "" if one may begin."""
        least, wait = self.settings.least_rows, self.settings.longest_wait
        if least == 1 or self._any_due(now, least) or self._any_due(now - wait, 1):
            return ""
        return f"waits until {least:,} rows are due, or one has been due for {format_duration(wait)}"

    def _any_due(self, now: datetime, rows: int) -> bool:
        return bool(self.store.read(self.rows.ceiling(now, rows, None), _READ_SECONDS))

    def begin(self, now: datetime) -> bool:
        """Plan a sweep of what is due as of `now` and run it to its end; return whether more is due."""
        began = time.monotonic()
        require_whole(self.store, self.cold)
        for cold, part in zip(self.cold, self.rows.parts, strict=True):
            cold.require_fitting(part.shape)
            cold.require_writable()
        settings = self.contract.spark
        pieces, more = cut(
            self.store,
            self.rows,
            now,
            range_rows=settings.range_rows,
            sweep_rows=settings.sweep_rows,
            going_on=lambda: not self.context.stop.is_set(),
        )
        if not pieces:
            self.record_nothing(now)
            return False
        for cold, part in zip(self.cold, self.rows.parts, strict=True):
            cold.ensure(part.shape, follows=bool(part.path))
        last = max(cold.last_sweep(self._writer) for cold in self.cold)
        with self.store.transaction() as transaction:
            journal = Journal(transaction)
            journal.require(self.lease)
            _, proven = journal.known(str(self.table.name))
            sweep = journal.plan(
                str(self.table.name),
                self.rule.name,
                strict=self.archiver.strict or proven != _fingerprint(self._shapes),
                decided_at=now,
                actor=self.context.actor,
                columns=self._shapes,
                layout=self.rows.layout(transaction),
                parts=self._names,
                ranges=pieces,
            )
            if last >= sweep.id:
                raise ArchiveError(
                    f"the archive of {self.table.name} has sweep {last}, and this database is only at {sweep.id}",
                    "the database was restored from a backup: name another folder as the archive's url, and run `wane archive adopt`",
                )
        self._emit(sweep, began)
        self._advance(sweep)
        return more

    def record_nothing(self, now: datetime) -> None:
        """Record in the audit trail that nothing is due, once a run, like every sweep that took nothing."""
        if self.done.sweeps:
            return
        with self.store.transaction() as transaction:
            Ledger.of(transaction).record(
                AuditEntry(
                    kind="archive",
                    table=str(self.table.name),
                    actor=self.context.actor,
                    inputs={"rule": self.rule.name},
                    counts={str(self.table.name): 0},
                    executed_at=now,
                    rule=self.rule.name,
                    cutoff=cutoff(self.rule, now),
                )
            )

    def resume(self, sweep: Journaled) -> None:
        """Resume a sweep that another process, or an earlier run, left unfinished."""
        self._use_tables_of(sweep)
        require_whole(self.store, self.cold)
        for cold in self.cold:
            # From here on the process that left it cannot commit anything any more, so what its log says now is
            # final.
            cold.take_over([self.lease])
        committed = [cold.last_sweep(self._writer) >= sweep.id for cold in self.cold]
        if sweep.state is State.VERIFIED and all(committed):
            sweep = self._move(sweep, State.COMMITTED)
        if sweep.state in (State.PLANNED, State.WRITTEN, State.VERIFIED):
            # Whatever was proven, a clean-up or a fault may have happened since.
            lost = self._lost(sweep)
            sweep = self._move(
                sweep, State.PLANNED if lost or sweep.state is State.PLANNED else State.WRITTEN, discard=lost
            )
        again = sweep.state is State.PLANNED
        if (again and any(committed)) or ((again or sweep.state is State.WRITTEN) and self._changed(sweep)):
            self._abandon(sweep)
        else:
            self._advance(sweep)

    def _use_tables_of(self, sweep: Journaled) -> None:
        """Switch to the tables of a sweep, whatever the contract says by now."""
        if sweep.parts is None and len(sweep.columns) != len(self._names):
            raise ArchiveError(
                f"sweep {sweep.id} of {sweep.table} is unfinished, and other tables leave with its rows by now",
                "put `with` of its rule back, run the archive once, then change it",
            )
        self.cold = self.context.cold_tables(sweep.parts or self._names)

    def _changed(self, sweep: Journaled) -> bool:
        """Check whether the table, the rule, or what leaves with a row changed since the sweep was planned."""
        now = self.rule.name, self._names, self._shapes
        if (sweep.rule, list(sweep.parts or self._names), sweep.columns) != now:
            return True
        with self.store.transaction() as transaction:
            return self.rows.changed(transaction, sweep.layout)

    def commit_again(self, sweep: Journaled) -> None:
        """Commit a sweep whose commit the archive's log has lost, from what the journal says of its files.

        The hot table stays as it is. Raise ArchiveError if files are missing.
        """
        self._use_tables_of(sweep)
        manifests = self._manifests(sweep)
        known = [manifest for manifest in manifests if manifest is not None]
        paths = [cold_path(file.path) for file in self._files(known)]
        missing = [str(path) for path in paths if not path.is_file()]
        if missing or not known or len(known) < len(manifests):
            what = f"{', '.join(missing[:_SHOWN])} is missing" if missing else "its files are no longer known"
            raise ArchiveError(
                f"sweep {sweep.id} of {sweep.table} cannot be committed again: {what}",
                f"restore {len(missing)} files and the log from a backup"
                if missing
                else "restore the log from a backup",
            )
        self._prove(sweep, known)
        with self.store.transaction() as transaction:
            journal = Journal(transaction)
            journal.require(self.lease)
            journal.keep_again(sweep.id)
        self._add(sweep, known)
        if sweep.state is State.DONE:
            self._remove_stale(sweep)

    def _lost(self, sweep: Journaled) -> list[int]:
        """Return ranges that were copied, and of whose files some are missing."""
        return [
            piece.number
            for piece in self._ranges(sweep)
            if piece.manifest is not None
            and not all(cold_path(file.path).is_file() for file in self._files([piece.manifest]))
        ]

    def _abandon(self, sweep: Journaled) -> Journaled:
        """Abandon a sweep whose table changed, or whose files vanished, before all copies were committed.

        No row has left, so nothing is lost. What was committed is removed, because a sweep commits once, and the next
        sweep begins anew.
        """
        for cold in self.cold:
            if cold.last_sweep(self._writer) >= sweep.id:
                remove_copies(cold, GoneCopies.of_sweep(sweep.id), [self.lease], why=f"sweep {sweep.id}")
        return self._move(sweep, State.DONE, archived={})

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
            self._emit(sweep, began)

    def _emit(self, sweep: Journaled, began: float) -> None:
        seconds = time.monotonic() - began
        self.context.listener(
            ArchiveStep(sweep.table, sweep.rule, sweep.id, sweep.state.value, sweep.archived, sweep.evicted, seconds)
        )

    def _progress(self, sweep: Journaled) -> Progress:
        def emit(done: int, of: int) -> None:
            self.context.listener(ArchiveProgress(sweep.table, sweep.rule, sweep.id, sweep.state.value, done, of))

        return emit

    def _require_lease(self) -> None:
        with self.store.transaction() as transaction:
            Journal(transaction).require(self.lease)

    def _move(
        self,
        sweep: Journaled,
        state: State,
        *,
        archived: dict[str, int] | None = None,
        discard: Sequence[int] = (),
    ) -> Journaled:
        commits = seen(self.cold) if state in (State.COMMITTED, State.DONE) else []
        with self.store.transaction() as transaction:
            journal = Journal(transaction)
            journal.require(self.lease)
            journal.discard(sweep.id, discard)
            if state is State.EVICTED:
                journal.add_up(sweep.id)
            moved = journal.move(sweep.id, state, archived=archived)
            record(transaction, commits)
            if state is State.COMMITTED:
                proven = _fingerprint(sweep.columns) if sweep.strict else None
                journal.remember(str(self.table.name), sweep.columns, proven)
            if state is State.DONE and self._emits_archived(moved):
                emit(
                    self.store,
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

    def _emits_archived(self, sweep: Journaled) -> bool:
        return any(sweep.archived.values()) and self.contract.events.emits_archived(sweep.table)

    def _ranges(self, sweep: Journaled) -> list[JournaledRange]:
        with self.store.transaction() as transaction:
            return Journal(transaction).ranges(sweep.id)

    def _manifests(self, sweep: Journaled) -> list[Any]:
        return [piece.manifest for piece in self._ranges(sweep)]

    def _files(self, manifests: Sequence[Any]) -> list[FileJob]:
        return files_of([cold.folder for cold in self.cold], manifests)

    # The steps

    def _write(self, sweep: Journaled) -> Journaled:
        missing = [piece for piece in self._ranges(sweep) if piece.manifest is None]
        if missing:
            self._copy(sweep, missing)
        archived: Counter[str] = Counter()
        for manifest in self._manifests(sweep):
            for part, written in zip(self.rows.parts, manifest["parts"], strict=True):
                archived[part.name] += sum(file["rows"] for file in written["files"])
        return self._move(sweep, State.WRITTEN, archived=dict(archived))

    def _copy(self, sweep: Journaled, pieces: Sequence[JournaledRange]) -> None:
        """Copy ranges, and record each as soon as it is copied: a run that resumes the sweep copies only the others."""
        literal = self.store.literal
        executor = self.context.executor
        executor.spark()  # Before the snapshot is held, because starting it takes seconds.
        parts = [
            PartJob(
                part.name,
                str(cold.folder),
                part.shape,
                bool(part.path),
                literal(self.rows.copy(part, sweep.decided_at)),
                literal(self.rows.widest(part, sweep.decided_at)),
                literal(self.rows.checks(part, sweep.decided_at, strict=sweep.strict)),
                literal(self.rows.unstorable(part, sweep.decided_at)),
                self.rows.assembly(part),
                self.rows.dialect.declares_types,
                self.rows.whole_key(part) is not None,
                self.contract.archive_statistics(part.name),
            )
            for part, cold in zip(self.rows.parts, self.cold, strict=True)
        ]
        ranges = [(piece.number, bounds(self.rows, piece.bounds, self.store)) for piece in pieces]
        with (
            self.store.exported_snapshot() as snapshot,
            task_source(replace(source_of(self.store), snapshot=snapshot), self.contract.spark) as source,
        ):
            # Tasks that cannot share a snapshot of the database read one each; one task for all of them reads one.
            tasks = [ranges] if snapshot is None and self.copied_again else [[one] for one in ranges]
            job = CopyJob(sweep.id, source, parts, tasks)
            for answer in arriving(executor.run(partial(copy_ranges, job), len(tasks), self._progress(sweep))):
                with self.store.transaction() as transaction:
                    journal = Journal(transaction)
                    journal.require(self.lease)
                    journal.write(sweep.id, [(manifest["range"], manifest) for manifest in answer["manifests"]])

    def _verify(self, sweep: Journaled) -> Journaled:
        manifests = self._manifests(sweep)
        all_ranges = [manifest["range"] for manifest in manifests]
        try:
            self._prove(sweep, manifests)
            twice = copied_twice(self.context.executor, self._files(manifests))
            if twice is not None and self.copied_again:
                part, key = twice
                raise Unproven(
                    f"{self.cold[part].name} has the row {key} twice in one state of the database",
                    "nothing was committed and nothing left; the contract's key must be unique in the whole table",
                )
        except Unproven:
            # What cannot be trusted is copied again, the next time.
            self._move(sweep, State.PLANNED, discard=all_ranges)
            raise
        if twice is None:
            return self._move(sweep, State.VERIFIED)
        if any(cold.last_sweep(self._writer) >= sweep.id for cold in self.cold):
            return self._abandon(sweep)
        # A row moved from one range to another between two snapshots: one snapshot for all of them cannot have it
        # twice.
        self.copied_again = True
        return self._move(sweep, State.PLANNED, discard=all_ranges)

    def _prove(self, sweep: Journaled, manifests: Sequence[Any]) -> None:
        job = ProofJob(sweep.columns, self._files(manifests), sweep.strict)
        names = [cold.name for cold in self.cold]
        prove(self.context.executor, job, manifests, names, self._progress(sweep))

    def _commit(self, sweep: Journaled) -> Journaled:
        self._add(sweep, self._manifests(sweep))
        return self._move(sweep, State.COMMITTED)

    def _add(self, sweep: Journaled, manifests: Sequence[Any]) -> None:
        self._require_lease()
        # What follows a row first, the row last: a reader who sees the row in the archive also sees what left with
        # it.
        for number in reversed(range(len(self.cold))):
            files = [file for manifest in manifests for file in manifest["parts"][number]["files"]]
            self.cold[number].commit(self._writer, sweep.id, files, [self.lease])

    def _evict(self, sweep: Journaled) -> Journaled:
        ranges, keeping = self._ranges(sweep), self._changed(sweep)
        # Rules with guards close their references in every batch, for which evictors would wait.
        most = self.contract.spark.evictors if range_take(self.rows) is not None else 1
        own, *others = shares(self.store, self.context.pace, ranges, most)
        evict_together(
            lambda stop: self._evict_ranges(self.store, sweep, own, stop, keeping=keeping),
            [partial(self._evict_beside, sweep, share, keeping=keeping) for share in others],
            self.context.stop,
        )
        return self._move(sweep, State.EVICTED)

    def _evict_beside(
        self, sweep: Journaled, ranges: Sequence[JournaledRange], stop: threading.Event, *, keeping: bool
    ) -> None:
        with self.store.clone() as store:
            self._evict_ranges(store, sweep, ranges, stop, keeping=keeping, beside=True)

    def _evict_ranges(
        self,
        store: Store,
        sweep: Journaled,
        ranges: Sequence[JournaledRange],
        stop: threading.Event,
        *,
        keeping: bool,
        beside: bool = False,
    ) -> None:
        eviction = Eviction(
            store,
            self.contract,
            self.table,
            copy(self.rows),  # A rule that is bound again is bound for one evictor.
            self.lease,
            sweep,
            pace=self.context.pace,
            stop=stop,
            listener=self._listener,
            rebind=self._rebind,
            fence=self.context.fence,
            keeping=keeping,
            beside=beside,
        )
        try:
            eviction.run(self.cold, ranges)
        finally:
            before = {} if beside else sweep.evicted
            gone = {name: rows - before.get(name, 0) for name, rows in eviction.batches.audit.counts.items()}
            with self._one_at_a_time:
                self.done.evicted = add_counts(self.done.evicted, gone)
                self.done.batches += eviction.committed

    def _listener(self, event: Event) -> None:
        with self._one_at_a_time:
            self.context.listener(event)

    def _rebind(self) -> Selection:
        with self._one_at_a_time:
            return self.archiver.bindings.rebind(self.table, self.rule)

    def _finish(self, sweep: Journaled) -> Journaled:
        """Remove copies of rows that stayed hot from the archive; then the sweep is done."""
        self._remove_stale(sweep)
        sweep = self._move(sweep, State.DONE)
        self.done.archived = add_counts(self.done.archived, sweep.archived)
        self.done.stale += sweep.stale
        if self._emits_archived(sweep):
            self.context.listener(
                RowsArchived(sweep.table, sweep.rule, sweep.id, sweep.archived, sweep.evicted, sweep.stale)
            )
        return sweep

    def _remove_stale(self, sweep: Journaled) -> None:
        while True:
            with self.store.transaction() as transaction:
                copies = Journal(transaction).stale(sweep.id, _STALE_AT_ONCE)
            if not copies:
                break
            for number, cold in enumerate(self.cold):
                gone = GoneCopies.stale(sweep.id, copies, follows=number > 0)
                texts = self.context.contract.archive_statistics(cold.name)
                remove_copies(cold, gone, [self.lease], why=f"sweep {sweep.id}", texts=texts)
            with self.store.transaction() as transaction:
                journal = Journal(transaction)
                journal.require(self.lease)
                journal.removed(sweep.id, copies)


def _fingerprint(shapes: Any) -> str:
    return hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]
