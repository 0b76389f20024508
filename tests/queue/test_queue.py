"""The cleanup queue, the same on every store: what each operation does, and answers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queueing import START, Clock
from wane._db import Store
from wane.errors import WrongArgument
from wane.queue import Answer, Draft, MessageState, Queue, RetryPolicy


def test_a_message_lives_from_enqueue_to_ack(queue: Queue, clock: Clock) -> None:
    sent = queue.enqueue("sweep", key="k", target={"table": "t"}, data={"n": 1, "astral": "🌒", "nul": "\0"})
    assert sent.state is MessageState.READY
    assert (sent.created_at, sent.deliveries) == (START, 0)
    taken = queue.reserve()
    assert taken is not None
    assert taken.message.deliveries == 1
    assert taken.message.data == {"n": 1, "astral": "🌒", "nul": "\0"}
    assert taken.lease_expires_at == START + timedelta(seconds=30)
    assert queue.reserve() is None
    assert queue.ack(taken.message_id, "wrong").answer is Answer.INVALID_TOKEN
    assert queue.ack(taken.message_id, taken.token).answer is Answer.ACCEPTED
    assert queue.ack(taken.message_id, taken.token).answer is Answer.NOT_FOUND
    assert queue.read_message(sent.message_id) is None
    assert queue.enqueue("sweep", key="k").message_id == sent.message_id
    assert queue.reserve() is None


def test_a_completed_key_is_forgotten_after_its_window(store: Store, clock: Clock) -> None:
    queue = Queue(store, "pool", clock=clock, policy=RetryPolicy(remember=timedelta(hours=1)))
    first = queue.enqueue("sweep", key="k")
    taken = queue.reserve()
    assert taken is not None
    queue.ack(taken.message_id, taken.token)
    clock.advance(minutes=59, seconds=59)
    assert queue.enqueue("sweep", key="k").message_id == first.message_id
    clock.advance(seconds=1)
    assert queue.enqueue("sweep", key="k").message_id != first.message_id


def test_release_and_expiry_end_in_the_dead_letters(queue: Queue, clock: Clock) -> None:
    sent = queue.enqueue("sweep")
    for _ in range(2):
        taken = queue.reserve()
        assert taken is not None
        assert queue.release(sent.message_id, taken.token, "no").answer is Answer.ACCEPTED
    taken = queue.reserve()
    assert taken is not None
    clock.advance(seconds=30)
    assert queue.renew(sent.message_id, taken.token).answer is Answer.DEAD_LETTERED
    letter = queue.read_dead_letter(sent.message_id)
    assert letter is not None
    assert (letter.reason, letter.release_reason, letter.final_delivery_count) == (
        "max_delivery_attempts_reached",
        "no",
        3,
    )
    assert [one.message.message_id for one in queue.dead_letters()] == [sent.message_id]
    assert queue.requeue(sent.message_id).accepted
    assert queue.requeue(sent.message_id).answer is Answer.NOT_FOUND
    repeated = queue.reserve()
    assert repeated is not None
    assert repeated.message.deliveries == 1


def test_backoff_delays_and_reserving_returns_what_is_due(store: Store, clock: Clock) -> None:
    queue = Queue(store, "pool", clock=clock, policy=RetryPolicy(backoff=timedelta(seconds=10)))
    sent = queue.enqueue("sweep", delay=timedelta(seconds=5))
    assert queue.reserve() is None
    clock.advance(seconds=5)
    taken = queue.reserve()
    assert taken is not None
    queue.release(sent.message_id, taken.token, "later")
    assert queue.reserve() is None
    assert queue.next_due() == clock.now + timedelta(seconds=10)
    clock.advance(seconds=10)
    taken = queue.reserve()
    assert taken is not None
    assert taken.message.deliveries == 2


def test_several_at_once_each_with_its_token(queue: Queue) -> None:
    sent = queue.enqueue_many([Draft("a", key=f"k{n}") for n in range(10)])
    assert len({one.message_id for one in sent}) == 10
    taken = queue.reserve_many(4)
    assert [one.message_id for one in taken] == [one.message_id for one in sent[:4]]
    assert len({one.token for one in taken}) == 4
    for one in taken:
        assert queue.ack(one.message_id, one.token).accepted


def test_kinds_and_preferred_queues(queue: Queue) -> None:
    one = queue.enqueue("a", work_queue_id="q1")
    two = queue.enqueue("b", work_queue_id="q2")
    three = queue.enqueue("a")
    assert queue.reserve(kinds=["c"]) is None
    assert queue.reserve(preferred_work_queue_ids=["q9"], allow_fallback_to_any_queue=False) is None
    found = queue.reserve(preferred_work_queue_ids=["q2", "q9"])
    assert found is not None
    assert found.message_id == two.message_id
    found = queue.reserve(kinds=["b", "a"], preferred_work_queue_ids=["q1"], allow_fallback_to_any_queue=False)
    assert found is not None
    assert found.message_id == one.message_id
    found = queue.reserve(kinds=["b", "a"])
    assert found is not None
    assert found.message_id == three.message_id


def test_a_foreign_pool_sees_nothing(queue: Queue, store: Store, clock: Clock) -> None:
    sent = queue.enqueue("a", message_id="m")
    other = Queue(store, "other", clock=clock)
    assert other.reserve() is None
    assert other.read_message("m") is None
    taken = queue.reserve()
    assert taken is not None
    assert other.ack("m", taken.token).answer is Answer.NOT_FOUND
    assert other.enqueue("b", message_id="m", key="another").kind == "b"
    assert queue.ack(sent.message_id, taken.token).accepted


def test_an_id_belongs_to_one_key(queue: Queue) -> None:
    queue.enqueue("a", message_id="m", key="k")
    with pytest.raises(WrongArgument, match="another key"):
        queue.enqueue("a", message_id="m", key="other")


def test_wakeups_count_every_change(queue: Queue) -> None:
    before = queue.read_wakeup_sequence()
    queue.enqueue("a", key="k")
    assert queue.read_wakeup_sequence() == before + 1
    assert queue.wait_for_wakeup(before, timeout=0) == before + 1
    assert queue.wait_for_wakeup(before + 1, timeout=0.02) is None
    assert queue.notify() == before + 2
    queue.enqueue("a", key="k")
    assert queue.read_wakeup_sequence() == before + 3


def test_expiring_everywhere_is_bounded(store: Store, queue: Queue, clock: Clock) -> None:
    for pool in ("a", "b", "c"):
        one = Queue(store, pool, clock=clock)
        for _ in range(3):
            one.enqueue("x")
        assert len(one.reserve_many(3)) == 3
    clock.advance(seconds=31)
    assert queue.expire_leases(2).count == 0
    assert queue.expire_leases(5, everywhere=True).count == 5
    assert queue.expire_leases(100, everywhere=True).count == 4
