"""`kill -9` at every step of a restore, and at any time, while rows go to the archive and back and the application
changes them: no row is ever in neither place, and when all is done, each is in one, as the application left it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from crash.test_archive_kills import (
    KILLS,
    PATIENCE_SECONDS,
    Application,
    Books,
    Launcher,
    begin,
    kill_while_it_works,
)
from servers import Database, PostgresDatabase, SqliteDatabase

pytestmark = [pytest.mark.crash]

DIRECTED = [
    *("stage", "look", "plan restore", "bring", "lock piece", "insert", "hold", "bring back"),
    *("restore to restored", "remove copies", "restore to done", "sweep out"),
]
"""Every step; the ordinary tests kill at a quarter of them on each store."""


class RestoreLauncher(Launcher):
    """Starts processes that restore and archive by turns, and kills them with their tasks."""

    script = "restore_launcher.py"


class RestoreBooks(Books):
    """What must hold of hot tables and archive together."""

    def reported(self) -> Counter[str]:
        """Return what left for the archive and did not come back, by the trail."""
        audit = "wane_audit" if self.database.store == "sqlite" else "wane.audit"
        left: Counter[str] = Counter()
        for kind, counts in self.database.query(
            f"SELECT kind, counts FROM {audit} WHERE kind IN ('archive', 'restore')"
        ):
            read: dict[str, int] = json.loads(counts) if isinstance(counts, str) else counts
            for table, rows in read.items():
                left[table] += rows if kind == "archive" else -rows
        return left


def kill_and_check(database: Database, folder: Path, every: list[str]) -> None:
    launcher = RestoreLauncher(begin(database, folder), folder / "steps")
    books = RestoreBooks(Application(database), folder / "cold")
    kill_while_it_works(launcher, books, DIRECTED if KILLS else every, "archive_restore")


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
@pytest.mark.sampled
def test_restores_to_sqlite_survive_kills(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    kill_and_check(sqlite_database, tmp_path, DIRECTED[1::4])


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
def test_restores_to_postgres_survive_kills(durable_database: PostgresDatabase, tmp_path: Path) -> None:
    kill_and_check(durable_database, tmp_path, DIRECTED[3::4])
