"""Restoring: chosen on Spark → staged → back in the table → gone from the archive.

Into the hot table a row *moves*: it is both hot and archived until its copy has left the archive, and never neither.
Into a side table it is copied, and the archive retains it. What a step did is in the journal; the next run resumes
where it ends.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import chain

from wane._archive.context import ArchiveContext, require_original
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.commits import record, require_whole, seen
from wane._archive.delta.failure import answers, arriving, writing
from wane._archive.delta.object_store import reason
from wane._archive.delta.paths import ColdPath, children, remove_tree, require_writable
from wane._archive.journal import Journal
from wane._archive.model import Restored
from wane._archive.pipeline.removal import GoneCopies, remove_copies
from wane._archive.query import staging
from wane._archive.query.skipping import kinds_of, rows_at_most
from wane._archive.query.staging import Choice
from wane._archive.restore.journal import PROTECT, JournaledRestore, OnConflict, RestoreJournal, RestoreState
from wane._archive.restore.loading import LoadJob, compare_piece, load_pieces
from wane._archive.restore.targets import (
    Beside,
    RestoreTables,
    beside,
    find_tables,
    make_beside,
    require_values,
    transformed_rows,
)
from wane._archive.spark.connect import source_of
from wane._archive.spark.reader import Source
from wane._archive.spark.secret import task_source
from wane._archive.spark.session import long_work
from wane._contract.model import Table
from wane._leases import Lease
from wane._ledger import Ledger
from wane._prune.pacing import Stopped, require_running
from wane.errors import ArchiveBusy, ArchiveError, BindError, PlanError, StoreError, WrongArgument
from wane.events import RowsRestored, WorkProgressed

_FOLDER = ".restore"
_REMOVED_AT_ONCE = 500_000
_SHOWN = 20
_PREVIEW = re.compile(r"preview-(?P<began>\d+)-[0-9a-f]+")
"""The name of what a dry run stages, with the time when it began."""
_PREVIEW_LASTS = timedelta(days=1)
"""What a dry run staged longer ago was left by a process that died."""


class Restorer:
    """Restores archived rows of one contract's tables."""

    def __init__(self, context: ArchiveContext) -> None:
        self.context = context
        self.store = context.store

    def restore(
        self,
        table: Table,
        choice: Choice,
        *,
        into: str | None = None,
        on_conflict: OnConflict = OnConflict.REFUSE,
        protect: timedelta = PROTECT,
        most: Mapping[str, int] | None = None,
        dry_run: bool = False,
    ) -> Restored:
        """Restore chosen rows, with what left with them; first what an earlier restore of the table left
        unfinished.

        Stopped, it ends between two batches: rows that are back stay, and the next call resumes there.
        """
        if table.append_only and on_conflict is OnConflict.REPLACE and into is None:
            raise WrongArgument(f"{table.name} is append-only: no row of it is replaced", "use --on-conflict skip")
        inputs = {**choice.inputs(), "on_conflict": on_conflict.value, **({} if into is None else {"into": into})}
        protect = protect if into is None else timedelta(0)
        try:
            if dry_run:
                require_original(self.store)
                self._require_at_rest(table)
                return _Restore(self, table, into, None).preview(choice, on_conflict, protect, most)
            with self.context.leased(str(table.name)) as lease:
                self._require_at_rest(table)
                unfinished = self._unfinished(table)
                if unfinished is not None:
                    done = self._go_on(table, unfinished, lease)
                    if done is not None and unfinished.inputs == inputs:
                        return done
                return _Restore(self, table, into, lease).begin(choice, inputs, on_conflict, protect, most)
        except Stopped:
            return self._stopped(table, into, dry_run=dry_run)

    def _stopped(self, table: Table, into: str | None, *, dry_run: bool) -> Restored:
        """Report what came back before a stop, by the journal."""
        name, restore = str(table.name), self._unfinished(table)
        if dry_run or restore is None:
            return Restored(name, into, None, {name: 0}, {name: 0}, 0, 0, 0, (), None, dry_run, stopped=True)
        with self.store.snapshot() as transaction:
            journal = RestoreJournal(transaction)
            chosen = {name: sum(piece.rows for piece in journal.pieces(restore.id))}
            return replace(_came_back(journal, restore, chosen), stopped=True)

    def finish(self, table: Table, lease: Lease) -> None:
        """Resume a restore of the table that was left unfinished, if there is one."""
        unfinished = self._unfinished(table)
        if unfinished is not None:
            self._go_on(table, unfinished, lease)

    def _go_on(self, table: Table, restore: JournaledRestore, lease: Lease) -> Restored | None:
        try:
            return _Restore(self, table, restore.into, lease).go_on(restore)
        except (ArchiveError, BindError, StoreError, WrongArgument) as problem:
            if isinstance(problem, ArchiveBusy):
                raise
            raise ArchiveError(
                f"restore {restore.id} of {table.name} is unfinished, and cannot go on: {problem.message}",
                f"{problem.hint or 'fix that'}, and run again; or end it where it is: `wane archive cancel-restore {restore.id}`",
            ) from problem

    def cancel(self, table: Table, number: int) -> None:
        """End an unfinished restore where it is.

        Rows that are back stay and their copies leave the archive; no other comes back. Raise WrongArgument if it is
        finished already.
        """
        with self.context.leased(str(table.name)) as lease:
            with self.store.transaction() as transaction:
                Journal(transaction).require(lease)
                journal = RestoreJournal(transaction)
                restore = journal.find(number)
                if restore is None or restore.state is RestoreState.DONE:
                    raise WrongArgument(
                        f"restore {number} of {table.name} is finished already", "`wane archive restores` lists them"
                    )
                moved = restore.into is None and any(piece.looked_at for piece in journal.pieces(number))
                restore = journal.cancel(
                    restore, RestoreState.RESTORED if moved else RestoreState.DONE, self.context.actor
                )
                inputs = {**restore.inputs, "restore": number}
                ledger, now = Ledger.of(transaction), transaction.now()
                ledger.note("restore_cancel", str(table.name), self.context.actor, inputs, now)
            if moved:
                self._go_on(table, restore, lease)
            else:
                remove_tree(self._staging(table) / restore.staged)

    def _staging(self, table: Table, *, reading: bool = False) -> ColdPath:
        """Return the folder for rows of a table that are being restored."""
        root = self.context.root
        folder = root / _FOLDER / ColdTable(root, str(table.name), "").folder.name
        return folder / self.context.origin(reading=reading) if self.context.contract.archive_shared else folder

    def _unfinished(self, table: Table) -> JournaledRestore | None:
        with self.store.snapshot() as transaction:
            return RestoreJournal(transaction).unfinished(str(table.name))

    def _require_at_rest(self, table: Table) -> None:
        """Raise if a sweep of the table is unfinished: it relies on the copies that a restore would remove."""
        with self.store.snapshot() as transaction:
            sweep = Journal(transaction).unfinished(str(table.name))
        if sweep is not None:
            raise ArchiveError(
                f"sweep {sweep.id} of {table.name} is unfinished ({sweep.state.value})",
                f"let it finish first: `wane archive run {table.name}`",
            )


