"""`kill -9` at every step of expiring, compacting and tidying, and at any time: what is due goes once and is reported
once, and nothing else goes.

A row that is not due is always hot or archived; when all is done every row, by key and content, is in one place, or in
the trail.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from archive.cold import CONTRACT, DAY_MS, NOW_MS, STAYING, archived
from crash.test_archive_kills import KILLS, MORE_TRIES, PATIENCE_SECONDS, SEED, Launcher, begin, kill_everywhere
from servers import Database, PostgresDatabase, SqliteDatabase

pytestmark = pytest.mark.crash

DIRECTED = [
    *("begin", "thin", "compare", "decide", "free", "record", "replace event", "replaced event"),
    *("replace event_read", "replaced event_read", "end", "sort", "sorted", "move", "unlink"),
]
"""Every step; the ordinary tests kill at a few of them on each store."""
ROWS = 12
KEEP_DAYS = 200


class Books:
    """What must hold of hot tables, archive and trail together."""

    def __init__(self, database: Database, cold: Path) -> None:
        self.database = database
        self.cold = cold
        self.due: dict[int, str] = {}
        self.staying: dict[int, str] = {}
        self.held: set[int] = set()

    def fill(self, ids: range) -> None:
        """Insert rows that are long due, due in the midst of a month, not due in it, and not due for long."""
        rows = []
        for n in ids:
            age = (260, KEEP_DAYS + 1 + n % 3, KEEP_DAYS - 2 - n % 3, 150)[n % 4]
            (self.due if age > KEEP_DAYS else self.staying)[n] = f"body {n}"
            rows.append((n, NOW_MS - age * DAY_MS - DAY_MS // 2, f"body {n}"))
        self.database.executemany("INSERT INTO event VALUES (?, 'done', ?, ?, 1)", rows)
        self.database.executemany(
            "INSERT INTO event_read VALUES (?, ?, 'me')", [(n * 10 + m, n) for n in ids for m in range(n % 3)]
        )

    def balance(self, *, done: bool) -> None:
        ever = {**self.due, **self.staying}
        contents: dict[int, Any] = {}
        cold = archived(self.cold / "event")
        hot: dict[int, str] = dict(self.database.query("SELECT id, body FROM event"))
        for row in cold:
            contents[row["id"]] = row["body"]
        contents |= {n: body for n, body in hot.items() if n not in STAYING}
        lost = set(ever) - set(contents)
        assert lost <= set(self.due) - self.held, f"lost {sorted(lost - set(self.due))[:10]}"
        assert contents == {n: ever[n] for n in contents}
        # A reader that sees a row in the archive sees what left with it; so it is for hot rows.
        reads = {n for (n,) in self.database.query("SELECT id FROM event_read")}
        reads |= {row["id"] for row in archived(self.cold / "event_read")}
        assert {n * 10 + m for n in contents for m in range(n % 3)} <= reads
        assert max(Counter(row["id"] for row in cold).values(), default=1) == 1
        if done:
            assert not set(hot) & {row["id"] for row in cold}
            assert lost == set(self.due) - self.held
            assert reads == {n * 10 + m for n in contents for m in range(n % 3)}
            reported = self._reported("archive_expire")
            assert reported["event"] == len(lost)
            assert reported["event_read"] == sum(n % 3 for n in lost)
            assert self._reported("archive")["event"] == len(ever)
            self._tidy()

    def _reported(self, kind: str) -> Counter[str]:
        audit = "wane_audit" if self.database.store == "sqlite" else "wane.audit"
        reported: Counter[str] = Counter()
        for (counts,) in self.database.query(f"SELECT counts FROM {audit} WHERE kind = ?", (kind,)):
            reported.update(json.loads(counts) if isinstance(counts, str) else counts)
        return reported

    def _tidy(self) -> None:
        """Require that every file on the disk is part of a table."""
        for table in ("event", "event_read"):
            folder = self.cold / table
            active = {os.path.realpath(path) for path in DeltaTable(str(folder)).file_uris()}
            assert {os.path.realpath(path) for path in folder.glob("_month=*/*.parquet")} == active
            assert not list(folder.glob("_wane-compact-*"))


class LifeLauncher(Launcher):
    """Starts processes that sweep, expire, compact and tidy, and kills them."""

    script = "archive_life_launcher.py"


EXPIRING = CONTRACT.replace('keep = "forever"', f'keep = "{KEEP_DAYS}d"')


def kill_and_check(database: Database, folder: Path, every: list[str]) -> None:
    launcher = LifeLauncher(begin(database, folder, EXPIRING), folder / "steps")
    books = Books(database, folder / "cold")
    try:
        books.fill(range(900_001, 900_001 + ROWS))
        launcher.finish(SEED)
        kill_everywhere(
            database,
            launcher,
            DIRECTED if KILLS else every,
            fill=lambda ids: books.fill(ids[:ROWS]),
            balance=lambda: books.balance(done=False),
            more_tries=MORE_TRIES,
        )
        launcher.finish(SEED)
        books.balance(done=True)
    finally:
        launcher.close()


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
def test_the_life_of_an_archive_of_sqlite_survives_kills(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    kill_and_check(sqlite_database, tmp_path, ["replaced event", "sorted", "unlink"])


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
@pytest.mark.sampled
def test_the_life_of_an_archive_of_postgres_survives_kills(durable_database: PostgresDatabase, tmp_path: Path) -> None:
    kill_and_check(durable_database, tmp_path, ["free", "replace event_read", "end"])


@pytest.mark.timeout(PATIENCE_SECONDS)
@pytest.mark.sampled
def test_several_at_once_do_everything_once(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    """Processes that sweep, expire, compact and tidy beside each other, killed and replaced meanwhile."""
    contract = begin(sqlite_database, tmp_path, EXPIRING)
    books = Books(sqlite_database, tmp_path / "cold")
    generator = random.Random(SEED)
    launchers = [LifeLauncher(contract, tmp_path / f"steps-{n}") for n in range(2)]
    try:
        for number in range(2 + KILLS // 4):
            books.fill(range(number * 100 + 1, number * 100 + 1 + ROWS))
            children = [launcher._start(generator.randrange(2**32), "-") for launcher in launchers]
            time.sleep(generator.uniform(1.0, 2.5))
            for launcher, child in zip(launchers, children, strict=True):
                os.kill(child, signal.SIGKILL)
                assert launcher._listen() == f"{-signal.SIGKILL}\n", "it ended by itself"
            books.balance(done=False)
        launchers[0].finish(SEED)
        books.balance(done=True)
    finally:
        for launcher in launchers:
            launcher.close()
