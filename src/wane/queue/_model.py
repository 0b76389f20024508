"""The model of the cleanup queue: drafts, reservations, answers, dead letters, and the retry policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from wane._arguments import require_count, require_duration
from wane._frozen import frozen
from wane.queue._sql import EXHAUSTED, Message, MessageState


class Answer(StrEnum):
    """The result of an operation on a reservation.

    A message of another pool is `not_found`, so Wane itself never answers `unauthorized`; that value is for
    applications that put a check of their own in front of a queue.
    """

    ACCEPTED = "accepted"
    NOT_FOUND = "not_found"
    UNAUTHORIZED = "unauthorized"
    NOT_CURRENT = "not_current"
    INVALID_TOKEN = "invalid_token"
    EXPIRED = "expired"
    DEAD_LETTERED = "dead_lettered"


@frozen
class RetryPolicy:
    """How often and how long a message is tried, and how long a finished one is remembered."""

    attempts: int = 3
    """The maximum number of deliveries; then the message is a dead letter."""
    lease: timedelta = timedelta(seconds=30)
    """How long a reservation lasts without being renewed."""
    backoff: timedelta = timedelta(0)
    """The pause before the second delivery; it doubles with each one after."""
    most_backoff: timedelta = timedelta(hours=1)
    pause_after_expiry: bool = True
    """Whether the pause also follows a lease that ended, which has already delayed the message."""
    remember: timedelta | None = timedelta(days=7)
    """How long the id and the key of a completed message stay taken; None: for ever."""

    def __post_init__(self) -> None:
        require_count("attempts", self.attempts, 1_000_000)
        require_duration("lease", self.lease, least=timedelta(milliseconds=1))
        require_duration("backoff", self.backoff)
        require_duration("most_backoff", self.most_backoff)
        if self.remember is not None:
            require_duration("remember", self.remember)

    def done(self, message: Message, now: datetime) -> Message:
        """Return a reserved message as it is when its work is done."""
        return replace(
            message,
            state=MessageState.DONE,
            finished_at=now,
            forget_at=None if self.remember is None else now + self.remember,
            updated_at=now,
            due_at=None,
            token_hash=None,
        )

    def given_back(self, message: Message, now: datetime, release_reason: str | None = None) -> Message:
        """Return a reserved message as it is when its reservation ended without its work done."""
        released = replace(
            message,
            token_hash=None,
            due_at=None,
            updated_at=now,
            release_reason=release_reason if release_reason is not None else message.release_reason,
        )
        if message.deliveries >= self.attempts:
            return replace(released, state=MessageState.DEAD, finished_at=now, reason=EXHAUSTED)
        expired = release_reason is None
        pause = timedelta(0) if expired and not self.pause_after_expiry else self._pause(message.deliveries)
        if pause:
            return replace(released, state=MessageState.DELAYED, due_at=now + pause)
        return replace(released, state=MessageState.READY)

    def _pause(self, deliveries: int) -> timedelta:
        pause = min(self.backoff, self.most_backoff)
        for _ in range(1, deliveries):
            if not pause or pause >= self.most_backoff:
                break
            pause = min(pause * 2, self.most_backoff)
        return pause


@frozen
class Draft:
    """A message to be enqueued. Without an id it gets a random one; without a key the id is its key."""

    kind: str
    message_id: str | None = None
    key: str | None = None
    target: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    work_queue_id: str | None = None
    delay: timedelta = timedelta(0)


@frozen
class Reservation:
    """The right to work on a message, until its lease ends."""

    message: Message
    token: str = field(repr=False)
    lease_expires_at: datetime

    @property
    def message_id(self) -> str:
        return self.message.message_id


@frozen
class DeadLetter:
    """A message that was delivered as often as it may be."""

    message: Message
    reason: str
    moved_at: datetime
    release_reason: str | None = None
    """The reason given with the last release."""
    resolved_at: datetime | None = None
    resolved_by: str | None = None

    @classmethod
    def of(cls, message: Message) -> DeadLetter:
        assert message.finished_at is not None
        return cls(
            message,
            message.reason or "",
            message.finished_at,
            message.release_reason,
            message.resolved_at,
            message.resolved_by,
        )

    @property
    def final_delivery_count(self) -> int:
        return self.message.deliveries


@frozen
class Answered:
    """The answer to an operation, and, if it was refused, the reason."""

    answer: Answer
    reason: str | None = None
    lease_expires_at: datetime | None = None
    dead_letter: DeadLetter | None = None

    @property
    def accepted(self) -> bool:
        return self.answer is Answer.ACCEPTED


@frozen
class Expired:
    """What expiring overdue messages changed."""

    redelivered: tuple[Message, ...] = ()
    """Their lease ended; they are ready again, or will be after a pause."""
    dead_lettered: tuple[DeadLetter, ...] = ()
    ready: tuple[Message, ...] = ()
    """They were delayed, and are due now."""

    @property
    def count(self) -> int:
        return len(self.redelivered) + len(self.dead_lettered) + len(self.ready)
