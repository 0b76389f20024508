"""Wakeups: none is missed between read and wait, across processes, and each commits with the change that caused it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import sqlalchemy

from queueing import Clock, opened, reported, swarm, taken
from races.racing import PATIENCE_SECONDS, Background, await_true
from servers import Database, PostgresDatabase
from wane._db import Store
from wane.errors import StoreError, Unreachable
from wane.queue import Draft, Queue, RetryPolicy, _wakeups

SOON = 10.0
"""Longer than any wakeup takes, shorter than a test may."""


@contextmanager
def waiting(database: Database, pool: str = "pool") -> Iterator[Queue]:
    with opened(database) as store, closing(Queue(store, pool)) as queue:
        yield queue


def watches(database: Database, queue: Queue) -> bool:
    """Check whether one of its threads waits for news from the database."""
    return queue._wakeups._watching and queue._wakeups._watch is not None


def connections(database: PostgresDatabase) -> set[int]:
    """Return the product's connections, by their backends."""
    return {
        pid
        for (pid,) in database.query(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'wane'"
        )
    }


def test_a_wakeup_that_came_before_the_wait_is_reported_at_once(database: Database, queue: Queue) -> None:
    assert queue.wait_for_wakeup(0, 0) is None
    queue.enqueue("k")
    with waiting(database) as other:
        began = time.monotonic()
        assert other.wait_for_wakeup(0) == 1
        assert other.wait_for_wakeup(-5, 0) == 1
        assert other.wait_for_wakeup(1, 0.05) is None
        assert time.monotonic() - began < SOON


CHANGES: dict[str, Callable[[Queue, str, str], object]] = {
    "enqueue": lambda queue, *_: queue.enqueue("new"),
    "enqueue many": lambda queue, *_: queue.enqueue_many([Draft("new"), Draft("new")]),
    "release": lambda queue, name, token: queue.release(name, token, "no"),
    "notify": lambda queue, *_: queue.notify(),
}


def test_every_kind_of_change_wakes_a_thread_that_waits(database: Database, store: Store, clock: Clock) -> None:
    queue = Queue(store, "pool", clock=clock)
    queue.enqueue("k")
    with waiting(database) as other:
        for change in CHANGES.values():
            reservation = taken(queue)
            after = queue.read_wakeup_sequence()
            call = Background(lambda after=after: other.wait_for_wakeup(after, SOON))  # type: ignore[misc]
            await_true(lambda: watches(database, other), "it waits")
            change(queue, reservation.message_id, reservation.token)
            found = call.result()
            assert found is not None
            assert found > after


def test_what_makes_nothing_ready_wakes_no_consumer(store: Store, clock: Clock) -> None:
    queue = Queue(store, "pool", clock=clock, policy=RetryPolicy(attempts=2))
    queue.enqueue("k", key="k")
    first = taken(queue)
    after = queue.read_wakeup_sequence()
    queue.enqueue("k", key="k")  # It is reserved: a consumer that is woken would find nothing.
    queue.renew(first.message_id, first.token)
    queue.ack(first.message_id, first.token)
    queue.enqueue("k", key="k")
    queue.enqueue("late", delay=queue.policy.lease)
    assert queue.read_wakeup_sequence() == after


