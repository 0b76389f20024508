"""Whose clock it is: the server's on PostgreSQL, and on SQLite the host's, which may be set back without time running
backwards."""

from __future__ import annotations

import importlib
import math
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wane._db.sqlite.clock as clock_module
from queueing import opened, taken
from races.racing import Background
from servers import PostgresDatabase, SqliteDatabase
from wane._db import Store
from wane._db.sqlite.clock import steady_now
from wane._db.sqlite.store import SqliteStore, statements
from wane.queue import Answer, Queue, RetryPolicy

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


def connected(file: Path | str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    folder = Path(clock_module.__file__).parents[1] / "migrations"
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'wane_clock'").fetchone():
        for statement in statements((folder / "0002_queue.sqlite.sql").read_text()):
            connection.execute(statement)
    return connection


def stopped(host: datetime) -> type[datetime]:
    """Return a host's clock that stands still."""

    class Host(datetime):
        @classmethod
        def now(cls, tz: object = UTC) -> datetime:  # type: ignore[override]
            assert tz is UTC
            return host

    return Host


def test_time_is_the_hosts_as_long_as_that_goes_forward() -> None:
    with closing(connected()) as connection:
        for seconds in (0, 0.4, 0.999999, 1, 1.5, 60, 3600, 3600):
            assert steady_now(connection, NOON + timedelta(seconds=seconds)) == NOON + timedelta(seconds=seconds)


def test_time_goes_on_from_the_latest_time_when_the_host_is_set_back() -> None:
    with closing(connected()) as connection:
        latest = steady_now(connection, NOON)
        back = NOON - HOUR
        reported = [steady_now(connection, back + timedelta(seconds=n)) for n in range(0, 7201, 60)]
        assert reported == sorted(reported)
        assert latest < reported[0] <= latest + 2 * SECOND
        # At half its speed: a lease lasts for two at the most, and the host catches up after twice the hour.
        assert reported[1] - reported[0] == timedelta(seconds=30)
        assert steady_now(connection, back + 3 * HOUR) == back + 3 * HOUR


def test_a_host_that_was_far_ahead_for_a_while_does_not_stop_time() -> None:
    with closing(connected()) as connection:
        steady_now(connection, datetime(2099, 1, 1, tzinfo=UTC))
        first = steady_now(connection, NOON)
        assert first.year == 2099
        assert steady_now(connection, NOON + HOUR) - first == HOUR / 2


@given(st.lists(st.integers(-4_000_000, 4_000_000), max_size=40))
def test_time_never_runs_backwards_whatever_the_host_does(steps: list[int]) -> None:
    with closing(connected()) as connection:
        host, latest = NOON, None
        for step in steps:
            host += timedelta(microseconds=step)
            timestamp = steady_now(connection, host)
            if latest is not None:
                # The mark is written once a second, so less than that can go unnoticed.
                assert timestamp >= latest or (timestamp > latest - SECOND and -1_000_000 < step < 0)
            latest = timestamp


def test_two_processes_agree_when_one_hosts_clock_is_set_back(sqlite_database: SqliteDatabase) -> None:
    program = (
        "import sys; from datetime import datetime; sys.path.insert(0, sys.argv[3]); import sqlite3;"
        "from wane._db.sqlite.clock import steady_now;"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20);"
        "print(steady_now(c, datetime.fromisoformat(sys.argv[2])).isoformat())"
    )
    connected(sqlite_database.path).close()

    def elsewhere(host: datetime) -> datetime:
        done = subprocess.run(
            [sys.executable, "-c", program, sqlite_database.path, host.isoformat(), "."],
            capture_output=True,
            text=True,
            check=True,
        )
        return datetime.fromisoformat(done.stdout.strip())

    with closing(sqlite3.connect(sqlite_database.path, isolation_level=None)) as connection:
        first = steady_now(connection, NOON)
        second = elsewhere(NOON - HOUR)
        third = steady_now(connection, NOON - HOUR + SECOND)
        assert first < second < third


