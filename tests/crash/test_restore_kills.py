"""`kill -9` at every step of a restore, and at any moment, while rows go to the archive and back and the application changes them: no row is
ever in neither place, and when all is done, each is in one, as the application left it."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, STAYING, archived, events
from crash.test_archive_kills import ROWS, SEED, Application, Books, Launcher
from crash.test_kills import await_silence
from servers import Database, PostgresDatabase, SqliteDatabase
from wane.keeper import open_keeper

pytestmark = [pytest.mark.crash]

KILLS = int(os.environ.get("WANE_KILLS", "0")) // 4
DIRECTED = [
    *("stage", "look", "plan restore", "bring", "lock piece", "insert", "hold", "bring back"),
    *("restore to restored", "remove copies", "restore to done", "sweep out"),
]
"""Every step; the ordinary tests kill at a quarter of them on each store."""


class RestoreLauncher(Launcher):
    """Starts processes that restore and archive by turns, and kills them with their tasks."""

    def kill(self, child: int) -> None:
        os.killpg(child, signal.SIGKILL)


class RestoreBooks(Books):
    """What must hold of hot tables and archive together."""

    def told(self) -> Counter[str]:
        """What left for the archive and did not come back, by the trail."""
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
    contract = folder / "wane.toml"
    contract.write_text(CONTRACT.format(url=json.dumps(database.url)))
    events(database, 0)
    with open_keeper(contract=contract) as keeper:
        keeper.migrate()
        keeper.enable()
    application = Application(database)
    books = RestoreBooks(application, folder / "cold")
    generator = random.Random(SEED)
    hit: Counter[str] = Counter()
    launcher = RestoreLauncher(contract, folder / "steps", "restore_launcher.py")
    every = DIRECTED if KILLS else every
    targets: list[Any] = [*generator.sample(every, len(every)), *["-"] * KILLS]
    try:
        with application.working():
            for number, target in enumerate(targets):
                ids = range(number * 100 + 1, number * 100 + 1 + ROWS)
                application.fill(ids)
                books.reads |= {n * 10 + m for n in ids for m in range(n % 3)}
                hit[launcher.kill_at(generator.randrange(2**32), target)] += 1
                await_silence(database)
                books.balance(done=False)
        missed = set(every) - set(hit)
        assert not missed, f"never hit: {missed}; hit: {dict(hit)}"
        launcher.finish(SEED)
        books.balance(done=True)
        assert {row for (row,) in database.query("SELECT id FROM event")} == set(STAYING)
        assert len(archived(folder / "cold" / "event")) == len(application.bodies)
        journal = "wane_archive_restore" if database.store == "sqlite" else "wane.archive_restore"
        assert database.query(f"SELECT DISTINCT state FROM {journal}") == [("done",)]
    finally:
        launcher.close()
    sys.stdout.write(f"seed {SEED}: {hit.total()} kills: {dict(sorted(hit.items()))}\n")


@pytest.mark.timeout(180 + 10 * KILLS)
def test_restores_to_sqlite_survive_kills(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    kill_and_check(sqlite_database, tmp_path, DIRECTED[1::6])


@pytest.mark.timeout(180 + 10 * KILLS)
def test_restores_to_postgres_survive_kills(durable_database: PostgresDatabase, tmp_path: Path) -> None:
    kill_and_check(durable_database, tmp_path, DIRECTED[4::6])
