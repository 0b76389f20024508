"""Several at once: every message goes to one, duplicates meet their original, and nobody waits for what he does not
want."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from queueing import Clock, message_table, opened, reported, rows, swarm, taken
from races.racing import Background, Paused, await_true, await_waiting, backend
from servers import Database, PostgresDatabase
from wane._db import Store
from wane._db.postgres import transaction
from wane._db.postgres.store import PostgresStore
from wane.errors import Locked
from wane.queue import Answer, Draft, MessageState, Queue, RetryPolicy
from wane.queue._dialects import messages_of


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transactions wait for locks for longer, so that a slow machine does not turn one race into another."""
    monkeypatch.setitem(transaction.LOCAL_SETTINGS, "lock_timeout", "20s")


@contextmanager
def other(database: Database, clock: Clock | None = None) -> Iterator[Queue]:
    """Yield the same queue over connections of its own."""
    with opened(database) as store, closing(Queue(store, "pool", clock=clock)) as queue:
        yield queue


def pid(queue: Queue) -> int:
    return backend(queue.store._connection)  # type: ignore[attr-defined]


def test_every_message_goes_to_exactly_one_of_many_processes(database: Database, store: Store) -> None:
    queue = Queue(store, "pool")
    sent = queue.enqueue_many([Draft("abc"[n % 3], work_queue_id="q" if n % 2 else None) for n in range(240)])
    with swarm(database, "drain", 6) as process:
        lines = reported(process.communicate()[0].splitlines())
    assert process.returncode == 0
    took = [line for line in lines if "took" in line]
    assert Counter(line["took"] for line in took) == Counter(one.message_id for one in sent)
    assert {(line["answer"], line["deliveries"]) for line in took} == {("accepted", 1)}
    assert len({line["process"] for line in took}) > 1
    assert {row[5] for row in rows(database)} == {"done"}


DUPLICATES: dict[str, Callable[[Queue], Any]] = {
    "enqueue": lambda queue: queue.enqueue("second", message_id="theirs", key="k"),
    "enqueue_many": lambda queue: queue.enqueue_many([Draft("x"), Draft("second", key="k")])[1],
}


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("how", DUPLICATES)
def test_a_duplicate_waits_for_an_open_transaction_and_then_knows(
    postgres_database: PostgresDatabase, patient: None, how: str, end: str
) -> None:
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool")
        connection = postgres_database.connect()
        connection.autocommit = False
        first = queue.enqueue("first", message_id="ours", key="k", connection=connection)
        with other(postgres_database) as second:
            waiting = Background(lambda: DUPLICATES[how](second))
            await_waiting(postgres_database, pid(second), backend(connection))
            getattr(connection, end)()
            found = waiting.result()
        if end == "commit":
            assert (found.message_id, found.kind, found.seq) == ("ours", "first", first.seq)
        else:
            assert found.kind == "second"
            assert queue.read_message("ours") is None
        assert [row[2] for row in rows(postgres_database)].count("k") == 1


def test_a_duplicate_inside_a_transaction_is_known_to_the_same_and_vanishes_with_it(
    database: Database, queue: Queue
) -> None:
    connection = database.connect()
    connection.execute("BEGIN")
    first = queue.enqueue("k", key="key", connection=connection)
    assert queue.enqueue("k", key="key", connection=connection).message_id == first.message_id
    [many] = queue.enqueue_many([Draft("k", key="key")], connection=connection)
    assert many.message_id == first.message_id
    if database.store == "postgres":
        assert queue.messages() == []
    connection.execute("ROLLBACK")
    assert rows(database) == []
    assert queue.enqueue("k", key="key").message_id != first.message_id


def test_a_key_that_stays_taken_by_an_open_transaction_is_an_error_and_not_a_hang(
    postgres_database: PostgresDatabase,
) -> None:
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool")
        connection = postgres_database.connect()
        connection.autocommit = False
        queue.enqueue("k", key="key", connection=connection)
        with pytest.raises(Locked):
            queue.enqueue_many([Draft("k"), Draft("k", key="key")])
        connection.rollback()
        assert rows(postgres_database) == []


