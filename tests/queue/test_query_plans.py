"""No operation reads the backlog: each touches about as many rows as it was asked for, whatever waits, is done or
belongs to others.

On PostgreSQL the server's own counters say what was read, on SQLite the steps of its machine. The operations run as
they are, with plans that were made, and kept, while the tables were nearly empty: later they must be as good.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from queueing import Clock, message_table, opened
from servers import Database, PostgresDatabase
from wane._db.statement import Statement
from wane.queue import Draft, Queue, RetryPolicy
from wane.queue._dialects import messages_of

MANY = 50_000
FEW = 1_500
"""Rows that an operation may touch. A walk over one of the heaps in its way would touch 50,000."""
STEPS_PER_ROW = 60
NOW = "2026-03-01 12:00:00+00"

Operation = Callable[[Queue], object]


def _use(queue: Queue, how: Callable[[Queue, str, str], object]) -> object:
    reservation = queue.reserve(kinds=["a"])
    assert reservation is not None
    return how(queue, reservation.message_id, reservation.token)


def _bury(queue: Queue, how: Callable[[Queue, str], object]) -> object:
    queue.policy = RetryPolicy(attempts=1)
    reservation = queue.reserve(kinds=["a"])
    assert reservation is not None
    queue.release(reservation.message_id, reservation.token, "no")
    queue.policy = RetryPolicy()
    return how(queue, reservation.message_id)


OPERATIONS: dict[str, Operation] = {
    "enqueue": lambda q: q.enqueue("a"),
    "enqueue a known key": lambda q: q.enqueue("a", key="ready-77"),
    "enqueue a done key": lambda q: q.enqueue("a", key="done-77"),
    "enqueue many": lambda q: q.enqueue_many([Draft("a", key=f"ready-{n}") for n in range(5)] + [Draft("b")] * 5),
    "reserve": lambda q: q.reserve(),
    "reserve many": lambda q: q.reserve_many(10),
    "reserve a kind": lambda q: q.reserve(kinds=["a"]),
    "reserve a rare kind": lambda q: q.reserve(kinds=["rare"]),
    "reserve a kind that is not there": lambda q: q.reserve(kinds=["none"]),
    "reserve many of several kinds": lambda q: q.reserve_many(10, kinds=["a", "rare", "none", "crowd"]),
    "reserve from a queue": lambda q: q.reserve(
        preferred_work_queue_ids=["rare", "none"], allow_fallback_to_any_queue=False
    ),
    "reserve from a queue or any": lambda q: q.reserve_many(5, preferred_work_queue_ids=["none", "q1"]),
    "reserve a kind from a queue": lambda q: q.reserve(kinds=["a"], preferred_work_queue_ids=["q1"]),
    "ack": lambda q: _use(q, lambda q, name, token: q.ack(name, token)),
    "ack with a wrong token": lambda q: _use(q, lambda q, name, _: q.ack(name, "wrong")),
    "renew": lambda q: _use(q, lambda q, name, token: q.renew(name, token)),
    "release": lambda q: _use(q, lambda q, name, token: q.release(name, token, "no")),
    "expire": lambda q: q.expire_leases(10),
    "expire everywhere": lambda q: q.expire_leases(10, everywhere=True),
    "read": lambda q: q.read_message("ready-99"),
    "list": lambda q: q.messages(limit=10),
    "list a kind": lambda q: q.messages(kind="rare", state="ready", limit=10),
    "list what is reserved": lambda q: q.messages(state="reserved", limit=10),
    "list what is delayed": lambda q: q.messages(state="delayed", limit=10),
    "dead letters": lambda q: q.dead_letters(limit=10),
    "dead letters of a kind": lambda q: q.dead_letters(kind="rare", limit=10),
    "dead letters of a kind that is not there": lambda q: q.dead_letters(kind="none", limit=10),
    "all dead letters": lambda q: q.dead_letters(resolved=True, before=10**9, limit=10),
    "all dead letters of a kind": lambda q: q.dead_letters(kind="rare", resolved=True, limit=10),
    "requeue": lambda q: _bury(q, lambda q, name: q.requeue(name)),
    "resolve": lambda q: _bury(q, lambda q, name: q.resolve(name, by="anna")),
    "next due": lambda q: q.next_due(),
    "sequence": lambda q: q.read_wakeup_sequence(),
    "notify": lambda q: q.notify(),
    "wait": lambda q: q.wait_for_wakeup(0, 0),
    "pools": lambda q: messages_of(q.store).pools(q.store.run, 100),
    "depths": lambda q: messages_of(q.store).depths(q.store.run, q.pool, 50),
}

# kind, key, state, how many: in the pool itself; the same again, all ready, in a foreign pool.
HEAPS = [
    ("done", "done", MANY),
    ("crowd", "ready", MANY),
    ("a", "ready", 200),
    ("rare", "ready", 3),
    ("crowd", "reserved", 5_000),
    ("crowd", "overdue", 50),
    ("crowd", "delayed", 5_000),
    ("crowd", "resolved", 5_000),
    ("crowd", "dead", 5_000),
    ("rare", "dead", 3),
]


def fill(database: Database) -> None:
    table = message_table(database)
    if database.store == "postgres":
        # Not ALTER TABLE … DISABLE TRIGGER, which would make everybody plan anew.
        database.execute("SET session_replication_role = replica")
        numbers, names = "generate_series(1, {many}) AS n", "n::text"
    else:
        numbers = (
            "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {many}) SELECT n FROM s) AS n"
        )
        names = "CAST(n AS text)"
    soon, past = (
        ("'2026-03-01T12:00:29.000000Z'", "'2026-03-01T11:59:00.000000Z'")
        if database.store == "sqlite"
        else (f"timestamptz '{NOW}' + interval '29 s'", f"timestamptz '{NOW}' - interval '60 s'")
    )
    for pool, heaps in (("pool", HEAPS), ("other", [("a", "ready", MANY), ("a", "dead", 5_000)])):
        for kind, what, many in heaps:
            state = {"overdue": "reserved", "resolved": "dead"}.get(what, what)
            due = {"reserved": soon, "overdue": past, "delayed": soon}.get(what, "NULL")
            finished = past if state in ("done", "dead") else "NULL"
            name = f"'{what if kind != 'rare' else 'rare ' + what}-' || {names}"
            if kind == "a":
                name = f"'a {what} {pool}-' || {names}"
            queue = "'rare'" if kind == "rare" else "CASE WHEN n % 2 = 0 THEN 'q1' END"
            database.execute(
                f"INSERT INTO {table} (pool, message_id, idempotency_key, work_queue_id, kind, target, data, state,"
                " created_at, updated_at, due_at, token_hash, finished_at, reason, resolved_at, resolved_by)"
                f" SELECT '{pool}', {name}, {name}, {queue}, '{kind}', '{{}}', '{{}}', '{state}', {past}, {past}, {due},"
                f" {'NULL' if state != 'reserved' else repr('hash')}, {finished}, NULL,"
                f" {past if what == 'resolved' else 'NULL'}, NULL FROM {numbers.format(many=many)}"
            )
    if database.store == "postgres":
        database.execute("RESET session_replication_role")


def touched_on_postgres(database: Database, queue: Queue, operation: Operation) -> int:
    def flush() -> int:
        queue.store.run("SELECT pg_stat_force_next_flush()", {})
        queue.store.run("SELECT 1", {})
        [(rows,)] = database.query(
            "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) + (SELECT coalesce(sum(idx_tup_read), 0)"
            " FROM pg_stat_user_indexes WHERE schemaname = 'wane') FROM pg_stat_user_tables WHERE schemaname = 'wane'"
        )
        return int(rows)

    before = flush()
    operation(queue)
    return flush() - before


def touched_on_sqlite(queue: Queue, operation: Operation) -> int:
    connection: Any = queue.store._connection  # type: ignore[attr-defined]
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    connection.set_progress_handler(count, STEPS_PER_ROW)
    try:
        operation(queue)
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_trace_callback(None)
    for statement in statements:
        if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)", statement):
            for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}"):
                # What is made of a subquery, or of constants, may be walked; a table may only be searched by its index.
                assert not re.match(r"SCAN wane_message(?! USING .*INDEX)", detail), (statement, detail)
    return steps


PLANS = ["made when full", "kept from when it was empty", "kept from after a burst"]


def keep_plans(database: Database, queue: Queue) -> None:
    """Run every statement often enough that its plan is cached, with a row or two, as after a night."""
    for operation in OPERATIONS.values():
        queue.enqueue("a", key="only")
        operation(queue)
        database.execute(f"DELETE FROM {message_table(database)}")


@pytest.mark.parametrize("plans", PLANS)
@pytest.mark.sampled("sqlite-made", "postgres")
def test_no_operation_reads_the_backlog(database: Database, plans: str) -> None:
    clock = Clock()
    with opened(database) as store:
        store.migrate()
        queue = Queue(store, "pool", clock=clock, policy=RetryPolicy(attempts=5))
        if (
            plans != "made when full" and database.store == "postgres"
        ):  # SQLite plans when it prepares, and knows the table by then.
            for _ in range(9):
                for operation in OPERATIONS.values():
                    queue.enqueue("a")
                    operation(queue)
                    queue.reserve()
            database.execute(f"DELETE FROM {message_table(database)}")
            if (
                plans == "kept from after a burst"
            ):  # What the planner knows is from the burst, the sizes are from after it.
                database.execute(
                    f"INSERT INTO {message_table(database)} (pool, message_id, idempotency_key, kind, target, data, state,"
                    " created_at, updated_at, resolved_at) SELECT 'pool', n, n, 'burst ' || n, '{}', '{}', 'dead', now(), now(), now()"
                    " FROM generate_series(1, 5000) AS n"
                )
                database.execute("ANALYZE")
                database.execute(f"DELETE FROM {message_table(database)}")
                database.execute(f"VACUUM {message_table(database)}")
            else:
                database.execute(f"VACUUM ANALYZE {message_table(database)}")
            keep_plans(database, queue)
        fill(database)
        if plans == "made when full":
            database.execute("ANALYZE")
        too_many = {}
        for name, operation in OPERATIONS.items():

            def measure(operation: Operation = operation) -> int:
                if database.store == "sqlite":
                    return touched_on_sqlite(queue, operation)
                return touched_on_postgres(database, queue, operation)

            measured = measure()
            if measured >= FEW and database.store == "postgres":
                measured = measure()  # Other sessions report what they read late, at times in between.
            if measured >= FEW:
                too_many[name] = measured
            clock.advance(microseconds=1)
        queue.close()
        assert too_many == {}


SEARCHES: dict[str, tuple[str, Operation]] = {
    "any": ("message_ready", lambda q: q.reserve()),
    "of a kind": ("message_ready_kind", lambda q: q.reserve(kinds=["a"])),
    "of a queue": (
        "message_ready_queue",
        lambda q: q.reserve(preferred_work_queue_ids=["q1"], allow_fallback_to_any_queue=False),
    ),
    "of a kind and a queue": (
        "message_ready_queue_kind",
        lambda q: q.reserve(kinds=["a"], preferred_work_queue_ids=["q1"], allow_fallback_to_any_queue=False),
    ),
    "listed": ("message_ready_kind", lambda q: q.messages(state="ready", kind="a")),
    "dead": ("message_dead", lambda q: q.dead_letters(resolved=True)),
    "dead of a kind": ("message_dead_kind", lambda q: q.dead_letters(resolved=True, kind="a")),
    "open": ("message_open", lambda q: q.dead_letters()),
    "open of a kind": ("message_open_kind", lambda q: q.dead_letters(kind="a")),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_no_other_index_of_states_serves_a_search(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    """Whatever the planner knows, it cannot choose an index over rows that the search would have to step over."""
    index, operation = SEARCHES[search]
    ran: list[str] = []

    def scanned(connection: psycopg.Connection[Any]) -> set[str]:
        indexes: set[str] = set()
        for text in ran:
            plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {text}".encode()))
            indexes |= set(re.findall(r"(?:Scan Backward|Scan) (?:using|on) (message_(?:ready|dead|open)\w*)", plan))
        return indexes

    with opened(postgres_database) as store:
        store.migrate()
        queue = Queue(store, "pool", clock=Clock())
        run = store.run

        def record(text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
            ran.append(store.literal(Statement(text, parameters)))
            return run(text, parameters)

        monkeypatch.setattr(store, "run", record)
        operation(queue)
        with psycopg.connect(postgres_database.url, autocommit=True) as connection:
            connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
            assert scanned(connection) == {index}
            connection.execute(f"DROP INDEX wane.{index}".encode())
            assert scanned(connection) == set()
