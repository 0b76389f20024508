"""What cannot be meant is refused with a sentence, before anything is written; what is merely unusual works."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from queueing import opened, rows, taken
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._db import Store
from wane._db.migrations import migrations, pending_script
from wane.errors import NotMigrated, StoreError, Unreachable, WaneError, WrongArgument, WrongArgumentType
from wane.queue import Draft, Queue, RetryPolicy
from wane.queue._dialects import messages_of

ODD = ['it\'s "quoted"', "100 %", "%(pool)s %s %%", "?1 :pool", "a;DROP TABLE wane_message", "Ünï 🌒", " ", "\n", "\\"]
DEEP: dict[str, Any] = {}
for _ in range(100_000):
    DEEP = {"d": DEEP}

WRONG_TYPES: list[tuple[str, Callable[[Queue], object]]] = [
    ("kind is None", lambda q: q.enqueue(None)),  # type: ignore[arg-type]
    ("kind is bytes", lambda q: q.enqueue(b"k")),  # type: ignore[arg-type]
    ("id is a number", lambda q: q.enqueue("k", message_id=1)),  # type: ignore[arg-type]
    ("key is a bool", lambda q: q.enqueue("k", key=True)),  # type: ignore[arg-type]
    ("data is a list", lambda q: q.enqueue("k", data=[])),  # type: ignore[arg-type]
    ("target is a text", lambda q: q.enqueue("k", target="")),  # type: ignore[arg-type]
    ("delay is a number", lambda q: q.enqueue("k", delay=5)),  # type: ignore[arg-type]
    ("drafts of messages", lambda q: q.enqueue_many([q.enqueue("k")])),  # type: ignore[list-item]
    ("drafts from a generator", lambda q: q.enqueue_many(Draft("k") for _ in range(2))),  # type: ignore[arg-type]
    ("limit is a bool", lambda q: q.reserve_many(True)),
    ("limit is a float", lambda q: q.reserve_many(1.0)),  # type: ignore[arg-type]
    ("kinds is a text", lambda q: q.reserve(kinds="k")),
    ("kinds of numbers", lambda q: q.reserve(kinds=[1])),  # type: ignore[list-item]
    ("fallback is a text", lambda q: q.reserve(allow_fallback_to_any_queue="no")),  # type: ignore[arg-type]
    ("token is bytes", lambda q: q.ack("m", b"t")),  # type: ignore[arg-type]
    ("reason is None", lambda q: q.release("m", "t", None)),  # type: ignore[arg-type]
    ("by is a number", lambda q: q.resolve("m", by=7)),  # type: ignore[arg-type]
    ("before is a text", lambda q: q.dead_letters(before="x")),  # type: ignore[arg-type]
    ("resolved is a number", lambda q: q.dead_letters(resolved=1)),  # type: ignore[arg-type]
    ("everywhere is a number", lambda q: q.expire_leases(everywhere=1)),  # type: ignore[arg-type]
    ("after is a bool", lambda q: q.wait_for_wakeup(True, 0)),
    ("after is None", lambda q: q.wait_for_wakeup(None, 0)),  # type: ignore[arg-type]
    ("timeout is a text", lambda q: q.wait_for_wakeup(0, "1")),  # type: ignore[arg-type]
    ("timeout is a bool", lambda q: q.wait_for_wakeup(0, False)),
    ("pool is None", lambda q: Queue(q.store, None)),  # type: ignore[arg-type]
    ("policy is a dict", lambda q: Queue(q.store, "p", policy={"attempts": 3})),  # type: ignore[arg-type]
    ("attempts is a bool", lambda _: RetryPolicy(attempts=True)),
    ("lease is a number", lambda _: RetryPolicy(lease=30)),  # type: ignore[arg-type]
]
WRONG_VALUES: list[tuple[str, Callable[[Queue], object]]] = [
    ("an empty kind", lambda q: q.enqueue("")),
    ("an empty id", lambda q: q.enqueue("k", message_id="")),
    ("an empty key", lambda q: q.enqueue("k", key="")),
    ("an empty work queue", lambda q: q.enqueue("k", work_queue_id="")),
    ("NUL in a kind", lambda q: q.enqueue("a\0b")),
    ("half a surrogate pair in a key", lambda q: q.enqueue("k", key="\ud800")),
    ("a long kind", lambda q: q.enqueue("k" * 1001)),
    ("a kind of many bytes", lambda q: q.enqueue("🌒" * 201)),
    ("a delay back in time", lambda q: q.enqueue("k", delay=timedelta(seconds=-1))),
    ("a delay of centuries", lambda q: q.enqueue("k", delay=timedelta(days=99_999))),
    ("no number as data", lambda q: q.enqueue("k", data={"n": math.nan})),
    ("infinity as data", lambda q: q.enqueue("k", data={"n": [math.inf]})),
    ("an object as data", lambda q: q.enqueue("k", data={"n": object()})),
    ("data that is too deep", lambda q: q.enqueue("k", data=DEEP)),
    ("data that is too large", lambda q: q.enqueue("k", data={"n": "x" * 1_000_000})),
    ("a number with too many digits", lambda q: q.enqueue("k", data={"n": 10**5000})),
    ("no drafts", lambda q: q.enqueue_many([])),
    ("too many drafts", lambda q: q.enqueue_many([Draft("k")] * 1001)),
    ("a bad draft among good ones", lambda q: q.enqueue_many([Draft("k"), Draft("")])),
    ("none at a time", lambda q: q.reserve_many(0)),
    ("less than none", lambda q: q.reserve_many(-1)),
    ("too many at a time", lambda q: q.reserve_many(1001)),
    ("absurdly many", lambda q: q.expire_leases(10**30)),
    ("NUL in a kind to reserve", lambda q: q.reserve(kinds=["a\0"])),
    ("too many kinds", lambda q: q.reserve(kinds=[f"k{n}" for n in range(101)])),
    ("an empty token", lambda q: q.ack("m", "")),
    ("half a pair in a token", lambda q: q.ack("m", "\udfff")),
    ("an empty reason", lambda q: q.release("m", "t", "")),
    ("a long reason", lambda q: q.release("m", "t", "x" * 10_001)),
    ("nobody", lambda q: q.resolve("m", by="")),
    ("NUL in an id to read", lambda q: q.read_message("a\0")),
    ("NUL in an id to requeue", lambda q: q.requeue("a\0")),
    ("NUL in a kind to list", lambda q: q.dead_letters(kind="a\0")),
    ("a page before the first", lambda q: q.dead_letters(before=0)),
    ("a page beyond all", lambda q: q.dead_letters(before=2**63)),
    ("a state that is over", lambda q: q.messages(state="dead")),
    ("no state at all", lambda q: q.messages(state="asleep")),
    ("a negative timeout", lambda q: q.wait_for_wakeup(0, -0.1)),
    ("no number as timeout", lambda q: q.wait_for_wakeup(0, math.nan)),
    ("an endless timeout", lambda q: q.wait_for_wakeup(0, math.inf)),
    ("an absurd timeout", lambda q: q.wait_for_wakeup(0, 10**400)),
    ("an empty pool", lambda q: Queue(q.store, "")),
    ("NUL in a pool", lambda q: Queue(q.store, "a\0")),
    ("no attempts", lambda _: RetryPolicy(attempts=0)),
    ("no lease", lambda _: RetryPolicy(lease=timedelta(0))),
    ("a lease of centuries", lambda _: RetryPolicy(lease=timedelta(days=99_999))),
    ("a negative pause", lambda _: RetryPolicy(backoff=timedelta(seconds=-1))),
    ("a negative window", lambda _: RetryPolicy(remember=timedelta(seconds=-1))),
]


def test_a_wrong_type_is_reported_and_nothing_is_written(database: Database, queue: Queue) -> None:
    for what, call in WRONG_TYPES:
        with pytest.raises(WrongArgumentType) as refused:
            call(queue)
        assert isinstance(refused.value, TypeError), what
    assert {row[4] for row in rows(database)} <= {"k"}


def test_a_wrong_value_is_reported_and_nothing_is_written(database: Database, queue: Queue) -> None:
    for what, call in WRONG_VALUES:
        with pytest.raises(WrongArgument) as refused:
            call(queue)
        assert isinstance(refused.value, ValueError), what
        assert len(str(refused.value)) < 1_000, what
    assert rows(database) == []


def test_odd_names_are_names(store: Store) -> None:
    for name in ODD:
        queue = Queue(store, name)
        sent = queue.enqueue(
            name, message_id=name, key=f"key {name}", work_queue_id=name, target={name: name}, data={"\ud800": "\0"}
        )
        assert queue.enqueue_many([Draft(name, message_id=name, key=f"key {name}")])[0].seq == sent.seq
        reservation = taken(queue, kinds=[name], preferred_work_queue_ids=[name], allow_fallback_to_any_queue=False)
        assert (reservation.message_id, reservation.message.kind, reservation.message.pool) == (name, name, name)
        assert (reservation.message.target, reservation.message.data) == ({name: name}, {"\ud800": "\0"})
        assert queue.renew(name, reservation.token).accepted
        assert queue.release(name, reservation.token, name).accepted
        message = queue.read_message(name)
        assert message is not None
        assert message.release_reason == name
        assert queue.notify() == queue.read_wakeup_sequence() == queue.wait_for_wakeup(0, 5)
        assert [one.message_id for one in queue.messages(kind=name)] == [name]
        queue.close()
    assert len(messages_of(store).pools(store.run, 100)) == len(ODD)


def test_names_as_long_as_they_may_be_fit_into_every_index(store: Store) -> None:
    # Not one letter a thousand times: PostgreSQL would press that into a few bytes.
    long = ["".join(chr(0x4E00 + (n * 7919 + k * 104729) % 20000) for n in range(266)) for k in range(4)]
    queue = Queue(store, long[0], policy=RetryPolicy(attempts=1, remember=timedelta(0)))
    for _ in range(2):
        sent = queue.enqueue(long[1], message_id=long[2], key=long[3], work_queue_id=long[1])
        token = taken(queue, kinds=[long[1]], preferred_work_queue_ids=[long[1]]).token
        queue.release(sent.message_id, token, "x" * 10_000)
        assert queue.dead_letters(kind=long[1])
        assert queue.requeue(sent.message_id).accepted
        assert queue.notify()
        assert queue.ack(sent.message_id, taken(queue).token).accepted


def test_the_largest_payload_comes_back_as_it_was(queue: Queue) -> None:
    data = {"n": "x" * 999_980, "i": 2**70}
    sent = queue.enqueue("k", data={"n": data["n"]}, target={"i": 2**70, "f": 0.1, "deep": [[[[{}]]]], "none": None})
    assert queue.read_message(sent.message_id) == sent
    assert taken(queue).message.data == {"n": data["n"]}
    assert sent.target == {"i": 2**70, "f": 0.1, "deep": [[[[{}]]]], "none": None}


@pytest.mark.unmigrated
def test_a_database_without_the_tables_is_reported_how_to_get_them(database: Database) -> None:
    with opened(database) as store, pytest.raises(NotMigrated, match="wane migrate"):
        Queue(store, "pool")


@pytest.mark.unmigrated
def test_a_database_with_half_of_the_tables_is_too(database: Database) -> None:
    with opened(database) as store:
        first = pending_script(store)[0]
        assert len(migrations(store.kind)) > 1
        database.script(first.sql)
        with pytest.raises(NotMigrated, match="wane migrate"):
            Queue(store, "pool")
        store.migrate()
        assert Queue(store, "pool").reserve() is None


def test_a_read_only_store_reads_and_refuses_the_rest(database: Database, store: Store) -> None:
    writer = Queue(store, "pool", policy=RetryPolicy(attempts=1))
    sent = writer.enqueue("k")
    dead = writer.enqueue("dead")
    writer.release(dead.message_id, taken(writer, kinds=["dead"]).token, "no")
    with opened(database, read_only=True) as reading, closing(Queue(reading, "pool")) as queue:
        assert queue.messages() == [sent]
        assert queue.read_message(sent.message_id) == sent
        assert queue.read_dead_letter(dead.message_id) is not None
        assert len(queue.dead_letters()) == 1
        assert queue.next_due() is None
        assert queue.read_wakeup_sequence() == queue.wait_for_wakeup(0, 5) == 2
        for call in (
            lambda: queue.enqueue("k"),
            lambda: queue.enqueue_many([Draft("k")]),
            lambda: queue.reserve(),
            lambda: queue.ack(sent.message_id, "t"),
            lambda: queue.requeue(dead.message_id),
            lambda: queue.notify(),
        ):
            with pytest.raises(StoreError):
                call()
    assert writer.messages() == [sent]


def test_a_closed_store_raises_a_wane_error(database: Database, store: Store) -> None:
    with opened(database) as other:
        queue = Queue(other, "pool")
    for call in (
        lambda: queue.enqueue("k"),
        lambda: queue.enqueue_many([Draft("k")]),
        lambda: queue.reserve(),
        lambda: queue.messages(),
        lambda: queue.notify(),
        lambda: queue.expire_leases(),
    ):
        with pytest.raises(WaneError):
            call()
    queue.close()
    with pytest.raises(StoreError, match="closed"):
        queue.wait_for_wakeup(0, 0)


def test_a_connection_to_something_else_is_refused(database: Database, queue: Queue) -> None:
    for connection in (object(), "connection", 7):
        with pytest.raises(StoreError, match="cannot be used here"):
            queue.enqueue("k", connection=connection)
    assert rows(database) == []


def test_a_connection_to_another_file_is_refused(
    sqlite_database: SqliteDatabase, tmp_path: Any, postgres_database: PostgresDatabase
) -> None:
    other = SqliteDatabase(tmp_path / "other.db")
    with opened(sqlite_database) as store, closing(other):
        store.migrate()
        with pytest.raises(StoreError, match="the connection is not to"):
            Queue(store, "pool").enqueue("k", connection=other.connect())
        with pytest.raises(StoreError, match="cannot be used here"):
            Queue(store, "pool").enqueue("k", connection=postgres_database.connect())


def test_the_call_after_a_lost_connection_reconnects(postgres_database: PostgresDatabase) -> None:
    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool")
        sent = queue.enqueue("k")
        reservation = taken(queue)
        for call in (lambda: queue.renew(sent.message_id, reservation.token), lambda: queue.enqueue_many([Draft("k")])):
            store.run("SELECT 1", {})
            postgres_database.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'wane'"
                " AND datname = current_database()"
            )
            try:
                call()
            except Unreachable:
                call()  # The server's goodbye came while the call was on its way.
        assert queue.ack(sent.message_id, reservation.token).accepted
