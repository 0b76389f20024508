"""Commands that only read write nothing and wait for no writer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from cli.conftest import Wane
from servers import SqliteDatabase
from wane._keeper import open_keeper

CONTRACT = """
[scheduler]
night = { every = "1h" }
[archive]
url = "cold"
[archive.event]
keep = "forever"
[table.event]
scheduler = "night"
why = "Replay history."
time = { column = "at_ms", unit = "ms" }
[table.event.rule.cold]
keep = "30d"
then = "archive"
"""


@pytest.fixture
def contract(sqlite_database: SqliteDatabase, tmp_path: Path) -> Path:
    sqlite_database.execute("CREATE TABLE event (id integer PRIMARY KEY, at_ms integer)")
    sqlite_database.execute("INSERT INTO event VALUES (1, 0)")
    file = tmp_path / "wane.toml"
    file.write_text(CONTRACT)
    with open_keeper(sqlite_database.url, contract=file) as keeper:
        keeper.migrate()
        keeper.hold("event", {"id": 1}, reason="kept for a test")
    return file


@pytest.mark.parametrize(
    "command",
    [
        *("audit list", "hold list", "status", "plan", "pressure", "health", "check --cover", "check --live"),
        *("archive status event", "archive restores", "queue list sweep", "growth", "space"),
    ],
)
def test_a_command_that_reads_does_not_wait_for_a_writer(
    sqlite_database: SqliteDatabase, contract: Path, command: str, wane: Wane
) -> None:
    watcher = sqlite3.connect(sqlite_database.path)
    commits = watcher.execute("PRAGMA data_version").fetchone()
    with sqlite3.connect(sqlite_database.path, isolation_level=None) as application:
        application.execute("BEGIN IMMEDIATE")
        application.execute("INSERT INTO event VALUES (2, 0)")
        done = wane(*command.split(), "--url", sqlite_database.url, "--contract", contract)
        assert "database is locked" not in done.out + done.err
        application.execute("ROLLBACK")
    assert watcher.execute("PRAGMA data_version").fetchone() == commits, "something was written"


def test_a_read_only_keeper_answers_how_things_stand(sqlite_database: SqliteDatabase, contract: Path) -> None:
    with open_keeper(sqlite_database.url, contract=contract, read_only=True) as keeper:
        assert not keeper.status().alive
        assert keeper.audit() == []
        assert [one.reason for one in keeper.holds()] == ["kept for a test"]
