"""One pass over a small table of PostgreSQL reads what probes along its indexes read, for every kind of time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from covering import loaded
from servers import PostgresDatabase
from wane._contract.model import Contract
from wane._keeper import open_keeper

NOW = datetime.now(UTC).replace(microsecond=123_456)
KINDS: dict[str, tuple[str, str, Callable[[datetime], Any], tuple[Any, ...]]] = {
    "ms": ("bigint", 'unit = "ms"', lambda at: round(at.timestamp() * 1000), (0, -5, 2**62)),
    "s": ("integer", 'unit = "s"', lambda at: round(at.timestamp()), (0, -5, 2**31 - 1)),
    "timestamptz": ("timestamptz", 'unit = "native"', lambda at: at, ("infinity", "-infinity", "1970-01-01+00")),
    "timestamp": (
        "timestamp(3)",
        'unit = "native", zone = "Europe/Berlin"',
        lambda at: at.replace(tzinfo=None),
        ("infinity", "-infinity", "0001-01-01"),
    ),
    "text": ("text", 'unit = "iso"', lambda at: f"{at:%Y-%m-%dT%H:%M:%SZ}", ("", "9999-12-31T00:00:00Z", "never")),
}
NORMAL = tuple(NOW - timedelta(hours=hours) for hours in (1, 23.99, 25, 30, 900))


def contract(declared: str) -> Contract:
    return loaded(
        f"""
[health]
counted_rows = 20
[scheduler]
tick = {{ every = "5m" }}
[table.event]
scheduler = "tick"
why = "A test."
state = "state"
live = ["open"]
time = {{ column = "at", {declared} }}
[table.event.rule.done]
when = ["done"]
keep = "24h"
[table.event.rule.failed]
when = ["failed"]
keep = "20d"
[table.plain]
scheduler = "tick"
why = "A test."
time = {{ column = "at", {declared} }}
[table.plain.rule.old]
keep = "24h"
"""
    )


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_one_pass_reads_what_indexes_read(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, kind: str, indexed: bool
) -> None:
    column, declared, write, strange = KINDS[kind]
    promised = contract(declared)
    for table in ("event", "plain"):
        postgres_database.script(f"CREATE TABLE {table} (id bigint PRIMARY KEY, state text, at {column})")
    if indexed:
        postgres_database.script(
            "CREATE INDEX event_at ON event (state, at, id); CREATE INDEX plain_at ON plain (at, id)"
        )

    def read() -> list[object]:
        with open_keeper(postgres_database.url, contract=promised, actor="a test") as keeper:
            keeper.migrate()
            health = keeper.health().tables
            assert [one.pressure for one in health] == keeper.pressure()
            return [
                (one.pressure, [(rule.due, rule.oldest_due, rule.due_per_hour) for rule in one.rules]) for one in health
            ]

    def insert(states: tuple[str, ...], *times: object) -> None:
        for table in ("event", "plain"):
            [(last,)] = postgres_database.query(f"SELECT coalesce(max(id), 0) FROM {table}")
            rows = [(state, at) for at in times for state in states]
            postgres_database.executemany(
                f"INSERT INTO {table} VALUES (?, ?, ?)", [(last + n, *row) for n, row in enumerate(rows, 1)]
            )

    every = ("open", "done", "failed", "unknown")
    steps: list[tuple[tuple[str, ...], Any]] = [
        (every, ()),
        (every, (None,)),
        (every, map(write, NORMAL[:2])),
        (("unknown",), [write(NOW - timedelta(days=3_000)), write(NOW)]),
        *((every, (one,)) for one in strange),
        (every, map(write, NORMAL[2:])),
    ]
    for number, (states, times) in enumerate(steps):
        insert(states, *times)
        few = read()
        with monkeypatch.context() as patched:
            patched.setattr("wane._db.postgres.dialect.PostgresDialect.reads_few", False)
            assert read() == few, number
