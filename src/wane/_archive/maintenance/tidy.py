"""Tidying: removing files from the disk that no version of the table has referenced for long enough.

Only two kinds of files are removed. A data file of this very table, recognised by its name and its path, if the newest
version does not have it, it left the table long ago or was never in it, and no unfinished sweep or job wrote it. And
entries of the log that are as old and that only older versions need. Everything else in the folder stays.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.files import listing
from wane._archive.delta.object_store import reason
from wane._archive.delta.paths import ColdPath, changed_at, children
from wane._archive.delta.sql_log import ArchiveLog
from wane._archive.journal import ArchivedSweep, Journal
from wane._archive.maintenance.compact import STAGING
from wane._archive.maintenance.journal import EXPIRE, Jobs
from wane._archive.maintenance.trimming import first_entry, mentioned_files, trim
from wane._archive.maintenance.upkeep import Upkeep
from wane._archive.model import TidiedTable
from wane._archive.restore.journal import RestoreJournal
from wane._archive.rows.types import MONTH
from wane._contract.duration import format_duration
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._ledger import Ledger
from wane._prune.pacing import require_running
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError
from wane.events import ArchiveMaintained

if TYPE_CHECKING:
    from deltalake import DeltaTable

LEAST = timedelta(hours=1)
"""No file is removed that was part of the archive more recently, regardless of the contract: a reader may still use
it."""
_OURS = re.compile(
    rf"{MONTH}=\d{{4}}-\d\d/((?P<kind>sweep|expire|compact)-(?P<number>\d{{10}})-[0-9a-f-]+|part-[0-9a-zA-Z.-]+)\.parquet"
)
"""What sweeps and jobs write, and what is left of a file whose copies were removed again."""
_STAGING = re.compile(rf"{STAGING}(?P<number>\d{{10}})-[0-9a-f]+")
_MOST_EXPIRIES = 1_000


class Tidying:
    """Removes files of the archive's tables that nothing needs."""

    def __init__(self, upkeep: Upkeep) -> None:
        self.upkeep = upkeep

    def tidy(self, name: str, *, older_than: timedelta | None = None, dry_run: bool = False) -> TidiedTable:
        """Tidy the folder of one of the archive's tables.

        A failure is the outcome of this table and does not affect others.
        """
        done = TidiedTable(name, Outcome.DONE, dry_run=dry_run)
        age = max(older_than or self.upkeep.contract.upkeep.tidy_after, LEAST)
        with self.upkeep.context.reporting(done):
            sweeps = self.upkeep.sweeps()
            if dry_run:
                self.upkeep.require_whole([name])
                self._find_removable(name, age, sweeps, done)
                return done
            with self.upkeep.leases([name], sweeps) as leases:
                self._tidy(name, age, leases, done)
        return done

    def _tidy(self, name: str, age: timedelta, leases: Sequence[Lease], done: TidiedTable) -> None:
        cold = self.upkeep.cold(name)
        with self.upkeep.transaction(leases) as transaction:
            self.upkeep.context.require_open(transaction, name)
        # No other process writes now: what the journal and the archive record stays so until this is done.
        removed = self._find_removable(name, age, self.upkeep.sweeps(), done)
        for path in removed:
            require_running(self.upkeep.context.stop)
            try:
                _remove(path)
            except FileNotFoundError:
                continue
            except OSError as problem:
                raise ArchiveError(f"{path} cannot be removed: {reason(problem)}", "check its permissions") from problem
        # Before anything is called erased: the log's old entries describe files that are gone, with values of their
        # rows.
        trimmed = trim(cold, self.upkeep.store.now() - age)
        self._record(cold, age, trimmed, leases, done)

    def _find_removable(
        self, name: str, age: timedelta, sweeps: dict[int, ArchivedSweep], done: TidiedTable
    ) -> list[ColdPath]:
        """Find what may be removed; count in `done` how much that is, and how much has to wait."""
        cold = self.upkeep.cold(name)
        handle = cold.open()
        if handle is None:
            return []
        jobs = {job.id for job in self.upkeep.unfinished()}
        idle = _idle(cold, handle)
        # By the log, not by the files' age: a file that was replaced a minute ago may be a year old.
        hours = int(age.total_seconds()) // 3600
        ripe = set(handle.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True))
        chosen = []
        for path in idle:
            made = _OURS.fullmatch(path)
            number = int(made["number"]) if made and made["number"] else 0
            if made and made["kind"] == "sweep":
                busy = _is_unfinished(number, sweeps) or _is_lost(cold, number, sweeps[number])
            else:
                busy = number in jobs
            if path in ripe and not busy:
                chosen.append(cold.folder / path)
        done.waiting = len(idle) - len(chosen)
        chosen += _staging(cold, jobs, self.upkeep.store.now() - age)
        done.files = len(chosen)
        done.bytes = sum(path.stat().st_size for path in chosen if path.is_file())
        return chosen

    def _record(
        self, cold: ColdTable, age: timedelta, trimmed: int, leases: Sequence[Lease], done: TidiedTable
    ) -> None:
        with self.upkeep.transaction(leases) as transaction:
            # The database's copies of entries hold what the entries held.
            ArchiveLog(transaction.dialect, transaction.execute).forget_copies(cold.name, first_entry(cold))
            done.erased = self._erased(cold, Jobs(transaction))
            _forget_absent(cold, Journal(transaction))
            forgotten = _forget(transaction, cold.name, transaction.now() - self.upkeep.contract.upkeep.forget_after)
            inputs = {
                "older_than": format_duration(age),
                "files": done.files,
                "bytes": done.bytes,
                "log_entries": trimmed,
                "erased": list(done.erased),
                **({"forgotten": forgotten} if any(forgotten.values()) else {}),
            }
            ledger, now = Ledger.of(transaction), transaction.now()
            ledger.note("archive_tidy", cold.name, self.upkeep.context.actor, inputs, now)
        self.upkeep.context.listener(ArchiveMaintained("tidy", cold.name, {}, done.files, done.bytes, 0.0))

    def _erased(self, cold: ColdTable, jobs: Jobs) -> tuple[int, ...]:
        """Return expiries whose rows are in no file any more.

        Nothing is left in their month that is older than they are and part of nothing, and no entry of the log mentions
        the files that they removed.
        """
        handle = cold.open()
        if handle is None:
            return ()
        left: dict[str, datetime] = {}
        for path in _idle(cold, handle):
            month, changed = path.partition("/")[0], changed_at(cold.folder / path)
            left[month] = min(left.get(month, changed), changed)
        mentioned = mentioned_files(cold)
        found = []
        for writer in self.upkeep.writers(cold.name, self.upkeep.sweeps()):
            for job in jobs.done(writer, EXPIRE, _MOST_EXPIRIES):
                month = f"{MONTH}={job.plan['inputs']['month']}"
                here = [change for change in job.plan["changes"] if change["table"] == cold.name]
                if (
                    here
                    and not any(file["path"] in mentioned for change in here for file in change["removed"])
                    and job.audit_id is not None
                    and left.get(month, datetime.max.replace(tzinfo=UTC)) > job.changed_at
                ):
                    found.append(job.audit_id)
        return tuple(sorted(found))


