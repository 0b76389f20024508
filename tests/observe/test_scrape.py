"""Gauges of the database: right, bounded, and never the reason why a scrape fails."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest

from observe.reading import of
from prune.keeping import EXPIRES, ago, jobs, rule, table
from servers import Database, SqliteDatabase
from wane._contract.model import Cap, Contract, Time, Unit
from wane._db import Store, open_store
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Statement
from wane._db.url import resolve_url
from wane._schedule.sql import Heartbeat, Timetable, Window
from wane.errors import StoreError, TimedOut, Unreachable
from wane.observe._gauge import BACKLOG, UNREAD_RULES
from wane.observe._gauges import Gauges
from wane.observe._metrics import Metrics
from wane.observe._scrape import DatabaseScrape
from wane.queue import Queue, RetryPolicy

AT = Time("at_ms", Unit.MILLISECONDS)
DAY_SECONDS = 86_400.0


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    with open_store(resolve_url(database.url)) as opened:
        opened.migrate()
        yield opened


def contract() -> Contract:
    rules = (
        rule("old", when=("done",)),
        rule("expired", EXPIRES, when=("failed",)),
        rule("cap", Cap(AT, 3), when=(), derived=True),
    )
    return Contract(None, (table("job", *rules, scheduler=None),))


def scraped(store: Store, promised: Contract | None = None) -> bytes:
    with closing(Metrics(promised or contract())) as metrics:
        metrics.watch(store.clone, budget_seconds=30.0, patience_seconds=60.0)
        return metrics.text()


def test_a_backlog_is_reported_with_its_age_and_how_late_it_is(database: Database, store: Store) -> None:
    jobs(database, (1, "done", ago(9)), (2, "done", ago(8)), (3, "done", ago(1)), (4, "queued", ago(99)))
    database.execute("ALTER TABLE job ADD COLUMN expires_ms bigint")
    database.execute("INSERT INTO job (id, state, at_ms, expires_ms) VALUES (5, 'failed', 0, ?)", [ago(2)])
    text = scraped(store)
    assert of(text, "wane_backlog_rows") == {
        ("old", "wane", "job"): 2.0,
        ("expired", "wane", "job"): 1.0,
        ("cap", "wane", "job"): 1.0,
    }
    assert set(of(text, "wane_backlog_rows_exact").values()) == {1.0}
    ages = of(text, "wane_oldest_due_row_age_seconds")
    assert ages[("old", "wane", "job")] == pytest.approx(9 * DAY_SECONDS, abs=6 * 3_600)
    assert ages[("expired", "wane", "job")] == pytest.approx(2 * DAY_SECONDS, abs=6 * 3_600)
    assert ages[("cap", "wane", "job")] == pytest.approx(99 * DAY_SECONDS, abs=6 * 3_600)
    late = of(text, "wane_overdue_seconds")
    assert set(late) == {("old", "wane", "job"), ("expired", "wane", "job")}
    assert late[("old", "wane", "job")] == pytest.approx(2 * DAY_SECONDS, abs=6 * 3_600)
    assert late[("expired", "wane", "job")] == pytest.approx(2 * DAY_SECONDS, abs=6 * 3_600)
    assert of(text, "wane_backlog_unread_rules") == {(): 0.0}


def test_a_backlog_is_counted_beyond_the_limit_of_probes_while_there_is_time(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised = Contract(None, (table("job"),))
    limit = promised.health.counted_rows
    jobs(sqlite_database, *((number, "done", ago(9)) for number in range(limit + 5)))
    monkeypatch.setattr("wane.observe._reading._COUNT_SECONDS", 60.0)
    with open_store(resolve_url(sqlite_database.url)) as store:
        text = scraped(store, promised)
        assert of(text, "wane_backlog_rows") == {("old", "tick", "job"): float(limit + 5)}
        assert of(text, "wane_backlog_rows_exact") == {("old", "tick", "job"): 1.0}
        monkeypatch.setattr("wane.observe._reading._COUNT_SECONDS", 0.0)
        monkeypatch.setattr("wane.observe._row_counts._LEAST_FOUND", 10_000)
        text = scraped(store, promised)
    assert of(text, "wane_backlog_rows") == {("old", "tick", "job"): float(limit)}
    assert of(text, "wane_backlog_rows_exact") == {("old", "tick", "job"): 0.0}


def test_queues_are_reported_by_pool_and_state(store: Store) -> None:
    now = store.now()
    for pool in ("retention", "other"):
        queue = Queue(store, pool, policy=RetryPolicy(attempts=1), clock=lambda: now - timedelta(hours=2))
        queue.enqueue("sweep", message_id="a")
        queue.enqueue("sweep", message_id="b")
        reserved = queue.reserve()
        assert reserved is not None
        queue.release(reserved.message_id, reserved.token, "no")
        queue.close()
    text = scraped(store)
    depth = of(text, "wane_queue_messages")
    for pool in ("retention", "other"):
        assert {state: depth[(pool, state)] for state in ("ready", "delayed", "reserved", "dead")} == {
            "ready": 1.0,
            "delayed": 0.0,
            "reserved": 0.0,
            "dead": 1.0,
        }
        for state in ("ready", "dead"):
            age = of(text, "wane_queue_oldest_message_age_seconds")[(pool, state)]
            assert age == pytest.approx(7_200, abs=300)


def test_executors_and_schedulers_are_reported_as_the_database_knows_them(store: Store) -> None:
    now = store.now()
    heartbeat = Heartbeat("host:1", "worker", "idle", "f", 15.0, now, now)
    Timetable(store.dialect).heartbeat(store.run, heartbeat, now - timedelta(minutes=10))
    with store.transaction() as transaction:
        found = Timetable(store.dialect).lock_window(transaction.execute, "statestore", now)
        assert found is not None
        window = Window("statestore", now, now - timedelta(minutes=3), now, "me")
        Timetable(store.dialect).write_window(transaction.execute, window)
    text = scraped(store)
    assert of(text, "wane_executor_beat_age_seconds")[("host:1", "worker")] == pytest.approx(600, abs=60)
    assert of(text, "wane_executor_beat_interval_seconds") == {("host:1", "worker"): 15.0}
    assert of(text, "wane_scheduler_late_seconds")[("statestore",)] == pytest.approx(180, abs=60)


@pytest.mark.unmigrated
def test_a_database_that_was_not_migrated_is_read_all_the_same(database: Database) -> None:
    jobs(database, (1, "done", ago(9)))
    with open_store(resolve_url(database.url)) as store:
        text = scraped(store, Contract(None, (table("job"),)))
    assert of(text, "wane_up") == {(): 1.0}
    assert of(text, "wane_backlog_rows") == {("old", "tick", "job"): 1.0}
    assert of(text, "wane_queue_messages") == {}


def test_a_rule_that_does_not_fit_is_left_out_and_reported_it(database: Database, store: Store) -> None:
    jobs(database, (1, "done", ago(9)))
    text = scraped(store, Contract(None, (table("job"), table("nothing"))))
    assert of(text, "wane_backlog_rows") == {("old", "tick", "job"): 1.0}
    assert of(text, "wane_backlog_unread_rules") == {(): 1.0}
    assert of(text, "wane_up") == {(): 1.0}


# Bounds


class Slow(SqliteStore):
    """A store on which every table of jobs in a statement takes some seconds, of a clock that the test reads too."""

    now_seconds = 0.0

    def __init__(self, database: SqliteDatabase, table_seconds: float) -> None:
        super().__init__(resolve_url(database.url), read_only=False)
        self.table_seconds = table_seconds
        self.reads = 0

    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        assert 0 < seconds <= 0.25
        if tables := set(re.findall(r'"job\d*"', statement.text)):
            self.reads += 1
            needed = self.table_seconds * len(tables)
            self.now_seconds += min(needed, seconds)
            if needed > seconds:
                raise TimedOut("a read took longer than it may")
        return super().read(statement, 5.0)

    def passed(self) -> float:
        return self.now_seconds


class Guarded(SqliteStore):
    """A store with a table that its role may not read."""

    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        if '"other"' in statement.text:
            raise StoreError("permission denied for table other")
        return super().read(statement, seconds)


class Ahead(SqliteStore):
    """A store whose clock is not this host's."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=5)


