"""Sweeps that are alone hardly pause; as soon as anyone else uses the database, they do."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from covering import numbers
from races.racing import JOBS, Background, await_true, create, enabled_keeper, fill, sweeper
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._db import open_store
from wane._db.postgres.plpgsql import session_function
from wane._db.postgres.store import PostgresStore
from wane._db.sqlite.log import pages_in_log
from wane._db.sqlite.store import SqliteStore
from wane._db.url import resolve_url
from wane._ledger import AuditEntry
from wane._prune.batches import Batches
from wane._prune.other_users import OtherUsers
from wane._prune.pace import Pace
from wane._prune.pacing import Pacing
from wane._prune.sql_activity import Activity, activity_of
from wane.events import BatchTaken, Event

PACE = Pace(target_seconds=10.0, first_batch=4, least_batch=4, most_batch=4, most_pause_seconds=0.001)


@dataclass
class Counters:
    """A database whose counters a test moves; a sweep's own batch counts as one change and two transactions."""

    changes: int = 0
    transactions: int = 0
    seconds: float = 0.0
    known: bool = True
    quiet: float = 0.0
    others: OtherUsers = field(init=False)

    def __post_init__(self) -> None:
        counters = SimpleNamespace(
            read=self.read,
            own=Activity(1, 2),
            reading=Activity(0, 1),
            quiet_seconds=lambda: self.quiet,
            finish_writing=lambda: None,
        )
        self.others = OtherUsers(counters, lambda: self.seconds)  # type: ignore[arg-type]
        self.others.begin()

    def read(self) -> Activity | None:
        return Activity(self.changes, self.transactions) if self.known else None

    def batch(self, changes: int = 0, transactions: int = 0, seconds: float = 0.125) -> float:
        """Take a batch while others do some work; return for how long the sweep has been alone."""
        self.changes += 1 + changes
        self.transactions += 2 + transactions
        self.seconds += seconds
        return self.others.quiet_seconds()


def test_a_sweep_is_the_only_one_for_as_long_as_nothing_was_seen() -> None:
    counters = Counters()
    assert [counters.batch() for _ in range(4)] == [0.125, 0.25, 0.375, 0.5]


def test_a_database_that_was_quiet_before_the_sweep_is_quiet_from_its_first_batch_on() -> None:
    counters = Counters(changes=90, transactions=100, quiet=30.0)
    assert counters.batch() == 30.125
    assert counters.batch(changes=1, transactions=1) == 0.0


def test_what_is_quiet_between_two_rules_stays_so_and_their_own_work_does_not_count() -> None:
    """As on SQLite, where only others change the counter."""
    counters = Counters()
    [counters.batch() for _ in range(8)]
    counters.transactions += 50
    counters.others.begin()
    assert counters.batch() == 1.125
    counters.changes += 1
    counters.others.begin()
    assert counters.batch() == 0.125


def test_one_change_of_another_is_noticed_after_the_same_batch() -> None:
    counters = Counters()
    [counters.batch() for _ in range(20)]
    assert counters.batch(changes=1, transactions=1) == 0.0
    assert [counters.batch() for _ in range(3)] == [0.125, 0.25, 0.375]


def test_many_reads_of_others_are_noticed_and_a_few_are_not() -> None:
    counters = Counters()
    [counters.batch() for _ in range(20)]
    assert all(counters.batch(transactions=number % 3 == 0) > 2 for number in range(20))
    assert counters.batch(transactions=40) == 0.0


def test_counters_that_are_unknown_state_nothing_about_others() -> None:
    counters = Counters(known=False, quiet=30.0)
    assert not any(counters.batch() for _ in range(30))


def test_the_pace_by_itself_works_nine_times_as_much_and_never_more_than_always() -> None:
    assert Pace(duty=0.1).when_idle().pause_seconds(0.009) == pytest.approx(0.001)
    assert Pace(duty=0.1).when_idle(one_writer=True).pause_seconds(0.008) == pytest.approx(0.002)
    assert Pace(duty=0.5).when_idle().pause_seconds(0.008) == 0
    assert not Pace(duty=1.0).pauses
    assert [round(Pace(duty=0.1).after_quiet(quiet).duty, 3) for quiet in (0.0, 0.125, 0.25, 0.5, 60.0)] == [
        0.02,
        0.24,
        0.46,
        0.9,
        0.9,
    ]