def _forget_absent(cold: ColdTable, journal: Journal) -> None:
    """Delete the keys of rows that the application deleted, of sweeps of which nothing is archived any more."""
    handle = cold.open()
    files = [] if handle is None else listing(handle)
    for sweep in journal.absent_sweeps(cold.name):
        if not any(file.has_any([sweep]) for file in files):
            journal.forget_absent_of(sweep)


def _forget(transaction: Transaction, table: str, before: datetime) -> dict[str, int]:
    """Delete the details of what was done before a time for a table, and count them; unfinished work stays as it is."""
    return {
        "restores": RestoreJournal(transaction).forget(table, before),
        "ranges": Journal(transaction).forget(table, before),
        "jobs": Jobs(transaction).forget(table, before),
    }


def _idle(cold: ColdTable, handle: DeltaTable) -> list[str]:
    """Return data files in the table's folder, recognised by name, that the archive's newest state does not have."""
    active = {file.path for file in listing(handle)}
    found = []
    for folder in children(cold.folder, f"{MONTH}=*"):
        if folder.is_symlink() or not folder.is_dir():
            continue
        for file in children(folder):
            path = f"{folder.name}/{file.name}"
            if path not in active and _OURS.fullmatch(path) and file.is_file() and not file.is_symlink():
                found.append(path)
    return found


def _staging(cold: ColdTable, jobs: set[int], ended: datetime) -> list[ColdPath]:
    """Return folders that a compaction which died has left behind."""
    return [
        path
        for path in children(cold.folder, f"{STAGING}*")
        if (made := _STAGING.fullmatch(path.name))
        and path.is_dir()
        and not path.is_symlink()
        and int(made["number"]) not in jobs
        and changed_at(path) < ended
    ]


def _remove(path: ColdPath) -> None:
    if isinstance(path, Path) and path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _is_unfinished(number: int, sweeps: dict[int, ArchivedSweep]) -> bool:
    """Check whether a sweep is unfinished or unknown.

    An unknown sweep may be one that is yet to come: the database may have been restored from a backup.
    """
    return number not in sweeps or not sweeps[number].done


def _is_lost(cold: ColdTable, number: int, sweep: ArchivedSweep) -> bool:
    """Check whether a sweep's files were committed by the journal but not by the log: then they were never removed."""
    return cold.name in sweep.wrote and cold.last_sweep(sweep.table) < number
