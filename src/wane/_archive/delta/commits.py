"""Checking whether the log of an archive table has every commit that the database has recorded of it.

A log that was restored from an older backup, or lost a file, can still be read: only the database knows that it had
more. Until that is repaired, nothing is written to the table and nothing of it is tidied, because files that the log
does not name may hold the only copies of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.paths import ColdPath
from wane._archive.delta.sql_log import ArchiveLog, Recorded
from wane._db import Store
from wane._db.transaction import Transaction
from wane.errors import ArchiveError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Seen:
    """The last commit that is in the log of a table."""

    table: str
    commits: int
    version: int
    log: ColdPath | None
    """None if other databases have entries in it, of which this one has no copies."""


def seen(colds: Iterable[ColdTable]) -> list[Seen]:
    """Return the last commit of each table that exists."""
    handles = ((cold, cold.open()) for cold in colds)
    return [
        Seen(cold.name, cold.commits(table), table.version(), None if cold.shared else cold.log)
        for cold, table in handles
        if table is not None
    ]


def record(transaction: Transaction, commits: Sequence[Seen]) -> None:
    """Record commits that were made, with a copy of every entry of the log since the last ones."""
    log = ArchiveLog(transaction.dialect, transaction.execute)
    for one in commits:
        known = log.recorded(one.table)
        if one.log is None:
            log.record(one.table, one.commits, one.version)
            continue
        for version in range(0 if known is None else known.version + 1, one.version + 1):
            entry = entry_file(one.log, version)
            if entry.is_file():
                log.copy(one.table, version, entry.read_bytes().decode())
        log.record(one.table, one.commits, one.version)


def entry_file(log: ColdPath, version: int) -> ColdPath:
    """Return the file of one entry of a log."""
    return log / f"{version:020d}.json"


def find_lost(store: Store, cold: ColdTable) -> ArchiveError | None:
    """Return what is wrong with a table's log, as an error that states how to repair it; None if it is complete."""
    recorded = _recorded(store, cold)
    return None if recorded is None else _examine(cold, recorded)[1]


def examine(store: Store, cold: ColdTable) -> tuple[DeltaTable | None, ArchiveError | None]:
    """Open a table's log, and find what is wrong with it; None if there is no table, and None if nothing is wrong."""
    recorded = _recorded(store, cold)
    return (cold.open(), None) if recorded is None else _examine(cold, recorded)


def _recorded(store: Store, cold: ColdTable) -> Recorded | None:
    return ArchiveLog(store.dialect, store.reader(_SECONDS)).recorded(cold.name)


def _examine(cold: ColdTable, recorded: Recorded) -> tuple[DeltaTable | None, ArchiveError | None]:
    try:
        table = cold.open()
    except ArchiveError as problem:
        return None, problem
    return table, _lost(cold, table, recorded)


def _lost(cold: ColdTable, table: DeltaTable | None, recorded: Recorded) -> ArchiveError | None:
    if table is None:
        commits = "one commit to it is" if recorded.commits == 1 else f"{recorded.commits} commits to it are"
        return ArchiveError(
            f"the archive of {cold.name} is missing: {cold.folder} is not there or empty, and {commits} recorded",
            "mount it, or restore it from a backup; if it was moved away on purpose, `wane archive adopt` begins a new one",
        )
    found = cold.commits(table)
    if found >= recorded.commits:
        return None
    return ArchiveError(
        f"the log of the archive of {cold.name} has lost {recorded.commits - found} of {recorded.commits} commits",
        f"`wane archive repair` writes them back if the database has copies of them; else restore"
        f" {_names(cold, table.version(), recorded)} from a backup. Nothing of the table is written or tidied until then",
    )


def _names(cold: ColdTable, version: int, recorded: Recorded) -> str:
    """Return the paths of the log's files that are missing, or are not what was written."""
    first = min(version + 1, recorded.version)
    names = f"{first:020d}.json" + (f" to {recorded.version:020d}.json" if first < recorded.version else "")
    return f"{cold.log}/{names}"


def require_whole(store: Store, colds: Iterable[ColdTable], *, recording: bool = True) -> None:
    """Raise unless the log of every table has all recorded commits: what is left must not pass for all of it.

    `recording`: store what is found, for readers that cannot see the files.
    """
    found = {cold.name: find_lost(store, cold) for cold in colds}
    if recording:
        report(store, found)
    for problem in found.values():
        if problem is not None:
            raise problem


def report(store: Store, found: Mapping[str, ArchiveError | None]) -> None:
    """Store what is wrong with the logs of tables, where it differs from what was stored before."""
    known = ArchiveLog(store.dialect, store.reader(_SECONDS)).problems()
    changed = {
        name: None if problem is None else problem.message
        for name, problem in found.items()
        if (None if problem is None else problem.message) != known.get(name)
    }
    if changed:
        with store.transaction() as transaction:
            log = ArchiveLog(transaction.dialect, transaction.execute)
            for name, message in changed.items():
                log.report(name, message)
