"""The model of the cleanup queue: drafts, reservations, answers, dead letters, and the retry policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from wane.errors import WrongArgument, WrongArgumentType
from wane.queue.sql import EXHAUSTED, Message, MessageState

_LONGEST = timedelta(days=3650)
_MOST_BYTES = 800
"""The limit for a name. PostgreSQL indexes three of them in one entry, which holds at most 2,700 bytes."""


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


@dataclass(frozen=True, slots=True)
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
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int):
            raise WrongArgumentType(f"attempts must be a whole number, not {self.attempts!r}")
        if not 1 <= self.attempts <= 1_000_000:
            raise WrongArgument(f"attempts must be from 1 to 1,000,000, not {self.attempts}")
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


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to be enqueued. Without an id it gets a random one; without a key the id is its key."""

    kind: str
    message_id: str | None = None
    key: str | None = None
    target: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    work_queue_id: str | None = None
    delay: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Reservation:
    """The right to work on a message, until its lease ends."""

    message: Message
    token: str = field(repr=False)
    lease_expires_at: datetime

    @property
    def message_id(self) -> str:
        return self.message.message_id


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to an operation, and, if it was refused, the reason."""

    answer: Answer
    reason: str | None = None
    lease_expires_at: datetime | None = None
    dead_letter: DeadLetter | None = None

    @property
    def accepted(self) -> bool:
        return self.answer is Answer.ACCEPTED


@dataclass(frozen=True, slots=True)
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


def require_duration(name: str, value: object, *, least: timedelta = timedelta(0)) -> timedelta:
    if not isinstance(value, timedelta):
        raise WrongArgumentType(f"{name} must be a timedelta, not {value!r}")
    if not least <= value <= _LONGEST:
        raise WrongArgument(f"{name} must be from {least} to {_LONGEST.days} days, not {value}")
    return value


def require_text(name: str, value: object, *, most: int = 1_000) -> str:
    """Return a text that every store can hold; raise otherwise. What is refused is not shown: it may be a token."""
    if not isinstance(value, str):
        raise WrongArgumentType(f"{name} must be a text, not {type(value).__name__}")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise WrongArgument(f"{name} has a character that no database keeps: NUL, or half of a surrogate pair")
    if not 1 <= len(value) <= most:
        raise WrongArgument(f"{name} must have 1 to {most:,} characters, not {len(value):,}")
    return value


def require_name(name: str, value: object) -> str:
    """Return a text that every store can index; raise otherwise."""
    text = require_text(name, value)
    if (size := len(text.encode())) > _MOST_BYTES:
        raise WrongArgument(f"{name} must have at most {_MOST_BYTES:,} bytes of UTF-8, not {size:,}")
    return text


def require_count(name: str, value: object, most: int = 1_000) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise WrongArgumentType(f"{name} must be a whole number, not {value!r}")
    if not 1 <= value <= most:
        raise WrongArgument(f"{name} must be from 1 to {most:,}, not {value:,}")
    return value


def require_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongArgumentType(f"{name} must be True or False, not {value!r}")
    return value


def require_seconds(name: str, value: object) -> float | None:
    """Return a number of seconds, or None for no end; raise for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongArgumentType(f"{name} must be a number of seconds, not {value!r}")
    if not 0 <= value <= _LONGEST.total_seconds():  # Written so that NaN is refused too.
        raise WrongArgument(f"{name} must be from 0 seconds to {_LONGEST.days} days, not {value} seconds")
    return float(value)
