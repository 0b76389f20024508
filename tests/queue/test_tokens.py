"""Tokens: nobody can guess one, and nobody who reads the table, a log or an event can use one."""

from __future__ import annotations

import base64
import logging
import pickle

import pytest

from queueing import rows
from servers import Database
from wane._db import Store
from wane.errors import WaneError
from wane.events import Event
from wane.queue import Answer, Draft, Queue, RetryPolicy


def test_a_token_has_256_bits_and_no_two_are_alike(queue: Queue) -> None:
    queue.enqueue_many([Draft("k") for _ in range(200)])
    tokens = [one.token for one in [*queue.reserve_many(100), *(queue.reserve_many(1)[0] for _ in range(100))]]
    assert len(set(tokens)) == 200
    assert {len(base64.urlsafe_b64decode(token + "=")) for token in tokens} == {32}


def test_a_token_is_nowhere_but_in_its_reservation(
    database: Database, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    received: list[Event] = []
    queue = Queue(store, "pool", policy=RetryPolicy(attempts=1), listener=received.append)
    sent = queue.enqueue("k")
    with caplog.at_level(logging.DEBUG):
        reservation = queue.reserve()
        assert reservation is not None
        reported = [repr(reservation), str(reservation), repr(reservation.message), repr(rows(database))]
        reported += [repr(queue.messages()), repr(queue.read_message(sent.message_id))]
        with pytest.raises(WaneError) as refused:
            queue.ack(sent.message_id, reservation.token.encode())  # type: ignore[arg-type]
        reported.append(repr(refused.value))
        for broken in (reservation.token + "\0", reservation.token * 100):
            with pytest.raises(WaneError) as refused:
                queue.ack(sent.message_id, broken)
            reported.append(f"{refused.value!r} {refused.value}")
        answered = queue.release(sent.message_id, reservation.token, "no")
        reported += [repr(answered), repr(queue.dead_letters()), repr(received), caplog.text]
    assert answered.answer is Answer.DEAD_LETTERED
    assert all(reservation.token not in text for text in reported)
    assert reservation.token.encode() not in pickle.dumps(rows(database))


def test_what_the_table_states_of_a_token_is_not_a_token(database: Database, queue: Queue) -> None:
    sent = queue.enqueue("k")
    reservation = queue.reserve()
    assert reservation is not None
    [stored] = [row[11] for row in rows(database)]
    assert reservation.message.token_hash == stored
    assert queue.ack(sent.message_id, stored).answer is Answer.INVALID_TOKEN
    assert queue.ack(sent.message_id, reservation.token).accepted
    assert [row[11] for row in rows(database)] == [None]
