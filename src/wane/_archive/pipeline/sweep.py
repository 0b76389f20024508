"""A sweep of the archive: planned → written → verified → committed → evicted → done.

What a step did is in the journal, in the hot database, and every step can be repeated. A process that dies at any point
leaves rows that are hot, or hot and archived, and never a row that is neither; the next run resumes where the journal
ends.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from wane._archive.delta.commits import record, require_whole, seen
from wane._archive.delta.evolution import ColumnChange, find_changes, find_renames
from wane._archive.delta.failure import arriving
from wane._archive.delta.group_commit import SweepCommit
from wane._archive.delta.paths import cold_path
from wane._archive.journal import Journal, Journaled, JournaledRange, StaleCopy, State
from wane._archive.model import ArchivedRule
from wane._archive.pipeline.copies import require_active
from wane._archive.pipeline.evict import Eviction, EvictJob
from wane._archive.pipeline.evictors import Evictors, TaskBatches, evict_share, shares
from wane._archive.pipeline.extract import CopyJob, PartJob, copy_ranges
from wane._archive.pipeline.projected_copy import ProjectedJob
from wane._archive.pipeline.ranges import bounds, cut
from wane._archive.pipeline.removal import GoneCopies, remove_copies
from wane._archive.pipeline.unique import copied_twice
from wane._archive.pipeline.verify import EarlyReading, FileJob, KeySpans, ProofJob, files_of, prove
from wane._archive.query.evaluation import failed_projection, projected_shape
from wane._archive.rows.projection import UnfitProjection
from wane._archive.spark.connect import exported_snapshot, source_of
from wane._archive.spark.executor import Progress
from wane._archive.spark.secret import require_reachable, task_source
from wane._archive.spark.session import long_work
from wane._contract.model import Rule, Table
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._ledger import Ledger, add_counts
from wane._prune.dialects import row_taker
from wane._prune.pacing import Closed, require_running
from wane._prune.sql_outbox import OutboxEvent, write_event
from wane._prune.sweep import Outcome
from wane._rules.rows import cutoff
from wane.errors import ArchiveError, SchemaChanged, SparkError, StoreError, Unproven
from wane.events import (
    ArchiveColumnChanged,
    ArchiveProgress,
    ArchiveStep,
    RowsArchived,
    SlowedDown,
    archived_name,
)

if TYPE_CHECKING:
    from wane._archive.archiver import Archiver

_STALE_AT_ONCE = 100_000
_SHOWN = 5
_BINDINGS = 3
"""How often a rule is bound anew because its table changed while its rows were evicted."""


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
        self.rows = archiver.bind(table, rule)
        require_reachable(source_of(self.store), self.contract.spark)
        self.cold = self.context.cold_tables(self._names)
        """The tables that a sweep writes to: the row's own first, then what leaves with it."""
        self.recopied = False
        """Whether all ranges are copied in one snapshot of the database, because copying them in several found a row
        twice."""
        self.early = EarlyReading(self.context.executor)
        """What is read back of this sweep while its last ranges are copied."""

    @property
    def _transform(self) -> dict[str, Any] | None:
        """Return what happens to columns of the sweep's rows on the way, as the journal records it."""
        return self.contract.described_transform(str(self.table.name), self.rule)

    def _renamed(self, part: str) -> dict[str, str]:
        """Return the columns of a table of the sweep that were renamed, with their names in the archive."""
        return next((dict(one.renamed) for one in self.contract.archive if str(one.table) == part), {})

    @property
    def _names(self) -> list[str]:
        return [part.name for part in self.rows.parts]

    @property
    def _shapes(self) -> list[list[list[str]]]:
        return [part.shape for part in self.rows.parts]

    def begin(self, now: datetime, behind: Sequence[Any] | None = None) -> Sequence[Any] | None:
        """Plan a sweep of what is due as of `now` and run it to its end; return the position behind which more is due.

        `behind`: that of the sweep before. What leaves an index leaves entries there until VACUUM, and a walk over them
        reads every page that the rows were on.
        """
        began = time.monotonic()
        require_whole(self.store, self.cold)
        if not self.rows.is_projected:
            self._require_fitting()
        for cold in self.cold:
            cold.require_writable()
        settings = self.contract.spark
        ranges, more = cut(
            self.store,
            self.rows,
            now,
            range_rows=settings.range_rows,
            sweep_rows=settings.sweep_rows,
            behind=behind,
            proceeding=lambda: not self.context.stop.is_set(),
        )
        if not ranges:
            self.record_nothing(now)
            return None
        rows = len(ranges) * settings.range_rows
        if self.rows.is_projected:
            with long_work(rows):
                self._compute_types()
            self._require_fitting()
        for cold, part in zip(self.cold, self.rows.parts, strict=True):
            texts = self.contract.archive_statistics(cold.name)
            cold.ensure(part.shape, follows=bool(part.path), texts=texts)
        sweep = self._plan(now, ranges)
        self._emit(sweep, began)
        self._advance(sweep, rows)
        return ranges[-1]["ceiling"] if more else None

    def _plan(self, now: datetime, ranges: Sequence[dict[str, Any]]) -> Journaled:
        """Enter a sweep of some ranges in the journal, and report columns that changed since the one before."""
        last = max(cold.last_sweep(self._writer) for cold in self.cold)
        with self.store.transaction() as transaction:
            journal = Journal(transaction)
            journal.require(self.lease)
            _, proven = journal.known(str(self.table.name))
            changes = self._column_changes(journal.last(str(self.table.name)))
            sweep = journal.plan(
                str(self.table.name),
                self.rule.name,
                strict=self.archiver.strict or proven != _fingerprint(self._shapes, self._transform),
                decided_at=now,
                actor=self.context.actor,
                columns=self._shapes,
                layout=self.rows.layout(transaction),
                parts=self._names,
                ranges=ranges,
                transform=self._transform,
                changes=[change.written() for change in changes],
            )
            if changes:
                self._record_changes(transaction, sweep, changes)
            if last >= sweep.id:
                raise ArchiveError(
                    f"the archive of {self.table.name} has sweep {last}, and this database is only at {sweep.id}",
                    "the database was restored from a backup: name another folder as the archive's url, and run `wane archive adopt`",
                )
        for change in changes:
            words = "dropped" if change.now is None else "added" if change.was is None else "type"
            words = words if change.renamed_from is None else "renamed"
            self.context.listener(
                ArchiveColumnChanged(change.table, change.column, words, change.was, change.now, sweep.id)
            )
        return sweep

    def _require_fitting(self) -> None:
        for cold, part in zip(self.cold, self.rows.parts, strict=True):
            cold.require_fitting(part.shape)
            cold.require_one_name(self._renamed(part.name))

    def _compute_types(self) -> None:
        """Let Spark compute the types of a projection: only when there is something to archive, because it starts
        Spark."""
        row = self.rows.parts[0]
        if row.projection and not row.projected:
            try:
                shape = projected_shape(self.context.executor.spark(), row.name, row.projection, row.hot_shape)
            except UnfitProjection as problem:
                raise ArchiveError(problem.message, problem.fix) from None
            self.rows.set_projected(shape)

    def _column_changes(self, last: Journaled | None) -> list[ColumnChange]:
        """Return how the columns of the sweep's tables changed since the last sweep."""
        if last is None or last.parts is None:
            return []
        before = dict(zip(last.parts, last.columns, strict=True))
        changes = find_changes(before, {part.name: part.shape for part in self.rows.parts})
        layouts = dict(zip(last.parts, last.layout, strict=True))
        for part in self.rows.parts:
            columns = [one[0] for one in layouts.get(part.name, ())]
            changes += find_renames(part.name, self._renamed(part.name), columns, dict(part.hot_shape))
        return changes

    def _record_changes(self, transaction: Transaction, sweep: Journaled, changes: Sequence[ColumnChange]) -> None:
        inputs = {"sweep": sweep.id, "changes": [change.written() for change in changes]}
        ledger, now = Ledger.of(transaction), transaction.now()
        ledger.note("archive_schema", str(self.table.name), self.context.actor, inputs, now)

    def record_nothing(self, now: datetime) -> None:
        """Record in the audit trail that nothing is due, once a run, like every sweep that took nothing."""
        if self.done.sweeps:
            return
        with self.store.transaction() as transaction:
            self._record_nothing(transaction, now, {"rule": self.rule.name})

    def _record_nothing(self, transaction: Transaction, now: datetime, inputs: dict[str, Any]) -> int:
        return Ledger.of(transaction).note(
            "archive",
            str(self.table.name),
            self.context.actor,
            inputs,
            now,
            rule=inputs["rule"],
            run=f"archive-{inputs['sweep']}" if "sweep" in inputs else None,
            cutoff=cutoff(self.rule, now),
        )

    def resume(self, sweep: Journaled) -> None:
        """Resume a sweep that another process, or an earlier run, left unfinished."""
        self._compute_types()
        self._use_tables_of(sweep)
        require_whole(self.store, self.cold)
        for cold in self.cold:
            # From here on the process that left it cannot commit anything any more, so what its log has now is
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
        unwritten = sweep.state is State.PLANNED
        if (unwritten and any(committed)) or ((unwritten or sweep.state is State.WRITTEN) and self._changed(sweep)):
            self._abandon(sweep)
        else:
            self._advance(sweep, len(self._ranges(sweep)) * self.contract.spark.range_rows)

    def _use_tables_of(self, sweep: Journaled) -> None:
        """Switch to the tables of a sweep, regardless of the contract now in force."""
        if sweep.parts is None and len(sweep.columns) != len(self._names):
            raise ArchiveError(
                f"sweep {sweep.id} of {sweep.table} is unfinished, and other tables leave with its rows by now",
                "put `with` of its rule back, run the archive once, then change it",
            )
        self.cold = self.context.cold_tables(sweep.parts or self._names)

    def _changed(self, sweep: Journaled) -> bool:
        """Check whether the table, the rule, or what leaves with a row changed since the sweep was planned."""
        now = self.rule.name, self._names, self._shapes, self._transform
        if (sweep.rule, list(sweep.parts or self._names), sweep.columns, sweep.transform) != now:
            return True
        with self.store.transaction() as transaction:
            return self.rows.changed(transaction, sweep.layout)

    def recommit(self, sweep: Journaled) -> None:
        """Commit a sweep whose commit the archive's log has lost, from what the journal records of its files.

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
        try:
            self._prove(sweep, known)
        except Unproven as problem:  # Its rows may have left long ago, so no run copies them once more.
            raise Unproven(problem.message, "nothing was committed; restore the file from a backup") from problem
        with self.store.transaction() as transaction:
            journal = Journal(transaction)
            journal.require(self.lease)
            journal.mark_restored(sweep.id)
        for number, (cold, shape) in enumerate(zip(self.cold, sweep.columns, strict=True)):
            # The log may have lost that columns were added or widened as well.
            cold.require_fitting(shape)
            cold.ensure(shape, follows=bool(number), texts=self.contract.archive_statistics(cold.name))
        self._add(sweep, known)
        if sweep.state is State.DONE:
            self._remove_stale(sweep)

    def _lost(self, sweep: Journaled) -> list[int]:
        """Return ranges that were copied, and of whose files some are missing."""
        return [
            one.number
            for one in self._ranges(sweep)
            if one.manifest is not None
            and not all(cold_path(file.path).is_file() for file in self._files([one.manifest]))
        ]

    def _abandon(self, sweep: Journaled) -> Journaled:
        """Abandon a sweep whose table changed, or whose files vanished, before all copies were committed.

        No row has left, so nothing is lost. What was committed is removed, because a sweep commits once, and the next
        sweep begins anew.
        """
        gone = GoneCopies.of_sweep(sweep.id)
        for cold in self.cold:
            if cold.last_sweep(self._writer) >= sweep.id:
                remove_copies(self.context.executor, cold, gone, [self.lease], why=f"sweep {sweep.id}")
        return self._move(sweep, State.DONE, archived={})

    @property
    def _writer(self) -> str:
        return str(self.table.name)

    def _advance(self, sweep: Journaled, rows: int) -> None:
        # Java reads rows that it proves or projects; of all others it only hands out tasks.
        with long_work(rows if sweep.strict or self.rows.is_projected else 0):
            self._take_steps(sweep)

    def _take_steps(self, sweep: Journaled) -> None:
        self.done.sweeps.append(sweep.id)
        steps: dict[State, Callable[[Journaled], Journaled]] = {
            State.PLANNED: self._write,
            State.WRITTEN: self._verify,
            State.VERIFIED: self._commit,
            State.COMMITTED: self._evict,
            State.EVICTED: self._finish,
        }
        try:
            while sweep.state is not State.DONE:
                self.archiver.require_open(self.table)
                began = time.monotonic()
                before = sweep.state
                sweep = steps[before](sweep)
                self.done.seconds[before.value] += time.monotonic() - began
                self._emit(sweep, began)
        finally:
            self.early.end()

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
                # A sweep that took nothing is recorded in the audit trail too.
                nothing = {"rule": sweep.rule, "sweep": sweep.id}
                journal.add_up(sweep.id, lambda: self._record_nothing(transaction, sweep.decided_at, nothing))
            moved = journal.move(sweep.id, state, archived=archived)
            record(transaction, commits)
            if state is State.COMMITTED:
                proven = _fingerprint(sweep.columns, sweep.transform) if sweep.strict else None
                journal.remember(str(self.table.name), sweep.columns, proven)
            if state is State.DONE and self._emits_archived(moved):
                event = OutboxEvent(
                    archived_name(moved.table),
                    moved.table,
                    moved.archived.get(moved.table, 0) - moved.stale,
                    moved.audit_id,
                    transaction.now(),
                    {"rule": moved.rule, "sweep": moved.id},
                )
                write_event(self.store, transaction.execute, self.contract.events.outbox, event)
            return moved

    def _emits_archived(self, sweep: Journaled) -> bool:
        return any(sweep.archived.values()) and self.contract.events.emits_archived(sweep.table)

    def _ranges(self, sweep: Journaled) -> list[JournaledRange]:
        with self.store.transaction() as transaction:
            return Journal(transaction).ranges(sweep.id)

    def _manifests(self, sweep: Journaled) -> list[Any]:
        return [one.manifest for one in self._ranges(sweep)]

    def _files(self, manifests: Sequence[Any]) -> list[FileJob]:
        return files_of([cold.folder for cold in self.cold], manifests)

    # The steps

    def _write(self, sweep: Journaled) -> Journaled:
        missing = [one for one in self._ranges(sweep) if one.manifest is None]
        if missing:
            self._copy(sweep, missing)
        archived: Counter[str] = Counter()
        for manifest in self._manifests(sweep):
            for part, written in zip(self.rows.parts, manifest["parts"], strict=True):
                archived[part.name] += sum(file["rows"] for file in written["files"])
        return self._move(sweep, State.WRITTEN, archived=dict(archived))

    def _copy(self, sweep: Journaled, missing: Sequence[JournaledRange]) -> None:
        """Copy ranges, and record each as soon as it is copied: a run that resumes the sweep copies only the others."""
        literal = self.store.literal
        executor = self.context.executor
        executor.spark()  # Before the snapshot is held, because starting it takes seconds.
        most = executor.most_at_a_time()
        parts = [
            PartJob(
                part.name,
                str(cold.folder),
                part.read_shape,
                bool(part.path),
                literal(self.rows.copy(part, sweep.decided_at)),
                literal(self.rows.widest(part, sweep.decided_at)),
                literal(self.rows.checks(part, sweep.decided_at, strict=sweep.strict)),
                literal(self.rows.unstorable(part, sweep.decided_at)),
                self.rows.assembly(part),
                self.rows.dialect.declares_types,
                self.rows.whole_key(part) is not None,
                self.contract.archive_statistics(part.name),
                part.hashed,
                bool(part.projection),
            )
            for part, cold in zip(self.rows.parts, self.cold, strict=True)
        ]
        ranges = [(one.number, bounds(self.rows, one.bounds, self.store, sweep.decided_at)) for one in missing]
        with (
            exported_snapshot(self.store) as snapshot,
            task_source(replace(source_of(self.store), snapshot=snapshot), self.contract.spark) as source,
        ):
            # Tasks that cannot share a snapshot of the database read one each; one task for all of them reads one.
            tasks = [ranges] if snapshot is None and self.recopied else [[one] for one in ranges]
            job = CopyJob(sweep.id, source, parts, tasks)
            copied: list[Any] = []
            for done, answer in enumerate(arriving(self._copied(job, sweep)), 1):
                with self.store.transaction() as transaction:
                    journal = Journal(transaction)
                    journal.require(self.lease)
                    journal.write(sweep.id, [(manifest["range"], manifest) for manifest in answer["manifests"]])
                copied += answer["manifests"]
                if most > 1 and 0 < len(tasks) - done <= min(most, len(copied)):
                    # No range waits to be copied, so a processor is idle as soon as one of the last is copied.
                    self.early.begin(self._proof(sweep, copied))
                    copied = []

    def _copied(self, job: CopyJob, sweep: Journaled) -> Iterator[str]:
        """Run the tasks of a copy; a projection goes through a DataFrame, everything else is written as it is read."""
        executor, progress, row = self.context.executor, self._progress(sweep), self.rows.parts[0]
        if not self.rows.is_projected:
            yield from executor.run(partial(copy_ranges, job), len(job.tasks), progress)
            return
        projected = ProjectedJob(job, sweep.strict, row.projection, [one.hot for one in row.columns], row.shape)
        try:
            yield from executor.stream(projected.frame, len(job.tasks), progress)
        except SparkError as problem:
            raise failed_projection(row.name, problem) from problem

    def _verify(self, sweep: Journaled) -> Journaled:
        manifests = self._manifests(sweep)
        all_ranges = [manifest["range"] for manifest in manifests]
        try:
            spans = self._prove(sweep, manifests, self.early)
            self.early = EarlyReading(self.context.executor)
            twice = copied_twice(self.context.executor, self._files(manifests), spans)
            if twice is not None and self.recopied:
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
        self.recopied = True
        return self._move(sweep, State.PLANNED, discard=all_ranges)

    def _proof(self, sweep: Journaled, manifests: Sequence[Any]) -> ProofJob:
        return ProofJob(sweep.columns, self._files(manifests), sweep.strict)

    def _prove(self, sweep: Journaled, manifests: Sequence[Any], early: EarlyReading | None = None) -> KeySpans:
        names = [cold.name for cold in self.cold]
        job = self._proof(sweep, manifests)
        return prove(self.context.executor, job, manifests, names, self._progress(sweep), early)

    def _commit(self, sweep: Journaled) -> Journaled:
        self._add(sweep, self._manifests(sweep))
        return self._move(sweep, State.COMMITTED)

    def _add(self, sweep: Journaled, manifests: Sequence[Any]) -> None:
        self._require_lease()
        # What follows a row first, the row last: a reader who sees the row in the archive also sees what left with
        # it.
        commits = [
            SweepCommit(
                self.cold[number],
                self._writer,
                sweep.id,
                [file for manifest in manifests for file in manifest["parts"][number]["files"]],
                [self.lease],
            )
            for number in reversed(range(len(self.cold)))
        ]
        self.context.commits(commits)

    def _evict(self, sweep: Journaled) -> Journaled:
        before = self._evicted(sweep)
        try:
            for attempt in range(_BINDINGS):
                try:
                    self._evict_ranges(sweep)
                    break
                except SchemaChanged:
                    if attempt == _BINDINGS - 1:
                        raise
                    self.rows.selection = self.archiver.bindings.rebind(self.table, self.rule)
        finally:
            with suppress(StoreError):  # What it did is known from the journal, and nothing fails because of it.
                gone, batches = self._evicted(sweep)
                counts = {name: rows - before[0].get(name, 0) for name, rows in gone.items()}
                self.done.evicted = add_counts(self.done.evicted, counts)
                self.done.batches += batches - before[1]
        return self._move(sweep, State.EVICTED)

    def _evicted(self, sweep: Journaled) -> tuple[dict[str, int], int]:
        """Return how many rows have left with a sweep, by table, and in how many batches."""
        ranges = [one.eviction for one in self._ranges(sweep)]
        counts: dict[str, int] = {}
        for one in ranges:
            counts = add_counts(counts, one.evicted)
        return counts, sum(one.batches for one in ranges)

    def _evict_ranges(self, sweep: Journaled) -> None:
        ranges = self._ranges(sweep)
        require_active(self.cold, [one.manifest for one in ranges if not one.finished])
        job = EvictJob(
            self.table,
            self.rows,
            self.contract.sweep,
            self.lease,
            sweep,
            [str(cold.folder) for cold in self.cold],
            self.context.pace,
            self.context.fence,
            keeping=self._changed(sweep),
        )
        divided = shares(ranges, self._most_evictors())
        if len(divided) > 1:
            pace = replace(job.pace, connections=len(divided))
            self._evict_in_tasks(replace(job, pace=pace), ranges, divided)
        else:
            Eviction(self.store, job, self.context.stop, self.context.listener).run(divided[0])

    def _most_evictors(self) -> int:
        """Return over how many connections ranges may leave at a time: one where batches would wait for each other."""
        selection = self.rows.selection
        if self.store.one_writer or selection.rule.spare is not None:  # The rows that are spared are locked.
            return 1
        with self.store.transaction() as transaction:
            return 1 if row_taker(transaction).locks_tables(selection) else self.contract.spark.evictors

    def _evict_in_tasks(
        self, job: EvictJob, ranges: Sequence[JournaledRange], divided: Sequence[Sequence[int]]
    ) -> None:
        batches = TaskBatches(job, ranges, self.context.listener)

        def progress(*_: int) -> None:
            batches.emit(self.store)
            require_running(self.context.stop)

        found: list[dict[str, Any]] = []
        try:
            with task_source(source_of(self.store), self.contract.spark) as source:
                task = partial(evict_share, Evictors(source, job, divided))
                for answer in arriving(self.context.executor.run(task, len(divided), progress)):
                    found.append(answer)
                    for cause in answer["slowed"]:
                        self.context.listener(SlowedDown(str(self.table.name), self.rule.name, cause))
        finally:
            batches.emit(self.store)
        for answer in found:
            if "closed" in answer:
                raise Closed(answer["closed"])
        if any("schema_changed" in answer for answer in found):
            raise SchemaChanged(f"{self.table.name} changed while its rows were evicted", "run it again")

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
        """Remove the stale copies of a sweep from each table together, so that no file is written for each of them."""
        gone: list[list[GoneCopies]] = [[] for _ in self.cold]
        for copies in self._stale(sweep):
            for number, parts in enumerate(gone):
                parts.append(GoneCopies.stale(sweep.id, copies, follows=number > 0))
        if not gone[0]:
            return
        executor = self.context.executor
        for cold, parts in zip(self.cold, gone, strict=True):
            texts = self.context.contract.archive_statistics(cold.name)
            gone_here = GoneCopies.merged(parts)
            remove_copies(executor, cold, gone_here, [self.lease], why=f"sweep {sweep.id}", texts=texts)
        with self.store.transaction() as transaction:
            journal = Journal(transaction)
            journal.require(self.lease)
            journal.removed(sweep.id)

    def _stale(self, sweep: Journaled) -> Iterator[list[StaleCopy]]:
        """Yield the copies that have yet to leave the archive. No more are added once a sweep is evicted."""
        copies: list[StaleCopy] = []
        while True:
            after = copies[-1].key if copies else None
            with self.store.transaction() as transaction:
                copies = Journal(transaction).stale(sweep.id, _STALE_AT_ONCE, after)
            if not copies:
                return
            yield copies


def _fingerprint(shapes: Any, transform: Any) -> str:
    proven = [shapes, transform] if transform else shapes
    return hashlib.sha256(json.dumps(proven, sort_keys=True).encode()).hexdigest()[:16]