def test_beside_others_batches_are_a_fifth_as_long_where_several_connections_write() -> None:
    targets = [Pace(target_seconds=0.005).after_quiet(quiet).target_seconds for quiet in (0.0, 0.125, 0.25, 0.5, 60.0)]
    assert targets == pytest.approx([0.001, 0.002, 0.003, 0.005, 0.005])
    assert Pace(target_seconds=0.005).after_quiet(0.0, one_writer=True).target_seconds == 0.005


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside others"])
def test_the_size_of_batches_follows_whether_others_use_the_database(database: Database, beside: bool) -> None:
    """Every row takes ten microseconds; others come, or go, after the first two hundred batches."""
    counters, sizes = Counters(quiet=30.0), list[int]()

    def work(seconds: float) -> None:
        counters.seconds += seconds
        counters.changes += beside is (len(sizes) < 200)

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            work(timeout or 0.0)
            return False

    with open_store(resolve_url(database.url)) as store:
        pacing = Pacing(store, Pace(), Stop(), table="one", others=counters.others)
        while len(sizes) < 1_000:
            pacing.worked = pacing.seconds = pacing.size / 100_000
            counters.changes += 1  # The batch.
            work(pacing.seconds)
            pacing.resize(pacing.size)
            pacing.pause()
            sizes.append(pacing.size)
    shorter = 500 if store.one_writer else 100
    assert (sizes[199], sizes[-1]) == ((shorter, 500) if beside else (500, shorter))


def test_beside_others_a_sweep_of_the_only_writer_works_for_a_fortieth_of_its_duty() -> None:
    paces = [Pace(duty=0.1).after_quiet(quiet, one_writer=True) for quiet in (0.0, 0.25, 0.5)]
    assert [pace.duty for pace in paces] == [0.0025, pytest.approx(0.40125), 0.8]
    assert paces[0].pause_seconds(0.005) == pytest.approx(1.995)


@pytest.mark.parametrize(
    ("writes", "least", "most"), [("always", 1.999, 2.001), ("once", 0.05, 0.5), ("never", 0.0024, 0.0026)]
)
def test_a_sweep_of_sqlite_pauses_while_another_writes(
    sqlite_database: SqliteDatabase, writes: str, least: float, most: float
) -> None:
    """What a batch of 10 ms is followed by; a clock that the pause moves replaces waiting."""
    sqlite_database.execute("CREATE TABLE one (id integer)")
    clock = [0.0]

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock[0] += timeout or 0.0
            if writes == "always":
                sqlite_database.execute("INSERT INTO one VALUES (2)")
            return False

    with open_store(resolve_url(sqlite_database.url)) as store:
        assert isinstance(store, SqliteStore)
        for file in store.path.parent.glob(f"{store.path.name}*"):
            os.utime(file, (0, time.time() - 3600))
        audit = AuditEntry("prune", "one", "test", {}, {}, store.now())
        batches = Batches(
            store,
            Pace(duty=0.1),
            audit,
            lambda transaction: transaction.now(),
            Stop(),
            others=OtherUsers(activity_of(store), lambda: clock[0]),
        )
        batches.seconds = 0.01
        if writes != "never":
            sqlite_database.execute("INSERT INTO one VALUES (1)")
        batches.pause()
    assert least <= clock[0] <= most


@pytest.mark.parametrize(
    ("use", "connections", "seconds"),
    [("always", 1, 0.49), ("once", 1, 0.0826), ("never", 1, 0.0011), ("once", 2, 0.99)],
)
def test_a_pause_beside_others_on_postgresql_ends_when_they_have_been_quiet(
    postgres_database: PostgresDatabase, use: str, connections: int, seconds: float
) -> None:
    """What a batch of 10 ms is followed by; several connections would count each other's probes as use by others."""
    counters = Counters(quiet=30.0)

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            counters.seconds += timeout or 0.0
            counters.transactions += 1  # The probe.
            counters.changes += use == "always"
            return False

    with open_store(resolve_url(postgres_database.url)) as store:
        pacing = Pacing(store, Pace(connections=connections), Stop(), table="one", others=counters.others)
        pacing.seconds = 0.01
        counters.changes += 1 if use == "never" else 2  # The batch, and what others change.
        counters.transactions += 2
        pacing.pause()
    assert counters.seconds == pytest.approx(seconds, rel=0.02)