def test_a_wait_that_gives_up_does_so_in_time_beside_one_that_goes_on(
    database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread watches for longer than a test may take: no wait lasts until its watch ends."""
    monkeypatch.setattr(_wakeups, "_LONGEST_WATCH_SECONDS", PATIENCE_SECONDS)
    queue.enqueue("k")
    with waiting(database) as other, closing(Queue(other.store, "quiet", wakeups=other._wakeups)) as quiet:
        long = Background(lambda: quiet.wait_for_wakeup(0, PATIENCE_SECONDS))
        await_true(lambda: watches(database, other), "it waits")
        for _ in range(5):
            assert other.wait_for_wakeup(1, 0) is None
            assert other.wait_for_wakeup(0, PATIENCE_SECONDS) == 1
            assert other.wait_for_wakeup(1, 0.01) is None
            assert long.running
        quiet.notify()
        assert long.result() == 1


def test_many_threads_wait_over_one_connection(postgres_database: PostgresDatabase) -> None:
    with waiting(postgres_database_migrated(postgres_database)) as queue:
        others = [Queue(queue.store, f"pool{n % 4}", wakeups=queue._wakeups) for n in range(24)]
        calls = [Background(lambda one=one: one.wait_for_wakeup(0, SOON)) for one in others]  # type: ignore[misc]
        await_true(lambda: sum(queue._wakeups._pools.values()) == 24, "all wait")
        await_true(lambda: watches(postgres_database, queue), "one watches")
        assert len(connections(postgres_database)) == 2  # The store's own, and the one that listens.
        for number in range(4):
            Queue(queue.store, f"pool{number}").enqueue("k")
        assert [call.result() for call in calls] == [1] * 24


def postgres_database_migrated(database: PostgresDatabase) -> PostgresDatabase:
    with opened(database) as store:
        store.migrate()
    return database


def test_a_waiter_whose_connection_is_killed_gets_a_clear_error_and_the_next_wait_works(
    postgres_database: PostgresDatabase,
) -> None:
    with waiting(postgres_database_migrated(postgres_database)) as queue:
        threads = [Background(lambda: queue.wait_for_wakeup(0, SOON)) for _ in range(3)]
        await_true(lambda: watches(postgres_database, queue), "it waits")
        [pid] = connections(postgres_database) - {queue.store._connection.info.backend_pid}  # type: ignore[attr-defined]
        postgres_database.query("SELECT pg_terminate_backend(?)", (pid,))
        await_true(lambda: not all(one.running for one in threads), "one of them is woken")
        postgres_database.execute("INSERT INTO wane.wakeup (pool, bumps) VALUES ('pool', 1)")
        ends: list[object] = []
        for one in threads:
            try:
                ends.append(one.result())
            except Unreachable as problem:
                ends.append(problem.message.partition(":")[0])
        assert sorted(map(str, ends)) == ["1", "1", "the connection that waits for wakeups is lost"]
        assert queue.wait_for_wakeup(0, SOON) == 1
        watch = queue.store.watch()  # The same if it happens between two waits.
        [(pid,)] = watch.read("SELECT pg_catalog.pg_backend_pid()", {})
        postgres_database.query("SELECT pg_terminate_backend(?, 5000)", (pid,))
        with pytest.raises(Unreachable, match="the connection that waits for wakeups is lost: "):
            watch.read("SELECT 1", {})
        watch.close()


def test_closing_a_queue_ends_its_waits_with_an_error(database: Database, store: Store) -> None:
    with opened(database) as own:
        queue = Queue(own, "pool")
        calls = [Background(lambda: queue.wait_for_wakeup(0, SOON)) for _ in range(2)]
        await_true(lambda: watches(database, queue), "it waits")
        queue.close()
        for call in calls:
            with pytest.raises(StoreError, match="the queue is closed"):
                call.result()
        assert queue._wakeups._watch is None
        with pytest.raises(StoreError, match="the queue is closed"):
            queue.wait_for_wakeup(0, 0)


def test_a_queue_that_shares_its_wakeups_does_not_close_them(database: Database, queue: Queue) -> None:
    sharing = Queue(queue.store, "other", wakeups=queue._wakeups)
    sharing.close()
    assert queue.wait_for_wakeup(0, 0) is None


@contextmanager
def transactions(database: Database, kind: str) -> Iterator[tuple[Any, Callable[[], None], Callable[[], None]]]:
    """Yield a caller's own connection inside a transaction, and how it ends."""
    if kind == "driver":
        connection = database.connect()
        connection.execute("BEGIN")
        yield connection, lambda: connection.execute("COMMIT"), lambda: connection.execute("ROLLBACK")
        return
    url = database.url.replace("postgresql://", "postgresql+psycopg://")
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        yield connection, connection.commit, connection.rollback
    engine.dispose()


@pytest.mark.parametrize("kind", ["driver", "sqlalchemy"])
def test_a_wakeup_comes_when_the_callers_transaction_commits_and_never_if_it_does_not(
    database: Database, queue: Queue, kind: str
) -> None:
    with waiting(database) as other:
        with transactions(database, kind) as (connection, _, rollback):
            queue.enqueue("lost", connection=connection)
            assert other.wait_for_wakeup(0, 0.05) is None
            rollback()
        assert other.wait_for_wakeup(0, 0.05) is None
        with transactions(database, kind) as (connection, commit, _):
            queue.enqueue("kept", connection=connection)
            call = Background(lambda: other.wait_for_wakeup(0, SOON))
            await_true(lambda: watches(database, other), "it waits")
            assert call.running
            commit()
            assert call.result() == 1
        assert [one.kind for one in other.messages()] == ["kept"]


def test_a_short_change_overtakes_a_long_transaction_and_both_wake(postgres_database: PostgresDatabase) -> None:
    """A sequence that was drawn early and committed late must not be taken for one that was seen."""
    with waiting(postgres_database_migrated(postgres_database)) as queue:
        connection = postgres_database.connect()
        connection.autocommit = False
        queue.enqueue("long", connection=connection)
        queue.enqueue("short")
        seen = queue.wait_for_wakeup(0, SOON)
        assert seen == 1
        assert taken(queue).message.kind == "short"
        call = Background(lambda: queue.wait_for_wakeup(seen, SOON))
        await_true(lambda: watches(postgres_database, queue), "it waits")
        connection.commit()
        assert call.result() == 2
        assert taken(queue).message.kind == "long"


def test_only_the_first_ready_message_of_a_kind_notifies_and_the_others_are_seen_soon(
    postgres_database: PostgresDatabase,
) -> None:
    """Notifying makes commits go one after the other; the consumer that takes the first message finds those that came
    behind it."""
    listening = postgres_database.connect()
    listening.execute("LISTEN wane_wakeup")
    with waiting(postgres_database_migrated(postgres_database)) as queue:
        for kind in ("a", "a", "b", "a"):
            queue.enqueue(kind)
        queue.enqueue_many([Draft("c"), Draft("c"), Draft("c")])
        assert [one.payload for one in listening.notifies(timeout=0.2)] == ["pool"] * 2 + ["pool"]
        began = time.monotonic()
        call = Background(lambda: queue.wait_for_wakeup(7, SOON))
        await_true(lambda: watches(postgres_database, queue), "it waits")
        with waiting(postgres_database) as other:
            other.enqueue("a")
        assert call.result() == 8
        assert time.monotonic() - began < 5
        assert list(listening.notifies(timeout=0.1)) == []


def test_processes_that_listen_miss_nothing(database: Database, store: Store) -> None:
    """Three processes follow the sequence while messages are enqueued one by one, and each comes to the last one."""
    queue = Queue(store, "pool")
    with swarm(database, "listen", 3) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while len(reported(lines)) < 6:  # Each is ready, and waits.
            lines.append(process.stdout.readline())
        for number in range(25):
            queue.enqueue("k")
            time.sleep(0.002 * (number % 3))
        sent = time.time()
        queue.enqueue("end")
        received = [line for line in reported(process.communicate()[0].splitlines()) if "received" in line]
    assert process.returncode == 0
    by_process: dict[int, list[int]] = {}
    for line in received:
        by_process.setdefault(line["process"], []).append(line["received"])
    assert len(by_process) == 3
    for sequences in by_process.values():
        assert None not in sequences, "it slept until its timeout"
        assert sequences == sorted(set(sequences))
        assert sequences[-1] <= 26  # A consumer may find the last message right before its wakeup is reported.
    assert max(line["at"] for line in received) - sent < 5


def test_no_wakeup_is_missed_between_read_and_wait(database: Database, store: Store) -> None:
    """A thread enqueues as fast as it can; another takes everything, and waits only when it found nothing."""
    queue = Queue(store, "pool")
    stop = threading.Event()

    def consume() -> int:
        found = 0
        with waiting(database) as own:
            while found < 60:
                sequence = own.read_wakeup_sequence()
                taken = own.reserve_many(10)
                found += len(taken)
                for one in taken:
                    own.ack(one.message_id, one.token)
                if not taken:
                    assert own.wait_for_wakeup(sequence, SOON) is not None, "it slept through a wakeup"
        stop.set()
        return found

    consuming = Background(consume)
    for number in range(60):
        queue.enqueue("ab"[number % 2])
        if number % 7 == 0:
            stop.wait(0.003)
    assert consuming.result() == 60
