"""Every read is bounded: it stops when its time is up, says so, and leaves the connection usable."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest

from covering import EVENTS, HEALTHY, loaded, numbers
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Age
from wane._contract.names import TableName
from wane._db import Store, open_store
from wane._db.counting import Count, Exactness, count_rows, distinct, has_more_rows_than, sample
from wane._db.schema import Column, TableInfo
from wane._db.statement import Statement
from wane._db.url import resolve_url
from wane._rules.queries import queries_of
from wane._rules.reads import count_never_due, read_due
from wane._rules.selection import Selection, bind_contract
from wane.errors import Locked, StoreError, TimedOut

MANY = 300_000
FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n WHERE i < 0"


@pytest.fixture
def store(database: Database) -> Store:
    return open_store(resolve_url(database.url), read_only=True)


def fill(database: Database, rows: int = MANY) -> None:
    database.script("CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, at bigint, status text)")
    database.script("CREATE INDEX events_at ON events (at, id)")
    database.execute(f"INSERT INTO events SELECT n, 1700000000000 + n, 'new' FROM {numbers(rows)}")


def events(store: Store) -> tuple[TableInfo, Column, Selection]:
    schema = store.reflect()
    table = schema.find(None, "events")
    assert table is not None
    status = table.column("status")
    assert status is not None
    [selection], findings = bind_contract(loaded(EVENTS), schema, store.types)
    assert (findings, selection.name, type(selection.rule.bound)) == ([], TableName("events"), Age)
    return table, status, selection


def work(store: Store, source: str) -> float:
    """Measure the reading of a table's rows, in steps of SQLite's virtual machine or in PostgreSQL's pages."""
    text = f"SELECT id FROM {source} AS s"
    if store.kind == "postgres":
        [(plans,)] = store.read(Statement(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {text}", {}), 60)
        return float(plans[0]["Plan"]["Shared Hit Blocks"] + plans[0]["Plan"]["Shared Read Blocks"])
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 100
        return 0

    connection: Any = store._connection  # type: ignore[attr-defined]
    connection.set_progress_handler(count, 100)
    connection.execute(text).fetchall()
    connection.set_progress_handler(None, 0)
    return steps


@pytest.mark.parametrize("often", [False, True])
def test_names_are_written_in_the_encoding_of_the_connection(postgres_database: PostgresDatabase, often: bool) -> None:
    postgres_database.execute('CREATE TABLE "größe" (id integer)')
    url = postgres_database.url
    with open_store(resolve_url(f"{url}{'&' if '?' in url else '?'}client_encoding=latin1"), read_only=True) as store:
        counted = Statement('SELECT count(*), %(name)s::text FROM public."größe"', {"name": "größe"})
        assert store.read(counted, 5.0, often=often) == [(0, "größe")]


def test_a_read_that_takes_too_long_is_stopped(store: Store) -> None:
    with store:
        start = time.monotonic()
        with pytest.raises(TimedOut, match="a read took longer than it may"):
            store.read(Statement(FOREVER, {}), 0.2)
        assert 0.15 < time.monotonic() - start < 10
        # Neither the connection nor its next, quick read suffers from it.
        assert store.read(Statement("SELECT 1", {}), 0.2) == [(1,)]
        assert store.read(Statement("SELECT 2", {}), 60) == [(2,)]


def test_no_time_at_all_is_still_enough_for_a_trifle(sqlite_database: SqliteDatabase) -> None:
    with open_store(resolve_url(sqlite_database.url), read_only=True) as store:
        assert store.read(Statement("SELECT 1", {}), 0) == [(1,)]


def test_a_statement_that_is_wrong_is_not_taken_for_a_slow_one(store: Store) -> None:
    with store:
        with pytest.raises(StoreError) as caught:
            store.read(Statement("SELECT absent FROM nowhere", {}), 5)
        assert not isinstance(caught.value, TimedOut)
        assert "nowhere" in str(caught.value)
        assert store.read(Statement("SELECT 1", {}), 5) == [(1,)]


def test_what_is_counted_in_no_time_falls_back_to_less(database: Database, store: Store) -> None:
    fill(database)
    with store:
        table, status, selection = events(store)
        now = store.now()
        known = database.store == "postgres"
        for seconds in (0, 0.001):
            rows = count_rows(store, table, seconds)
            assert (rows is not None and rows.exactness is Exactness.ESTIMATE) if known else rows is None
            due = read_due(store, selection, now, seconds).count
            assert due is not None
            assert due.exactness is (Exactness.ESTIMATE if known else Exactness.AT_LEAST)
            assert distinct(store, table, status, 10, seconds) is None
            assert count_never_due(store, selection, 10, seconds) is None
            assert has_more_rows_than(store, table, MANY - 5, seconds) is None
            # Three of the first rows and two of the last ones, by a statement each.
            assert len(sample(store, table, status, 5, seconds)) in (0, 2, 3, 5)
        assert count_rows(store, table, 60) == Count(MANY)
        assert read_due(store, selection, now, 60).count == Count(MANY)
        assert distinct(store, table, status, 10, 60) == ["new"]
        assert count_never_due(store, selection, 10, 60) == 0
        assert has_more_rows_than(store, table, MANY - 1, 60) is True
        assert has_more_rows_than(store, table, MANY, 60) is False


def test_what_the_database_believes_counts_where_counting_takes_too_long(database: Database, store: Store) -> None:
    fill(database)
    database.execute("ANALYZE")
    with store:
        table, _, _ = events(store)
        assert table.rows_estimate == MANY
        count = count_rows(store, table, 0)
    assert count is not None
    assert (count.exactness, abs(count.rows - MANY) < MANY / 5) == (Exactness.ESTIMATE, True)


def test_a_large_table_is_not_even_counted(database: Database, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wane._db.counting._COUNTED_ROWS", 100)
    fill(database, 101)
    database.execute("ANALYZE")
    with store:
        table, _, _ = events(store)
        database.execute("DELETE FROM events WHERE id > 5")
        assert count_rows(store, table, 60) == Count(101, Exactness.ESTIMATE)


def test_values_are_reported_apart_by_hopping_along_an_index(database: Database, store: Store) -> None:
    fill(database)
    database.script("CREATE INDEX events_status ON events (status, at, id)")
    database.executemany("INSERT INTO events VALUES (?, ?, ?)", [(MANY + n, 5, f"s{n}") for n in range(5)])
    database.execute("INSERT INTO events VALUES (?, ?, ?)", (MANY + 9, 5, None))
    database.execute("ANALYZE")
    with store:
        table, status, _ = events(store)
        # SQLite reads the clock only every few thousand steps, and hopping takes fewer.
        seconds = 0 if database.store == "sqlite" else 5
        found = distinct(store, table, status, 10, seconds)
        assert found is not None
        assert set(found) == {"new", "s0", "s1", "s2", "s3", "s4", None}
        assert len(distinct(store, table, status, 3, seconds) or []) == 4


def test_an_estimate_that_cannot_be_made_is_no_estimate(postgres_database: PostgresDatabase) -> None:
    """Explaining waits for the same lock as reading does."""
    postgres_database.script(HEALTHY)
    blocker = postgres_database.connect()
    with blocker.transaction(), open_store(resolve_url(postgres_database.url), read_only=True) as store:
        [selection], _ = bind_contract(loaded(EVENTS), store.reflect(), store.types)
        blocker.execute("LOCK TABLE events IN ACCESS EXCLUSIVE MODE")
        store._connection.execute("SET lock_timeout = '100ms'")  # type: ignore[attr-defined]
        with pytest.raises(Locked):
            store.planner.estimate(queries_of(store).count_due(selection, store.now()))
        assert read_due(store, selection, store.now(), 0.2).count is None
        assert count_rows(store, selection.table, 10) is None


def test_a_sample_is_spread_over_the_whole_table_and_reads_a_part_of_it(database: Database, store: Store) -> None:
    fill(database)
    with store:
        table, _, _ = events(store)
        source = store.dialect.spread(table, 300, store.planner.estimate_rows(table))
        ids = sorted(number for (number,) in store.read(Statement(f"SELECT id FROM {source} AS s", {}), 5))
        everything = work(store, store.dialect.table(table))
        assert work(store, source) < everything / 10
        assert len(ids) == len(set(ids)) > 250
        assert all(any(tenth <= number < tenth + MANY // 10 for number in ids) for tenth in range(0, MANY, MANY // 10))
        assert ids == sorted(number for (number,) in store.read(Statement(f"SELECT id FROM {source} AS s", {}), 5))
        distances = {later - former for former, later in pairwise(ids)}
        assert len(distances) > 1  # Rows of one kind may stand at equal distances.


def test_partitions_are_sampled_too(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        "CREATE TABLE parted (id bigint PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (20000);"
        "CREATE TABLE high PARTITION OF parted DEFAULT"
    )
    postgres_database.execute(f"INSERT INTO parted SELECT n FROM {numbers(40_000)}")
    with open_store(resolve_url(postgres_database.url), read_only=True) as store:
        table = store.reflect().find(None, "parted")
        assert table is not None
        source = store.dialect.spread(table, 100, store.planner.estimate_rows(table))
        ids = [number for (number,) in store.read(Statement(f"SELECT id FROM {source} AS s", {}), 5)]
    assert len(ids) == 100
    assert 20 < sum(number < 20_000 for number in ids) < 80