@pytest.mark.unmigrated
def test_a_table_that_takes_too_long_is_skipped_for_a_while(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database, (1, "done", ago(9)))
    with Slow(sqlite_database, table_seconds=9.0) as store:
        gauges = Gauges(Contract(None, (table("job"),)), clock=store.passed)
        reads = []
        for _ in range(5):
            values = gauges.read(store)
            assert (values[UNREAD_RULES], values.get(BACKLOG)) == ([((), 1)], None)
            reads.append(store.reads)
            store.now_seconds += 15
        assert reads == reads[:1] * 5
        store.now_seconds += 300
        gauges.read(store)
        assert store.reads > reads[0]


@pytest.mark.unmigrated
def test_a_small_budget_reaches_every_table_in_the_end(sqlite_database: SqliteDatabase) -> None:
    for number in range(9):
        sqlite_database.execute(f"CREATE TABLE job{number} (id integer PRIMARY KEY, state text NOT NULL, at_ms bigint)")
        sqlite_database.execute(f"INSERT INTO job{number} VALUES (1, 'done', ?)", (ago(9),))
    with Slow(sqlite_database, table_seconds=0.1) as store:
        promised = Contract(None, tuple(table(f"job{number}") for number in range(9)))
        gauges = Gauges(promised, budget_seconds=0.5, clock=store.passed)
        found = []
        for _ in range(9):
            began = store.passed()
            found.append(len(gauges.read(store)[BACKLOG]))
            assert store.passed() - began <= 0.5 + 0.25
            store.now_seconds += 15
        assert found[0] < 9
        assert found == sorted(found)
        assert found[-1] == 9, f"{found}: what was read before is reported while it is fresh"


# A database that is not there


