"""Commands that only read write nothing and wait for no writer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from cli.conftest import Wane
from servers import SqliteDatabase
from wane._cli import commands
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
[table.job]
scheduler = "night"
why = "Done."
time = { column = "at_ms", unit = "ms" }
[table.job.rule.old]
keep = "30d"
"""


@pytest.fixture
def contract(sqlite_database: SqliteDatabase, tmp_path: Path) -> Path:
    sqlite_database.execute("CREATE TABLE event (id integer PRIMARY KEY, at_ms integer)")
    sqlite_database.execute("CREATE TABLE job (id integer PRIMARY KEY, at_ms integer)")
    sqlite_database.execute("INSERT INTO event VALUES (1, 0)")
    file = tmp_path / "wane.toml"
    file.write_text(CONTRACT)
    with open_keeper(sqlite_database.url, contract=file) as keeper:
        keeper.migrate()
        keeper.hold("event", {"id": 1}, reason="kept for a test")
    return file


READS = {
    "check --cover": 0,
    "check --live": 0,
    "plan": 0,
    "prune job.old --dry-run": 0,
    "sweep --dry-run": 0,
    "approve --dry-run": 0,
    "audit list": 0,
    "hold list": 0,
    "queue list --pool sweep": 0,
    "queue show nothing --pool sweep": 1,
    "queue dead list --pool sweep": 0,
    "queue dead show nothing --pool sweep": 1,
    "claims list": 1,
    "claims show nothing": 1,
    "status": 0,
    "health": 1,
    "pressure": 0,
    "why event 1": 0,
    "growth show": 0,
    "space": 0,
    "archive status event": 0,
    "archive ls": 0,
    "archive absent event": 0,
    "archive query event": 1,
    "archive restores": 0,
    "token list": 0,
    "init": 0,
}
"""Commands that read the database, with their exit codes on this one."""
WITHOUT_DATABASE = {"explain", "schema", "alerts", "sql print"}
ON_SPARK = {"archive survey"}
"""Commands that read files of the archive on Spark, which takes long to start."""
ON_POSTGRES = {"partition plan", "roles", "sql status"}
"""Commands that read what only PostgreSQL has."""
CHANGES = {
    *("apply", "sweep", "approve", "prune", "hold add", "hold release", "run", "adopt", "enable", "disable", "serve"),
    *("queue enqueue", "queue notify", "queue expire", "queue dead resolve", "queue dead requeue"),
    *("claims install", "claims return-expired", "claims vacuum", "coordination work-vacuum", "growth snapshot"),
    *("archive run", "archive verify", "archive restore", "archive cancel-restore", "archive expire"),
    *("archive compact", "archive tidy", "archive repair", "archive adopt", "migrate", "demo"),
    *("partition convert", "partition maintain", "partition retire", "partition undo"),
    *("token create", "token revoke", "sql install", "sql uninstall"),
}


def test_every_command_is_known_to_read_or_to_write() -> None:
    names = {" ".join(path) for path, _ in commands()}
    reads = {name for name in names for command in READS if f"{command} ".startswith(f"{name} ")}
    assert reads | WITHOUT_DATABASE | ON_SPARK | ON_POSTGRES | CHANGES == names


@pytest.mark.parametrize(("command", "code"), READS.items())
def test_a_command_that_reads_does_not_wait_for_a_writer(
    sqlite_database: SqliteDatabase, contract: Path, command: str, code: int, wane: Wane
) -> None:
    where = ["--url", sqlite_database.url, "--contract", contract] if command != "init" else [sqlite_database.url]
    watcher = sqlite3.connect(sqlite_database.path)
    commits = watcher.execute("PRAGMA data_version").fetchone()
    with sqlite3.connect(sqlite_database.path, isolation_level=None) as application:
        application.execute("BEGIN IMMEDIATE")
        application.execute("INSERT INTO event VALUES (2, 0)")
        done = wane(*command.split(), *where)
        assert done.code == code, done.out + done.err
        assert "database is locked" not in done.out + done.err
        application.execute("ROLLBACK")
    assert watcher.execute("PRAGMA data_version").fetchone() == commits, "something was written"


def test_a_read_only_keeper_reports_the_status(sqlite_database: SqliteDatabase, contract: Path) -> None:
    with open_keeper(sqlite_database.url, contract=contract, read_only=True) as keeper:
        assert not keeper.status().alive
        assert keeper.audit() == []
        assert [one.reason for one in keeper.holds()] == ["kept for a test"]