def test_a_mark_that_another_process_moved_meanwhile_is_reread(sqlite_database: SqliteDatabase) -> None:
    """Compare and set: a process that was stopped between read and write must not turn the mark back."""
    other = connected(sqlite_database.path)
    steady_now(other, NOON)

    class Slow(sqlite3.Cursor):
        def execute(self, text: str, *parameters: object) -> sqlite3.Cursor:  # type: ignore[override]
            if text.startswith("UPDATE") and not moved:
                moved.append(steady_now(other, NOON + 5 * HOUR))
            return super().execute(text, *parameters)  # type: ignore[arg-type]

    class Connection(sqlite3.Connection):
        def cursor(self, *arguments: object) -> Slow:  # type: ignore[override]
            return super().cursor(Slow)

    moved: list[datetime] = []
    with closing(sqlite3.connect(sqlite_database.path, isolation_level=None, factory=Connection)) as connection:
        timestamp = steady_now(connection, NOON + 2 * SECOND)
        assert timestamp > moved[0]
    assert steady_now(other, NOON + 5 * HOUR) >= timestamp
    other.close()


def test_a_mark_that_another_process_moved_meanwhile_is_noticed_by_the_statement(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual operations read no mark: each goes by the one that the operation before it went by."""
    monkeypatch.setattr(clock_module, "datetime", stopped(NOON))
    lease = timedelta(days=1)
    with opened(sqlite_database) as store, closing(sqlite_database.connect()) as other:
        store.migrate()
        queue = Queue(store, "pool", policy=RetryPolicy(lease=lease))
        queue.enqueue("k")
        queue.enqueue("k")
        ahead = steady_now(other, NOON + HOUR)
        assert queue.enqueue("k").created_at > ahead
        ahead = steady_now(other, NOON + 2 * HOUR)
        reservation = taken(queue)
        assert reservation.lease_expires_at > ahead + lease
        ahead = steady_now(other, NOON + 3 * HOUR)
        assert queue.ack(reservation.message_id, reservation.token).accepted
        [(finished,)] = sqlite_database.query("SELECT finished_at FROM wane_message WHERE state = 'done'")
        assert datetime.fromisoformat(finished) > ahead


def test_the_usual_operations_on_sqlite_are_one_statement_each(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_module, "datetime", stopped(NOON))
    sqlite_database.execute("PRAGMA journal_mode = wal")
    with opened(sqlite_database) as store:
        assert isinstance(store, SqliteStore)
        store.migrate()
        queue = Queue(store, "pool")
        for _ in range(3):
            queue.enqueue("k")
        queue._next_check = math.inf  # As if reserving had just checked for overdue messages.
        ran: list[str] = []
        store._connection.set_trace_callback(ran.append)
        sent = queue.enqueue("k")
        reservation = taken(queue)
        assert queue.ack(reservation.message_id, reservation.token).accepted
        # A statement is traced once more for each trigger, and for RETURNING.
        verbs = [text.split()[0] for text in dict.fromkeys(ran)]
        assert [verb for verb in verbs if verb != "PRAGMA"] == ["INSERT", "UPDATE", "UPDATE"]
        assert queue.read_message(sent.message_id) == sent


def test_leases_on_sqlite_end_also_after_the_host_was_set_back(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = [NOON]

    class Host(datetime):
        @classmethod
        def now(cls, tz: object = UTC) -> datetime:  # type: ignore[override]
            assert tz is UTC
            return host[0]

    monkeypatch.setattr(clock_module, "datetime", Host)
    with opened(sqlite_database) as store:
        store.migrate()
        queue = Queue(store, "pool", policy=RetryPolicy(lease=timedelta(seconds=10)))
        sent = queue.enqueue("k")
        first = taken(queue)
        host[0] -= HOUR
        assert queue.reserve() is None  # It was set back: the lease has not become longer by that, nor shorter.
        assert queue.renew(sent.message_id, first.token).accepted
        host[0] += timedelta(seconds=19)
        assert queue.reserve() is None
        host[0] += timedelta(seconds=2)
        second = taken(queue)
        assert second.message.deliveries == 2
        assert queue.ack(sent.message_id, first.token).answer is Answer.INVALID_TOKEN


def test_the_clients_clock_does_not_matter_on_postgres(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients whose clocks are hours off, one ahead and one behind: leases last as long as the server says."""
    off = [timedelta(0)]

    class Any(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Wrong(datetime, metaclass=Any):
        @classmethod
        def now(cls, tz: object = UTC) -> datetime:  # type: ignore[override]
            assert tz is UTC
            return datetime.now(UTC) + off[0]

    importlib.import_module("wane._db.postgres.store")  # What is imported later would have the right clock.
    real = time.time
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("wane.") and getattr(module, "datetime", None) is datetime:
            monkeypatch.setattr(module, "datetime", Wrong)
    monkeypatch.setattr(time, "time", lambda: real() + off[0].total_seconds())
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool", policy=RetryPolicy(lease=timedelta(seconds=60), backoff=timedelta(seconds=60)))
        [(server,)] = postgres_database.query("SELECT clock_timestamp()")
        for hours in (-5, 5):
            off[0] = timedelta(hours=hours)
            sent = queue.enqueue("k")
            assert abs((sent.created_at - server).total_seconds()) < 60
            reservation = taken(queue)
            assert 0 < (reservation.lease_expires_at - server).total_seconds() < 120
            off[0] = -off[0]  # Another client, as far off on the other side.
            assert queue.reserve() is None
            assert queue.expire_leases().count == 0
            assert queue.renew(sent.message_id, reservation.token).accepted
            assert queue.release(sent.message_id, reservation.token, "later").accepted
            assert queue.reserve() is None  # Its pause is the server's too.
            due = queue.next_due()
            assert due is not None
            assert 0 < (due - server).total_seconds() < 120


@pytest.mark.parametrize("operation", ["ack", "renew"])
def test_who_waited_for_the_lock_until_its_lease_had_ended_is_too_late(
    sqlite_database: SqliteDatabase, operation: str
) -> None:
    with opened(sqlite_database) as store:
        store.migrate()
        queue = Queue(store, "pool", policy=RetryPolicy(lease=timedelta(seconds=0.5)))
        queue.enqueue("k")
        held = taken(queue)
        with closing(sqlite_database.connect()) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = Background(lambda: getattr(queue, operation)(held.message_id, held.token))
            while datetime.now(UTC) <= held.lease_expires_at:
                time.sleep(0.05)
            assert waiting.running, "it waits for the lock"
            other.execute("ROLLBACK")
        assert waiting.result().answer is Answer.EXPIRED


def test_what_is_done_by_the_clock_goes_by_the_time_at_which_the_lock_was_had(
    sqlite_database: SqliteDatabase,
) -> None:
    with opened(sqlite_database) as store:
        store.migrate()

        def act() -> datetime | None:
            with store.write() as (_, timestamp):
                return timestamp

        with closing(sqlite_database.connect()) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = Background(act)
            time.sleep(0.2)
            assert waiting.running, "it waits for the lock"
            released = datetime.now(UTC)
            other.execute("ROLLBACK")
        timestamp = waiting.result()
        assert timestamp is not None
        assert timestamp >= released


def test_a_lease_that_ended_is_found_in_time_while_other_messages_are_ready(store: Store) -> None:
    queue = Queue(store, "pool", policy=RetryPolicy(lease=timedelta(milliseconds=1), attempts=1_000))
    queue.enqueue("first")
    taken(queue)  # The first reservation checks.
    lost = queue.enqueue("lost").message_id
    while taken(queue).message_id != lost:
        pass
    deadline = time.monotonic() + 30
    while True:
        queue.enqueue("other")
        reservation = taken(queue)
        if reservation.message_id == lost:
            break
        assert time.monotonic() < deadline
        queue.ack(reservation.message_id, reservation.token)
    assert reservation.message.deliveries == 2
