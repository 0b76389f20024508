"""What a scrape reads of the database: the same on every store, and no more for a larger table."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from servers import Database
from wane._db import Store, open_store
from wane._db.statement import Statement
from wane._db.url import resolve_url
from wane.queue import MessageState, Queue, RetryPolicy
from wane.queue._dialects import messages_of

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    with open_store(resolve_url(database.url)) as opened:
        opened.migrate()
        yield opened


def read(store: Store, text: str, parameters: dict[str, object]) -> list[tuple[object, ...]]:
    return store.read(Statement(text, parameters), 5.0)


def test_every_state_of_a_pool_is_counted_up_to_a_limit(store: Store) -> None:
    now = START
    queue = Queue(store, "a", policy=RetryPolicy(attempts=1), clock=lambda: now)
    for number in range(6):
        now = START + timedelta(minutes=number)
        queue.enqueue("sweep", message_id=str(number))
    queue.enqueue("sweep", message_id="later", delay=timedelta(hours=1))
    for number in range(3):
        reserved = queue.reserve()
        assert reserved is not None
        if number < 2:
            queue.release(reserved.message_id, reserved.token, "no")
    queue.resolve("0", by="me")
    other = Queue(store, "b", clock=lambda: now)
    other.enqueue("sweep", delay=timedelta(hours=1))

    def run(text: str, parameters: dict[str, object]) -> list[tuple[object, ...]]:
        return read(store, text, parameters)

    minute = timedelta(minutes=1)
    assert messages_of(store).pools(run, 10) == ["a", "b"]
    assert messages_of(store).pools(run, 1) == ["a"]
    assert messages_of(store).depths(run, "a", 100) == {
        MessageState.READY: (3, START + 3 * minute),
        MessageState.DELAYED: (1, START + 5 * minute),
        MessageState.RESERVED: (1, START + 2 * minute),
        MessageState.DEAD: (1, START + minute),
    }
    assert messages_of(store).depths(run, "a", 2)[MessageState.READY] == (2, START + 3 * minute)
    assert set(messages_of(store).depths(run, "nobody", 2).values()) == {(0, None)}
    queue.close()
    other.close()


def test_counting_messages_walks_the_index_of_each_state(store: Store) -> None:
    statements: list[Statement] = []

    def note(text: str, parameters: dict[str, object]) -> list[tuple[object, ...]]:
        statements.append(Statement(text, parameters))
        return []

    messages_of(store).depths(note, "a", 100)
    if store.kind == "postgres":
        store.run("SET enable_seqscan = off", {})  # An empty table is not worth an index.
    plan = store.planner.explain(statements[0])
    prefix = "wane_" if store.kind == "sqlite" else ""
    assert plan.count(f"{prefix}message_delayed") == plan.count(f"{prefix}message_reserved") == 1
    assert f"{prefix}message_ready" in plan
    assert f"{prefix}message_open" in plan or f"{prefix}message_dead" in plan
    assert "SCAN wane_message" not in plan.replace("SCAN wane_message USING INDEX", "")
    assert "Seq Scan" not in plan
