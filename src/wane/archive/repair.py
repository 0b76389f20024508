"""Putting an archive right that the database no longer recognises: committing again what a log has lost, and adopting an archive as it is.

Neither touches a hot row, and both are written into the audit trail.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wane.archive.archiver import Archiver
from wane.archive.commits import find_lost, record, seen
from wane.archive.files import listing
from wane.archive.place import LOG, ColdTable
from wane.archive.sweep import Sweep, Tally
from wane.archive.upkeep import Upkeep
from wane.archive.verify import files_of
from wane.contract.model import Archive, Rule, Table
from wane.errors import ArchiveError
from wane.store.archive_journal import Journal, Journaled, State
from wane.store.archive_log import ArchiveLog
from wane.store.own import AuditEntry
from wane.store.transaction import Transaction

_MOST_SWEEPS = 100_000
_SHOWN = 5
_COMMITTED = (State.COMMITTED, State.EVICTED, State.DONE)


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was committed again for one table."""

    table: str
    lost: int
    """Commits that the logs of the table, and of what leaves with its rows, had lost."""
    sweeps: tuple[int, ...]
    """Sweeps that were committed again."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """An archive that this database writes to from now on."""

    tables: tuple[str, ...]
    origin: str


class Repair:
    """Repairs and adopts the archive of one contract."""

    def __init__(self, upkeep: Upkeep, archiver: Archiver) -> None:
        self.upkeep = upkeep
        self.archiver = archiver
        self.store = upkeep.store

    def repair(self, table: Table) -> Repaired:
        """Commit again every sweep of a table that a log has lost. Other lost commits are given up: what they removed is in the archive again."""
        name = str(table.name)
        sweeps = self.upkeep.sweeps()
        names = self.upkeep.written_by(name, sweeps)
        with self.upkeep.alone(names, sweeps) as leases:
            colds = [self.upkeep.cold(one) for one in names]
            lost = sum(self._missing(cold) for cold in colds)
            if not lost:
                return Repaired(name, 0, ())
            for cold in colds:
                self._require_files(cold)
            again = []
            for sweep in self._lost_sweeps(name, colds):
                own = next(lease for lease in leases if lease.name == f"archive {name}")
                Sweep(
                    self.archiver, table, self._rule(table, sweep.rule), own, Tally(table, table.rules[0])
                ).commit_again(sweep)
                again.append(sweep.id)
            commits = seen(colds)
            with self.upkeep.transaction(leases) as transaction:
                self._accept(transaction, names)
                record(transaction, commits)
                self._tell(transaction, "archive_repair", name, {"lost": lost, "sweeps": again})
        return Repaired(name, lost, tuple(again))

    def adopt(self, names: Sequence[str]) -> Adopted:
        """Make this database the one that writes to the archive, as it is now. A database that wrote to it before is refused from then on."""
        sweeps = self.upkeep.sweeps()
        every = list(dict.fromkeys([*names, *(one for sweep in sweeps.values() for one in sorted(sweep.wrote))]))
        identity = self.store.identity()
        with self.upkeep.alone(every, sweeps, adopting=True) as leases:
            with self.store.transaction() as transaction:
                origin, known = ArchiveLog(transaction.rows.dialect, transaction.execute).owner()
            if origin is None:
                raise ArchiveError("this database has archived nothing yet", "`wane archive run` archives what is due")
            for name in every:
                self._require_no_lost_files(self.upkeep.cold(name))
            given = origin
            if known is not None and not self.store.is_same_database(known):
                # Always the same for the same database, so that an adoption that was cut off can be done again.
                given = hashlib.sha256(f"{origin} {identity}".encode()).hexdigest()[:32]
            colds = []
            for name in every:
                writers = dict.fromkeys([name, *self.upkeep.writers(name, sweeps)])
                marks = [mark for one in writers for mark in (one, f"{one}:life")]
                colds.append(self.upkeep.cold(name).give(given, marks, leases))
            commits = seen(colds)
            with self.upkeep.transaction(leases) as transaction:
                ArchiveLog(transaction.rows.dialect, transaction.execute).own(given, identity)
                self._accept(transaction, every)
                record(transaction, commits)
                for name in every:
                    self._tell(transaction, "archive_adopt", name, {"from": known, "to": identity, "origin": given})
        return Adopted(tuple(every), given)

    def _missing(self, cold: ColdTable) -> int:
        """How many commits a log has lost; raise if it cannot be read at all."""
        problem = find_lost(self.store, cold)
        table = cold.open()
        if problem is None:
            return 0
        if table is None:
            raise problem
        recorded = ArchiveLog(self.store.rows.dialect, self.store.asking(10.0)).recorded(cold.name)
        assert recorded is not None
        return recorded.commits - cold.commits(table)

    def _lost_sweeps(self, table: str, colds: Sequence[ColdTable]) -> list[Journaled]:
        """Sweeps that the journal calls committed and a log does not have, the oldest first."""
        last = {cold.name: cold.last_sweep(table) for cold in colds}
        with self.store.transaction() as transaction:
            found = Journal(transaction, self.store.timetable).sweeps(table, _MOST_SWEEPS)
        return [
            sweep
            for sweep in reversed(found)
            if sweep.state in _COMMITTED and any(last.get(name, sweep.id) < sweep.id for name in sweep.archived)
        ]

    def _rule(self, table: Table, name: str) -> Rule:
        archiving = [one for one in table.rules if isinstance(one.action, Archive)]
        return next((one for one in archiving if one.name == name), archiving[0])

    def _require_files(self, cold: ColdTable) -> None:
        """Raise if the log names files that are not there: they were tidied after it was written."""
        handle = cold.open()
        places = [] if handle is None else [cold.folder / file.path for file in listing(handle)]
        missing = [str(place) for place in places if not place.is_file()]
        if missing:
            raise ArchiveError(
                f"{len(missing)} files that the log of {cold.name} names are missing: {', '.join(missing[:_SHOWN])}",
                f"restore them, or the log that no longer names them ({cold.folder / LOG}), from a backup",
            )

    def _require_no_lost_files(self, cold: ColdTable) -> None:
        """Raise if files are there that hold rows of sweeps which the log has lost: they could be committed again."""
        if find_lost(self.store, cold) is None:
            return
        handle = cold.open()
        for writer in [] if handle is None else self.upkeep.writers(cold.name, self.upkeep.sweeps()):
            for sweep in self._lost_sweeps(writer, [cold]):
                with self.store.transaction() as transaction:
                    ranges = Journal(transaction, self.store.timetable).ranges(sweep.id)
                manifests = [one.manifest for one in ranges if one.manifest is not None]
                folders = [self.upkeep.cold(name).folder for name in sweep.parts or (cold.name,)]
                places = [Path(file.place) for file in files_of(folders, manifests)]
                there = [place for place in places if place.is_file() and place.is_relative_to(cold.folder)]
                if there:
                    raise ArchiveError(
                        f"files of sweep {sweep.id} of {writer}, which the log has lost, are still there: {there[0]}",
                        f"`wane archive repair {writer}` commits them again; to give them up, move them away first",
                    )

    def _accept(self, transaction: Transaction, names: Sequence[str]) -> None:
        log = ArchiveLog(transaction.rows.dialect, transaction.execute)
        for name in names:
            log.forget(name)

    def _tell(self, transaction: Transaction, kind: str, table: str, inputs: dict[str, object]) -> None:
        transaction.own.record(
            AuditEntry(
                kind=kind,
                table=table,
                actor=self.upkeep.actor,
                inputs=inputs,
                counts={table: 0},
                executed_at=transaction.now(),
            )
        )
