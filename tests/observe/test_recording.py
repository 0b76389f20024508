"""Recorded health: one report for a database, by one of all processes, returned in SQL with its age, and never as fresh
when it is not."""

from __future__ import annotations

import json
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from observe.unhealthy import ago, falling_behind, healthy, overdue
from prune.keeping import insert
from servers import Database, PostgresDatabase
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._sqlfunctions import install
from wane.errors import WaneError
from wane.observe._recording import STALE_AFTER_INTERVALS, HealthChore


def own(database: Database, table: str) -> str:
    return f"wane.{table}" if database.store == "postgres" else f"wane_{table}"


def recorded(database: Database) -> dict[str, Any] | None:
    """Return the report in Wane's own table, if there is one."""
    found = database.query(f"SELECT report FROM {own(database, 'health_report')}")
    assert len(found) < 2
    return None if not found else json.loads(found[0][0]) if isinstance(found[0][0], str) else found[0][0]


def requested(database: PostgresDatabase) -> dict[str, Any]:
    [(report,)] = database.query("SELECT wane.fn_retention_health()")
    assert isinstance(report, dict)
    return report


def plain(keeper: Keeper) -> dict[str, Any]:
    report = json.loads(json.dumps(keeper.record_health().as_dict(), default=datetime.isoformat))
    assert isinstance(report, dict)
    return report


def age(database: PostgresDatabase, interval: str) -> None:
    shift = f"read_at = read_at - interval '{interval}', stale_at = stale_at - interval '{interval}'"
    database.script(f"UPDATE wane.health_report SET {shift}")


def test_reading_stores_nothing_and_recording_replaces_the_report(database: Database) -> None:
    with healthy(database) as world:
        world.keeper.health()
        assert recorded(database) is None
        assert plain(world.keeper) == recorded(database)
        overdue(world)
        health = world.keeper.record_health()
        report = recorded(database)
        assert report is not None
        assert report["verdict"] == health.verdict == "unhealthy: overdue"


def test_a_keeper_that_only_reads_does_not_record(database: Database) -> None:
    with healthy(database) as world, open_store(resolve_url(database.url), read_only=True) as store:
        keeper = Keeper(world.keeper.contract, store)
        assert keeper.health().healthy
        with pytest.raises(WaneError):
            keeper.record_health()
        assert recorded(database) is None


def test_one_of_all_processes_records_once_in_an_interval(database: Database) -> None:
    with healthy(database) as world:
        store = world.keeper.store
        chores = [HealthChore(world.keeper.contract) for _ in "ab"]

        def run() -> datetime:
            for number, chore in enumerate(chores):
                chore(store, f"runner-{number}")
            report = recorded(database)
            assert report is not None
            return datetime.fromisoformat(report["now"])

        first = run()
        assert run() == first, "an interval has passed here, but not in the database"
        reports, leases = own(database, "health_report"), own(database, "lease")
        long_ago = store.dialect.encode_time(first - timedelta(hours=1))
        database.execute(f"UPDATE {reports} SET read_at = ?", (long_ago,))
        assert run() == first, "the lease is held"
        database.execute(f"UPDATE {leases} SET until = ? WHERE name = 'health'", (long_ago,))
        second = run()
        assert second > first
        database.execute(f"UPDATE {leases} SET until = ? WHERE name = 'health'", (long_ago,))
        ahead = store.dialect.encode_time(first + timedelta(days=400))
        database.execute(f"UPDATE {reports} SET read_at = ?", (ahead,))
        assert run() > second, "a report dated in the future does not count"


def test_a_runner_records_what_it_finds(database: Database) -> None:
    with healthy(database) as world:
        overdue(world)
        stop = threading.Event()
        runner = threading.Thread(target=world.keeper.run, kwargs={"stop": stop, "workers": 0})
        runner.start()
        report, end = None, time.monotonic() + 60
        try:
            while report is None and time.monotonic() < end:
                stop.wait(0.1)
                report = recorded(database)
        finally:
            stop.set()
            runner.join()
        assert report is not None
        assert ("overdue", "job") in [(one["code"], one["table"]) for one in report["findings"]]


@pytest.mark.parametrize("make", [None, overdue, falling_behind], ids=["healthy", "overdue", "falling behind"])
def test_the_function_returns_the_report_and_its_age(postgres_database: PostgresDatabase, make: Any) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        if make is not None:
            make(world)
        report = plain(world.keeper)
        reported = requested(postgres_database)
        assert 0 <= reported.pop("report_age_seconds") < 60
        assert reported == report
        assert reported["healthy"] is (make is None)
        age(postgres_database, "90 seconds")
        assert 90 <= requested(postgres_database)["report_age_seconds"] < 150


def test_without_a_report_nothing_is_healthy(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        reported = requested(postgres_database)
        assert (reported["healthy"], reported["verdict"]) == (False, "unhealthy: no-report")
        assert (reported["report_age_seconds"], reported["tables"]) == (None, [])
        [finding] = reported["findings"]
        assert (finding["code"], finding["severity"]) == ("no-report", "error")
        assert finding["fix"]


@pytest.mark.parametrize("unhealthy", [False, True], ids=["healthy", "overdue"])
def test_a_report_that_was_not_replaced_in_time_is_unhealthy(
    postgres_database: PostgresDatabase, unhealthy: bool
) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        if unhealthy:
            overdue(world)
        report = plain(world.keeper)
        stale = STALE_AFTER_INTERVALS * world.keeper.contract.health.every.total_seconds()
        assert stale == 180
        age(postgres_database, f"{stale + 1} seconds")
        reported = requested(postgres_database)
        assert reported["healthy"] is False
        assert reported["verdict"] == ("unhealthy: stale-report, overdue" if unhealthy else "unhealthy: stale-report")
        assert reported["tables"] == report["tables"]
        assert reported["findings"][0]["code"] == "stale-report"
        assert reported["findings"][1:] == report["findings"]


def test_a_report_from_a_clock_that_was_set_back_since_is_stale(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        world.keeper.record_health()
        age(postgres_database, "-1 day")
        reported = requested(postgres_database)
        assert (reported["healthy"], reported["report_age_seconds"]) == (False, 0)
        assert reported["verdict"] == "unhealthy: stale-report"


def test_the_interval_is_a_setting(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        install(world.keeper)
        world.settle(every=timedelta(hours=1))
        world.keeper.record_health()
        age(postgres_database, "2 hours")
        assert requested(postgres_database)["healthy"]
        age(postgres_database, "2 hours")
        assert not requested(postgres_database)["healthy"]


def test_a_reader_of_sql_needs_rights_on_the_report_only(postgres_database: PostgresDatabase) -> None:
    with healthy(postgres_database) as world:
        insert(postgres_database, "job", "id, state, at_ms", (900, "done", ago(1)))
        install(world.keeper)
        world.keeper.record_health()
        role = f"reader_{postgres_database.query('SELECT pg_backend_pid()')[0][0]}"
        postgres_database.script(
            f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA wane TO {role}; GRANT SELECT ON wane.health_report TO {role}"
        )
        try:
            postgres_database.script(f"SET ROLE {role}; SELECT wane.fn_retention_health(); RESET ROLE")
        finally:
            postgres_database.script(f"DROP OWNED BY {role}; DROP ROLE {role}")