@pytest.mark.parametrize(
    ("rows", "beside", "begins_anew"),
    [(1_000, True, False), (4_000, True, True), (4_000, False, False)],
    ids=["short log", "long log", "alone"],
)
def test_beside_a_writer_a_sweep_of_sqlite_leaves_no_checkpoint_of_a_long_log_to_its_next_commit(
    sqlite_database: SqliteDatabase, rows: int, beside: bool, begins_anew: bool
) -> None:
    sqlite_database.execute("CREATE TABLE one (id integer, body text)")
    with (
        open_store(resolve_url(sqlite_database.url)) as store,
        closing(sqlite3.connect(sqlite_database.path, isolation_level=None)) as application,
    ):
        assert isinstance(store, SqliteStore)
        application.execute("PRAGMA wal_autocheckpoint = 0")
        application.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        application.execute(f"INSERT INTO one SELECT n, '{'x' * 1000}' FROM {numbers(rows)}")
        for file in store.path.parent.glob(f"{store.path.name}*"):
            os.utime(file, (0, time.time() - 3600))
        pacing = Pacing(store, Pace(duty=0.5), table="one")
        if beside:
            application.execute("INSERT INTO one VALUES (1, '')")
            pacing.others.quiet_seconds()
        pacing.pause()
        application.execute("INSERT INTO one VALUES (2, '')")
        [(_, frames, _)] = application.execute("PRAGMA wal_checkpoint(PASSIVE)")
    assert (frames < 10) is begins_anew  # The log begins anew where all of it is in the database.
    assert frames < 10 or frames > 200


