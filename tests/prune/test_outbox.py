"""Events in the application's own outbox: written by the transaction that deletes, exactly if it is committed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

import wane.sqlite
from covering import loaded
from prune.test_hard_deleted import TEXT
from servers import Database, PostgresDatabase
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._prune.pace import Pace
from wane._sqlfunctions import install
from wane.errors import ContractError, StoreError

COLUMNS = 'id = "{uuid}", kind = "{name}", part = "{domain}|{event}|{table}", many = "{rows}", at_ms = "{now_ms}", body = "{payload}"'
OUTBOX = (
    f'[excused]\noutbox = {{ elsewhere = "a test" }}\n[events.outbox]\ntable = "outbox"\ncolumns = {{ {COLUMNS} }}\n'
)
WRITTEN = f"{TEXT}\n{OUTBOX}prunes = true\n"
SMALL = Pace(target_seconds=1.0, duty=1.0, first_batch=4, least_batch=4, most_batch=4)


@contextmanager
def keeping(database: Database, text: str) -> Iterator[Keeper]:
    body = "text" if database.store == "sqlite" else "jsonb"
    database.script(
        "CREATE TABLE events (id bigint PRIMARY KEY, status text NOT NULL, at bigint NOT NULL);"
        "CREATE TABLE parts (id bigint PRIMARY KEY, event_id bigint REFERENCES events (id));"
        f"CREATE TABLE outbox (id text PRIMARY KEY, kind text NOT NULL, part text, many bigint, at_ms bigint, body {body})"
    )
    rows = [(n, "done" if n % 2 else "failed", 1_700_000_000_000 + n) for n in range(20)]
    database.executemany("INSERT INTO events VALUES (?, ?, ?)", rows)
    database.executemany("INSERT INTO parts VALUES (?, ?)", [(n, n) for n in range(20)])
    with Keeper(loaded(text), open_store(resolve_url(database.url))) as keeper:
        keeper.migrate()
        keeper.enable()
        yield keeper


def written(database: Database) -> list[tuple[Any, ...]]:
    return database.query("SELECT kind, many FROM outbox ORDER BY kind, many")


def bodies(database: Database) -> list[dict[str, Any]]:
    found = (body for (body,) in database.query("SELECT body FROM outbox ORDER BY kind"))
    return [json.loads(body) if isinstance(body, str) else body for body in found]


BOTH = [("system/events_hard_deleted", 4), ("system/parts_hard_deleted", 4)]


def test_a_prune_writes_one_event_for_every_table(database: Database) -> None:
    with keeping(database, WRITTEN) as keeper:
        done = keeper.prune("events", rule="old", limit=8)
        assert written(database) == BOTH
        event, part = bodies(database)
        assert (event["table"], event["rows"], event["audit"], event["rule"]) == ("events", 4, done.audit_id, "old")
        assert part["event"] == "system/parts_hard_deleted"
        [(reported,)] = database.query("SELECT part FROM outbox WHERE kind LIKE '%events%'")
        assert reported == "system|events_hard_deleted|events"
        keeper.prune("events", rule="marked", limit=8)
        assert written(database) == BOTH, "what is marked is not deleted"


def test_it_is_part_of_the_callers_transaction(database: Database) -> None:
    with keeping(database, WRITTEN) as keeper:
        connection = database.connect()
        connection.execute("BEGIN")
        keeper.prune("events", states=["done"], older_than=1_750_000_000, limit=8, connection=connection)
        assert connection.execute("SELECT count(*) FROM outbox").fetchall() != [(0,)]
        connection.execute("ROLLBACK")
        assert written(database) == []
        assert database.query("SELECT count(*) FROM events") == [(20,)]


def test_every_batch_of_a_sweep_writes_its_own(database: Database) -> None:
    with keeping(database, WRITTEN) as keeper:
        keeper.sweep("events.old", pace=SMALL, approve=["events.old"])
        found: dict[str, int] = dict(database.query("SELECT kind, sum(many) FROM outbox GROUP BY kind"))
        assert found == {"system/events_hard_deleted": 10, "system/parts_hard_deleted": 10}
        assert len(written(database)) >= 6
        [number] = {one["audit"] for one in bodies(database)}
        assert [entry.id for entry in keeper.audit() if entry.rule == "old"] == [number]


def test_what_cannot_be_written_is_not_deleted(database: Database) -> None:
    with keeping(database, WRITTEN) as keeper:
        database.script("ALTER TABLE outbox RENAME TO elsewhere")
        with pytest.raises(StoreError, match="cannot be written to outbox"):
            keeper.prune("events", rule="old", limit=8)
        [swept] = keeper.sweep("events.old", approve=["events.old"]).rules
        assert swept.outcome.value == "failed"
        assert database.query("SELECT count(*) FROM events") == [(20,)]
        assert keeper.audit(kind="prune") == []


def test_a_table_that_is_created_later_is_written_to(database: Database) -> None:
    with keeping(database, WRITTEN) as keeper:
        database.script("ALTER TABLE outbox RENAME TO elsewhere")
        with pytest.raises(StoreError, match="cannot be written to outbox"):
            keeper.prune("events", rule="old", limit=8)
        database.script("ALTER TABLE elsewhere RENAME TO outbox")
        keeper.prune("events", rule="old", limit=8)
        assert written(database) == BOTH


def first_schema(database: PostgresDatabase) -> str:
    """Create the schema that the default search path names first."""
    [(name,)] = database.query("SELECT quote_ident(current_user)")
    database.script(f"CREATE SCHEMA {name}")
    return str(name)


def test_a_table_that_moved_is_found(postgres_database: PostgresDatabase) -> None:
    with keeping(postgres_database, WRITTEN) as keeper:
        keeper.prune("events", rule="old", limit=2)
        postgres_database.script("CREATE SCHEMA away; ALTER TABLE outbox SET SCHEMA away")
        with pytest.raises(StoreError, match="cannot be written to outbox"):
            keeper.prune("events", rule="old", limit=8)
        first = first_schema(postgres_database)
        postgres_database.script(f"ALTER TABLE away.outbox SET SCHEMA {first}")
        keeper.prune("events", rule="old", limit=8)
        assert postgres_database.query(f"SELECT sum(many) FROM {first}.outbox") == [(10,)]


def test_the_table_is_located_once_for_the_rules_that_are_bound(postgres_database: PostgresDatabase) -> None:
    with keeping(postgres_database, WRITTEN) as keeper:
        keeper.prune("events", rule="old", limit=2)
        first = first_schema(postgres_database)
        postgres_database.script(f"CREATE TABLE {first}.outbox (LIKE public.outbox)")
        keeper.prune("events", rule="old", limit=2)
        assert postgres_database.query(f"SELECT count(*) FROM {first}.outbox") == [(0,)]
        assert postgres_database.query("SELECT sum(many) FROM public.outbox") == [(4,)]
        keeper.pruner.bindings.forget()
        keeper.prune("events", rule="old", limit=2)
        assert postgres_database.query(f"SELECT sum(many) FROM {first}.outbox") == [(2,)]


def test_the_table_is_the_keepers_in_a_callers_transaction_too(postgres_database: PostgresDatabase) -> None:
    with keeping(postgres_database, WRITTEN) as keeper:
        postgres_database.script("CREATE SCHEMA other; CREATE TABLE other.outbox (LIKE public.outbox)")
        with psycopg.connect(postgres_database.url, options="-c search_path=other") as connection:
            keeper.prune("events", rule="old", limit=8, connection=connection)
        assert written(postgres_database) == BOTH
        assert postgres_database.query("SELECT count(*) FROM other.outbox") == [(0,)]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", []),
        ("prunes = false", []),
        ('prunes = ["parts"]', BOTH[1:]),
        ('prunes = true\n[events]\nhard_deleted = ["events"]', BOTH[:1]),
    ],
    ids=["default", "off", "one table", "only what is reported at all"],
)
def test_which_are_written_is_a_setting(database: Database, setting: str, expected: list[Any]) -> None:
    with keeping(database, f"{TEXT}\n{OUTBOX}{setting}\n") as keeper:
        keeper.prune("events", rule="old", limit=8)
        assert written(database) == expected


def test_a_wrong_setting_is_refused() -> None:
    for wrong in ('"events"', "1", "[5]"):
        with pytest.raises(ContractError):
            loaded(f"{TEXT}\n{OUTBOX}prunes = {wrong}\n")


def test_functions_inside_postgresql_write_the_same(postgres_database: PostgresDatabase) -> None:
    with keeping(postgres_database, WRITTEN) as keeper:
        keeper.prune("events", rule="old", limit=8)
        engine = bodies(postgres_database)
        shape = postgres_database.query("SELECT kind, part, many FROM outbox ORDER BY kind")
        postgres_database.script("DELETE FROM outbox")
        install(keeper)
        [(done,)] = postgres_database.query("SELECT wane.prune('events', 'old', 8)")
        assert postgres_database.query("SELECT kind, part, many FROM outbox ORDER BY kind") == shape
        in_sql = bodies(postgres_database)
        assert [set(one) for one in in_sql] == [set(one) for one in engine]
        assert {one["audit"] for one in in_sql} == {done["audit_id"]}
        assert [(one["event"], one["rows"], one["rule"]) for one in in_sql] == [
            (one["event"], one["rows"], one["rule"]) for one in engine
        ]
        [(clock,)] = postgres_database.query(
            "SELECT abs(max(at_ms) - extract(epoch FROM now()) * 1000) < 60000 FROM outbox"
        )
        assert clock
        postgres_database.query("SELECT wane.prune('events', 'marked', 8)")
        assert len(written(postgres_database)) == 2
        postgres_database.script("ALTER TABLE outbox ADD CHECK (kind LIKE '%archived') NOT VALID")
        with pytest.raises(Exception, match="outbox"):
            postgres_database.query("SELECT wane.prune('events', 'old', 8)")
        assert postgres_database.query("SELECT count(*) FROM events WHERE status = 'done'") == [(2,)]


def test_functions_on_a_connection_of_sqlite_write_the_same(sqlite_database: Database) -> None:
    with keeping(sqlite_database, WRITTEN) as keeper:
        with closing(sqlite3.connect(sqlite_database.path, isolation_level=None)) as connection:  # type: ignore[attr-defined]
            wane.sqlite.register(connection, contract=keeper.contract)
            connection.execute("SELECT wane_prune('events', 'old', 8)").fetchall()
        assert written(sqlite_database) == BOTH
