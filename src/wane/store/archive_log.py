"""What this database knows of the logs of its archive's tables: how many commits each has had.

The number is written in the transaction that journals what the commit did. So a log with fewer commits has lost some: it was restored from an
older backup, or files of it are gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wane.store.own import Execute
from wane.store.statement import Dialect, Parameters


@dataclass(frozen=True, slots=True)
class Recorded:
    """The last commit that is known to be in a log: its number, and the log's version at the time."""

    commits: int
    version: int


class ArchiveLog:
    """Reads and writes these numbers through a function that runs a statement."""

    def __init__(self, dialect: Dialect, run: Execute) -> None:
        self.dialect = dialect
        self._run = run
        self._table = dialect.own("archive_log")

    def _parameters(self) -> Parameters:
        return Parameters(self.dialect)

    def recorded(self, table: str) -> Recorded | None:
        """The last known commit to a table's log; None if there is none."""
        p = self._parameters()
        found: list[tuple[Any, ...]] = self._run(
            f"SELECT commits, version FROM {self._table} WHERE table_name = {p.bind('table', table)}", p.values
        )
        return Recorded(*found[0]) if found else None

    def record(self, table: str, commits: int, version: int) -> None:
        """Record a commit. A number that is lower than the recorded one changes nothing."""
        p = self._parameters()
        values = p.bind("table", table), p.bind("commits", commits), p.bind("version", version)
        self._run(
            f"INSERT INTO {self._table} AS l (table_name, commits, version) VALUES ({', '.join(values)})"
            " ON CONFLICT (table_name) DO UPDATE SET commits = excluded.commits, version = excluded.version"
            " WHERE excluded.commits > l.commits",
            p.values,
        )

    def forget(self, table: str) -> None:
        """Forget a table's log, so that it is taken as it is from now on."""
        p = self._parameters()
        self._run(f"DELETE FROM {self._table} WHERE table_name = {p.bind('table', table)}", p.values)

    def unfinished(self) -> list[tuple[int, str, str]]:
        """Sweeps that are not done: number, table and state."""
        table = self.dialect.own("archive_sweep")
        found = self._run(f"SELECT id, table_name, state FROM {table} WHERE state <> 'done' ORDER BY id", {})
        return [(number, name, state) for number, name, state in found]

    # Which database this is

    def owner(self) -> tuple[str | None, str | None]:
        """The name by which archives know this database, and the identity of the database that may write under it."""
        found = self._run(f"SELECT origin, identity FROM {self.dialect.own('archive_origin')}", {})
        return (found[0][0], found[0][1]) if found else (None, None)

    def own(self, origin: str, identity: str) -> None:
        """Let the database of this identity write under a name."""
        p = self._parameters()
        self._run(
            f"UPDATE {self.dialect.own('archive_origin')} SET origin = {p.bind('origin', origin)},"
            f" identity = {p.bind('identity', identity)}",
            p.values,
        )
