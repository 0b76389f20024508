"""Enqueue stores a message once: a known id or key gives back the message that has it, whatever became of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest

from queueing import STATES, Clock, make, rows, taken
from servers import Database
from wane._db import Store
from wane.errors import WrongArgument
from wane.queue import Answer, Draft, Message, MessageState, Queue, RetryPolicy


def test_a_repeat_gives_back_the_message_in_every_state_and_wakes_only_for_a_ready_one(
    database: Database, queue: Queue, clock: Clock
) -> None:
    for state in STATES[1:]:
        made = make(queue, clock, state)
        before, sequence = rows(database), queue.read_wakeup_sequence()
        repeats: tuple[Callable[[str], Message], ...] = (
            lambda name: queue.enqueue("other", message_id=name, key=name, data={"n": 2}),
            lambda name: queue.enqueue("other", key=name),
            lambda name: queue.enqueue("other", message_id=f"new {name}", key=name),
            lambda name: queue.enqueue_many([Draft("other", key=name)])[0],
        )
        for repeated in repeats:
            found = repeated(made.message_id)
            assert found.message_id == made.message_id
            assert found.state.value == {"overdue": "reserved", "resolved": "dead"}.get(state, state)
            assert found.data == ({} if state == "delayed" else {"n": 1})
        assert rows(database) == before, state
        assert queue.read_wakeup_sequence() == sequence + (4 if state == "ready" else 0), state


def test_an_id_with_another_key_is_an_error_and_changes_nothing(
    database: Database, store: Store, queue: Queue, clock: Clock
) -> None:
    for state in STATES[1:]:
        made = make(queue, clock, state)
        before, sequence = rows(database), queue.read_wakeup_sequence()
        with pytest.raises(WrongArgument, match="exists with another key"):
            queue.enqueue("k", message_id=made.message_id, key="another")
        with pytest.raises(WrongArgument, match="exists with another key"):
            queue.enqueue_many([Draft("k", key="first"), Draft("k", message_id=made.message_id, key="another")])
        with pytest.raises(WrongArgument, match="exists with another key"):
            queue.enqueue_many([Draft("k", message_id="twice", key="a"), Draft("k", message_id="twice", key="b")])
        assert rows(database) == before
        assert queue.read_wakeup_sequence() == sequence
        assert Queue(store, "foreign", clock=clock).enqueue("k", message_id=made.message_id, key=state).deliveries == 0


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
def test_a_key_and_an_id_of_the_same_text_are_one_key_where_the_id_is_a_key(
    database: Database, queue: Queue, together: bool
) -> None:
    def enqueued(*drafts: Draft) -> list[Message]:
        if together:
            return queue.enqueue_many(drafts)
        return [queue.enqueue(one.kind, message_id=one.message_id, key=one.key) for one in drafts]

    own, other = enqueued(Draft("a", message_id="1"), Draft("b", message_id="2", key="1"))
    assert (own.kind, other.seq) == ("a", own.seq)
    keyed, named = enqueued(Draft("c", message_id="3", key="4"), Draft("d", message_id="4"))
    assert (keyed.kind, named.seq) == ("c", keyed.seq)
    # An id that has another key is no key.
    [free] = enqueued(Draft("e", message_id="5", key="3"))
    assert free.kind == "e"
    assert len(rows(database)) == 3


def test_many_are_answered_in_their_order_with_repeats_among_them(queue: Queue) -> None:
    known = queue.enqueue("old", key="known")
    sent = queue.enqueue_many(
        [
            Draft("a", message_id="1", key="x"),
            Draft("b", key="known"),
            Draft("c", message_id="2", key="x"),
            Draft("d"),
            Draft("e", message_id="1", key="x"),
        ]
    )
    assert [one.kind for one in sent] == ["a", "old", "a", "d", "a"]
    assert sent[1].message_id == known.message_id
    assert [one.message.kind for one in queue.reserve_many(10)] == ["old", "a", "d"]


def test_messages_are_delivered_in_the_order_in_which_they_were_drafted(queue: Queue) -> None:
    sent = queue.enqueue_many([Draft("k", data={"n": n}) for n in range(300)])
    assert [one.data["n"] for one in sent] == list(range(300))
    assert [one.message.data["n"] for one in queue.reserve_many(300)] == list(range(300))


@pytest.mark.parametrize(
    "remember", [timedelta(0), timedelta(hours=1), None], ids=["not at all", "an hour", "for ever"]
)
def test_a_done_message_is_remembered_by_its_key_and_its_id(
    store: Store, clock: Clock, remember: timedelta | None
) -> None:
    queue = Queue(store, "pool", clock=clock, policy=RetryPolicy(remember=remember))
    for repeated in ({"key": "k"}, {"message_id": "m", "key": "k"}, {"message_id": "m", "key": "other"}):
        first = queue.enqueue("sweep", message_id="m", key="k")
        token = taken(queue).token
        if remember != timedelta(0):
            clock.advance(seconds=5)
        queue.ack("m", token)
        if remember is None:
            clock.advance(days=3000)
            assert queue.enqueue("sweep", key="k").seq == first.seq
            return
        if remember:
            clock.advance(minutes=59, seconds=59)
            assert queue.enqueue("sweep", key="k").seq == first.seq
            clock.advance(seconds=1)
        second = queue.enqueue("sweep", **repeated)  # type: ignore[arg-type]
        assert (second.state, second.deliveries) == (MessageState.READY, 0)
        assert second.created_at == clock.now
        queue.ack(second.message_id, taken(queue).token)
        clock.advance(days=1)


def test_a_dead_letter_is_never_forgotten_by_its_key(store: Store, clock: Clock) -> None:
    queue = Queue(store, "pool", clock=clock, policy=RetryPolicy(attempts=1, remember=timedelta(0)))
    sent = queue.enqueue("k", key="key")
    assert queue.release(sent.message_id, taken(queue).token, "no").answer is Answer.DEAD_LETTERED
    for _ in range(2):
        clock.advance(days=3000)
        found = queue.enqueue("k", key="key")
        assert (found.message_id, found.state) == (sent.message_id, MessageState.DEAD)
        queue.resolve(sent.message_id, by="anna")


def test_a_delayed_message_is_ready_at_its_time(queue: Queue, clock: Clock) -> None:
    sent = queue.enqueue("k", delay=timedelta(seconds=10))
    assert (sent.state, sent.due_at) == (MessageState.DELAYED, clock.now + timedelta(seconds=10))
    sequence = queue.read_wakeup_sequence()
    clock.advance(seconds=9.999999)
    assert queue.expire_leases().count == 0
    clock.advance(seconds=0.000001)
    assert [one.message_id for one in queue.expire_leases().ready] == [sent.message_id]
    assert queue.read_wakeup_sequence() == sequence + 1
    assert taken(queue).message.deliveries == 1


def test_the_oldest_of_several_kinds_and_queues_come_first(queue: Queue) -> None:
    kinds = "abacabcbca"
    for number, kind in enumerate(kinds):
        queue.enqueue(kind, data={"n": number}, work_queue_id=f"q{number % 3}")

    def numbers(limit: int, **options: object) -> list[int]:
        found = queue.reserve_many(limit, **options)  # type: ignore[arg-type]
        for one in found:
            queue.release(one.message_id, one.token, "back")
        return [one.message.data["n"] for one in found]

    queue.policy = RetryPolicy(attempts=1000)
    assert numbers(4, kinds=["c", "a"]) == [0, 2, 3, 4]
    assert numbers(3, kinds=["b", "c", "a", "x"]) == [0, 1, 2]
    assert numbers(4, preferred_work_queue_ids=["q2", "q1"], allow_fallback_to_any_queue=False) == [1, 2, 4, 5]
    # First all of the preferred ones, then the others, each from the oldest.
    assert numbers(5, preferred_work_queue_ids=["q2"]) == [2, 5, 8, 0, 1]
    assert numbers(9, kinds=["a", "b"], preferred_work_queue_ids=["q1"]) == [1, 4, 7, 0, 2, 5, 9]
    assert numbers(9, kinds=[], preferred_work_queue_ids=["q1"]) == []
    assert numbers(9, preferred_work_queue_ids=[], allow_fallback_to_any_queue=False) == []
    assert numbers(2, preferred_work_queue_ids=[]) == [0, 1]
    assert numbers(2, allow_fallback_to_any_queue=False) == [0, 1]


def test_a_foreign_pool_is_never_read_or_changed(database: Database, store: Store, queue: Queue, clock: Clock) -> None:
    for state in STATES[1:]:
        make(queue, clock, state)
    before, sequence = rows(database), queue.read_wakeup_sequence()
    clock.advance(days=1)
    foreign = Queue(store, "foreign", clock=clock)
    assert foreign.reserve_many(100) == []
    assert foreign.expire_leases(100).count == 0
    assert (foreign.messages(), foreign.dead_letters(resolved=True), foreign.next_due()) == ([], [], None)
    for _, name, *_ in before:
        assert foreign.read_message(name) is None
        assert foreign.read_dead_letter(name) is None
        assert foreign.resolve(name, by="anna").answer is Answer.NOT_FOUND
        assert foreign.requeue(name).answer is Answer.NOT_FOUND
    assert foreign.notify() == 1
    assert rows(database) == before
    assert queue.read_wakeup_sequence() == sequence


def test_lists_show_ready_ones_by_age_then_those_that_wait_by_their_due_time(queue: Queue, clock: Clock) -> None:
    late = queue.enqueue("a", delay=timedelta(hours=2))
    soon = queue.enqueue("b", delay=timedelta(hours=1))
    held = queue.enqueue("a")
    taken(queue)
    first, second = queue.enqueue("a"), queue.enqueue("b")

    def names(**options: object) -> list[str]:
        return [one.message_id for one in queue.messages(**options)]  # type: ignore[arg-type]

    everything = [first, second, held, soon, late]
    assert names() == [one.message_id for one in everything]
    assert names(limit=3) == [one.message_id for one in everything[:3]]
    assert names(kind="a") == [first.message_id, held.message_id, late.message_id]
    assert names(state="delayed") == [soon.message_id, late.message_id]
    assert names(state=MessageState.RESERVED, kind="a") == [held.message_id]
    assert names(state="ready", limit=1) == [first.message_id]


def test_generated_ids_are_different_and_in_the_order_of_time(queue: Queue) -> None:
    ids = [UUID(queue.enqueue("sweep").message_id) for _ in range(20)]
    milliseconds = [one.int >> 80 for one in ids]
    assert {(one.version, one.variant) for one in ids} == {(7, "specified in RFC 4122")}
    assert len(set(ids)) == 20
    assert milliseconds == sorted(milliseconds)
