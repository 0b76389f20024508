"""The cleanup delivery queue: leased messages with retries and dead letters, on SQLite and PostgreSQL."""

from __future__ import annotations

from wane.queue._asynchronous import AsyncQueue
from wane.queue._model import Answer, Answered, DeadLetter, Draft, Expired, Reservation, RetryPolicy
from wane.queue._queue import Queue
from wane.queue._sql import Message, MessageState

__all__ = [
    "Answer",
    "Answered",
    "AsyncQueue",
    "DeadLetter",
    "Draft",
    "Expired",
    "Message",
    "MessageState",
    "Queue",
    "Reservation",
    "RetryPolicy",
]
