"""Commands that only read write nothing and wait for no writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from archive.inline import without_spark
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
    "migrate --print": 0,
    "archive run --dry-run": 0,
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
READS_OF_FILLED = {
    "claims list": [],
    "claims vacuum --completed-age-hours 1 --dry-run": {},
    "archive run --dry-run": {"rules": [{"table": "event", "due": 0}]},
    "archive query event": [{"id": 2}, {"id": 3}],
    "archive expire --dry-run": [{"table": "event", "outcome": "done", "rows": {"event": {"2020-09": 2}}}],
    "archive expire --erase-absent --dry-run": [{"table": "event", "outcome": "done", "rows": {}}],
    "archive compact --dry-run": [{"table": "event", "outcome": "done", "files": 2}],
    "archive tidy --dry-run": [{"table": "event", "outcome": "done", "files": 0}],
    "archive restore event --where id=2 --dry-run": {"chosen": {"event": 1}, "restored": {"event": 1}},
    "archive restore event --where id=2 --into side --dry-run": {"chosen": {"event": 1}, "restored": {"event": 1}},
}
"""Commands that read the database once it has claims and archived rows, with part of what each of them reports."""
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


@contextmanager
def writer(database: SqliteDatabase) -> Iterator[None]:
    """Hold the write lock, as an application does inside its transaction; nobody else may commit meanwhile."""
    watcher = sqlite3.connect(database.path)
    commits = watcher.execute("PRAGMA data_version").fetchone()
    with sqlite3.connect(database.path, isolation_level=None) as application:
        application.execute("BEGIN IMMEDIATE")
        application.execute("INSERT INTO event VALUES (9, 0)")
        yield
        application.execute("ROLLBACK")
    assert watcher.execute("PRAGMA data_version").fetchone() == commits, "something was written"


@pytest.mark.parametrize(("command", "code"), READS.items())
def test_a_command_that_reads_does_not_wait_for_a_writer(
    sqlite_database: SqliteDatabase, contract: Path, command: str, code: int, wane: Wane
) -> None:
    where = ["--url", sqlite_database.url, "--contract", contract] if command != "init" else [sqlite_database.url]
    with writer(sqlite_database):
        done = wane(*command.split(), *where)
        assert done.code == code, done.out + done.err
        assert "database is locked" not in done.out + done.err


@pytest.fixture
def filled(sqlite_database: SqliteDatabase, contract: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Add claims, and two archived rows in two files."""
    without_spark(monkeypatch)
    contract.write_text(CONTRACT.replace('keep = "forever"', 'keep = "365d"'))
    with open_keeper(sqlite_database.url, contract=contract) as keeper:
        keeper.claims().install()
        keeper.enable()
        for number in (2, 3):
            sqlite_database.execute("INSERT INTO event VALUES (?, 1600000000000)", (number,))
            [moved] = keeper.archive.run().rules
            assert moved.evicted == {"event": 1}
    return contract


def test_a_command_that_reads_claims_or_archived_rows_does_not_wait_for_a_writer(
    sqlite_database: SqliteDatabase, filled: Path, wane: Wane
) -> None:
    where = ["--json", "--url", sqlite_database.url, "--contract", filled]
    with writer(sqlite_database):
        done = {command: wane(*command.split(), *where) for command in READS_OF_FILLED}
    assert {command: (one.code, one.err) for command, one in done.items() if one.code} == {}
    assert {command: _part(READS_OF_FILLED[command], one.json) for command, one in done.items()} == READS_OF_FILLED


def _part(wanted: object, found: Any) -> object:
    """Return the part of a document that is wanted."""
    if isinstance(wanted, list) and len(wanted) == len(found):
        return [_part(part, one) for part, one in zip(wanted, found, strict=True)]
    return {key: _part(part, found[key]) for key, part in wanted.items()} if isinstance(wanted, dict) else found


def test_a_read_only_keeper_reports_the_status(sqlite_database: SqliteDatabase, contract: Path) -> None:
    with open_keeper(sqlite_database.url, contract=contract, read_only=True) as keeper:
        assert not keeper.status().alive
        assert keeper.audit() == []
        assert [one.reason for one in keeper.holds()] == ["kept for a test"]
