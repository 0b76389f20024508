"""Health: a healthy database is healthy, and each condition is reported by its name, alone, with what to do about
it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from covering import numbers
from observe.unhealthy import (
    CONDITIONS,
    HOUR,
    MINUTE,
    World,
    ago,
    healthy,
    overdue,
    silent_executor,
    slow_reads,
)
from prune.keeping import DAY, insert
from servers import Database, PostgresDatabase
from wane._contract.names import TableName
from wane._db import open_store
from wane._db.counting import Count, Exactness, Figure
from wane._db.url import resolve_url
from wane._findings import Severity
from wane._keeper import Keeper
from wane._rules import access
from wane._schedule.own_tables import clean_own_tables
from wane._schedule.sql import Alive, Timetable
from wane._sqlfunctions import install

SINGLE = {name: one for name, one in CONDITIONS.items() if one[0] != "slow-reads"}


LIVE = {
    **{key: ["overdue"] for key in ("overdue", "sweeps-without-effect", "falling-behind")},
    "broken-rule": ["missing-table"],
    **{
        code: [code]
        for code, _ in CONDITIONS.values()
        if code in ("cap-exceeded", "false-excuse", "dangling-reference", "fused-rule", "orphaned-follower")
        or code.startswith("stale-")
    },
}
"""What `check --live` says of a condition: nothing of those that are no broken promise."""


def test_a_healthy_database_is_healthy(database: Database) -> None:
    with healthy(database) as world:
        health = world.keeper.health()
        assert health.findings == ()
        assert world.keeper.check_live() == []
        assert (health.healthy, health.verdict) == (True, "healthy")
        [job] = [table for table in health.tables if table.pressure.table == "job"]
        assert job.pressure.rows is not None
        assert (job.pressure.rows.rows, job.late_seconds, job.every_seconds) == (3, 0.0, 300.0)
        assert job.last_sweep is not None
        assert (job.bytes is None) == (database.store == "sqlite")
        assert json.dumps(health.as_dict(), default=str)


@pytest.mark.parametrize("make", SINGLE, ids=lambda one: one.__name__)
def test_each_condition_is_reported_by_itself(database: Database, make: Callable[[World], None]) -> None:
    with healthy(database) as world:
        if database.store == "postgres":
            install(world.keeper)
        make(world)
        health = world.keeper.record_health()
        if database.store == "postgres":
            [(reported,)] = database.query("SELECT wane.fn_retention_health()")
            assert reported["findings"] == [one.as_dict() for one in health.findings]
            assert reported["healthy"] is health.healthy
        assert [(one.code, one.table) for one in health.findings] == [CONDITIONS[make]]
        [found] = health.findings
        assert found.message
        assert found.fix
        unhealthy = found.severity is Severity.ERROR
        assert unhealthy is (found.code != "uncovered-table")
        assert health.healthy is not unhealthy
        live = [(one.code, one.table) for one in world.keeper.check_live()]
        assert live == [(code, found.table) for code in LIVE.get(found.code, [])]
        assert health.verdict == (f"unhealthy: {found.code}" if unhealthy else "healthy")


def test_a_silent_executor_is_no_condition_once_another_does_its_work(database: Database) -> None:
    with healthy(database) as world:
        silent_executor(world)
        store = world.keeper.store
        assert not world.keeper.health().healthy
        Timetable(store.dialect).heartbeat(
            store.run, Alive("scheduler-1", "scheduler", "idle", "f", 10.0), store.clock()
        )
        assert not world.keeper.health().healthy
        Timetable(store.dialect).heartbeat(store.run, Alive("worker-3", "worker", "idle", "f", 10.0), store.clock())
        health = world.keeper.health()
        [found] = health.findings
        assert (health.healthy, found.code, found.severity) == (True, "silent-executor", Severity.WARNING)
        assert "another worker is alive" in found.message


def test_how_long_a_silent_executor_is_reported_of_is_a_setting(database: Database) -> None:
    with healthy(database) as world:
        silent_executor(world)
        store = world.keeper.store
        clean_own_tables(store, world.keeper.contract, actor="tester")
        assert len(world.keeper.health().executors) == 1
        world.settle(forget_silent=timedelta(minutes=30))
        clean_own_tables(store, world.keeper.contract, actor="tester")
        assert world.keeper.health().executors == ()


def test_a_hold_on_a_table_that_is_gone_stops_everything_and_is_reported(database: Database) -> None:
    with healthy(database) as world:
        database.execute("CREATE TABLE lost (id integer PRIMARY KEY)")
        world.keeper.hold("lost", reason="a court asked for it")
        database.execute("DROP TABLE lost")
        assert [code for code, _ in world.codes()] == ["lost-hold"]
        assert not world.keeper.health().healthy


@pytest.mark.unmigrated
def test_without_wanes_own_tables_nothing_can_be_swept(database: Database) -> None:
    with healthy(database, migrate=False) as world:
        assert world.codes() == [("not-migrated", "")]


def test_reading_changes_nothing_and_needs_no_right_to_write(database: Database) -> None:
    with healthy(database) as world, open_store(resolve_url(database.url), read_only=True) as store:
        keeper = Keeper(world.keeper.contract, store)
        assert keeper.health().healthy
        assert keeper.check_live() == []
        assert [one.table for one in keeper.pressure()] == [one.table for one in world.keeper.pressure()]


def test_functions_for_another_contract_have_drifted(postgres_database: Database) -> None:
    with healthy(postgres_database) as world:
        install(Keeper(replace(world.keeper.contract, floors=((TableName("job"), DAY),)), world.keeper.store))
        assert world.codes() == [("drifted-functions", "")]
        install(world.keeper)
        assert world.codes() == []


@pytest.mark.parametrize(
    ("settings", "rows"),
    [({"partition_rows": 200}, "it has about"), ({"partition_finished_rows": 150}, "it has about"), ({}, "")],
    ids=["rows", "finished rows", "neither"],
)
def test_partitions_are_recommended_from_a_number_of_rows_on(
    postgres_database: Database, settings: dict[str, int], rows: str
) -> None:
    with healthy(postgres_database) as world:
        insert(postgres_database, "job", "id, state, at_ms", *((n, "done", ago(1)) for n in range(100, 300)))
        postgres_database.script("ANALYZE job")
        world.settle(counted_rows=20, **settings)
        health = world.keeper.health()
        expected = [("partition-recommended", "job")] if settings else []
        assert [(one.code, one.table) for one in health.findings] == expected
        assert health.healthy
        assert all(one.message.startswith(rows) for one in health.findings)
        recommended = [one.pressure.table for one in health.tables if one.partition_recommended]
        assert recommended == (["job"] if settings else [])


@pytest.mark.parametrize(
    ("settings", "rate", "words"),
    [
        ({"partition_rows": 250}, None, "partitions are worth their while"),
        ({"partition_finished_rows": 250}, None, "finished rows"),
        ({"partition_rows": 10_000}, 1_000.0, "in 10 days"),
        ({"partition_rows": 100_000}, 1_000.0, ""),
        ({"partition_rows": 10_000}, -1_000.0, ""),
        ({"partition_rows": 300}, None, ""),
    ],
    ids=["rows", "finished rows", "rate", "slow rate", "shrinking", "neither"],
)
def test_an_alert_precedes_the_threshold_of_partitions(
    postgres_database: Database, settings: dict[str, int], rate: float | None, words: str
) -> None:
    with healthy(postgres_database) as world:
        insert(postgres_database, "job", "id, state, at_ms", *((n, "done", ago(1)) for n in range(100, 300)))
        postgres_database.script("ANALYZE job")
        world.settle(counted_rows=20, **settings)
        if rate is not None:
            world.measure("job", rate)
        health = world.keeper.health()
        expected = [("partition-near", "job")] if words else []
        assert [(one.code, one.table) for one in health.findings] == expected
        assert health.healthy
        assert all(words in one.message for one in health.findings)


def test_sqlite_has_no_partitions_to_recommend(sqlite_database: Database) -> None:
    with healthy(sqlite_database) as world:
        world.settle(partition_rows=2, partition_finished_rows=1)
        assert world.codes() == []


def test_what_comes_in_is_what_a_table_grows_by_and_what_left_meanwhile(database: Database) -> None:
    with healthy(database) as world:
        world.record("job", "old", 50, days=HOUR)
        world.record("job", "old", 50, days=MINUTE)
        assert world.table("job").inflow_per_hour is None
        world.measure("job", 240.0)
        job = world.table("job")
        assert job.growth_per_day == 240
        assert job.pruned_per_hour == pytest.approx(100, rel=0.05)
        assert job.inflow_per_hour == pytest.approx(110, rel=0.05)
        world.measure("job", -24_000.0)
        assert world.table("job").inflow_per_hour == 0


def test_where_more_becomes_due_than_is_counted_what_comes_in_decides_the_pace(database: Database) -> None:
    with healthy(database) as world:
        insert(database, "job", "id, state, at_ms", *((n, "done", ago(8)) for n in range(100, 150)))
        insert(database, "job", "id, state, at_ms", *((n, "done", ago(7 - MINUTE)) for n in range(200, 250)))
        world.record("job", "old", 2_000, days=4 * HOUR)
        world.record("job", "old", 2_000, days=MINUTE)
        world.settle(counted_rows=10)
        # It takes a thousand an hour, and of what becomes due in five minutes no more than ten are counted.
        assert world.table("job").rules[0].due_per_hour == pytest.approx(132, rel=0.01)
        world.measure("job", 48_000.0)
        assert world.table("job").rules[0].due_per_hour == pytest.approx(3_000, rel=0.05)
        codes = [(one.code, one.table) for one in world.keeper.health().findings if one.table == "job"]
        assert ("falling-behind", "job") in codes


def test_every_table_has_a_size_once_it_was_measured(database: Database) -> None:
    with healthy(database) as world:
        world.keeper.take_snapshots()
        assert all(one.bytes for one in world.keeper.health().tables)


def test_what_was_measured_long_ago_states_nothing_of_today(database: Database) -> None:
    with healthy(database) as world:
        world.measure("job", 240.0, days=3)
        assert world.table("job").growth_per_day is None


def test_reads_through_the_index_are_timed_where_a_table_is_large(database: Database) -> None:
    with healthy(database) as world:
        slow_reads(world)
        health = world.keeper.health()
        timed = {one.pressure.table for one in health.tables if one.hot_read_ms is not None}
        assert timed == {"job", "inbox", "presence"}
        assert {(one.code, one.table) for one in health.findings} == {("slow-reads", table) for table in timed}
        assert health.healthy


def test_a_table_that_cannot_be_read_is_reported_and_the_others_are_read(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world, closing(postgres_database.connect()) as other:
        world.keeper.health()
        other.execute("BEGIN")
        other.execute("LOCK TABLE thread IN ACCESS EXCLUSIVE MODE")
        health = world.keeper.health()
        other.execute("ROLLBACK")
        found = [(one.code, one.table) for one in health.findings]
        assert found == [("unread-table", "thread"), ("promise-unchecked", "thread")]
        assert health.healthy
        [job] = [one for one in health.tables if one.pressure.table == "job"]
        assert job.pressure.rows is not None


def test_a_rule_that_the_latest_entries_do_not_mention_is_queried(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wane._check.live._TRAIL_ENTRIES", 2)
    with healthy(database) as world:
        for _ in range(3):
            world.record("job", "old", 7, days=MINUTE)
        health = world.keeper.health()
        assert health.healthy
        assert all(one.last_sweep is not None for one in health.tables if one.rules)
        [job] = [one for one in health.tables if one.pressure.table == "job"]
        assert job.rules[0].last_rows == 7


@pytest.mark.parametrize("entries", [1, 5_000], ids=["beyond the latest entries", "among them"])
def test_a_prune_by_hand_is_no_sweep(database: Database, monkeypatch: pytest.MonkeyPatch, entries: int) -> None:
    monkeypatch.setattr("wane._check.live._TRAIL_ENTRIES", entries)
    with healthy(database) as world:
        overdue(world)
        swept = world.table("job").last_sweep
        insert(database, "job", "id, state, at_ms", (99, "done", ago(60)))
        world.keeper.prune("job", rule="old", limit=1)
        job = world.table("job")
        assert job.last_sweep == job.rules[0].last_sweep == swept
        assert job.rules[0].last_rows == 0
        [late] = [one for one in world.keeper.health().findings if one.table == "job"]
        assert "its last sweep, 3 hours ago, took nothing" in late.message


def test_an_open_keeper_sees_holds_come_and_go(database: Database) -> None:
    with healthy(database) as world:
        overdue(world)
        if database.store == "postgres":
            install(world.keeper)

        def due() -> set[int]:
            reported = {one.due.rows for one in world.keeper.pressure() if one.table == "job" and one.due is not None}
            if database.store == "postgres":
                reported |= {
                    rows
                    for (rows,) in database.query("SELECT due FROM wane.v_queue_retention_pressure WHERE tbl = 'job'")
                }
            return reported

        assert due() == {1}
        number = world.keeper.hold("job", {"id": 10}, reason="a test").id
        assert due() == {0}
        assert world.codes() == []
        assert number is not None
        world.keeper.release_hold(number)
        assert due() == {1}
        assert world.codes() == [("overdue", "job")]


def test_one_pass_over_a_small_table_counts_what_its_indexes_count(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted() -> list[tuple[object, ...]]:
        world.settle()  # Its probes are written anew.
        tables = world.keeper.health().tables
        return [
            (one.pressure, one.finished, [(rule.rule, rule.due, rule.oldest_due) for rule in one.rules])
            for one in tables
        ]

    with healthy(postgres_database) as world:
        times = (ago(8), ago(7 - HOUR), ago(-1), None, 0, 5)
        jobs = [(state, at) for state in ("done", "queued", "other") for at in times]
        insert(postgres_database, "job", "id, state, at_ms", *((n, *one) for n, one in enumerate(jobs, 100)))
        insert(postgres_database, "inbox", "id, state, at_ms", *((n, "completed", ago(9)) for n in range(100, 103)))
        insert(postgres_database, "reply", "id, inbox_id", (100, 101))
        insert(
            postgres_database, "presence", "id, seen_ms, ends_ms", *((n, ago(n), ago(n - 15)) for n in range(10, 30))
        )
        few = counted()
        [job] = [one for one in world.keeper.pressure() if one.table == "job"]
        assert job.due is not None
        assert job.due.rows >= 1
        number = world.keeper.hold("job", {"id": 100}, reason="a test").id
        held = counted()
        assert held != few
        monkeypatch.setattr("wane._db.postgres.dialect._FEW_BYTES", -1)
        assert counted() == held
        assert number is not None
        world.keeper.release_hold(number)
        assert counted() == few
        monkeypatch.setattr("wane._db.postgres.dialect.PostgresDialect.reads_few", False)
        assert counted() == few


def test_how_long_it_takes_until_nothing_is_due(database: Database) -> None:
    with healthy(database) as world:
        insert(database, "job", "id, state, at_ms", *((n, "done", ago(7 + HOUR)) for n in range(100, 200)))
        world.record("job", "old", 50, days=HOUR)
        world.record("job", "old", 50, days=MINUTE)
        [job] = [one for one in world.keeper.health().tables if one.pressure.table == "job"]
        [rule] = job.rules
        assert rule.pruned_per_hour == pytest.approx(100, rel=0.05)
        assert rule.due_per_hour == 0
        assert rule.drain is not None
        assert rule.drain.value == pytest.approx(3_600, rel=0.05)
        assert rule.drain.exactness is Exactness.ESTIMATE
        assert rule.late_seconds == pytest.approx(3_600 - 300, abs=30)


def test_nothing_drains_where_nothing_runs(database: Database) -> None:
    with healthy(database) as world:
        insert(database, "job", "id, state, at_ms", *((n, "done", ago(7 + HOUR)) for n in range(100, 200)))
        world.age_trail(1)
        world.record("job", "old", 5_000, days=HOUR)
        silent_executor(world)
        job, store = world.table("job"), world.keeper.store
        assert (job.runs, job.drain, job.as_dict()["drain_seconds"]) == (False, None, None)
        alive = Alive("worker-3", "worker", "idle", "f", 10.0)
        Timetable(store.dialect).heartbeat(store.run, alive, store.clock())
        job = world.table("job")
        assert job.runs
        assert job.drain is not None
        assert job.as_dict()["drain_seconds_exactness"] == "estimate"
        world.keeper.disable("job")
        assert world.table("job").drain is None


def test_what_a_lower_bound_drains_in_is_a_lower_bound(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wane.observe._reading._COUNT_SECONDS", 0.0)
    monkeypatch.setattr("wane.observe._row_counts._LEAST_FOUND", 1_000)
    with healthy(sqlite_database) as world:
        insert(sqlite_database, "job", "id, state, at_ms", *((n, "done", ago(7 + HOUR)) for n in range(100, 200)))
        world.record("job", "old", 50, days=MINUTE)
        world.settle(counted_rows=20)
        job = world.table("job")
        assert job.pressure.due == Count(20, Exactness.AT_LEAST)
        assert job.drain is not None
        assert job.drain.exactness is Exactness.AT_LEAST
        # Without time to count, and without a snapshot, there are no more rows than numbers of rows.
        assert job.pressure.rows == Count(199, Exactness.AT_MOST)
        assert job.pressure.share == Figure(0.1005, Exactness.AT_LEAST)


def test_rows_of_a_large_table_of_sqlite_are_those_of_the_last_snapshot_updated(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows() -> Count | None:
        return world.table("job").pressure.rows

    monkeypatch.setattr("wane.observe._row_counts._QUICK_ROWS", 1_000_000)
    monkeypatch.setattr("wane.observe._reading._COUNT_SECONDS", 60.0)
    with healthy(sqlite_database) as world:
        insert(sqlite_database, "job", "id, state, at_ms", *((n, "done", ago(8)) for n in range(100, 1_100)))
        world.settle(counted_rows=20)
        assert rows() == Count(1_003), "counted, because that takes no time"
        world.keeper.take_snapshots()
        assert rows() == Count(1_003, Exactness.ESTIMATE)
        insert(sqlite_database, "job", "id, state, at_ms", *((n, "queued", ago(1)) for n in range(2_000, 2_050)))
        assert rows() == Count(1_053, Exactness.ESTIMATE)
        world.keeper.prune("job", rule="old", limit=600)
        assert rows() == Count(453, Exactness.ESTIMATE)
        sqlite_database.execute("DELETE FROM job WHERE id < 1090")
        sqlite_database.execute("UPDATE wane_snapshot SET taken_at = '2020-01-01T00:00:00+00:00'")
        assert rows() == Count(60), "an old snapshot says nothing"


def test_a_large_backlog_of_sqlite_is_estimated_from_rows_picked_at_random(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def due() -> Count | None:
        [found] = [one.due for one in world.keeper.pressure() if one.table == "job"]
        return found

    monkeypatch.setattr("wane.observe._row_counts._QUICK_ROWS", 1)
    monkeypatch.setattr("wane.observe._row_counts.PROBE_SECONDS", 5.0)
    many = f"SELECT n + 100, CASE WHEN n % 4 = 0 THEN 'queued' ELSE 'done' END, {ago(8)} FROM {numbers(20_000)}"
    with healthy(sqlite_database) as world:
        sqlite_database.execute(f"INSERT INTO job {many}")
        job = world.table("job").pressure
        assert job.due is not None
        assert (job.due.exactness, abs(job.due.rows - 15_000) < 1_000) == (Exactness.ESTIMATE, True)
        assert job.rows is not None
        assert (job.rows.exactness, abs(job.rows.rows - 20_003) < 1_000) == (Exactness.ESTIMATE, True)
        assert due() == due() == job.due, "the same rows are picked each time"
        with monkeypatch.context() as patched:
            patched.setattr(
                "wane.observe._reading.count_in_slices", lambda *_: pytest.fail("they are known to be many")
            )
            assert due() == job.due
        # Of few, nothing could be said: they are counted.
        sqlite_database.execute("UPDATE job SET state = 'queued' WHERE id > 900 AND state = 'done'")
        monkeypatch.setattr("wane.observe._reading._COUNT_SECONDS", 60.0)
        assert world.table("job").pressure.due == Count(600)
        assert due() == Count(600)


def test_a_large_table_without_an_index_is_named(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LARGE", 2_000)
    with healthy(database) as world:
        database.execute("DROP INDEX job_age")
        insert(database, "job", "id, state, at_ms", *((n, "done", ago(1)) for n in range(100, 1_100)))
        assert world.codes() == [], "small tables are read whole"
        insert(database, "job", "id, state, at_ms", *((n, "done", ago(1)) for n in range(1_100, 3_100)))
        database.execute("ANALYZE job")
        [found] = world.keeper.health().findings
        assert (found.code, found.table, found.severity) == ("no-index", "job", Severity.WARNING)
        assert "walk the table by its key" in found.message
        assert found.fix.startswith("CREATE INDEX")
