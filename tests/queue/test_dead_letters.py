"""Dead letters are listed, read, resolved and requeued; nothing forgets one that nobody has dealt with."""

from __future__ import annotations

import pytest

from queueing import STATES, Clock, make, message_table, rows, taken
from servers import Database
from wane._db import Store
from wane.queue import Answer, MessageState, Queue, RetryPolicy
from wane.queue._dialects import messages_of


def test_only_dead_letters_can_be_resolved_or_requeued_and_each_once(
    database: Database, queue: Queue, clock: Clock
) -> None:
    for state in STATES:
        made = make(queue, clock, state)
        if state == "dead":
            continue
        before = rows(database)
        answer = Answer.NOT_CURRENT if state == "resolved" else Answer.NOT_FOUND
        assert queue.resolve(made.message_id, by="anna").answer is answer, state
        assert queue.requeue(made.message_id).answer is answer, state
        assert rows(database) == before


def test_resolving_states_who_and_when_and_hides_it_from_the_list(queue: Queue, clock: Clock) -> None:
    letters = [make(queue, clock, "dead").message_id for _ in range(3)]
    clock.advance(hours=1)
    assert queue.resolve(letters[1], by="Ännchen 🌒").accepted
    assert [one.message.message_id for one in queue.dead_letters()] == [letters[2], letters[0]]
    everything = queue.dead_letters(resolved=True)
    assert [one.message.message_id for one in everything] == letters[::-1]
    assert (everything[1].resolved_by, everything[1].resolved_at) == ("Ännchen 🌒", clock.now)
    assert [one.message.message_id for one in queue.dead_letters(limit=1)] == letters[2:]
    assert [one.message.message_id for one in queue.dead_letters(before=everything[0].message.seq)] == letters[:1]
    assert [one.message.message_id for one in queue.dead_letters(kind=everything[2].message.kind)] == letters[:1]
    assert queue.dead_letters(kind=everything[1].message.kind) == []
    assert len(queue.dead_letters(kind=everything[1].message.kind, resolved=True)) == 1


def test_a_requeued_letter_is_delivered_as_if_it_were_new_and_wakes(queue: Queue, clock: Clock) -> None:
    made = make(queue, clock, "dead")
    younger = queue.enqueue("younger")
    sequence = queue.read_wakeup_sequence()
    assert queue.requeue(made.message_id).accepted
    assert queue.read_wakeup_sequence() == sequence + 1
    assert queue.read_dead_letter(made.message_id) is None
    repeated = taken(queue)
    assert (repeated.message_id, repeated.message.deliveries) == (made.message_id, 1)
    assert (repeated.message.reason, repeated.message.release_reason, repeated.message.finished_at) == (
        None,
        None,
        None,
    )
    assert taken(queue).message_id == younger.message_id


def test_nothing_but_a_done_message_is_ever_deleted_by_the_queue(
    database: Database, store: Store, queue: Queue, clock: Clock
) -> None:
    made = {state: make(queue, clock, state).message_id for state in STATES[1:]}
    clock.advance(days=3000)
    with store.transaction() as transaction:
        for name in made.values():
            messages_of(store).forget(transaction.execute, "pool", name, clock.now)
            messages_of(store).forget(transaction.execute, "foreign", name, clock.now)
    left = {name for (name,) in database.query(f"SELECT message_id FROM {message_table(database)}")}
    assert set(made.values()) - left == {made["done"]}


def test_operations_on_a_dead_letter_do_not_revive_it(database: Database, store: Store, clock: Clock) -> None:
    queue = Queue(store, "pool", clock=clock, policy=RetryPolicy(attempts=2))
    made = make(queue, clock, "dead")
    before = rows(database)
    clock.advance(days=30)
    assert queue.reserve() is None
    assert queue.expire_leases(1000, everywhere=True).count == 0
    assert queue.ack(made.message_id, made.token).answer is Answer.NOT_FOUND
    assert queue.enqueue("k", key=made.message_id).state is MessageState.DEAD
    assert rows(database) == before


@pytest.mark.parametrize("state", ["ready", "delayed", "reserved", "dead"])
def test_depths_and_counts_report_how_many_and_since_when(store: Store, queue: Queue, clock: Clock, state: str) -> None:
    since = clock.now
    for _ in range(3):
        make(queue, clock, state)
        clock.advance(seconds=1)
    counted = {(pool, name): (many, oldest) for pool, name, many, oldest in messages_of(store).counts(store.run)}
    assert counted["pool", state] == (3, since)
    assert messages_of(store).depths(store.run, "pool", 2)[MessageState(state)] == (2, since)