def test_an_application_that_writes_during_a_pause_never_moves_its_log_into_the_database_itself(
    sqlite_database: SqliteDatabase,
) -> None:
    """A clock that the pause moves replaces waiting; two hundred pages are written between two probes."""
    sqlite_database.execute("CREATE TABLE one (id integer, body text)")
    clock, longest = [0.0], [0]
    with (
        open_store(resolve_url(sqlite_database.url)) as store,
        closing(sqlite3.connect(sqlite_database.path, isolation_level=None)) as application,
    ):
        assert isinstance(store, SqliteStore)
        application.execute("PRAGMA wal_autocheckpoint = 0")

        class Stop(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                clock[0] += timeout or 0.0
                application.execute(f"INSERT INTO one SELECT n, '{'x' * 2000}' FROM {numbers(300)}")
                longest.append(pages_in_log(sqlite_database.path))
                return False

        others = OtherUsers(activity_of(store), lambda: clock[0])
        pacing = Pacing(store, Pace(duty=0.1), Stop(), table="one", others=others)
        pacing.seconds = 0.01
        application.execute("INSERT INTO one VALUES (1, '')")
        pacing.pause()
    assert clock[0] > 1.9
    assert len(longest) > 30
    assert 300 < max(longest) < 1_000


def test_quiet_seconds_of_a_sqlite_file_are_known_at_once(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.execute("CREATE TABLE one (id integer)")
    with open_store(resolve_url(sqlite_database.url)) as store:
        assert isinstance(store, SqliteStore)
        for file in store.path.parent.glob(f"{store.path.name}*"):
            os.utime(file, (0, time.time() - 3600))
        assert activity_of(store).quiet_seconds() >= 3600
        sqlite_database.execute("INSERT INTO one VALUES (1)")
        assert activity_of(store).quiet_seconds() < 1800


def test_a_session_that_works_is_seen_at_once(postgres_database: PostgresDatabase) -> None:
    store = open_store(resolve_url(postgres_database.url))
    with store, psycopg.connect(postgres_database.url, autocommit=True) as other:
        working = Background(lambda: other.execute("SELECT pg_sleep(60)"))
        sleeping = "datname = current_database() AND state = 'active' AND query = 'SELECT pg_sleep(60)'"
        seen = f"SELECT count(*) FROM pg_stat_activity WHERE {sleeping}"
        await_true(lambda: postgres_database.query(seen) == [(1,)], "it works")
        await_true(lambda: activity_of(store).quiet_seconds() == 0.0, "it is seen")
        other.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            working.result()


def test_a_store_counts_what_others_commit_and_its_own_batches(database: Database, tmp_path: Path) -> None:
    create(database)
    fill(database, 200)
    found: list[Activity | None] = []
    with enabled_keeper(database, tmp_path, JOBS) as keeper:

        def listen(event: Event) -> None:
            if isinstance(event, BatchTaken):
                found.append(activity_of(keeper.store).read())

        assert sweeper(keeper, listen, pace=PACE).sweep().rules[0].counts == {"jobs": 200}
        assert None not in found
        steps = [two.changes - one.changes for one, two in pairwise(found) if one and two]
        # Transactions of other databases of the server count too, so the least of them is this sweep's own.
        assert min(steps) == activity_of(keeper.store).own.changes
        before = activity_of(keeper.store).read()
        database.execute("INSERT INTO jobs (id, status, done_at) VALUES (999, 'open', 1)")
        after = activity_of(keeper.store).read()
        assert before is not None
        assert after is not None
        assert after.changes > before.changes


def test_functions_that_a_session_creates_are_no_use_by_others(postgres_database: PostgresDatabase) -> None:
    steps = []
    with open_store(resolve_url(postgres_database.url)) as store:
        assert isinstance(store, PostgresStore)
        for number in range(20):
            before = activity_of(store).read()
            function = session_function({}, {"one": "integer"}, f"BEGIN one := {number}; END")
            assert store.call([function], [], {}, most_seconds=None) == (number,)
            after = activity_of(store).read()
            assert before is not None
            assert after is not None
            steps.append(after.changes - before.changes)
    # Transactions of other databases of the server count too, so the least of them is this session's own.
    assert min(steps) == 0


@pytest.mark.parametrize("beside", ["nobody", "an application"])
def test_pauses_are_short_by_themselves_and_long_beside_an_application(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.setattr("wane._prune.pace._QUIET_SECONDS", 1e-9)
    monkeypatch.setattr("wane._prune.other_users._WINDOW_SECONDS", 1e-9)
    monkeypatch.setattr("wane._prune.pacing._PROBED_SECONDS", 1e9)
    create(database)
    fill(database, 80)
    worked: list[float] = []
    waited: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return False

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            worked.append(event.seconds)
            if beside == "an application":
                database.execute("UPDATE jobs SET beat = beat + 1 WHERE id = 80")

    with enabled_keeper(database, tmp_path, JOBS) as keeper:
        pace = Pace(target_seconds=10.0, first_batch=4, least_batch=4, most_batch=4, most_pause_seconds=1000.0)
        sweeper(keeper, listen, pace=pace, stop=Stop()).sweep()
    shares = sorted(work / (work + wait) for work, wait in zip(worked[3:], waited[3:], strict=False))
    assert len(shares) > 10
    # On PostgreSQL other databases of the server count too.
    share = shares[-1 if database.store == "postgres" and beside == "nobody" else len(shares) // 2]
    undisturbed, beside_others = (0.8, 0.0025) if database.store == "sqlite" else (0.9, 0.02)
    assert share == pytest.approx(undisturbed if beside == "nobody" else beside_others)


def test_readers_of_a_sqlite_file_do_not_count(sqlite_database: SqliteDatabase) -> None:
    with open_store(resolve_url(sqlite_database.url)) as store:
        before = activity_of(store).read()
        sqlite_database.query("SELECT * FROM sqlite_master")
        assert activity_of(store).read() == before


def test_readers_of_postgresql_count(postgres_database: PostgresDatabase) -> None:
    with open_store(resolve_url(postgres_database.url)) as store:
        before = activity_of(store).read()
        for _ in range(20):
            postgres_database.query("SELECT 1")
        postgres_database.query("SELECT pg_stat_force_next_flush()")
        after = activity_of(store).read()
        assert before is not None
        assert after is not None
        assert after.transactions - before.transactions > 20
