"""A small application's database, with rows that are due, for the frameworks that Wane runs in."""

from __future__ import annotations

from pathlib import Path

from servers import Database

CONTRACT = """\
[scheduler]
tick = { every = "1s" }

[table.jobs]
why       = "A job that runs stays."
scheduler = "tick"
state     = "status"
live      = ["running"]
time      = { column = "finished_at_ms", unit = "ms" }

[table.jobs.rule.done]
when = ["done"]
keep = "7d"
"""
DUE = 5
FRESH_MS = 4_102_444_800_000
"""The year 2100: no rule takes such a row here."""


def make_shop(database: Database, folder: Path) -> Path:
    """Create the table with its rows, and write the contract; return its path."""
    database.execute("CREATE TABLE jobs (id bigint PRIMARY KEY, status text NOT NULL, finished_at_ms bigint NOT NULL)")
    database.execute("CREATE INDEX jobs_age ON jobs (status, finished_at_ms)")
    for number in range(DUE):
        database.execute(f"INSERT INTO jobs VALUES ({number}, 'done', 1000000000000)")
    database.execute(f"INSERT INTO jobs VALUES (100, 'done', {FRESH_MS}), (101, 'running', 1000000000000)")
    contract = folder / "wane.toml"
    contract.write_text(CONTRACT, encoding="utf-8")
    return contract


def left_over(database: Database) -> list[int]:
    """Return the keys of the jobs that are still there."""
    return [int(row[0]) for row in database.query("SELECT id FROM jobs ORDER BY id")]