def test_an_ack_that_comes_while_the_lease_is_being_ended_changes_nothing(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expiry holds the message, the ack waits behind it, and finds that another consumer may have it now."""
    clock = Clock()
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool", clock=clock)
        sent = queue.enqueue("k")
        token = taken(queue).token
        late = Clock()
        late.now = clock.now + timedelta(seconds=30)
        with other(postgres_database, late) as expiring:
            pause = Paused(monkeypatch, transaction.PostgresTransaction, "execute", "UPDATE wane.message")
            ending = Background(lambda: expiring.expire_leases())
            pause.await_reached()
            acking = Background(lambda: queue.ack(sent.message_id, token))
            await_waiting(postgres_database, pid(queue), pid(expiring))
            pause.go_on.set()
            assert [one.message_id for one in ending.result().redelivered] == [sent.message_id]
            assert acking.result().answer is Answer.NOT_CURRENT
        message = queue.read_message(sent.message_id)
        assert message is not None
        assert (message.state, message.deliveries) == (MessageState.READY, 1)


def test_an_expiry_that_comes_while_a_message_is_being_acked_leaves_it(postgres_database: PostgresDatabase) -> None:
    clock = Clock()
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool", clock=clock)
        sent = queue.enqueue("k")
        token = taken(queue).token
        connection = postgres_database.connect()
        connection.autocommit = False
        assert queue.ack(sent.message_id, token, connection=connection).accepted
        clock.advance(seconds=31)
        assert queue.expire_leases().count == 0  # It is stepped over, not waited for.
        assert queue.reserve() is None
        connection.commit()
        assert queue.expire_leases().count == 0
        assert [row[5] for row in rows(postgres_database)] == ["done"]


def test_a_release_and_a_requeue_of_one_letter_come_one_after_the_other(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool", policy=RetryPolicy(attempts=1))
        sent = queue.enqueue("k")
        token = taken(queue).token
        with other(postgres_database) as second:
            pause = Paused(monkeypatch, transaction.PostgresTransaction, "execute", "UPDATE wane.message")
            releasing = Background(lambda: queue.release(sent.message_id, token, "no"))
            pause.await_reached()
            requeuing = Background(lambda: second.requeue(sent.message_id))
            await_waiting(postgres_database, pid(second), pid(queue))
            pause.go_on.set()
            assert releasing.result().answer is Answer.DEAD_LETTERED
            assert requeuing.result().accepted
        repeated = queue.read_message(sent.message_id)
        assert repeated is not None
        assert (repeated.state, repeated.deliveries) == (MessageState.READY, 0)
        assert queue.release(sent.message_id, token, "no").answer is Answer.NOT_CURRENT


@contextmanager
def reserving(database: PostgresDatabase, **options: Any) -> Iterator[None]:
    """Hold a consumer whose reservation is made and not yet committed."""
    with opened(database) as store:
        assert isinstance(store, PostgresStore)
        store._connection.autocommit = False
        store._connection.execute("SELECT 1")
        store._inside += 1
        found = Queue.reserve_many(_Unmigrated(store, "pool"), **options)
        assert found
        yield
        store._connection.rollback()


class _Unmigrated(Queue):
    """A call inside a transaction does not check migrations, and ends no leases."""

    def expire_leases(self, limit: int = 100, *, everywhere: bool = False) -> Any:
        raise AssertionError("nothing is overdue")


@pytest.mark.parametrize("limit", [1, 2])
def test_reserving_of_several_kinds_locks_only_what_it_takes(postgres_database: PostgresDatabase, limit: int) -> None:
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool")
        one = [queue.enqueue("a"), queue.enqueue("b"), queue.enqueue("c")]
        with reserving(postgres_database, limit=limit, kinds=["c", "b", "a"]):
            # The oldest went; a reader of another kind must not find none.
            for kind, message in zip("abc"[limit:], one[limit:], strict=True):
                assert taken(queue, kinds=[kind]).message_id == message.message_id
            assert queue.reserve() is None


def test_a_worker_steps_over_what_others_are_taking(postgres_database: PostgresDatabase) -> None:
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool")
        sent = queue.enqueue_many([Draft("ab"[n % 2], work_queue_id="q", data={"n": n}) for n in range(8)])
        with ExitStack() as stack:
            stack.enter_context(reserving(postgres_database, limit=2))
            stack.enter_context(reserving(postgres_database, limit=1, kinds=["b", "a"]))
            stack.enter_context(reserving(postgres_database, limit=1, preferred_work_queue_ids=["q"]))
            found = queue.reserve_many(2, kinds=["a", "b"])
            found += [taken(queue), taken(queue, preferred_work_queue_ids=["q"])]
            assert {reservation.message.data["n"] for reservation in found} == {4, 5, 6, 7}
        assert [reservation.message_id for reservation in queue.reserve_many(9)] == [one.message_id for one in sent[:4]]


def test_wakeups_are_folded_without_changing_their_number(postgres_database: PostgresDatabase) -> None:
    """Threads bump, fold and read at once: a second read never sees less, and nothing is lost in the end."""
    with opened(postgres_database) as store:
        store.migrate()
        for _ in range(100):
            messages_of(store).bump(store.run, "pool")
        done: list[int] = []

        def bump() -> int:
            with opened(postgres_database) as own:
                for _ in range(150):
                    messages_of(own).bump(own.run, "pool")
            done.append(1)
            return 150

        def fold() -> int:
            folded = 0
            with opened(postgres_database) as own:
                while len(done) < 2:
                    messages_of(own).fold(own.run, "pool")
                    folded += 1
            return folded

        def read_sequences() -> list[int]:
            seen = []
            with opened(postgres_database) as own:
                while len(done) < 2:
                    seen.append(messages_of(own).sequences(own.run, ["pool"])["pool"])
            return seen

        work = [Background(call) for call in (bump, bump)]
        folding = [Background(call) for call in (fold, fold)]
        reading = Background(read_sequences)
        assert [one.result() for one in work] == [150, 150]
        assert all(one.result() > 0 for one in folding)
        seen = reading.result()
        assert seen == sorted(seen)
        assert messages_of(store).bumps(store.run, ["pool"])["pool"][0] == 400
        messages_of(store).fold(store.run, "pool")
        assert messages_of(store).bumps(store.run, ["pool"])["pool"] in [(400, n) for n in range(1, 66)]


def test_a_fold_that_meets_another_takes_what_is_left(postgres_database: PostgresDatabase) -> None:
    with opened(postgres_database) as store, opened(postgres_database) as second:
        store.migrate()
        for _ in range(100):
            messages_of(store).bump(store.run, "pool")
        with store.transaction() as first:
            messages_of(store).fold(first.execute, "pool")
            messages_of(second).bump(second.run, "pool")
            messages_of(second).fold(second.run, "pool")
            assert messages_of(second).sequences(second.run, ["pool"]) == {"pool": 101}
        assert messages_of(store).bumps(store.run, ["pool"])["pool"][0] == 101


def test_a_sequence_that_has_many_rows_is_folded_by_its_reader(postgres_database: PostgresDatabase) -> None:
    with opened(postgres_database) as store:
        store.migrate()
        with closing(Queue(store, "pool")) as queue:
            queue.enqueue_many([Draft("k") for _ in range(1000)])
            queue.notify()
            assert messages_of(store).bumps(store.run, ["pool"])["pool"] == (1001, 1001)
            assert queue.read_wakeup_sequence() == 1001
            assert messages_of(store).bumps(store.run, ["pool"])["pool"] == (1001, 1)
            queue.enqueue_many([Draft("k") for _ in range(1000)])
            assert queue.wait_for_wakeup(1001, 5) == 2001
            assert messages_of(store).bumps(store.run, ["pool"])["pool"] == (2001, 1)


def test_two_processes_that_write_at_once_take_turns(database: Database, store: Store) -> None:
    """On SQLite another writer's transaction is waited for; on PostgreSQL it is in nobody's way."""
    queue = Queue(store, "pool")
    connection = database.connect()
    connection.execute("BEGIN IMMEDIATE" if database.store == "sqlite" else "BEGIN")
    queue.enqueue("theirs", connection=connection)
    with other(database) as second:
        enqueuing = Background(lambda: second.enqueue("mine"))
        if database.store == "postgres":
            enqueuing.result()
            assert [one.kind for one in queue.messages()] == ["mine"]
        else:
            await_true(lambda: enqueuing.running, "it waits")
        connection.execute("COMMIT")
        enqueuing.result()
    assert {one.kind for one in queue.messages()} == {"theirs", "mine"}
    assert len(database.query(f"SELECT 1 FROM {message_table(database)}")) == 2
