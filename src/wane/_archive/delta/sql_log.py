"""What this database records of the logs of its archive's tables: the number of commits of each, and a copy of each
entry.

Both are written in the transaction that journals what the commit did. So a log with fewer commits has lost some: it was
restored from an older backup, or files of it are gone. The copies can be written back. They are deleted when the log
itself is trimmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wane._db.statement import Dialect, Execute, Parameters
from wane._findings import Finding, Severity


@dataclass(frozen=True, slots=True)
class Recorded:
    """The last commit that is known to be in a log: its number, and the log's version at the time."""

    commits: int
    version: int


class ArchiveLog:
    """Reads and writes these records through a function that runs a statement."""

    def __init__(self, dialect: Dialect, run: Execute) -> None:
        self.dialect = dialect
        self._run = run
        self._table = dialect.own_table("archive_log")
        self._entries = dialect.own_table("archive_log_entry")

    def _parameters(self) -> Parameters:
        return Parameters(self.dialect)

    def recorded(self, table: str) -> Recorded | None:
        """Return the last known commit to a table's log; None if there is none."""
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
            " ON CONFLICT (table_name) DO UPDATE SET commits = excluded.commits, version = excluded.version, problem = NULL"
            " WHERE excluded.commits > l.commits",
            p.values,
        )

    def forget(self, table: str) -> None:
        """Delete the record of a table's log and the copies of its entries, so that it is accepted as it is."""
        for own in (self._table, self._entries):
            p = self._parameters()
            self._run(f"DELETE FROM {own} WHERE table_name = {p.bind('table', table)}", p.values)

    # Copies of entries

    def copy(self, table: str, version: int, entry: str) -> None:
        """Store a copy of one entry of a table's log."""
        p = self._parameters()
        values = p.bind("table", table), p.bind("version", version), p.bind("entry", entry)
        self._run(
            f"INSERT INTO {self._entries} (table_name, version, entry) VALUES ({', '.join(values)})"
            " ON CONFLICT (table_name, version) DO UPDATE SET entry = excluded.entry",
            p.values,
        )

    def copies(self, table: str) -> dict[int, str]:
        """Return the copies of a table's entries by their versions."""
        p = self._parameters()
        found = self._run(
            f"SELECT version, entry FROM {self._entries} WHERE table_name = {p.bind('table', table)}", p.values
        )
        return dict(found)

    def forget_copies(self, table: str, before: int) -> None:
        """Delete the copies of entries older than a version: the log no longer has them."""
        p = self._parameters()
        self._run(
            f"DELETE FROM {self._entries} WHERE table_name = {p.bind('table', table)} AND version < {p.bind('before', before)}",
            p.values,
        )

    # What was found wrong

    def problems(self) -> dict[str, str]:
        """Return what was last found wrong with the logs of tables."""
        found = self._run(
            f"SELECT table_name, problem FROM {self._table} WHERE problem IS NOT NULL ORDER BY table_name", {}
        )
        return dict(found)

    def report(self, table: str, problem: str | None) -> None:
        """Store what is wrong with a table's log, for readers that cannot see its files; None if nothing is."""
        p = self._parameters()
        self._run(
            f"UPDATE {self._table} SET problem = {p.bind('problem', problem)} WHERE table_name = {p.bind('table', table)}",
            p.values,
        )

    # Which database this is

    def origin(self, proposed: str, identity: str) -> str:
        """Return the name by which archives know this database; the proposed one if it has none yet."""
        p, table = self._parameters(), self.dialect.own_table("archive_origin")
        values = f"1, {p.bind('origin', proposed)}, {p.bind('identity', identity)}"
        self._run(f"INSERT INTO {table} (id, origin, identity) VALUES ({values}) ON CONFLICT DO NOTHING", p.values)
        origin, _ = self.owner()
        assert origin is not None
        return origin

    def owner(self) -> tuple[str | None, str | None]:
        """Return the name by which archives know this database, and the identity of the database that may use it."""
        found = self._run(f"SELECT origin, identity FROM {self.dialect.own_table('archive_origin')}", {})
        return (found[0][0], found[0][1]) if found else (None, None)

    def own(self, origin: str, identity: str) -> None:
        """Make the database of this identity the one that may write under a name."""
        p = self._parameters()
        self._run(
            f"UPDATE {self.dialect.own_table('archive_origin')} SET origin = {p.bind('origin', origin)},"
            f" identity = {p.bind('identity', identity)}",
            p.values,
        )


def archive_findings(log: ArchiveLog) -> list[Finding]:
    """Return what the last archive command recorded as wrong with the archive's logs.

    For readers that cannot see its files.
    """
    fix = "see `wane health` where the archive's files are: `wane archive repair`, or a backup of the log"
    return [
        Finding(Severity.ERROR, "archive-log", problem, fix, table=table) for table, problem in log.problems().items()
    ]
