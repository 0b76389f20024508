"""Ack, renew and release: what they answer for a message in every state, with every kind of token, from every pool.

The order of the checks is: exists, pool, reservation, token, expiry. What is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from queueing import STATES, Clock, make, rows, taken
from servers import Database
from wane._db import Store
from wane.events import Event, MessageDead
from wane.queue import Answer, Answered, MessageState, Queue, RetryPolicy

Operation = Callable[[Queue, str, str], Answered]

OPERATIONS: dict[str, Operation] = {
    "ack": lambda queue, name, token: queue.ack(name, token),
    "ack inside": lambda queue, name, token: queue.ack(name, token, connection=_connection(queue)),
    "renew": lambda queue, name, token: queue.renew(name, token),
    "release": lambda queue, name, token: queue.release(name, token, "why"),
    "release inside": lambda queue, name, token: queue.release(name, token, "why", connection=_connection(queue)),
}


def _connection(queue: Queue) -> object:
    return queue.store._connection  # type: ignore[attr-defined]


def expected(state: str, token: str) -> Answer:
    if state in ("absent", "done", "dead", "resolved"):
        return Answer.NOT_FOUND
    if state in ("ready", "delayed"):
        return Answer.NOT_CURRENT
    if token != "right":
        return Answer.INVALID_TOKEN
    return Answer.EXPIRED if state == "overdue" else Answer.ACCEPTED


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_state_and_every_token(
    database: Database, store: Store, queue: Queue, clock: Clock, operation: str
) -> None:
    call = OPERATIONS[operation]
    queue.policy = RetryPolicy(attempts=4)
    foreign = Queue(store, "foreign", clock=clock)
    for state in STATES:
        for token in ("wrong", "stale", "right"):
            made = make(queue, clock, state)
            clock.advance(seconds=30 if state == "overdue" else 1)
            used = {"right": made.token, "stale": made.stale, "wrong": "wrong"}[token]
            before = rows(database)
            assert call(foreign, made.message_id, used).answer is Answer.NOT_FOUND, (state, token)
            assert rows(database) == before, (state, token)
            answered = call(queue, made.message_id, used)
            assert answered.answer is expected(state, token), (state, token, answered)
            changed = rows(database) != before
            assert changed == (answered.answer in (Answer.ACCEPTED, Answer.EXPIRED)), (state, token)
            if answered.answer is Answer.EXPIRED:
                back = queue.read_message(made.message_id)
                assert back is not None
                assert (back.state, back.deliveries) == (MessageState.READY, 2)
            if state in ("reserved", "overdue"):
                clock.advance(seconds=31)
                queue.expire_leases(1000)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_overdue_reservation_that_was_the_last_one_is_dead_when_it_is_used(
    store: Store, clock: Clock, operation: str
) -> None:
    received: list[Event] = []
    queue = Queue(store, "pool", clock=clock, policy=RetryPolicy(attempts=2), listener=received.append)
    made = make(queue, clock, "reserved")
    clock.advance(seconds=30)
    answered = OPERATIONS[operation](queue, made.message_id, made.token)
    assert (answered.answer, answered.reason) == (Answer.DEAD_LETTERED, "max_delivery_attempts_reached")
    assert answered.dead_letter == queue.read_dead_letter(made.message_id)
    assert answered.dead_letter is not None
    # What the release of now said came too late; the last one that counted is kept, apart from the reason.
    assert answered.dead_letter.release_reason == "again"
    assert answered.dead_letter.moved_at == clock.now
    assert received == [MessageDead("pool", made.message_id, answered.dead_letter.message.kind, answered.reason or "")]


def test_a_lease_ends_at_its_time_and_not_before(queue: Queue, clock: Clock) -> None:
    for seconds, answer in ((29.999999, Answer.ACCEPTED), (30.0, Answer.EXPIRED)):
        made = make(queue, clock, "reserved")
        clock.advance(seconds=seconds)
        assert queue.expire_leases(100).count == (answer is Answer.EXPIRED)
        if answer is Answer.ACCEPTED:
            assert queue.ack(made.message_id, made.token).answer is answer
    made = make(queue, clock, "reserved")
    clock.advance(seconds=30)
    assert queue.ack(made.message_id, made.token).answer is Answer.EXPIRED


def test_renewing_moves_the_end_and_counts_no_delivery(queue: Queue, clock: Clock) -> None:
    made = make(queue, clock, "reserved")
    for _ in range(5):
        clock.advance(seconds=20)
        answered = queue.renew(made.message_id, made.token)
        assert (answered.answer, answered.lease_expires_at) == (Answer.ACCEPTED, clock.now + timedelta(seconds=30))
    message = queue.read_message(made.message_id)
    assert message is not None
    assert message.deliveries == 2
    assert queue.ack(made.message_id, made.token).accepted


def test_a_delivery_is_counted_when_it_is_reserved_and_never_else(queue: Queue, clock: Clock) -> None:
    name = queue.enqueue("k").message_id

    def deliveries() -> int:
        message = queue.read_message(name)
        assert message is not None
        return message.deliveries

    seen = [deliveries()]
    first = taken(queue)
    seen.append(deliveries())
    queue.renew(name, first.token)
    queue.ack(name, "wrong")
    queue.release(name, first.token, "no")
    seen.append(deliveries())
    taken(queue)
    clock.advance(seconds=30)
    queue.expire_leases()
    seen.append(deliveries())
    assert seen == [0, 1, 1, 2]


@pytest.mark.parametrize("end", ["release", "expiry", "reserve"])
def test_a_lowered_policy_makes_dead_letters_at_release_expiry_and_reserve(
    store: Store, queue: Queue, clock: Clock, end: str
) -> None:
    strict = Queue(store, "pool", clock=clock, policy=RetryPolicy(attempts=2))
    made = make(queue, clock, "reserved")
    fine = queue.enqueue("fine")
    if end == "release":
        answered = strict.release(made.message_id, made.token, "the last word")
        assert answered.answer is Answer.DEAD_LETTERED
    elif end == "expiry":
        clock.advance(seconds=30)
        assert [one.message.message_id for one in strict.expire_leases().dead_lettered] == [made.message_id]
    else:
        assert queue.release(made.message_id, made.token, "the last word").accepted
        reservation = strict.reserve()
        assert reservation is not None
        assert (
            reservation.message_id == fine.message_id
        )  # The older one is dead, and the next one is what was asked for.
    letter = queue.read_dead_letter(made.message_id)
    assert letter is not None
    assert (letter.reason, letter.final_delivery_count) == ("max_delivery_attempts_reached", 2)
    assert letter.release_reason == ("again" if end == "expiry" else "the last word")
    assert letter.message.token_hash is None
    assert letter.message.due_at is None
    assert queue.read_message(made.message_id) is None


def test_a_pause_doubles_up_to_the_longest_and_never_overflows(store: Store, clock: Clock) -> None:
    policy = RetryPolicy(attempts=50, backoff=timedelta(days=2), most_backoff=timedelta(days=9))
    queue = Queue(store, "pool", clock=clock, policy=policy)
    name = queue.enqueue("k").message_id
    pauses = []
    for _ in range(45):
        queue.release(name, taken(queue).token, "later")
        due = queue.next_due()
        assert due is not None
        pauses.append((due - clock.now).days)
        clock.now = due
    assert pauses == [2, 4, 8, *[9] * 42]


def test_expiry_of_all_pools_distinguishes_messages_of_the_same_id(store: Store, queue: Queue, clock: Clock) -> None:
    other = Queue(store, "other", clock=clock)
    queue.enqueue("k", message_id="m")
    taken(queue)
    other.enqueue("k", message_id="m", delay=timedelta(seconds=10))
    clock.advance(seconds=30)
    expired = queue.expire_leases(everywhere=True)
    assert [one.pool for one in expired.redelivered] == ["pool"]
    assert [one.pool for one in expired.ready] == ["other"]


def test_expiry_is_bounded_and_takes_the_longest_overdue_first(queue: Queue, clock: Clock) -> None:
    for _ in range(5):
        queue.enqueue("k")
    order = []
    for _ in range(5):
        order.append(taken(queue).message_id)
        clock.advance(seconds=1)
    clock.advance(seconds=60)
    assert [one.message_id for one in queue.expire_leases(2).redelivered] == order[:2]
    assert [one.message_id for one in queue.expire_leases(100).redelivered] == order[2:]
    assert queue.expire_leases(100).count == 0