def collected(scrape: DatabaseScrape) -> dict[str, float]:
    return {sample.name: sample.value for family in scrape.collect() for sample in family.samples}


def test_a_dead_database_reports_it_and_is_found(
    sqlite_database: SqliteDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="wane")
    now = 0.0
    dead = True

    def open_it() -> Store:
        if dead:
            raise Unreachable("there is no database")
        return open_store(resolve_url(sqlite_database.url))

    scrape = DatabaseScrape(Gauges(Contract(None, ())), open_it, clock=lambda: now)
    with closing(scrape):
        assert collected(scrape) == {"wane_up": 0.0}
        now += 60
        assert collected(scrape) == {"wane_up": 0.0}
        lines = [record.getMessage() for record in caplog.records]
        assert lines == ['event=wane.database_unreadable error="there is no database"'], (
            "reported once, not at every scrape"
        )
        dead = False
        now += 60
        assert collected(scrape)["wane_up"] == 1.0


def test_a_server_that_went_away_reports_it_and_is_found(database: Database) -> None:
    now = 0.0
    store = open_store(resolve_url(database.url))
    opened: list[Store] = []

    def open_it() -> Store:
        opened.append(store.clone())
        return opened[-1]

    with store, closing(DatabaseScrape(Gauges(Contract(None, ())), open_it, clock=lambda: now)) as scrape:
        assert collected(scrape)["wane_up"] == 1.0
        opened[0].close()  # As if the server had closed it.
        now += 60
        assert collected(scrape)["wane_up"] == 0.0
        now += 60
        assert collected(scrape)["wane_up"] == 1.0
        assert len(opened) == 2


def test_a_database_that_never_answers_costs_a_scrape_its_patience_and_no_more(
    sqlite_database: SqliteDatabase,
) -> None:
    now = 0.0
    answer = threading.Event()
    readers: list[threading.Thread] = []

    def open_it() -> Store:
        readers.append(threading.current_thread())
        if len(readers) == 1:
            answer.wait(60)
        return open_store(resolve_url(sqlite_database.url))

    scrape = DatabaseScrape(Gauges(Contract(None, ())), open_it, patience_seconds=0.05, clock=lambda: now)
    with closing(scrape):
        for _ in range(3):
            began = time.monotonic()
            assert collected(scrape) == {"wane_up": 0.0}
            assert time.monotonic() - began < 5
        assert len(readers) == 1, "a scrape while a reading hangs does not begin another"
        now += 61
        end = time.monotonic() + 30
        while collected(scrape)["wane_up"] == 0.0:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert len(readers) == 2, "a reading that hangs is given up"
        answer.set()
        readers[0].join(30)
        assert collected(scrape)["wane_up"] == 1.0


def test_an_unforeseen_error_is_a_database_that_cannot_be_read() -> None:
    def open_it() -> Store:
        raise ZeroDivisionError("a bug")

    with closing(DatabaseScrape(Gauges(Contract(None, ())), open_it)) as scrape:
        assert collected(scrape) == {"wane_up": 0.0}


def test_scrapes_share_a_reading_for_some_seconds(database: Database, store: Store) -> None:
    now = 0.0
    jobs(database, (1, "done", ago(9)))
    gauges = Gauges(Contract(None, (table("job"),)))
    with closing(DatabaseScrape(gauges, store.clone, fresh_seconds=10, clock=lambda: now)) as scrape:
        assert collected(scrape)["wane_backlog_rows"] == 1.0
        jobs(database, (2, "done", ago(9)), create=False)
        now += 9
        assert collected(scrape)["wane_backlog_rows"] == 1.0
        now += 2
        assert collected(scrape)["wane_backlog_rows"] == 2.0


def test_a_table_without_permission_makes_no_other_unreadable(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database, (1, "done", ago(9)))
    sqlite_database.execute("CREATE TABLE other (id integer PRIMARY KEY, state text NOT NULL, at_ms bigint)")
    with Guarded(resolve_url(sqlite_database.url), read_only=False) as store:
        values = Gauges(Contract(None, (table("other"), table("job"))), budget_seconds=30).read(store)
    assert values[BACKLOG] == [(("tick", "job", "old"), 1.0)]
    assert values[UNREAD_RULES] == [((), 1)]


def test_a_second_watch_or_closing_leaves_the_counters(database: Database) -> None:
    metrics = Metrics(Contract(None, ()))
    with open_store(resolve_url(database.url)) as store:
        metrics.watch(store.clone)
        metrics.watch(store.clone)
        assert of(metrics.text(), "wane_up") == {(): 1.0}
        metrics.close()
        metrics.close()
    text = metrics.text()
    assert of(text, "wane_up") == {}
    assert of(text, "lifecycle_tick_errors_total") == {("wane",): 0.0}


def test_the_clock_is_the_databases(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database, (1, "done", ago(7) + 180_000))
    with Ahead(resolve_url(sqlite_database.url), read_only=False) as store:
        values = Gauges(Contract(None, (table("job"),)), budget_seconds=30).read(store)
    assert values[BACKLOG] == [(("tick", "job", "old"), 1.0)]