class _Restore:
    """One restore, under a lease; without one, a preview, which writes nothing to the database and waits for no
    writer."""

    def __init__(self, restorer: Restorer, table: Table, into: str | None, lease: Lease | None) -> None:
        self.restorer = restorer
        self.context = restorer.context
        self.store = restorer.store
        self.table = table
        self.into = into
        self._lease = lease
        reading = lease is None
        self.hot: RestoreTables = find_tables(self.context, table, reading=reading)
        require_whole(self.store, self._tables, recording=not reading)
        self.folder = restorer._staging(table, reading=reading)

    @property
    def lease(self) -> Lease:
        assert self._lease is not None
        return self._lease

    @property
    def _tables(self) -> list[ColdTable]:
        return [part.cold for part in self.hot.parts]

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(cold.name for cold in self._tables)

    def _require_protectable(self) -> None:
        """Raise unless every row can be held by its key."""
        for target in self.hot.targets:
            if not target.table.primary_key:
                raise WrongArgument(
                    f"{target.name} has no primary key, so its rows cannot be protected from the next sweep one by one",
                    "restore with --protect 0, or into a side table",
                )

    def preview(
        self, choice: Choice, on_conflict: OnConflict, protect: timedelta, most: Mapping[str, int] | None
    ) -> Restored:
        """Choose rows, compare them with the table, and report what would come back."""
        side = self._require_possible(protect)
        # Named with its time: a restore that runs beside this deletes what a preview that died has left, and no other.
        folder = self.folder / f"preview-{int(self.store.now().timestamp())}-{uuid.uuid4().hex}"
        try:
            _, would = self._choose(choice, folder, side, on_conflict, most)
            return replace(would, dry_run=True)
        finally:
            remove_tree(folder)

    def begin(
        self,
        choice: Choice,
        inputs: dict[str, object],
        on_conflict: OnConflict,
        protect: timedelta,
        most: Mapping[str, int] | None,
    ) -> Restored:
        """Choose rows, compare them with the table, and restore them."""
        side = self._require_possible(protect)
        self._delete_staged()
        folder = self.folder / uuid.uuid4().hex
        try:
            pieces, would = self._choose(choice, folder, side, on_conflict, most)
            if not pieces:
                return would
            with self.store.transaction() as transaction:
                Journal(transaction).require(self.lease)
                make_beside(transaction, self.store, () if side is None else side.missing)
                planned = RestoreJournal(transaction).plan(
                    str(self.table.name),
                    staged=folder.name,
                    into=self.into,
                    on_conflict=on_conflict,
                    protect_until=transaction.now() + protect if protect else None,
                    inputs=inputs,
                    actor=self.context.actor,
                    parts=self._names,
                    left_out=self.hot.left_out,
                    pieces=pieces,
                )
        except BaseException:
            remove_tree(folder)
            raise
        done = self.go_on(planned)
        assert done is not None
        return done

    def _require_possible(self, protect: timedelta) -> Beside | None:
        """Raise if nothing could come back, whatever is chosen; return the side tables, if there are any."""
        if protect:
            self._require_protectable()
        side = self._beside()
        self._require_writable()
        return side

    def _choose(
        self,
        choice: Choice,
        folder: ColdPath,
        side: Beside | None,
        on_conflict: OnConflict,
        most: Mapping[str, int] | None,
    ) -> tuple[list[int], Restored]:
        """Stage chosen rows; return how many each piece has, and what would come back.

        Raise if some of them cannot come back, or conflicts refuse it.
        """
        executor = self.context.executor
        cold = self.hot.parts[0].cold
        condition = choice.condition(kinds_of(cold.require()), self.context.contract.spark)
        with long_work(rows_at_most(cold, condition)):
            executor.spark()  # Its failure to start is no failure to write.
        with writing(self.folder):
            pieces = executor.stage(self.hot.parts, choice, folder, self.context.contract.spark.range_rows)
        require_running(self.context.stop)
        chosen = self._chosen(folder, len(pieces))
        _require_no_more(chosen, most)
        self._require_untransformed(folder, len(pieces))
        if self.into is None:
            staged = (some for piece in range(len(pieces)) for some in staging.keys(folder, 0, piece))
            require_values(self.hot, chosen, {sweep for some in staged for sweep, _ in some})
        left_out = self._left_out(self.hot.left_out, folder, len(pieces))
        would = Restored(str(self.table.name), self.into, None, chosen, chosen, 0, 0, 0, (), None, left_out=left_out)
        tables = self.hot if side is None else side.tables(self.hot)
        if tables is not None:
            would = self._compare(would, tables, folder, len(pieces), on_conflict)
        return pieces, would

    def _require_untransformed(self, folder: ColdPath, pieces: int) -> None:
        """Raise WrongArgument if a chosen row, or one that left with it, is not what left its table: it cannot come
        back as it was."""
        with self.store.snapshot() as transaction:
            transformed = Journal(transaction).transformed(self._names)
        for number, (name, sweeps) in enumerate(transformed.items()):
            for piece in range(pieces if sweeps else 0):
                for sweep, key in chain.from_iterable(staging.keys(folder, number, piece)):
                    if sweep in sweeps:
                        row = f"rows of {name} that left with the row {key}" if number else f"the row {key}"
                        raise transformed_rows(f"{row} and others", sweeps[sweep])

    def go_on(self, restore: JournaledRestore) -> Restored | None:
        """Run a restore to its end; return None if what was staged is gone, so that it has to be chosen anew."""
        folder = self.folder / restore.staged
        if restore.parts not in (None, self._names):
            assert restore.parts is not None
            raise ArchiveError(
                f"restore {restore.id} of {self.table.name} is unfinished, and other tables leave with its rows by now:"
                f" {', '.join(self._names[1:]) or 'none'}, not {', '.join(restore.parts[1:]) or 'none'}",
                "put `with` of its rules back, run the archive once, then change it",
            )
        if restore.left_out is not None:
            # As it began: a column that was added since does not get values that some rows are back without.
            self.hot = self.hot.without(restore.left_out)
        for cold in self._tables:
            # From here on a process that left it cannot commit anything any more.
            cold.take_over([self.lease])
        with self.store.transaction() as transaction:
            pieces = RestoreJournal(transaction).pieces(restore.id)
        if any(staging.count(folder, 0, piece.number) != piece.rows for piece in pieces):
            # Nothing is lost: rows that are back are found there, and their copies leave with the next restore of the
            # same rows.
            self._move(restore, RestoreState.DONE)
            return None
        if restore.state is RestoreState.PLANNED:
            left = [piece.number for piece in pieces if piece.looked_at < piece.rows]
            self._load(restore, folder, left)
            restore = self._move(restore, RestoreState.RESTORED)
        if restore.into is None:
            self._remove(restore, folder, len(pieces))
        restore = self._move(restore, RestoreState.DONE)
        done = self._report(restore, folder, len(pieces))
        self._delete_staged()
        self.context.listener(
            RowsRestored(
                done.table, restore.id, restore.into, done.restored, done.existing, done.replaced, done.unrestored
            )
        )
        return done

    # The steps

    def _beside(self) -> Beside | None:
        """Return the side tables; None if rows come back into the hot ones."""
        return None if self.into is None else beside(self.store, self.context.contract, self.hot, self.into)

    def _made(self) -> RestoreTables:
        """Return the tables to which rows come back; create again a side table that was dropped since."""
        side = self._beside()
        if side is None:
            return self.hot
        if side.missing:
            with self.store.transaction() as transaction:
                make_beside(transaction, self.store, side.missing)
            side = self._beside()
        tables = None if side is None else side.tables(self.hot)
        if tables is None:
            raise ArchiveError(
                f"the side table {self.into} was made, and is not there",
                "another user has dropped it: run it again, or name another table with --into",
            )
        return tables

    def _compare(
        self, chosen: Restored, tables: RestoreTables, folder: ColdPath, pieces: int, on_conflict: OnConflict
    ) -> Restored:
        """Report what would come back of what was chosen; raise ArchiveError if conflicts refuse it."""
        with task_source(source_of(self.store), self.context.contract.spark) as source:
            job = self._job(source, folder, tables, on_conflict)
            found = answers(self.context.executor.run(partial(compare_piece, job), pieces))
        conflicts = sum(one["conflicts"] for one in found)
        first = sorted((key, reason) for one in found for key, reason in one["first"])[:_SHOWN]
        if conflicts and on_conflict is OnConflict.REFUSE:
            raise ArchiveError(
                f"{conflicts:,} rows are not restored: other rows have their keys in {tables.targets[0].table.name}:"
                f" {', '.join(key for key, _ in first)}",
                "nothing was changed; --on-conflict skip leaves those rows as they are, --on-conflict replace gives them"
                " their archived values, --into restores into a side table",
            )
        would: Counter[str] = Counter({tables.targets[0].name: 0})
        for one in found:
            would.update(one["would"])
        existing = sum(one["existing"] for one in found)
        return replace(chosen, restored=dict(would), existing=existing, unrestored=conflicts, reasons=tuple(first))

    def _job(self, source: Source, folder: ColdPath, tables: RestoreTables, on_conflict: OnConflict) -> LoadJob:
        lacking = [part.lacking for part in self.hot.parts]
        archived = [part.archived for part in self.hot.parts]
        return LoadJob(source, str(folder), tables.targets, lacking, archived, on_conflict, self.context.pace)

    def _left_out(self, columns: Sequence[Sequence[str]] | None, folder: ColdPath, pieces: int) -> dict[str, int]:
        """Count chosen rows that have values in columns which their tables no longer have, by table and column."""
        found: Counter[str] = Counter()
        for number, names in enumerate(columns or ()):
            for piece in range(pieces):
                for _, _, having in staging.left_out(folder, number, piece, names):
                    found.update(f"{self._names[number]}.{name}" for name in having)
        return dict(found)

    def _load(self, restore: JournaledRestore, folder: ColdPath, pieces: list[int]) -> None:
        tables = self._made()
        with task_source(source_of(self.store), self.context.contract.spark) as source:
            job = replace(
                self._job(source, folder, tables, restore.on_conflict),
                restore=restore.id,
                table=restore.table,
                lease=self.lease,
                actor=restore.actor,
                inputs=restore.inputs,
                protect_until=restore.protect_until,
            )
            divided = self._divided(pieces)
            job = replace(job, pace=replace(job.pace, connections=len(divided)))
            task = _numbered(partial(load_pieces, job), divided)
            progress = partial(self._progress, restore.id)
            progress()
            # A stop cancels the tasks and gives up the lease, without which none of them begins another batch.
            with closing(arriving(self.context.executor.run(task, len(divided), progress))) as answered:
                for _ in answered:
                    require_running(self.context.stop)
            progress()

    def _divided(self, pieces: Sequence[int]) -> list[Sequence[int]]:
        """Divide pieces among tasks: as many as may work at a pace with pauses, where they share the time."""
        if not self.context.pace.pauses:
            return [[piece] for piece in pieces]
        most = 1 if self.store.one_writer else self.context.contract.spark.evictors
        return [pieces[first::most] for first in range(min(most, len(pieces)))]

    def _progress(self, restore: int, *_: int) -> None:
        """Report the rows that were restored, or found to stay, by the journal: tasks write it with every batch.

        Raise Stopped if a stop was requested.
        """
        require_running(self.context.stop)
        try:
            with self.store.snapshot() as transaction:
                pieces = RestoreJournal(transaction).pieces(restore)
        except StoreError:
            return  # Nothing fails because of its progress.
        done, of = sum(piece.looked_at for piece in pieces), sum(piece.rows for piece in pieces)
        self.context.listener(WorkProgressed("restore", str(self.table.name), None, "row", done, of))

    def _remove(self, restore: JournaledRestore, folder: ColdPath, pieces: int) -> None:
        """Remove copies of rows that are back from the archive.

        The row's own copy goes first, so that a reader who sees it also sees what left with it.
        """
        for copies in self._restored(restore, folder, pieces):
            require_running(self.context.stop)
            with self.store.transaction() as transaction:
                Journal(transaction).require(self.lease)
            for part, target in zip(self.hot.parts, self.hot.targets, strict=True):
                gone = GoneCopies.restored(copies, follows=target.follows)
                texts = self.context.contract.archive_statistics(part.cold.name)
                why = f"restore {restore.id}"
                remove_copies(self.context.executor, part.cold, gone, [self.lease], why=why, texts=texts)

    def _restored(self, restore: JournaledRestore, folder: ColdPath, pieces: int) -> Iterator[list[tuple[int, str]]]:
        """Yield the copies of rows that are back.

        Of each piece as many as the journal records, because a restore may have been cancelled.
        """
        copies: list[tuple[int, str]] = []
        for number in range(pieces):
            with self.store.transaction() as transaction:
                journal = RestoreJournal(transaction)
                unrestored = journal.unrestored(restore.id, piece=number, limit=2**31)
                [left] = [piece.looked_at for piece in journal.pieces(restore.id) if piece.number == number]
            stay = {key for key, _ in unrestored}
            # What is nowhere else stays in the archive, with all that left with its row.
            stay |= {
                key
                for part, names in enumerate(restore.left_out or ())
                for _, key, _ in staging.left_out(folder, part, number, names)
            }
            for some in staging.keys(folder, 0, number):
                copies += [one for one in some[:left] if one[1] not in stay]
                left -= len(some[:left])
                if len(copies) >= _REMOVED_AT_ONCE:
                    yield copies
                    copies = []
        if copies:
            yield copies

    def _move(self, restore: JournaledRestore, state: RestoreState) -> JournaledRestore:
        commits = seen(self._tables) if state is RestoreState.DONE else []
        with self.store.transaction() as transaction:
            Journal(transaction).require(self.lease)
            record(transaction, commits)
            return RestoreJournal(transaction).move(restore.id, state)

    def _require_writable(self) -> None:
        """Raise unless the staging folder can be written.

        What is chosen is staged there, also for a side table and a dry run.
        """
        try:
            require_writable(self.folder)
        except OSError as problem:
            raise ArchiveError(
                f"{self.folder} cannot be written: {reason(problem)}",
                "rows that are restored are staged there first: check its permissions and the disk",
            ) from problem

    def _delete_staged(self) -> None:
        """Delete staged rows that no unfinished restore needs.

        There is one restore of a table at a time, and it holds the lease.
        """
        needed = self.restorer._unfinished(self.table)
        ended = (self.store.now() - _PREVIEW_LASTS).timestamp()
        if self.folder.is_dir():
            for one in children(self.folder):
                preview = _PREVIEW.fullmatch(one.name)
                used = int(preview["began"]) >= ended if preview else needed is not None and one.name == needed.staged
                if not used:
                    remove_tree(one)

    def _chosen(self, folder: ColdPath, pieces: int) -> dict[str, int]:
        return {
            part.cold.name: sum(staging.count(folder, number, piece) for piece in range(pieces))
            for number, part in enumerate(self.hot.parts)
        }

    def _report(self, restore: JournaledRestore, folder: ColdPath, pieces: int) -> Restored:
        with self.store.snapshot() as transaction:
            done = _came_back(RestoreJournal(transaction), restore, self._chosen(folder, pieces))
        return replace(done, left_out=self._left_out(restore.left_out, folder, pieces))


def _came_back(journal: RestoreJournal, restore: JournaledRestore, chosen: dict[str, int]) -> Restored:
    """Report what the journal records of a restore."""
    found = journal.pieces(restore.id)
    restored: Counter[str] = Counter({restore.table: 0})
    for piece in found:
        restored.update(piece.counts)
    return Restored(
        restore.table,
        restore.into,
        restore.id,
        chosen,
        dict(restored),
        sum(piece.there for piece in found),
        sum(piece.replaced for piece in found),
        journal.count_unrestored(restore.id),
        tuple(journal.unrestored(restore.id, limit=_SHOWN)),
        restore.protect_until,
    )


def _numbered(task: Callable[[Sequence[int]], str], divided: Sequence[Sequence[int]]) -> Callable[[int], str]:
    return lambda position: task(divided[position])


def _require_no_more(chosen: Mapping[str, int], most: Mapping[str, int] | None) -> None:
    """Raise if more rows of a table are chosen than may be."""
    for table, rows in chosen.items():
        if most is not None and rows > (shown := most.get(table, 0)):
            raise PlanError(f"{rows:,} rows of {table} are chosen, and {shown:,} were shown", "plan it again")
