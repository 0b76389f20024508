"""A queue that was filled before a migration is the same queue after it."""

from __future__ import annotations

import pytest

import wane._db.migrations
from queueing import STATES, Clock, make, message_table, opened, rows
from servers import Database
from wane._db.migrations import migrations
from wane.queue import Queue


@pytest.mark.unmigrated
def test_messages_of_every_state_are_known_by_id_and_key_after_their_indexes_were_built_anew(
    database: Database, clock: Clock
) -> None:
    shipped = migrations(database.store)
    before = tuple(one for one in shipped if one.name < "0025_queue_keys")
    with pytest.MonkeyPatch.context() as patch, opened(database) as store:
        patch.setattr(wane._db.migrations, "migrations", lambda _: before)
        store.migrate()
        queue = Queue(store, "pool", clock=clock)
        made = {state: make(queue, clock, state) for state in STATES[1:]}
        keyed = {state: make(queue, clock, state) for state in STATES[1:]}
    table = message_table(database)
    for state, one in keyed.items():
        database.execute(f"UPDATE {table} SET idempotency_key = 'key {state}' WHERE message_id = '{one.message_id}'")
    stored = rows(database)
    with opened(database) as store:
        assert store.migrate() == [one.name for one in shipped[len(before) :]]
        assert rows(database) == stored
        queue = Queue(store, "pool", clock=clock)
        for state, one in made.items():
            assert queue.enqueue("new", key=one.message_id).message_id == one.message_id
            assert queue.enqueue("new", message_id=f"other {state}", key=one.message_id).message_id == one.message_id
        for state, one in keyed.items():
            assert queue.enqueue("new", key=f"key {state}").message_id == one.message_id
            assert queue.enqueue("new", message_id=f"key {state}").message_id == one.message_id
        assert rows(database) == stored
        for one in (made["reserved"], keyed["reserved"]):
            assert queue.ack(one.message_id, one.token).accepted
        ready = {made["ready"].message_id, keyed["ready"].message_id}
        assert ready <= {one.message_id for one in queue.reserve_many(100)}
