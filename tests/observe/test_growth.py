"""Snapshots of tables and what is reported from them, on every store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from covering import loaded, numbers
from schedule.scheduling import Clock
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Contract
from wane._contract.settings import GrowthSettings
from wane._db import open_store
from wane._db.counting import measure_rows
from wane._db.sizes import read_sizes
from wane._db.url import resolve_url
from wane._forecast import Verdict
from wane._keeper import Keeper
from wane._leases import Leases
from wane._schedule.own_tables import clean_own_tables
from wane.errors import NotMigrated, StoreError, UnknownTable
from wane.events import Event, SnapshotTaken, TableNearThreshold
from wane.observe._gauge import DAYS_TO, NEAR, SNAPSHOT_AGE, TABLE_RATE, TABLE_ROWS, TABLE_ROWS_EXACT
from wane.observe._gauges import Gauges
from wane.observe._growth import GrowthChore
from wane.observe._sql_snapshots import Snapshot, Snapshots

TEXT = """
[scheduler]
s = { every = "5m" }
[table.events]
scheduler = "s"
why = "A test."
time = { column = "at", unit = "ms" }
[table.events.rule.old]
keep = "7d"
[excused]
cache = { singleton = "one row" }
"""
NOW = datetime(2100, 6, 1, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def reported() -> list[Event]:
    return []


@pytest.fixture
def keeper(database: Database, clock: Clock, reported: list[Event]) -> Iterator[Keeper]:
    database.script(
        "CREATE TABLE events (id bigint PRIMARY KEY, at bigint); CREATE TABLE cache (id integer PRIMARY KEY);"
        f"INSERT INTO events SELECT n, n FROM {numbers(300)}; INSERT INTO cache VALUES (1);"
        "CREATE VIEW seen AS SELECT * FROM events;"
    )
    with Keeper(loaded(TEXT), open_store(resolve_url(database.url)), listener=reported.append) as opened:
        opened.migrate()
        yield opened


def full(keeper: Keeper, table: str = "events") -> str:
    return f"{'main' if keeper.store.kind == 'sqlite' else 'public'}.{table}"


def remember(keeper: Keeper, table: str, *series: tuple[timedelta, int | None]) -> None:
    """Store snapshots of the past: how long ago, and how many rows."""
    snapshots = Snapshots(keeper.store.dialect)
    with keeper.store.transaction() as transaction:
        for ago, rows in series:
            snapshots.write(
                transaction.execute, Snapshot(NOW - ago, full(keeper, table), rows, True, (rows or 0) * 100, True)
            )


def stored(database: Database) -> list[tuple[Any, ...]]:
    table = "wane_snapshot" if database.store == "sqlite" else "wane.snapshot"
    return database.query(f"SELECT table_name, grain, row_count FROM {table} ORDER BY taken_at, table_name")


def test_every_table_is_measured_and_views_are_not(keeper: Keeper, reported: list[Event]) -> None:
    taken = {one.table: one for one in keeper.take_snapshots()}
    assert {name: (one.rows, one.exact) for name, one in taken.items()} == {
        full(keeper): (300, True),
        full(keeper, "cache"): (1, True),
    }
    assert all(one.bytes and one.bytes >= 4096 and one.bytes_exact for one in taken.values())
    [event] = [one for one in reported if isinstance(one, SnapshotTaken)]
    assert (event.tables, event.counted) == (2, 2)


def test_one_snapshot_gives_sizes_and_no_rate(keeper: Keeper) -> None:
    keeper.take_snapshots()
    [one] = keeper.growth("events")
    assert (one.rows, one.exact, one.verdict, one.rate, one.forecast) == (300, True, Verdict.UNKNOWN, None, ())
    assert [(each.threshold, each.days, each.word) for each in one.days] == [
        (1_000_000, None, "n/a"),
        (5_000_000, None, "n/a"),
    ]


def test_nothing_measured_is_reported_as_nothing(keeper: Keeper) -> None:
    for one in keeper.growth():
        assert (one.taken_at, one.rows, one.bytes, one.alert, one.history) == (None, None, None, None, ())
        assert one.as_json()["days_to"]["1000000"]["days"] == "n/a"


def test_a_table_that_grows_states_when_it_will_be_too_large(keeper: Keeper) -> None:
    remember(keeper, "events", *((day * DAY, 900_000 - day * 10_000) for day in range(20)))
    [one] = keeper.growth("events")
    assert one.rate is not None
    assert one.rate.rate == pytest.approx(10_000)
    assert [each.days for each in one.days] == pytest.approx([10, 410])
    assert [each.rows for each in one.forecast] == [970_000, 1_200_000, 1_800_000]
    assert one.bytes_rate is not None
    assert one.bytes_rate.rate == pytest.approx(1_000_000)
    assert one.alert is not None
    assert (one.alert.threshold, one.alert.reason) == (1_000_000, "near")


@pytest.mark.parametrize(
    ("rows", "a_day", "alert"),
    [
        (700_000, 1_000, None),
        (700_000, 10_001, (1_000_000, "forecast")),
        (800_000, 0, (1_000_000, "near")),
        (799_999, 0, None),
        (1_000_000, 0, (1_000_000, "reached")),
        (3_999_999, 0, (1_000_000, "reached")),
        (4_000_000, 0, (5_000_000, "near")),
        (5_000_000, -1, (5_000_000, "reached")),
        (0, 0, None),
    ],
)
def test_a_table_is_reported_before_the_threshold(
    keeper: Keeper, rows: int, a_day: int, alert: tuple[int, str] | None
) -> None:
    remember(keeper, "events", *((day * DAY, rows - day * a_day) for day in range(10)))
    [one] = keeper.growth("events")
    assert (one.alert and (one.alert.threshold, one.alert.reason)) == alert


def test_thresholds_are_settings(keeper: Keeper) -> None:
    keeper.contract = replace(keeper.contract, growth=GrowthSettings(thresholds=(200, 500), near=0.5))
    keeper.take_snapshots()
    [one] = keeper.growth("events")
    assert one.alert is not None
    assert (one.alert.threshold, one.alert.reason) == (500, "near")


def test_a_snapshot_of_the_same_minute_replaces_the_first(keeper: Keeper, database: Database) -> None:
    keeper.take_snapshots()
    database.execute("DELETE FROM events WHERE id >= 100")
    keeper.take_snapshots()
    assert stored(database) == [(full(keeper, "cache"), "day", 1), (full(keeper), "day", 100)]


def test_snapshots_are_thinned_out_and_leave(keeper: Keeper, database: Database, clock: Clock) -> None:
    hour = timedelta(hours=1)
    remember(keeper, "events", *((number * hour, number) for number in range(24 * 16, -1, -1)))
    remember(keeper, "events", (399 * DAY, 1), (401 * DAY, 2))
    assert len(stored(database)) == 24 * 16 + 3
    clean_own_tables(keeper.store, keeper.contract, actor="test")
    left = stored(database)
    assert [row[1] for row in left].count("fine") <= 24 * 14 + 1
    # Of the days before the last fourteen one each is left, of what is older than 400 days nothing.
    assert [row[1] for row in left].count("day") == 18
    assert (full(keeper), "day", 1) in left
    assert len(left) < 24 * 14 + 20


def test_timestamps_that_a_clock_dated_into_the_future_are_ignored(keeper: Keeper, clock: Clock) -> None:
    remember(keeper, "events", *((day * DAY, 1_000 - day) for day in range(5)))
    remember(keeper, "events", (-2 * DAY, 999_999_999))
    [one] = keeper.growth("events")
    assert one.rows == 1_000
    assert one.rate is not None
    assert one.rate.rate == pytest.approx(1)
    chore = GrowthChore(keeper.contract, keeper.pruner.listener)
    clock.advance(hours=2)
    chore(keeper.store, "me")
    assert keeper.growth("events")[0].rows == 300


def test_rows_that_could_not_be_counted_are_no_zeros(keeper: Keeper) -> None:
    remember(keeper, "events", *((day * DAY, 5_000 + (9 - day) * 10) for day in range(1, 10)), (timedelta(0), None))
    [one] = keeper.growth("events")
    assert one.rows == 5_080
    assert one.rate is not None
    assert one.rate.rate == pytest.approx(10)
    assert one.taken_at == NOW


def test_the_chore_measures_once_in_an_interval_in_all_processes_together(
    keeper: Keeper, database: Database, clock: Clock
) -> None:
    chores = [GrowthChore(keeper.contract, keeper.pruner.listener) for _ in "ab"]
    for _ in range(25):
        for number, chore in enumerate(chores):
            chore(keeper.store, f"runner {number}")
        clock.advance(minutes=5)
    timestamps = {
        row[0]
        for row in database.query(
            f"SELECT DISTINCT taken_at FROM {'wane_snapshot' if database.store == 'sqlite' else 'wane.snapshot'}"
        )
    }
    assert len(timestamps) == 3


def test_the_chore_waits_while_another_process_measures(keeper: Keeper, database: Database, clock: Clock) -> None:
    store = keeper.store
    taken, _ = Leases(store.dialect).take(store.run, "growth", "other", clock.now + timedelta(minutes=1), clock.now)
    assert taken
    chore = GrowthChore(keeper.contract, keeper.pruner.listener)
    chore(store, "me")
    assert stored(database) == []
    clock.advance(minutes=2)
    chore(store, "me")
    assert len(stored(database)) == 2
    assert keeper.status().sweeps == ()


def test_a_table_near_its_threshold_is_reported_once_a_day(keeper: Keeper, reported: list[Event], clock: Clock) -> None:
    keeper.contract = replace(keeper.contract, growth=GrowthSettings(thresholds=(310,)))
    chore = GrowthChore(keeper.contract, keeper.pruner.listener, clock=lambda: clock.now.timestamp())
    for _ in range(49):
        chore(keeper.store, "me")
        clock.advance(hours=1)
    near = [one for one in reported if isinstance(one, TableNearThreshold)]
    assert [(one.table, one.rows, one.threshold, one.reason) for one in near] == [("events", 300, 310, "near")] * 3


def test_a_runner_measures_by_itself(database: Database) -> None:
    database.script("CREATE TABLE events (id bigint PRIMARY KEY, at bigint); CREATE TABLE cache (id integer)")
    stop, reported = threading.Event(), list[Event]()

    def listen(event: Event) -> None:
        reported.append(event)
        if isinstance(event, SnapshotTaken):
            stop.set()

    with Keeper(loaded(TEXT), open_store(resolve_url(database.url)), listener=listen) as keeper:
        keeper.migrate()
        ending = threading.Timer(20, stop.set)
        ending.start()
        keeper.run(workers=0, stop=stop)
        ending.cancel()
        assert [one for one in reported if isinstance(one, SnapshotTaken)]
        assert keeper.growth("events")[0].rows == 0


def test_gauges_show_what_was_measured(keeper: Keeper) -> None:
    remember(keeper, "events", *((day * DAY, 900_000 - day * 10_000) for day in range(1, 20)))
    remember(keeper, "cache", *((day * DAY, 1) for day in range(1, 20)))
    snapshots = Snapshots(keeper.store.dialect)
    with keeper.store.transaction() as transaction:
        for table, rows, rate in (("events", 900_000, 10_000.0), ("cache", 1, 0.0)):
            known = Snapshot(NOW, full(keeper, table), rows, True, 4096, True, rate, rate, rate)
            snapshots.write(transaction.execute, known)
    values = Gauges(keeper.contract, budget_seconds=30).read(keeper.store)
    assert sorted(values[TABLE_ROWS]) == [(("cache",), 1), (("events",), 900_000)]
    assert sorted(values[TABLE_ROWS_EXACT]) == [(("cache",), 1), (("events",), 1)]
    assert sorted(values[TABLE_RATE]) == [(("cache",), 0.0), (("events",), 10_000.0)]
    assert sorted(values[DAYS_TO]) == [(("events", "1000000"), 10.0), (("events", "5000000"), 410.0)]
    assert {labels for labels, value in values[NEAR] if value} == {("events", "1000000")}
    assert values[SNAPSHOT_AGE] == [((), 0.0)]


def test_gauges_without_snapshots_have_no_values(keeper: Keeper) -> None:
    values = Gauges(keeper.contract, budget_seconds=30).read(keeper.store)
    assert SNAPSHOT_AGE not in values
    assert TABLE_ROWS not in values


@pytest.mark.parametrize("name", ["nothing", "seen", "", "events; DROP TABLE events", "main.public.events"])
def test_a_table_that_is_not_measured_is_refused(keeper: Keeper, name: str) -> None:
    with pytest.raises(UnknownTable):
        keeper.growth(name)


def test_a_table_is_found_by_its_full_name_and_a_hostile_one_is_just_a_name(keeper: Keeper, database: Database) -> None:
    database.execute('CREATE TABLE "Odd ""name"" % .x" (id integer)')
    keeper.take_snapshots()
    assert keeper.growth(full(keeper))[0].table == "events"
    [odd] = [one for one in keeper.growth() if "Odd" in one.table]
    assert (odd.rows, odd.table) == (0, '"Odd ""name"" % .x"')


def test_a_read_only_database_is_read_and_not_measured(keeper: Keeper, database: Database) -> None:
    keeper.take_snapshots()
    with Keeper(keeper.contract, open_store(resolve_url(database.url), read_only=True)) as reader:
        assert reader.growth("events")[0].rows == 300
        with pytest.raises(StoreError):
            reader.take_snapshots()


@pytest.mark.unmigrated
def test_without_own_tables_it_states_what_to_run(database: Database) -> None:
    with Keeper(loaded(TEXT), open_store(resolve_url(database.url))) as opened:
        for call in (opened.growth, opened.take_snapshots):
            with pytest.raises(NotMigrated, match="wane migrate"):
                call()


def test_what_takes_too_long_to_count_is_estimated_and_reports_it(database: Database) -> None:
    database.script("CREATE TABLE events (id bigint PRIMARY KEY, at bigint); CREATE TABLE cache (id integer)")
    database.execute(f"INSERT INTO events SELECT n, n FROM {numbers(400_000)}")
    database.execute("ANALYZE events")
    contract: Contract = replace(loaded(TEXT), growth=GrowthSettings(count_within=timedelta(microseconds=1)))
    with Keeper(contract, open_store(resolve_url(database.url))) as keeper:
        keeper.migrate()
        [one] = [one for one in keeper.take_snapshots() if one.table.endswith("events")]
    assert not one.exact
    assert one.rows == pytest.approx(400_000, rel=0.05)
    assert one.bytes is not None


def test_the_size_of_a_table_is_sampled_where_pages_cannot_be_counted(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_database.script("CREATE TABLE events (id integer PRIMARY KEY, at integer, body text)")
    sqlite_database.executemany("INSERT INTO events VALUES (?, 1, ?)", [(n, "x" * 100) for n in range(500)])
    monkeypatch.setattr("wane._db.sqlite.sizes._PAGES", "SELECT no_such_thing FROM dbstat_is_not_built_in")
    with open_store(resolve_url(sqlite_database.url)) as store:
        [table] = store.reflect().tables
        size = read_sizes(store, [(table, 500)], 1.0)[table.qualified]
        assert (size.exact, read_sizes(store, [(table, None)], 1.0)) == (False, {})
    assert size.bytes == pytest.approx(500 * 115, rel=0.1)


def test_a_partitioned_table_is_the_sum_of_its_partitions(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        "CREATE TABLE events (id bigint, at bigint) PARTITION BY RANGE (id);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (1000);"
        "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (1000) TO (2000);"
        f"INSERT INTO events SELECT n, n FROM {numbers(2000)}"
    )
    with Keeper(loaded(TEXT.partition("[excused]")[0]), open_store(resolve_url(postgres_database.url))) as keeper:
        keeper.migrate()
        [one] = keeper.take_snapshots()
    assert (one.table, one.rows) == ("public.events", 2_000)
    [(size,)] = postgres_database.query(
        "SELECT pg_total_relation_size('events_1') + pg_total_relation_size('events_2')"
    )
    assert one.bytes == size


def test_a_role_that_may_not_read_a_table_still_sees_how_large_it_is(
    postgres_database: PostgresDatabase,
) -> None:
    postgres_database.script(
        f"CREATE TABLE events (id bigint, at bigint); INSERT INTO events SELECT n, n FROM {numbers(5000)}"
    )
    postgres_database.script("ANALYZE events")
    with open_store(resolve_url(postgres_database.url)) as store:
        [table] = store.reflect().tables
        store.run("CREATE ROLE nobody_special", {})
        try:
            store.run("SET ROLE nobody_special", {})
            count = measure_rows(store, table, 1.0)
            assert count is not None
            assert (count.rows, count.exactness.value) == (5_000, "estimate")
            assert read_sizes(store, [(table, None)], 1.0)[table.qualified].bytes > 5_000 * 30
        finally:
            store.run("RESET ROLE", {})
            store.run("DROP ROLE nobody_special", {})
