"""Repairing an archive that the database no longer recognises: writing back or committing again what a log has lost,
and adopting an archive as it is.

Neither changes a hot row, and both are recorded in the audit trail.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wane._archive.archiver import Archiver
from wane._archive.context import ArchiveContext
from wane._archive.delta.cold_table import ColdTable, adopted_origin
from wane._archive.delta.commits import find_lost, record, require_whole, seen
from wane._archive.delta.paths import cold_path
from wane._archive.delta.sql_log import ArchiveLog, Recorded
from wane._archive.journal import Journal, Journaled, State
from wane._archive.maintenance.journal import COMPACT, EXPIRE, Jobs, MaintenanceJob
from wane._archive.maintenance.upkeep import Upkeep, read_changes
from wane._archive.maintenance.write_back import find_missing, require_files, require_sound, write_back
from wane._archive.pipeline.sweep import TableSweep, Tally
from wane._archive.pipeline.verify import files_of
from wane._archive.restore.journal import RestoreJournal, RestoreState
from wane._contract.model import Rule, Table, ToArchive
from wane._db.identity import is_same_database
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._ledger import Ledger
from wane.errors import ArchiveError

_MOST_SWEEPS = 100_000
_MOST_JOBS = 100_000
_MOST_RESTORES = 100_000
_SECONDS = 10.0
_COMMITTED = (State.COMMITTED, State.EVICTED, State.DONE)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was committed again for one table, and for what leaves with its rows."""

    table: str
    lost: int
    """Commits that were missing from all of their logs."""
    lost_by_table: Mapping[str, int]
    """Commits that were missing from the log of each of these tables, 0 if none was."""
    sweeps: tuple[int, ...]
    """Sweeps whose commits are in the logs again."""
    written_back: int = 0
    """Entries that were written back from the database's copies."""
    given_up: tuple[str, ...] = ()
    """Expiries and compactions that could not be repeated: what they removed is in the archive, as before them."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """An archive that this database writes to from now on."""

    tables: tuple[str, ...]
    origin: str


class Repair:
    """Repairs and adopts the archive of one contract."""

    def __init__(self, context: ArchiveContext) -> None:
        self.upkeep = Upkeep(context)
        self.archiver = Archiver(context)
        self.store = context.store

    def repair(self, table: Table) -> Repaired:
        """Make the logs of a table, and of what leaves with its rows, whole again.

        Entries are written back from the database's copies. Where a copy is missing, what the journal records is
        committed again: sweeps, and expiries and compactions whose files still exist.
        """
        name = str(table.name)
        sweeps = self.upkeep.sweeps()
        names = self.upkeep.written_by(name, sweeps)
        with self.upkeep.hold_leases(names, sweeps) as leases:
            colds = [self.upkeep.cold(one) for one in names]
            lost = {cold.name: missing for cold in colds if (missing := self._missing(cold))}
            if not lost:
                require_whole(self.store, colds)
                return Repaired(name, 0, dict.fromkeys(names, 0), ())
            last = {cold.name: self._last_sweep(cold, name) for cold in colds}
            written = self._write_back([cold for cold in colds if cold.name in lost])
            recommitted, given_up = self._lost_sweeps(name, last), []
            copied = all(find_lost(self.store, cold) is None for cold in colds)
            if not copied:
                own = next(lease for lease in leases if lease.name == f"archive {name}")
                given_up = self._recommit(table, colds, own, leases)
            commits = seen(colds)
            numbers = [sweep.id for sweep in recommitted]
            with self.upkeep.transaction(leases) as transaction:
                if not copied:
                    self._accept(transaction, names)
                record(transaction, commits)
                inputs = {
                    "lost": sum(lost.values()),
                    "lost_by_table": lost,
                    "sweeps": numbers,
                    "written_back": written,
                    "given_up": given_up,
                }
                self._record(transaction, "archive_repair", name, inputs)
            require_whole(self.store, colds)
        by_table = {one: lost.get(one, 0) for one in names}
        return Repaired(name, sum(lost.values()), by_table, tuple(numbers), sum(written.values()), tuple(given_up))

    def _write_back(self, colds: Sequence[ColdTable]) -> dict[str, int]:
        """Write back the entries that the database has copies of; return how many of each table.

        All are checked before one is written.
        """
        found = [(cold, missing) for cold in colds if (missing := self._copied(cold))]
        for cold, missing in found:
            require_sound(cold, missing, self.upkeep.context.executor)
        for cold, missing in found:
            write_back(cold, missing)
        return {cold.name: len(missing) for cold, missing in found}

    def _recommit(self, table: Table, colds: Sequence[ColdTable], own: Lease, leases: Sequence[Lease]) -> list[str]:
        """Commit again what the journal records.

        Return the jobs that could not be committed: what they replaced is in the archive as before.
        """
        for cold in colds:
            self._require_no_lost_restore(str(table.name), cold)
        last = {cold.name: cold.last_sweep(str(table.name)) for cold in colds}
        for sweep in self._lost_sweeps(str(table.name), last):
            rule = self._rule(table, sweep.rule)
            TableSweep(self.archiver, table, rule, own, Tally(table, table.rules[0])).recommit(sweep)
        with self.store.transaction() as transaction:
            done = [
                job
                for cold in colds
                for kind in (EXPIRE, COMPACT)
                for job in Jobs(transaction).done(cold.name, kind, _MOST_JOBS)
            ]
        given_up = [
            f"{job.kind} {job.id} of {job.table}"
            for job in sorted(done, key=lambda one: one.id)
            if not self.upkeep.redo(job, leases)
        ]
        for cold in colds:
            handle = cold.open()
            if handle is not None:
                require_files(cold, handle)
        return given_up

    def _require_no_lost_restore(self, table: str, cold: ColdTable) -> None:
        """Raise if the log may have lost the commit of a restore that moved rows: they would be both hot and
        archived."""
        handle = cold.open()
        if handle is None or find_lost(self.store, cold) is None:
            return
        entries = [entry for entry in handle.history() if not cold.shared or cold.made(entry)]
        newest = max((entry["timestamp"] for entry in entries if "timestamp" in entry), default=0)
        known = {entry.get("wane.removed") for entry in entries}
        with self.store.transaction() as transaction:
            restores = RestoreJournal(transaction).restores(table, _MOST_RESTORES)
        for one in restores:
            moved = one.into is None and one.state is not RestoreState.PLANNED
            if moved and one.changed_at.timestamp() * 1000 > newest and f"restore {one.id}" not in known:
                raise ArchiveError(
                    f"the log of the archive of {cold.name} has lost the commit of restore {one.id} of {table}, and it cannot be"
                    " written back: the restored rows would be both hot and archived",
                    f"restore {cold.log} from a backup; `wane archive adopt` accepts the archive as it is, with both",
                )

    def adopt(self, names: Sequence[str]) -> Adopted:
        """Make this database the one that writes to the archive, as it is now.

        A database that wrote to it before is refused from then on.
        """
        sweeps = self.upkeep.sweeps()
        every = list(dict.fromkeys([*names, *(one for sweep in sweeps.values() for one in sorted(sweep.wrote))]))
        identity = self.store.identity()
        with self.upkeep.hold_leases(every, sweeps, adopting=True) as leases:
            with self.store.transaction() as transaction:
                origin, known = ArchiveLog(transaction.dialect, transaction.execute).owner()
            if origin is None:
                raise ArchiveError("this database has archived nothing yet", "`wane archive run` archives what is due")
            for name in every:
                self._require_no_lost_files(self.upkeep.cold(name))
            abandoned = self._jobs_without_archive(every)
            given = origin
            if known is not None and not is_same_database(known, identity):
                # Always the same for the same database, so that an interrupted adoption can be repeated.
                given = adopted_origin(origin, identity, shared=self.upkeep.contract.archive_shared)
            colds = []
            for name in every:
                writers = dict.fromkeys([name, *self.upkeep.writers(name, sweeps)])
                marks = [mark for one in writers for mark in (one, f"{one}:life")]
                colds.append(self.upkeep.cold(name).give(given, marks, leases))
            commits = seen(colds)
            with self.upkeep.transaction(leases) as transaction:
                ArchiveLog(transaction.dialect, transaction.execute).own(given, identity)
                self._accept(transaction, every)
                record(transaction, commits)
                for name in every:
                    jobs = [job for job in abandoned if job.table == name]
                    for job in jobs:
                        Jobs(transaction).end(job.id, "abandoned")
                    inputs = {"from": known, "to": identity, "origin": given}
                    named = {"abandoned": [f"{job.kind} {job.id}" for job in jobs]} if jobs else {}
                    self._record(transaction, "archive_adopt", name, {**inputs, **named})
        return Adopted(tuple(every), given)

    def begin_anew(self, names: Sequence[str]) -> Adopted:
        """Give this database, a clone, an origin of its own: the original goes on with what was archived before.

        What the clone has in its journal unfinished is the original's to finish: here it ends, and changes neither the
        archive nor a hot row.
        """
        sweeps = self.upkeep.sweeps()
        every = list(dict.fromkeys([*names, *(one for sweep in sweeps.values() for one in sorted(sweep.wrote))]))
        identity, given = self.store.identity(), uuid.uuid4().hex
        shared = self.upkeep.contract.archive_shared
        with (
            self.upkeep.hold_leases(every, sweeps, adopting=True) as leases,
            self.upkeep.transaction(leases) as transaction,
        ):
            log = ArchiveLog(transaction.dialect, transaction.execute)
            origin, known = log.owner()
            if origin is None or known is None or is_same_database(known, identity):
                raise ArchiveError(
                    "this database is no clone of one that archives",
                    "`wane archive run` goes on with its archive; without --as-new, `adopt` accepts the archive as it is",
                )
            if not shared:
                self._require_no_archive(every)
            ended = self._disown(transaction)
            log.own(given, identity)
            self._accept(transaction, every)
            for name in every:
                inputs = {"from": known, "to": identity, "origin": given, "instead_of": origin}
                self._record(transaction, "archive_adopt", name, {**inputs, "ended": ended})
        return Adopted(tuple(every), given)

    def _require_no_archive(self, names: Sequence[str]) -> None:
        for name in names:
            if self.upkeep.cold(name).exists():
                raise ArchiveError(
                    f"the contract names the archive of the database that this one is a clone of: it has {name}",
                    "name another folder as the archive's url, so that the original goes on with its own",
                )

    def _disown(self, transaction: Transaction) -> list[str]:
        """End everything that is unfinished in the journals; return what that was."""
        ended = []
        for sweep in Journal(transaction).sweeps(None, _MOST_SWEEPS):
            if sweep.state is not State.DONE:
                Journal(transaction).disown(sweep.id)
                ended.append(f"sweep {sweep.id} of {sweep.table}")
        for restore in RestoreJournal(transaction).restores(None, _MOST_RESTORES, unfinished=True):
            RestoreJournal(transaction).disown(restore.id)
            ended.append(f"restore {restore.id} of {restore.table}")
        for job in Jobs(transaction).open():
            Jobs(transaction).end(job.id, "abandoned")
            ended.append(f"{job.kind} {job.id} of {job.table}")
        return ended

    def _jobs_without_archive(self, names: Sequence[str]) -> list[MaintenanceJob]:
        """Return unfinished jobs whose table is not in the archive: it was moved away, or the contract names another
        folder.

        Their progress there cannot be known here, so the audit trail names them.
        """
        left = [job for job in self.upkeep.unfinished(names) if job.plan]
        return [job for job in left if self.upkeep.cold(read_changes(job.plan)[0].table).open() is None]

    def _missing(self, cold: ColdTable) -> int:
        """Count the commits that a log has lost.

        Raise ArchiveError if it cannot be read and the database's copies do not repair that.
        """
        problem = find_lost(self.store, cold)
        if problem is None:
            return 0
        try:
            table = cold.open()
        except ArchiveError:
            found = self._copied(cold)
            if not found:
                raise
            return len(found)
        if table is None:
            raise problem
        return self._recorded(cold).commits - cold.commits(table)

    def _recorded(self, cold: ColdTable) -> Recorded:
        recorded = ArchiveLog(self.store.dialect, self.store.reader(_SECONDS)).recorded(cold.name)
        assert recorded is not None
        return recorded

    def _copied(self, cold: ColdTable) -> dict[int, str]:
        """Return the copies of lost entries, if they make the log whole again."""
        if cold.shared:
            return {}  # Other databases' entries are between them, and may have their numbers by now.
        copies = ArchiveLog(self.store.dialect, self.store.reader(_SECONDS)).copies(cold.name)
        return find_missing(cold, copies, self._recorded(cold).commits)

    def _last_sweep(self, cold: ColdTable, table: str) -> int:
        try:
            return cold.last_sweep(table)
        except ArchiveError:
            return 0  # Its log cannot be read.

    def _lost_sweeps(self, table: str, last: Mapping[str, int]) -> list[Journaled]:
        """Return sweeps that the journal calls committed and that a log has lost, the oldest first."""
        with self.store.transaction() as transaction:
            found = Journal(transaction).sweeps(table, _MOST_SWEEPS)
        return [
            sweep
            for sweep in reversed(found)
            if sweep.state in _COMMITTED and any(last.get(name, sweep.id) < sweep.id for name in sweep.archived)
        ]

    def _rule(self, table: Table, name: str) -> Rule:
        archiving = [one for one in table.rules if isinstance(one.action, ToArchive)]
        return next((one for one in archiving if one.name == name), archiving[0])

    def _require_no_lost_files(self, cold: ColdTable) -> None:
        """Raise if files exist that hold rows of sweeps which the log has lost: they could be committed again."""
        if find_lost(self.store, cold) is None:
            return
        handle = cold.open()
        for writer in [] if handle is None else self.upkeep.writers(cold.name, self.upkeep.sweeps()):
            for sweep in self._lost_sweeps(writer, {cold.name: cold.last_sweep(writer)}):
                with self.store.transaction() as transaction:
                    ranges = Journal(transaction).ranges(sweep.id)
                manifests = [one.manifest for one in ranges if one.manifest is not None]
                folders = [self.upkeep.cold(name).folder for name in sweep.parts or (cold.name,)]
                paths = [cold_path(file.path) for file in files_of(folders, manifests)]
                there = [path for path in paths if path.is_file() and str(path).startswith(f"{cold.folder}/")]
                if there:
                    raise ArchiveError(
                        f"files of sweep {sweep.id} of {writer}, which the log has lost, are still there: {there[0]}",
                        f"`wane archive repair {writer}` commits them again; to give them up, move them away first",
                    )

    def _accept(self, transaction: Transaction, names: Sequence[str]) -> None:
        log = ArchiveLog(transaction.dialect, transaction.execute)
        for name in names:
            log.forget(name)

    def _record(self, transaction: Transaction, kind: str, table: str, inputs: dict[str, object]) -> None:
        Ledger.of(transaction).note(kind, table, self.upkeep.context.actor, inputs, transaction.now())
